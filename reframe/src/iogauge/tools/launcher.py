"""Why a launcher did not run a tool, in the launcher's own words.

Seen with mpirun of Open MPI 4.1 and 5.0, MPICH's hydra 5.0, and srun of Slurm 22.05. Open MPI
explains itself in paragraphs between dashed lines, hydra names a function of its own and where it
stands, srun marks its lines. What they say of a tool that ran and failed is no cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

#: How paragraphs of Open MPI begin that say why nothing ran.
_CAUSES: Final = re.compile(
    r"There are not enough slots available"
    r"|All nodes which are allocated for this job are already filled"
    r"|(?:\S+ )?was unable to (?:launch|find|start|reliably start)"
    r"|A daemon failed to report back"
    r"|A request was made to bind"
    r"|A request for multiple cpus-per-proc"
    r"|An unrecognized option was included"
    r"|(?:mpirun|prterun) has detected an attempt to run as root"
)

#: A trace of hydra: ``[mpiexec@n1] function (file:line): words``.
_HYDRA: Final = re.compile(r"\[(?:mpiexec|proxy)[^\]]*\] \w+ \([^)]*\): (.+)")

#: A complaint of srun; what it says of a task that ran is none.
_SRUN: Final = re.compile(r"srun: (?:error: (?!\S+: tasks? [\d,-]+: )|unrecognized ).+")

#: ssh's own words are more than those of the launcher that called it.
_SSH: Final = re.compile(r"ssh: .+|Host key verification failed\.|.*Permission denied \(.+")

#: How launchers begin to speak of a tool that failed: it says no more than the exit status.
_RAN: Final = re.compile(
    r"Primary job +terminated normally|(?:mpirun|prterun|mpiexec) (?:detected|noticed) that"
    r"|=* *BAD TERMINATION|srun: error: \S+: tasks? [\d,-]+: "
)

_REMEDIES: Final = (
    (
        "not enough slots",
        "Let mpirun start more tasks than it sees cores (--oversubscribe: OMPI_MCA_rmaps_base_oversubscribe=1 in "
        "env_vars; Open MPI 5: PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe), or name more hosts (hosts)",
    ),
    (
        "More processors requested than permitted",
        "Let srun start more tasks than cores (--overcommit: SLURM_OVERCOMMIT=1 in env_vars), or ask for more nodes",
    ),
    (
        "attempt to run as root",
        "Run as an ordinary user, or set the two variables that mpirun names",
    ),
)


def cause(lines: Sequence[str]) -> str:
    """Return why a launcher did not run the tool, and what to do; empty if it does not say so."""
    found = next(_causes(lines), "")
    remedy = next((remedy for words, remedy in _REMEDIES if words in found), "")
    return f"{found.rstrip('.')}. {remedy}" if remedy else found


def of_tool(lines: Sequence[str]) -> list[str]:
    """Return the lines before a launcher speaks of a tool that failed, without lines of dashes."""
    end = next((n for n, line in enumerate(lines) if _RAN.match(line)), len(lines))
    return [line for line in lines[:end] if line.strip(" -=\t")]


def ended(lines: Sequence[str]) -> str:
    """Return what a launcher says of a tool that failed; empty if it says nothing."""
    found = next((p for p in _paragraphs(lines) if _RAN.match(p.lstrip("= "))), "")
    signal = re.search("YOUR APPLICATION TERMINATED WITH THE EXIT STRING: .*?\\)", found)
    return signal[0] if signal else found


def _causes(lines: Sequence[str]) -> Iterator[str]:
    paragraphs = list(_paragraphs(lines))
    if any(_CAUSES.match(p) for p in paragraphs) or any(_HYDRA.match(line) for line in lines):
        yield from (line for line in lines if _SSH.fullmatch(line))
    for number, paragraph in enumerate(paragraphs):
        if _CAUSES.match(paragraph):
            # What follows a colon is a name, or a list of guesses.
            sentence = paragraph.partition(" This usually is caused by")[0]
            more = paragraphs[number + 1 : number + 2] if sentence.endswith(":") else []
            yield " ".join([sentence, *more])
    for line in lines:
        if match := _HYDRA.fullmatch(line):
            yield match[1]
        elif _SRUN.fullmatch(line):
            yield line


def _paragraphs(lines: Sequence[str]) -> Iterator[str]:
    """Yield paragraphs, each on one line: empty and dashed lines part them."""
    words: list[str] = []
    for line in [*lines, ""]:
        if line.strip(" -\t"):
            words += line.split()
        elif words:
            yield " ".join(words)
            words = []
