"""Who says what in a job's output, and which of it is the cause of a failure.

Seen with mpirun of Open MPI 4.1 and 5.0, MPICH's hydra 5.0, Cray MPICH, Intel MPI, srun of Slurm 22.05, and in public
reports. Each line gets its speaker first: what begins as no other speaker's is the tool's. The cause is then chosen by what
its speaker means, never by the order of lines.
"""

import errno
import itertools
import os
import re
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

from iogauge.tools.mpi import is_binding


class Meaning(IntEnum):
    """What a line says of a failure, the strongest explanation first."""

    #: MPI found no process manager that it understands: each task runs alone, and disturbs the others.
    NO_PROCESS_MANAGER = 1
    #: The tool names its own error.
    TOOL_FAILED = 2
    #: ssh did not reach a node, or Slurm ended the tasks at a limit: more than the launcher and MPI know.
    FROM_OUTSIDE = 3
    #: The launcher says why it did not start the tool, or MPI explains itself in a paragraph.
    NOT_STARTED = 4
    #: An MPI call failed: its head and the deepest of the calls that led to it.
    CALL_FAILED = 5
    #: A library names an error of the system; the tool went on.
    LIBRARY_FAILED = 6
    #: The tool was killed, or crashed.
    KILLED = 7
    #: The tool complains in words of its own.
    COMPLAINED = 8
    #: The launcher says how the tool ended.
    ENDED = 9
    #: What healthy runs print, too.
    HARMLESS = 10


class Form(NamedTuple):
    """How a line or a paragraph begins, and what its speaker means by it."""

    meaning: Meaning
    #: A regular expression.
    begins: str
    #: What to do, empty if nothing is known.
    advice: str = ""


class Utterance(NamedTuple):
    """A line or a paragraph that was printed, and what its speaker means by it."""

    meaning: Meaning
    #: The line, or the paragraph on one line.
    text: str
    #: What to do, empty if nothing is known.
    advice: str = ""


_MEET = (
    "Let srun offer what this MPI understands (srun --mpi=list; SLURM_MPI_TYPE=pmix in env_vars), or take the launcher "
    "of the MPI library that the tool was built with"
)
_ROOM = (
    "MPI keeps files of its own in $TMPDIR, or in /tmp. See that it exists on the node, and has room. If you ran "
    "another mpirun there, which may have removed them as it ended, run again"
)
_NETWORK = (
    "MPI could not open its network. See what libfabric or UCX offers on the node (fi_info, ucx_info -d), and name a "
    "provider that works (FI_PROVIDER, UCX_TLS in env_vars)"
)
_LOCKS = (
    "MPI-IO locks the file, and the target refuses locks: mount it with flock, or let MPI-IO do without (romio_ds_read and "
    "romio_ds_write: disable, in the file that ROMIO_HINTS names)"
)
_SLOTS = (
    "Let mpirun start more tasks than it sees cores (--oversubscribe: OMPI_MCA_rmaps_base_oversubscribe=1 in "
    "env_vars; Open MPI 5: PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe), or name more hosts (hosts)"
)

