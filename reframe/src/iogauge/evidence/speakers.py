"""Who says what in a job's output, and which of it is the cause of a failure.

Seen with mpirun of Open MPI 4.1 and 5.0, MPICH's hydra 5.0, Cray MPICH, Intel MPI, srun of Slurm 22.05, and in public
reports. Each line gets its speaker first. The cause is then chosen by what its speaker means, never by the order of lines.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import Final

from iogauge.tools.mpi import is_binding


class Speaker(Enum):
    """Who prints a line."""

    LOADER = "loader"
    SHELL = "shell or profile"
    MODULES = "module system"
    SLURM = "Slurm"
    MANAGER = "process manager"
    MPI = "MPI"
    LIBRARY = "library"
    TOOL = "tool"


class Meaning(IntEnum):
    """What a line says of a failure, the strongest explanation first."""

    #: MPI found no process manager that it understands: each task runs alone, and disturbs the others.
    NO_PROCESS_MANAGER = 1
    #: The tool names its own error.
    TOOL_FAILED = 2
    #: ssh did not reach a node: more than its launcher knows.
    NOT_REACHED = 3
    #: The launcher explains why it did not start the tool.
    NOT_STARTED = 4
    #: The launcher refuses in a line.
    REFUSED = 5
    #: MPI explains itself in a paragraph of unknown form.
    EXPLAINED = 6
    #: An MPI call failed: the head and the deepest line of its stack.
    CALL_FAILED = 7
    #: A library names an error of the system; the tool went on.
    LIBRARY_FAILED = 8
    #: The tool was killed, or crashed.
    KILLED = 9
    #: The tool complains in words of its own.
    COMPLAINED = 10
    #: The launcher says how the tool ended.
    ENDED = 11
    #: What healthy runs print, too.
    HARMLESS = 12


@dataclass(frozen=True, slots=True)
class Utterance:
    """A line or a paragraph with its speaker."""

    speaker: Speaker
    meaning: Meaning
    #: The line, or the paragraph on one line; in the tables below a regular expression of how it begins.
    text: str
    #: What to do, empty if nothing is known.
    advice: str = ""


_MEET: Final = (
    "Let srun offer what this MPI understands (srun --mpi=list; SLURM_MPI_TYPE=pmix in env_vars), or take the launcher "
    "of the MPI library that the tool was built with"
)
_ROOM: Final = (
    "MPI keeps files of its own in $TMPDIR, or in /tmp. See that it exists on the node, and has room. If you ran "
    "another mpirun there, which may have removed them as it ended, run again"
)
_NETWORK: Final = (
    "MPI could not open its network. See what libfabric or UCX offers on the node (fi_info, ucx_info -d), and name a "
    "provider that works (FI_PROVIDER, UCX_TLS in env_vars)"
)
_SLOTS: Final = (
    "Let mpirun start more tasks than it sees cores (--oversubscribe: OMPI_MCA_rmaps_base_oversubscribe=1 in "
    "env_vars; Open MPI 5: PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe), or name more hosts (hosts)"
)

#: Paragraphs of MPI and its launchers, by how they begin.
_PARAGRAPHS: Final = (
    Utterance(
        Speaker.MANAGER,
        Meaning.NOT_STARTED,
        "There are not enough slots available",
        _SLOTS,
    ),
    Utterance(
        Speaker.MANAGER,
        Meaning.NOT_STARTED,
        "Your job has requested more processes than",
        "Ask for fewer tasks on a node (scale.tasks_per_node), or for more nodes",
    ),
    Utterance(
        Speaker.MPI,
        Meaning.NOT_STARTED,
        "A requested component was not found",
        "Give the nodes what this component needs, or leave it out (PMIX_MCA_<framework>=^<component> in env_vars)",
    ),
    Utterance(
        Speaker.MANAGER,
        Meaning.NOT_STARTED,
        r"(?:mpirun|prterun) has detected an attempt to run as root",
        "Run as an ordinary user, or set the two variables that mpirun names",
    ),
    Utterance(
        Speaker.MANAGER,
        Meaning.NOT_STARTED,
        r"An? \S+ daemon has unexpectedly failed",
        "mpirun starts its daemons with srun if SLURM_JOB_ID is set. If that allocation has ended, run from a shell "
        "without SLURM_* variables",
    ),
    Utterance(
        Speaker.MANAGER,
        Meaning.NOT_STARTED,
        'The value of the MCA parameter "plm_rsh_agent"',
        "mpirun looks for ssh, even for one node. Install it, or set OMPI_MCA_plm=isolated in env_vars for one node",
    ),
    Utterance(
        Speaker.MPI,
        Meaning.NOT_STARTED,
        "The application appears to have been direct launched using",
        _MEET,
    ),
    Utterance(
        Speaker.MPI,
        Meaning.NOT_STARTED,
        r"It looks like \S+ (?:runtime init )?failed for some reason",
        _MEET,
    ),
    Utterance(
        Speaker.MANAGER,
        Meaning.NOT_STARTED,
        r"All nodes which are allocated for this job are already filled"
        r"|(?:\S+ )?was unable to (?:launch|find|start|reliably start)|A daemon failed to report back"
        r"|A request was made to bind|A request for multiple cpus-per-proc|An unrecognized option was included"
        r"|\S+ has lost communication with a remote daemon",
    ),
    Utterance(
        Speaker.MANAGER,
        Meaning.ENDED,
        r"Primary job +terminated normally|(?:mpirun|prterun|mpiexec) (?:detected|noticed|has exited due to)"
        r"|MPI_ABORT was invoked|=* *BAD TERMINATION",
    ),
    Utterance(
        Speaker.MPI,
        Meaning.HARMLESS,
        r"(?i:warning)\b|Open MPI failed an OFI Libfabric library call|.*This is highly unusual"
        r"|A process has executed an operation involving a call"
        r"|By default, for Open MPI 4|No OpenFabrics connection schemes|.*unable to find any relevant network interfaces"
        r"|PMIx was unable to find a usable compression|As of version 3\.0\.0"
        r"|.*hwloc \S+ has encountered what looks like an error",
    ),
)

_SYSTEM_ERROR: Final = "|".join(
    re.escape(os.strerror(number)) for number in sorted(errno.errorcode)
)

#: Lines, by how they begin. The first form that fits says who speaks.
_LINES: Final = (
    Utterance(
        Speaker.MANAGER,
        Meaning.HARMLESS,
        r"\[unset\]: write_line error; .*cmd=abort|system msg for |PMII_(?!singinit)|:$|In: PMI_Abort|aborting job:",
    ),
    Utterance(
        Speaker.MANAGER,
        Meaning.NO_PROCESS_MANAGER,
        r"PMII_singinit: |PMI2_Init failed |No PMIx server was reachable|\[unset\]: "
        r"|srun: error: (?:.* mpi/\w+\b|Invalid MPI type )",
        _MEET,
    ),
    Utterance(
        Speaker.LOADER,
        Meaning.HARMLESS,
        r"ERROR: ld\.so: object .*cannot be preloaded",
    ),
    Utterance(
        Speaker.LOADER,
        Meaning.NOT_STARTED,
        r"\S+: error while loading shared libraries: |\S+: symbol lookup error: ",
        "Load the modules that the tool was built with (modules or prepare_cmds of the environment)",
    ),
    Utterance(
        Speaker.SHELL,
        Meaning.HARMLESS,
        r"(?:-?\w*sh: )?\S*(?:/etc/|profile|/\.?\w*(?:sh|cs)(?:rc|env|login|logout)\b)\S*: "
        r"|\S*sh: warning: |perl: warning: |tput: |stty: |mesg: |id: cannot find name"
        r"|No protocol specified|.*Xauthority|(?i:warning): (?:Permanently added|No xauth data|untrusted X11)",
    ),
    Utterance(
        Speaker.SHELL,
        Meaning.NOT_STARTED,
        r"(?:/usr/bin/env: |-?\w*sh: (?:line \d+: )?)\S+: (?:command not found|No such file|Permission denied)"
        r"|\S+: not found$",
        "Put it on PATH there, by modules or prepare_cmds of the environment",
    ),
    Utterance(
        Speaker.MODULES,
        Meaning.HARMLESS,
        r"Loading \S+/|Loading requirement: |Lmod is automatically|Lmod Warning|The following have been reloaded"
        r"|(?i:warning): .*\bmodules?\b|Currently Loaded Modul",
    ),
    Utterance(
        Speaker.SLURM,
        Meaning.HARMLESS,
        r"srun: (?:error: spank: |(?i:warning)|[Jj]ob |Force Terminated|Requested partition|Step created)"
        r"|slurmstepd\S*: error: (?:Unable to create TMPDIR|Setting TMPDIR|spank: )|slurmstepd\S*: (?i:warning)",
    ),
    Utterance(
        Speaker.SLURM,
        Meaning.KILLED,
        r"slurmstepd\S*: error: (?:Detected \d+ oom|.*CANCELLED AT)|.*\boom[-_]kill",
    ),
    Utterance(
        Speaker.SLURM,
        Meaning.ENDED,
        r"srun: error: \S+: tasks? [\d,-]+: |slurmstepd\S*: error: \*\*\*",
    ),
    Utterance(
        Speaker.SLURM,
        Meaning.REFUSED,
        r"srun: error: .*More processors requested than permitted",
        "Let srun start more tasks than cores (--overcommit: SLURM_OVERCOMMIT=1 in env_vars), or ask for more nodes",
    ),
    Utterance(
        Speaker.SLURM,
        Meaning.REFUSED,
        r"srun: (?:error: |unrecognized )|slurmstepd\S*: error: ",
    ),
    Utterance(
        Speaker.MANAGER,
        Meaning.NOT_REACHED,
        r"ssh: |Host key verification failed\.|.*Permission denied \((?:publickey|password|gssapi|keyboard)"
        r"|.*\b(?:orted|prted|\w*pmi_proxy): command not found",
    ),
    Utterance(Speaker.MANAGER, Meaning.REFUSED, r"\[(?:mpiexec|proxy)[^\]]*\] \w+ \("),
    Utterance(
        Speaker.MANAGER,
        Meaning.KILLED,
        r"YOUR APPLICATION TERMINATED WITH THE EXIT STRING",
    ),
    Utterance(
        Speaker.MANAGER,
        Meaning.ENDED,
        r"This typically refers to a problem with|Please see the FAQ page|application called MPI_Abort",
    ),
    Utterance(
        Speaker.MPI, Meaning.HARMLESS, r"(?:\[\S+\] )?\*\*\* (?!An error occurred)"
    ),
    Utterance(
        Speaker.LIBRARY,
        Meaning.KILLED,
        r"\[\S+\] Signal: .+ \(\d+\)|.*Caught signal \d+",
    ),
    Utterance(
        Speaker.LIBRARY,
        Meaning.HARMLESS,
        r"lib\w+: (?i:warning)|OMP: (?i:warning)|MPI startup\(\): |==\d+== "
        r"|\[\S+\] mca_base_component_repository_open: .*\(ignored\)|.*UCX +(?:WARN|INFO|DEBUG) ",
    ),
    Utterance(
        Speaker.LIBRARY,
        Meaning.LIBRARY_FAILED,
        rf"(?:\[[^\] ]+:\d+\] |mca_\w+: |.*UCX +ERROR ).*(?:ERROR|{_SYSTEM_ERROR})",
    ),
    Utterance(Speaker.LIBRARY, Meaning.HARMLESS, r"\[[^\] ]+:\d+\] (?!\*\*\*)"),
    Utterance(
        Speaker.TOOL,
        Meaning.TOOL_FAILED,
        r"fio: |.*\b(?:ERROR|FAILED in)\b",
    ),
)

#: The head of an error of an MPI call, without what Cray's and Intel's MPI print before it. A stack may follow.
_CALL: Final = re.compile(
    r".*?((?:Fatal error|Error) in (?:P?MPIX?|internal)_\w+: .+|\*\*\* An error occurred in MPI_\w+.*)"
)
_STACK: Final = re.compile(r"(?:\w+|\(unknown\))\(\d*\)\.*: *(.*)")
#: What hydra's lines begin with: a function of its own, and where it stands.
_HYDRA: Final = re.compile(r"\[(?:mpiexec|proxy)[^\]]*\] \w+ \([^)]*\): ")
#: What stands before the words of a shell that starts a tool: the place in a script of this suite.
_SUITE_SHELL: Final = re.compile(r"\S+/iogauge/job/\w+\.sh: (?:line )?\d+: (?:\d+ )?")
#: A line that parts paragraphs.
_RULE: Final = re.compile(r"[-=*]{10,}")
#: What follows the cause in a paragraph: a list of guesses.
_GUESSES: Final = re.compile(
    r" (?:This (?:usually is caused by|could be caused by|means that)|There are (?:many|several)) .*"
)
_NAMED: Final = re.compile(r"\w+: +\S.*")
#: MPI could not make its own files.
_OWN_FILES: Final = re.compile(r"PMIX ERROR: OUT-OF-RESOURCE|orte_session_dir failed")


def names_system_error(text: str) -> bool:
    """Return whether a text holds the system's words for an error number."""
    return re.search(_SYSTEM_ERROR, text) is not None


