"""What a client does on its node when it is asked: look at its mount, and work with the others in one directory."""

import contextlib
import fcntl
import mmap
import os
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import IO, Any

from iogauge.core import processes
from iogauge.node import inventory, view
from iogauge.node.activity import kernel_log
from iogauge.node.kernel import text
from iogauge.node.lustre import parameters as lustre_client
from iogauge.node.mounts import fsname_of
from iogauge.workspace import directory
from iogauge_extras.clients.line import NodeError, join

#: Names of a directory that are listed at most, when its mount is looked at.
_MOST_NAMES = 10_000

#: Bytes of a file, appended lines of a client, names that all try to make.
_SIZE = 1 << 20
_LINES = 200
_NAMES = 50

#: Seconds after which a file of another client counts as seen at once, and for which it is looked for.
_AT_ONCE_S = 1.0
_FIND_S = 5.0

#: The calls that lock, by name, and the mode of open for a name that is new.
_LOCKS: Mapping[str, Callable[..., object]] = {
    "flock": fcntl.flock,
    "fcntl": fcntl.lockf,
}
_MODES = {"O_EXCL": "xb"}


def _use(path: str) -> None:
    """Ask for the room, and list."""
    os.statvfs(path)
    with os.scandir(path) as entries:
        for _ in islice(entries, _MOST_NAMES):
            pass


def _seen(path: str) -> dict[str, Any]:
    """Return this client's view of a path: its mount, its room, its servers, and what the kernel says of them."""
    seen = view.look(path)
    kind, source, space = seen.mount.type, seen.mount.source, seen.space
    version, apart = _peers(source, kind)
    log = ""
    with contextlib.suppress(OSError):
        log = kernel_log()
    return {
        "problem": "",
        "type": kind,
        "source": source,
        "options": inventory.safe_options(seen.mount.options),
        "uuid": seen.uuid,
        "free": space.bytes_free / max(1, space.bytes_total),
        "inodes": space.inodes_free / max(1, space.inodes_total),
        "version": version,
        "apart": apart,
        "log": complaints(log, source, kind),
    }


#: The state of a connection to a server of Lustre, and the healthy ones: one that is idle for 20 s is closed until it is used.
_STATE = re.compile(r"(?m)^\s*state:\s*(\w+)")
_CONNECTED = ("FULL", "IDLE", "NEW")


def _peers(source: str, kind: str, root: Path = Path("/")) -> tuple[str, list[str]]:
    """Return the version of a mount's client, and the servers that it is not connected to."""
    if kind != "lustre":
        return f"Linux {os.uname().release}", []
    wanted = {"": ("version",), "osc": ("import",), "mdc": ("import",)}
    version = ""
    apart = []
    found = lustre_client.read_parameters(fsname_of(source), wanted, root)
    for key, value in found.items():
        if key == "version":
            version = value
        state = _STATE.search(value)
        if state and state[1] not in _CONNECTED:
            apart.append(key.split(".")[1])
    return f"Lustre {version}", apart


#: Mounts of NFS and their connections: how often each was made, its requests and its replies (print_stats in net/sunrpc).
_RPC_STATISTICS = "/proc/self/mountstats"
_RPC = re.compile(
    r"(?m)^device (\S+) |^\s*xprt:\s+(?:tcp|rdma) \d+ \d+ (\d+) \d+ \d+ (\d+) (\d+)"
)


def unanswered(before: str, after: str) -> str:
    """Return which servers of NFS left all requests of a connection unanswered between two readings; empty if none did."""
    server = ""
    found: dict[str, None] = {}
    pairs = zip(_RPC.findall(before), _RPC.findall(after), strict=False)
    for old, new in pairs:
        # All mounts of a server have the same connections.
        server = new[0].rpartition(":/")[0] or server
        if new[1:3] != old[1:3] and new[3] == old[3]:
            requests, made = int(new[2]) - int(old[2]), int(new[1]) - int(old[1])
            text = f"; no reply from {server} to {requests} requests on a connection that was made anew {made} times"
            found[text] = None
    return "".join(found)