#: Paragraphs of MPI and its launchers, by how they begin.
_PARAGRAPHS = (
    Form(Meaning.NOT_STARTED, "There are not enough slots available", _SLOTS),
    Form(
        Meaning.NOT_STARTED,
        "Your job has requested more processes than",
        "Ask for fewer tasks on a node (scale.tasks_per_node), or for more nodes",
    ),
    Form(
        Meaning.NOT_STARTED,
        "A requested component was not found",
        "Give the nodes what this component needs, or leave it out (PMIX_MCA_<framework>=^<component> in env_vars)",
    ),
    Form(
        Meaning.NOT_STARTED,
        r"(?:mpirun|prterun) has detected an attempt to run as root",
        "Run as an ordinary user, or set the two variables that mpirun names",
    ),
    Form(
        Meaning.NOT_STARTED,
        r"An? \S+ daemon has unexpectedly failed",
        "mpirun starts its daemons with srun if SLURM_JOB_ID is set. If that allocation has ended, run from a shell "
        "without SLURM_* variables",
    ),
    Form(
        Meaning.NOT_STARTED,
        'The value of the MCA parameter "plm_rsh_agent"',
        "mpirun looks for ssh, even for one node. Install it, or set OMPI_MCA_plm=isolated in env_vars for one node",
    ),
    Form(
        Meaning.NOT_STARTED,
        r"The application appears to have been direct launched using|It looks like \S+ (?:runtime init )?failed for some reason",
        _MEET,
    ),
    Form(
        Meaning.NOT_STARTED,
        "A request was made to bind",
        "Correct node.cores of the partition, and lower scale.tasks_per_node to that number: threads are no cores",
    ),
    Form(Meaning.NOT_STARTED, r"This version of Spack \(openmpi"),
    Form(
        Meaning.ENDED,
        r"Primary job +terminated normally|(?:mpirun|prterun|mpiexec) (?:detected|noticed|has exited due to)"
        r"|MPI_ABORT was invoked|=* *BAD TERMINATION",
    ),
    Form(
        Meaning.HARMLESS,
        r"(?i:warning)\b|.*\bjob (?:will continue|may behave|will now either abort or)"
        r"|A process has executed an operation involving a call|By default, for Open MPI 4|No OpenFabrics connection schemes|.*unable to find any relevant network interfaces"
        r"|PMIx was unable to find a usable compression|As of version 3\.0\.0"
        r"|.*hwloc \S+ has encountered what looks like an error",
    ),
)

_SYSTEM_ERROR = "|".join(
    re.escape(os.strerror(number)) for number in sorted(errno.errorcode)
)

#: How MPI says that a call failed.
_CALL = r"(?:Fatal error|Error) in (?:P?MPIX?|internal)_\w+: .|\*\*\* An error occurred in MPI_"
#: Lines, by how they begin. The first form that fits says who speaks.
_LINES = (
    Form(
        Meaning.CALL_FAILED,
        f"{_CALL}|File locking failed in ADIOI_",
    ),
    Form(
        Meaning.HARMLESS,
        # process managers
        r"\[unset\]: write_line error; .*cmd=abort|system msg for |PMII_(?!singinit)|:$|In: PMI_Abort|aborting job:|.*: \[PE_\d+\]:"
        # what ROMIO adds to a lock that failed
        r"|ADIOI_Set_lock:|- If the file system is "
        # the loader
        r"|ERROR: ld\.so: object .*cannot be preloaded"
        # shells and profiles
        r"|(?:-?\w*sh: )?\S*(?:/etc/|profile|/\.?\w*(?:sh|cs)(?:rc|env|login|logout)\b)\S*: "
        r"|environment: line |\S*sh: warning: |perl: warning: |tput: |stty: |mesg: |id: cannot find name"
        r"|No protocol specified|.*Xauthority|(?i:warning): (?:Permanently added|No xauth data|untrusted X11)"
        # module systems
        r"|Loading \S+/|Loading requirement: |Lmod is automatically|Lmod Warning|The following have been reloaded"
        r"|(?i:warning): .*\bmodules?\b|Currently Loaded Modul"
        # Slurm
        r"|srun: (?:error: spank: |(?i:warning)|[Jj]ob |Force Terminated|Requested partition|Step created)"
        r"|slurmstepd\S*: error: (?:Unable to create TMPDIR|Setting TMPDIR|spank: )|slurmstepd\S*: (?i:warning)"
        # libraries
        r"|(?:\[\S+\] )?\*\*\* (?!An error occurred)"
        r"|lib\w+: (?i:warning)|OMP: (?i:warning)|MPI startup\(\): |==\d+== "
        r"|\[\S+\] mca_base_component_repository_open: .*\(ignored\)|.*UCX +(?:WARN|INFO|DEBUG) ",
    ),
    Form(
        Meaning.NO_PROCESS_MANAGER,
        r"PMII_singinit: |PMI2_Init failed |No PMIx server was reachable|\[unset\]: "
        r"|srun: error: (?:.* mpi/\w+\b|Invalid MPI type )",
        _MEET,
    ),
    Form(
        Meaning.NOT_STARTED,
        r"\S+: error while loading shared libraries: |\S+: symbol lookup error: ",
        "Load the modules that the tool was built with (modules or prepare_cmds of the environment)",
    ),
    Form(
        Meaning.NOT_STARTED,
        r"(?:/usr/bin/env: |\S*(?:sh|script): (?:line \d+: )?)\S+: (?:command not found|No such file|Permission denied)"
        r"|\S+: not found$",
        "Put it on PATH there, by modules or prepare_cmds of the environment",
    ),
    Form(
        Meaning.FROM_OUTSIDE,
        r".*\boom[-_]kill|slurmstepd\S*: error: .*CANCELLED AT .*DUE TO "
        r"|ssh: |Host key verification failed\.|.*Permission denied \((?:publickey|password|gssapi|keyboard)"
        r"|.*\b(?:orted|prted|\w*pmi_proxy): command not found",
    ),
    Form(
        Meaning.KILLED,
        r"\S+: rank \d+ died from signal |YOUR APPLICATION TERMINATED WITH THE EXIT STRING|\[\S+\] Signal: .+ \(\d+\)|.*Caught signal \d+",
    ),
    Form(
        Meaning.ENDED,
        r"srun: error: \S+: tasks? [\d,-]+: |slurmstepd\S*: error: \*\*\*"
        r"|This typically refers to a problem with|Please see the FAQ page|application called MPI_Abort",
    ),
    Form(
        Meaning.NOT_STARTED,
        r"srun: error: .*More processors requested than permitted",
        "Let srun start more tasks than cores (--overcommit: SLURM_OVERCOMMIT=1 in env_vars), or ask for more nodes",
    ),
    Form(
        Meaning.NOT_STARTED,
        r"srun: (?:error: |unrecognized )|slurmstepd\S*: error: |\[(?:mpiexec|proxy)[^\]]*\] (?:\w+ \(|Error: )",
    ),
    Form(
        Meaning.LIBRARY_FAILED,
        rf"(?:\[[^\] ]+:\d+\] |mca_\w+: ).*(?:ERROR|Error|{_SYSTEM_ERROR})|.*UCX +ERROR |.*DAPL ERR |\[[^\] ]+(?::\d+){{3}}\] ",
    ),
    Form(
        Meaning.HARMLESS,
        r"\[[^\] ]+:\d+\] (?!\*\*\*)|\[(?:mpiexec|proxy)[^\]]*\] ",
    ),
    Form(Meaning.TOOL_FAILED, r"fio: |.*\b(?:ERROR|FAILED in)\b"),
)