def utterances(lines: Sequence[str]) -> list[Utterance]:
    """Return what was printed, line by line and paragraph by paragraph, each with its speaker.

    ``lines`` have no labels of a launcher. What is harmless is returned, too.
    """
    spoken: list[Utterance] = []
    stack: list[str] = []
    paragraph: list[str] = []
    between_rules = False
    for line in lines:
        text = _SUITE_SHELL.sub("", line).strip()
        call = _CALL.fullmatch(text)
        form = _form_of(text, _LINES)
        if _RULE.fullmatch(text):
            spoken += _paragraphs(paragraph, between_rules)
            paragraph = []
            between_rules = not between_rules
        elif _STACK.fullmatch(text):
            stack.append(text)
        elif call:
            spoken.append(Utterance(Speaker.MPI, Meaning.CALL_FAILED, call[1]))
        elif form:
            spoken.append(replace(form, text=_HYDRA.sub("", text)))
        elif not is_binding(text):
            paragraph.append(text)
    spoken += _paragraphs(paragraph, between_rules)
    has_own_files = not any(_OWN_FILES.search(line) for line in lines)
    return [_completed(utterance, stack, has_own_files) for utterance in spoken]


def _form_of(text: str, forms: Iterable[Utterance]) -> Utterance | None:
    for form in forms:
        if re.match(form.text, text):
            return form
    return None


