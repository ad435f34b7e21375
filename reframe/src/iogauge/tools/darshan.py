"""Words that put Darshan under the ranks of a tool."""

from typing import Final

#: Variable that keeps a record for every rank of a file that all ranks opened.
KEEP_RANKS: Final = "DARSHAN_DISABLE_SHARED_REDUCTION"


def run_words(library: str, log: str) -> list[str]:
    """Return words before a tool's own that make Darshan watch the ranks, not their launcher.

    ``library`` is libdarshan.so, built with the tool's MPI. If the file ``log`` exists already,
    Darshan writes no log and says so on standard error only: give every execution its own name.
    """
    return ["env", f"LD_PRELOAD={library}", f"DARSHAN_LOGFILE={log}", f"{KEEP_RANKS}=1"]