#: What a tool prints, if nobody else does.
_OF_TOOL = (
    Form(Meaning.TOOL_FAILED, f".*(?:{_SYSTEM_ERROR})"),
    Form(Meaning.COMPLAINED, "(?i).*(?:error|fail|abort|kill)"),
)

#: Errors of MPI calls, each with the deepest of the calls that led to it.
_CALLS = (
    Form(
        Meaning.CALL_FAILED,
        r".*(?:PMI\d?_\w+ returned|An error occurred in MPI_Init)",
        _MEET,
    ),
    Form(Meaning.CALL_FAILED, r".*_Init\w*: .*(?:OFI|UCX|PSM)", _NETWORK),
    Form(Meaning.CALL_FAILED, "File locking failed", _LOCKS),
)
#: What a shell script of this suite that starts a tool writes before its words: its name, a line, a process.
_SCRIPT = r"\S+/iogauge/job/\w+\.sh: (?:line )?\d+: (?:\d+ )?"
#: What is left out before a line: that, or all that stands before a call that failed.
_BEFORE = re.compile(f"^(?:{_SCRIPT}|.*?(?={_CALL}))")
_CALLED = re.compile(r"(?:\w+|\(unknown\))\(\d*\)\.*:(.*)")
#: What hydra's lines begin with: a function of its own, and where it stands.
_HYDRA = re.compile(r"\[(?:mpiexec|proxy)[^\]]*\] (?:\w+ \([^)]*\)|Error): ")
#: A line that parts paragraphs.
_RULE = re.compile(r"[-=*]{10,}")
#: What follows the cause in a paragraph: a list of guesses.
_GUESSES = re.compile(
    r" (?:This (?:usually is caused by|could be caused by|means that)|There are (?:many|several)) .*"
)
_NAMED = re.compile(r"\w[\w ]*: +\S.*")
#: MPI could not make its own files.
_OWN_FILES = re.compile(r"PMIX ERROR: OUT-OF-RESOURCE|orte_session_dir failed")