def _paragraphs(lines: Sequence[str], between_rules: bool) -> list[Utterance]:
    """Return what lines without a form of their own say: paragraphs of MPI, else each line as the tool's."""
    blocks = [list(block) for filled, block in itertools.groupby(lines, bool) if filled]
    spoken: list[Utterance] = []
    while blocks:
        block = blocks.pop(0)
        text = " ".join(" ".join(block).split())
        form = _form_of(text, _PARAGRAPHS)
        is_warning = form is not None and form.meaning is Meaning.HARMLESS
        if not between_rules and (form is None or is_warning):
            spoken += map(_of_tool, block)
            continue
        if form is None:
            form = Utterance(Speaker.MPI, Meaning.EXPLAINED, "")
        sentence = _GUESSES.sub("", text)
        # What follows a colon is a name; names may also stand in blocks of their own.
        names = blocks.pop(0) if blocks and sentence.endswith(":") else []
        while blocks and all(map(_NAMED.fullmatch, blocks[0])):
            names += blocks.pop(0)
        text = " ".join(" ".join([sentence, *names]).split())
        spoken.append(replace(form, text=text))
        if between_rules:
            break
    return spoken


def _of_tool(line: str) -> Utterance:
    meaning = Meaning.HARMLESS
    if names_system_error(line):
        meaning = Meaning.TOOL_FAILED
    elif re.search("error|fail|abort|kill", line, re.IGNORECASE):
        meaning = Meaning.COMPLAINED
    return Utterance(Speaker.TOOL, meaning, line)


