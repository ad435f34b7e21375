"""What clients must agree on, as one table: the sentence that must hold, what clients do to find out, and who does not claim it.

NFS promises close-to-open consistency alone (nfs(5), DATA AND METADATA COHERENCE), and a mount option can make locks local
(``localflock``, ``local_lock``).
"""

from dataclasses import dataclass

_WHY = {
    "nfs": "NFS promises close-to-open consistency alone",
    # Seen on GlusterFS as it is by default.
    "fuse": "a FUSE client may keep what it knows for a second",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question to all clients of a target."""

    #: What is true if it holds.
    sentence: str
    #: What is done in turn: by ``first``, ``others`` or ``all``, a method of :class:`~iogauge_extras.clients.client.Client`, and
    #: its words. In these, ``{own}`` and ``{next}`` are the numbers of the client and of the next one.
    steps: tuple[str, ...]
    #: Types of file systems that do not claim it, by the beginning of their names.
    unclaimed: tuple[str, ...] = ()
    #: What NFS calls these locks in ``local_lock``; empty if it asks for no lock.
    local: str = ""


QUESTIONS = {
    "rename": Question(
        sentence="A file that one client wrote, synced and renamed is seen by the others whole and at once",
        steps=(
            # Who looked in vain before may remember that.
            "others miss renamed",
            "first write renamed.new 1",
            "first rename renamed.new renamed",
            "others read renamed 1",
        ),
        unclaimed=("nfs",),
    ),
    "append": Question(
        sentence="Lines that all append at once (O_APPEND) are all there, and whole",
        steps=("all append", "all lines"),
        unclaimed=("nfs",),
    ),
    "flock": Question(
        sentence="A lock by flock(2) on one client excludes the others",
        steps=("all win flock", "first winners"),
        local="flock",
    ),
    "fcntl": Question(
        sentence="A lock by fcntl(2) on one client excludes the others",
        steps=("all win fcntl", "first winners"),
        local="posix",
    ),
    "exclusive": Question(
        sentence="Of all who make a name with O_EXCL at once, one wins",
        steps=("all win O_EXCL", "first winners"),
    ),
    "unlinked": Question(
        sentence="A file that another client removed stays readable for those who have it open",
        steps=(
            # A client of NFS keeps a file that it has open itself.
            "first write unlinked 1",
            "others hold unlinked",
            "first remove unlinked",
            "others held 1",
        ),
        unclaimed=("nfs", "fuse"),
    ),
    "times": Question(
        sentence="All clients see the same size and time of change of a file that was written again",
        steps=(
            "first write times 1",
            "all status times",
            "first write times 2",
            "all status times",
            "others alike",
        ),
        unclaimed=("nfs", "fuse"),
    ),
    "mmap": Question(
        sentence="What one client writes, another reads through mmap(2)",
        # It has mapped what was there before.
        steps=(
            "all write mapped.{own} 1",
            "all map mapped.{next} 1",
            "all write mapped.{own} 2",
            "all map mapped.{next} 2",
        ),
        unclaimed=("nfs", "fuse"),
    ),
    "listing": Question(
        sentence="A directory of many names lists whole while others make files in it",
        steps=("all fill", "all list_or_fill"),
    ),
}


def unclaimed(question: Question, kind: str, options: str) -> str:
    """Return why a mount does not claim what a question asks; empty if it does."""
    mounted = set(options.split(","))
    if question.local:
        local = {"localflock", "noflock", "local_lock=all"}
        # Lustre shows "nolock" where its locks work.
        if kind.startswith("nfs"):
            local |= {"nolock", f"local_lock={question.local}"}
        if local & mounted:
            return f"mounted with {min(local & mounted)}"
        if kind == "lustre" and "flock" not in mounted:
            return "mounted without flock"
    for beginning in question.unclaimed:
        if kind.startswith(beginning):
            return _WHY[beginning]
    return ""