#: A record of ``/dev/kmsg`` with its priority of syslog(3): of the last octal digit, 0 to 4 are warnings and worse.
_RECORD = re.compile(r"(?m)^(\d+),[^;]*;(.*)$")
#: What Lustre warns of although all is well.
_IN_ORDER = re.compile(r"Lustre: (Mounted|Unmounted) ")


def complaints(log: str, source: str, kind: str) -> list[str]:
    """Return the newest rows of the kernel's log that warn and name a mount or its server."""
    words = {fsname_of(source), source.partition(":")[0]} - {"*", ""}
    if kind == "lustre":
        words.add("LustreError")
    name = re.compile(rf"\b({'|'.join(map(re.escape, sorted(words)))})\b")
    found = []
    for priority, row in _RECORD.findall(log):
        warns = int(priority) % 8 <= 4 and not _IN_ORDER.match(row)
        if warns and name.search(row):
            found.append(row[:200])
    return found[-3:]


def _content(seed: str) -> bytes:
    """Return the content that a file of this seed must have."""
    return random.Random(seed).randbytes(_SIZE)


def _lines_of(number: int) -> list[str]:
    """Return the lines that a client appends."""
    return [f"{number} {line} ".ljust(63, ".") for line in range(_LINES)]


class Client:
    """A client that works with others in a directory. What a step returns as text is what does not hold; empty: it holds."""

    def __init__(self, leaving: contextlib.ExitStack) -> None:
        """``leaving`` is closed when the client ends."""
        self._leaving = leaving
        self._number = self._count = self._entries = 0
        #: What all answered to the step before, in the order of their numbers.
        self.before: list[Any] = []

    def look(self, path: str, seconds: float) -> dict[str, Any]:
        """Look at a mount: ``problem`` says why nothing is known of it."""
        before = text(_RPC_STATISTICS)
        try:
            processes.call_in_time(path, lambda: _use(path), seconds)
            return processes.call_in_time(path, lambda: _seen(path))
        except processes.NoAnswer:
            peers = unanswered(before, text(_RPC_STATISTICS))
            return {"problem": f"does not answer in {seconds:g} s (df, ls){peers}"}
        except OSError as error:
            return {"problem": f"cannot be looked at: {error.strerror or error}"}

    def clock(self) -> float:
        """Return the time."""
        return time.time()

    def make(self, target: str, session: str) -> list[str]:
        """Make a directory for all below a target, which goes when this client does; return its path in a list."""
        made = directory.create(target, session, "clients", time_limit_s=600)
        self._leaving.callback(directory.remove, os.path.dirname(made))
        return [made]

    def sit(self, path: str, number: int, count: int, entries: int) -> None:
        """Go into a directory, as one of some clients; its long listing has so many names."""
        os.chdir(path)
        self._number, self._count, self._entries = number, count, entries

    def _open(self, name: str, mode: str) -> IO[Any]:
        """Open a file until this client ends."""
        return self._leaving.enter_context(open(name, mode))

    def miss(self, name: str) -> None:
        """Look for a file that is not there yet."""
        os.path.exists(name)

    def write(self, name: str, seed: str) -> None:
        """Write a file, and sync."""
        with open(name, "wb") as file:
            file.write(_content(seed))
            file.flush()
            os.fsync(file.fileno())

    def rename(self, old: str, new: str) -> None:
        """Rename a file."""
        os.rename(old, new)

    def remove(self, name: str) -> None:
        """Remove a file."""
        os.unlink(name)

    def read(self, name: str, seed: str) -> str:
        """Read a file whole, as soon as it is there."""
        begun = time.monotonic()
        while time.monotonic() - begun < _FIND_S:
            with contextlib.suppress(FileNotFoundError):
                found = Path(name).read_bytes()
                seconds = time.monotonic() - begun
                if found != _content(seed):
                    return f"reads other content, of {len(found)} bytes"
                if seconds > _AT_ONCE_S:
                    return f"did not see it before {seconds:.1f} s"
                return ""
            time.sleep(0.01)
        return f"did not see it in {_FIND_S:g} s"

    def append(self) -> None:
        """Append lines, each by a call of its own."""
        with open("appended", "ab", buffering=0) as file:
            for line in _lines_of(self._number):
                file.write(f"{line}\n".encode())
            os.fsync(file.fileno())

    def lines(self) -> str:
        """Read the lines that all appended."""
        found = Counter(Path("appended").read_text(errors="replace").split("\n")[:-1])
        wanted: list[str] = []
        for number in range(self._count):
            wanted += _lines_of(number)
        lost = [line.rstrip(" .") for line in wanted if not found.pop(line, 0)]
        if lost or found:
            return f"reads {len(found)} torn lines, and {len(lost)} of {len(wanted)} not at all: {' '.join(lost[:1])}"
        return ""

    def win(self, how: str) -> list[int]:
        """Make names with O_EXCL, or lock them, which all others try, too; return those that this client got."""
        won = []
        for number in range(_NAMES):
            with contextlib.suppress(FileExistsError, BlockingIOError):
                file = self._open(f"{how}.{number}", _MODES.get(how, "ab"))
                if how in _LOCKS:
                    _LOCKS[how](file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                won.append(number)
        return won

    def winners(self) -> str:
        """Count who got each name."""
        won: Counter[int] = Counter()
        for numbers in self.before:
            won.update(numbers)
        wrong = sum(won[number] != 1 for number in range(_NAMES))
        return f"{wrong} of {_NAMES} names had no winner, or several" if wrong else ""

    def hold(self, name: str) -> None:
        """Open a file."""
        self._held = self._open(name, "rb")

    def held(self, seed: str) -> str:
        """Read the file that is open."""
        right = self._held.read() == _content(seed)
        return "" if right else "read other content"

    def status(self, name: str) -> list[int]:
        """Return size and time of a file, opened anew: close-to-open."""
        with open(name, "rb") as file:
            status = os.fstat(file.fileno())
        return [status.st_size, status.st_mtime_ns]

    def alike(self) -> str:
        """Compare what this client found with what the first one did."""
        first, own = self.before[0], self.before[self._number]
        return "" if own == first else f"sees {own}, the first client sees {first}"

    def map(self, name: str, seed: str) -> str:
        """Read a file through a mapping."""
        with open(name, "rb") as file:
            mapped = mmap.mmap(file.fileno(), _SIZE, access=mmap.ACCESS_READ)
            right = mapped[:] == _content(seed)
        return "" if right else "maps other content than was written"

    def fill(self, share: int = 1, prefix: str = "") -> None:
        """Make this client's share of the names of a directory."""
        os.makedirs("many", exist_ok=True)
        for number in range(self._entries // self._count // share):
            open(f"many/{prefix}{self._number}.{number}", "wb").close()

    def list_or_fill(self) -> str:
        """List the directory on the first client, and make more names on the others."""
        if self._number:
            self.fill(10, "more.")
            return ""
        listed = os.listdir("many")
        names = Counter(listed)
        lacking = 0
        for number in range(self._count):
            for entry in range(self._entries // self._count):
                lacking += f"{number}.{entry}" not in names
        if lacking or len(names) < len(listed):
            return f"{lacking} names lack, {len(listed) - len(names)} come twice, of {len(listed)}"
        return ""


def command(words: list[str]) -> int:
    """Join who asks clients, by the agent's command ``client ADDRESS PORT PASSWORD``; return the exit status.

    However the other end goes, the directory that this client has made goes, too.
    """
    line = join(*words)
    with (
        contextlib.ExitStack() as leaving,
        contextlib.suppress(NodeError, BrokenPipeError),
    ):
        client = Client(leaving)
        while True:
            method, asked, client.before = line.hear(None)
            try:
                answer = getattr(client, method)(*asked)
            except OSError as error:
                answer = str(error)
            line.tell(answer)
    return 0