def _completed(
    utterance: Utterance, stack: Sequence[str], has_own_files: bool
) -> Utterance:
    """Return an utterance with the deepest line of MPI's stack, and with what to do about both."""
    text, advice = utterance.text, utterance.advice
    if utterance.meaning is Meaning.CALL_FAILED:
        deep = [line for line in stack if line.partition(": ")[2].strip()]
        text = " ".join([text, *deep[-1:]])
        if re.search(r"PMI\d?_\w+ returned|An error occurred in MPI_Init", text):
            advice = _MEET
        elif re.search(r"MPI_Init.*\b(?:OFI|UCX|PSM2?)\b", text):
            advice = _NETWORK
    if advice == _MEET and not has_own_files:
        advice = _ROOM
    return replace(utterance, text=text, advice=advice)


def cause(texts: Sequence[Sequence[str]]) -> Utterance | None:
    """Return what best explains a failure, by what its speaker means by it.

    ``texts`` are the lines of each file, that of errors first. Of equal meanings the system's own words come first,
    then the first line. None if nobody says anything of a failure.
    """
    best: Utterance | None = None
    for lines in texts:
        spoken = utterances(lines)
        best = min([*filter(None, [best]), *spoken], key=_rank, default=None)
    if best is None or best.meaning is Meaning.HARMLESS:
        return None
    return best


def _rank(utterance: Utterance) -> tuple[int, bool]:
    return utterance.meaning, not names_system_error(utterance.text)