def names_system_error(text: str) -> bool:
    """Return whether a text holds the system's words for an error number."""
    return re.search(_SYSTEM_ERROR, text) is not None


def utterances(lines: Sequence[str]) -> list[Utterance]:
    """Return what was printed, line by line and paragraph by paragraph.

    ``lines`` have no labels of a launcher. What is harmless is returned, too.
    """
    spoken: list[Utterance] = []
    deepest: list[str] = []
    paragraph: list[str] = []
    between_rules = has_call = False
    for line in lines:
        text = _BEFORE.sub("", line.strip())
        form = _form_of(text, _LINES)
        called = _CALLED.fullmatch(text)
        if _RULE.fullmatch(text):
            spoken += _paragraphs(paragraph, between_rules)
            paragraph = []
            between_rules = not between_rules
        elif has_call and called:
            if called[1].strip():
                deepest = [text]
        elif form is not _OTHER:
            has_call = has_call or form.meaning is Meaning.CALL_FAILED
            spoken.append(_said(form, _HYDRA.sub("", text)))
        elif not is_binding(text):
            paragraph.append(text)
    spoken += _paragraphs(paragraph, between_rules)
    lost_files = any(map(_OWN_FILES.search, lines))
    return [_completed(utterance, deepest, lost_files) for utterance in spoken]


#: What fits no form.
_OTHER = Form(Meaning.HARMLESS, "")


def _said(form: Form, text: str) -> Utterance:
    """Return a text as what its form means."""
    return Utterance(form.meaning, text, form.advice)


def _form_of(text: str, forms: Sequence[Form]) -> Form:
    """Return the form that fits a text."""
    for form in forms:
        if re.match(form.begins, text):
            return form
    return _OTHER


def _paragraphs(lines: Sequence[str], between_rules: bool) -> list[Utterance]:
    """Return what lines without a form of their own say: paragraphs of MPI, else each line as the tool's."""
    blocks = [list(block) for filled, block in itertools.groupby(lines, bool) if filled]
    spoken: list[Utterance] = []
    while blocks:
        block = blocks.pop(0)
        sentence = " ".join(" ".join(block).split())
        form = _form_of(sentence, _PARAGRAPHS)
        if form.meaning is Meaning.HARMLESS and not between_rules:
            spoken += [_said(_form_of(line, _OF_TOOL), line) for line in block]
            continue
        if form is _OTHER:
            form = Form(Meaning.NOT_STARTED, "")
        sentence = _GUESSES.sub("", sentence)
        # What follows a colon is a name; names may also stand in blocks of their own.
        while blocks and (
            sentence.endswith(":") or all(map(_NAMED.fullmatch, blocks[0]))
        ):
            sentence = " ".join([sentence, *blocks.pop(0)])
        spoken.append(_said(form, " ".join(sentence.split())))
        if between_rules:
            break
    return spoken


def _completed(
    utterance: Utterance, deepest: Sequence[str], lost_files: bool
) -> Utterance:
    """Return an utterance with the deepest of MPI's calls, and with what to do about both."""
    if utterance.meaning is Meaning.CALL_FAILED:
        text = " ".join([utterance.text, *deepest])
        advice = _form_of(text, _CALLS).advice
        utterance = Utterance(Meaning.CALL_FAILED, text, advice)
    if lost_files and utterance.advice == _MEET:
        utterance = utterance._replace(advice=_ROOM)
    return utterance


#: Nobody says anything of a failure.
NOTHING = Utterance(Meaning.ENDED, "nothing names the cause")


def cause(texts: Iterable[str]) -> Utterance:
    """Return what best explains a failure, by what its speaker means by it.

    ``texts`` are files without labels of a launcher, that of errors first. Of equal meanings the system's own words come
    first, then the first line.
    """
    spoken: list[Utterance] = []
    for text in texts:
        spoken += utterances(text.splitlines())
    return min(
        (said for said in spoken if said.meaning is not Meaning.HARMLESS),
        key=lambda said: (said.meaning, not names_system_error(said.text)),
        default=NOTHING,
    )
