"""What a client does in Failover: it writes and creates until its time is over, and later checks what another one acknowledged.

A block is acknowledged when an fsync after it has succeeded, a file when one of its directory has. A block has a line with the
client's token and host, its number and its generation, and then bytes that follow from these: so a lost block, an old one, a
foreign and a damaged one are told apart. A client writes its file part by part. It goes through a part again and again, until
the failure begins or a batch fails or stalls: then that part stays as it was acknowledged, and it goes on in the next one.
"""

from __future__ import annotations

import functools
import json
import os
import random
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from iogauge.core import untrusted
from iogauge.core.paths import expand

BLOCK_BYTES: Final = 1 << 20
#: Blocks, and files, between two calls of fsync.
BATCH: Final = 4
#: Parts of a client's file.
PARTS: Final = 4
#: Seconds of a step of the bandwidth over time; of a batch that has stalled; to wait after an error, and after files.
STEP_S: Final = 0.5
STALLED_S: Final = 2.0
_PAUSE_S: Final = 0.1
_HEAD_BYTES: Final = 128
#: Status of a command that has not ended; no program has it.
UNENDED: Final = 256
#: The one client that makes this file in the stage directory starts the site's command.
_MARK: Final = "failover.command"
#: Folders of the stage directory with each client's report of what it wrote, and of what it found.
WRITTEN: Final = "failover.write"
CHECKED: Final = "failover.check"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlan(untrusted.Plain):
    """What each client does."""

    #: Seconds of the stream, and before the failure.
    seconds: float
    after: float
    #: Blocks of a part of the file, a multiple of :data:`BATCH`; files that are made at most.
    blocks: int
    files: int
    #: The site's command, empty if somebody lets the storage fail by hand.
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Written(untrusted.Plain):
    """What a client reports of its stream; times are in seconds."""

    words: tuple[str, ...]
    host: str
    #: The words that every block of this client bears.
    owner: str
    #: How long it took.
    seconds: float
    #: How often each block was acknowledged.
    acknowledged: tuple[int, ...]
    #: Blocks that were being overwritten at the end: nobody promises what is in them then.
    pending: tuple[int, ...]
    #: Files that were acknowledged.
    created: int
    #: Bytes that write(2) took.
    bytes: int
    #: Bytes that were acknowledged in each step.
    steps: tuple[int, ...]
    #: Begin and length of the longest time without an acknowledgement, of blocks or of files.
    gap: tuple[float, float]
    #: Errors that it saw.
    errors: tuple[str, ...]
    #: Begin and end of the site's command, if this client ran it, and its exit status.
    marks: tuple[float, float, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked(untrusted.Plain):
    """What a client found of the blocks and files of another one, ``of``."""

    words: tuple[str, ...]
    host: str
    of: str
    seconds: float
    blocks: int
    files: int
    #: What is wrong: ``block 17 is old``.
    wrong: tuple[str, ...]


@functools.cache
def _filler(owner: str) -> bytes:
    return random.Random(owner).randbytes(BLOCK_BYTES)


def block(owner: str, number: int, generation: int) -> bytes:
    """Return the content of a block."""
    head = f"{owner} {number} {generation}".encode().ljust(_HEAD_BYTES)
    # Another part of the same bytes for each block and generation: no page is like that of another.
    at = (number * 4099 + generation * 65537) % BLOCK_BYTES
    filler = _filler(owner)
    return (head + filler[at:] + filler[:at])[:BLOCK_BYTES]


def state_of(found: bytes, owner: str, number: int, due: int) -> str:
    """Return what a block is of which generation ``due`` was acknowledged: right, lost, old, foreign or damaged."""
    if not found.strip(b"\0"):
        return "lost"
    head = found[:_HEAD_BYTES].decode("ascii", "replace")
    whose, _, generation = head.rstrip().rpartition(" ")
    if not generation.isdecimal():
        return "damaged"
    if whose != f"{owner} {number}":
        return "foreign"
    if found != block(owner, number, int(generation)):
        return "damaged"
    # A write that was never acknowledged may have arrived.
    return "old" if int(generation) < due else "right"


@dataclass(slots=True)
class _Progress:
    """When something was acknowledged, in seconds of the monotonic clock, and what failed."""

    began: float
    last: float
    gap: tuple[float, float] = (0.0, 0.0)
    errors: list[str] = field(default_factory=list)

    def tick(self) -> float:
        """Note that something was acknowledged; return the seconds since the last time."""
        now = time.monotonic()
        length = now - self.last
        if length > self.gap[1]:
            self.gap = (self.last - self.began, length)
        self.last = now
        return length

    def run(self, end: float, batch: Callable[[], None]) -> None:
        """Do batches until the end."""
        while time.monotonic() < end:
            try:
                batch()
            except OSError as error:
                self.errors.append(str(error)[:200])
                time.sleep(_PAUSE_S)
        # What has not come back is without an acknowledgement until now.
        self.tick()


class _Client:
    """A client of the target, with a file and a directory of its own."""

    def __init__(self, place: str, plan: StreamPlan) -> None:
        """Make the directory; raises OSError."""
        self.plan = plan
        self.host = socket.gethostname()
        self.owner = f"{uuid.uuid4().hex} {self.host}"
        self.began = time.monotonic()
        self.data = _Progress(self.began, self.began)
        self.names = _Progress(self.began, self.began)
        self.steps = [0] * (int(plan.seconds / STEP_S) + 1)
        self.acknowledged = [0] * (PARTS * plan.blocks)
        #: The part of the file that it goes through, the block of it that is next, and the blocks that are being written.
        self.part = self.next = 0
        self.pending = range(0)
        self.created = self.bytes = 0
        self.failing = False
        self.marks: tuple[float, float, int] | None = None
        self.file = Path(place, f"{self.host}.data")
        self.directory = Path(place, self.host)
        self.directory.mkdir()

    def write(self) -> None:
        """Write a batch of blocks, and sync; raises OSError."""
        first = self.part * self.plan.blocks + self.next
        self.pending = range(first, first + BATCH)
        fd = os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            for number in self.pending:
                content = block(self.owner, number, self.acknowledged[number])
                taken = os.pwrite(fd, content, number * BLOCK_BYTES)
                self.bytes += taken
                if taken < BLOCK_BYTES:
                    raise OSError(f"block {number}: write took {taken} bytes")
            os.fsync(fd)
        finally:
            os.close(fd)
        for number in self.pending:
            self.acknowledged[number] += 1
        self.pending = range(0)
        self.next = (self.next + BATCH) % self.plan.blocks
        stalled = self.data.tick() > STALLED_S or self.failing
        step = int((self.data.last - self.began) / STEP_S)
        self.steps[min(step, len(self.steps) - 1)] += BATCH * BLOCK_BYTES
        if stalled and self.part < PARTS - 1:
            self.part += 1
            self.next = 0
            self.failing = False

    def create(self) -> None:
        """Create a batch of files, and sync; raises OSError."""
        for number in range(self.created, self.created + BATCH):
            # The reply may have been lost, and the file be there.
            (self.directory / str(number)).touch(mode=0o600)
        fd = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        self.created += BATCH
        self.names.tick()
        # So many files that the last one is made at the end.
        time.sleep(max(_PAUSE_S, self.plan.seconds * BATCH / self.plan.files))
        self.names.last = time.monotonic()

    def fail(self) -> None:
        """Run the site's command when its time has come, or ask somebody to do it; on one client alone."""
        time.sleep(self.plan.after)
        self.failing = True
        try:
            os.close(os.open(_MARK, os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return
        if not self.plan.command:
            print("failover: pull it now, and bring it back", flush=True)
            return
        began = time.monotonic() - self.began
        self.marks = (began, self.plan.seconds, UNENDED)
        # Whoever ends the job ends its process group. The command goes on: it brings back what it took away.
        done = subprocess.run(
            ["sh", "-c", self.plan.command],
            stdin=subprocess.DEVNULL,
            stdout=2,
            check=False,
            start_new_session=True,
        )
        ended = time.monotonic() - self.began
        self.marks = (began, ended, done.returncode)


def _keep(folder: str, report: Written | Checked) -> None:
    """Keep a client's report in a folder of the stage directory: a launcher may mix what several clients print."""
    os.makedirs(folder, exist_ok=True)
    text = json.dumps(report.to_json())
    Path(folder, f"{report.host}.json").write_text(text, encoding="utf-8")


def write(place: str, plan_file: str) -> None:
    """Write, create and fail; keep the report."""
    plan = StreamPlan.from_json(untrusted.read_json(plan_file))
    client = _Client(expand(place), plan)
    end = client.began + plan.seconds
    failing = threading.Thread(target=client.fail, daemon=True)
    creating = threading.Thread(target=client.names.run, args=(end, client.create))
    failing.start()
    creating.start()
    client.data.run(end, client.write)
    creating.join()
    report = Written(
        words=("failover", "write", place, plan_file),
        host=client.host,
        owner=client.owner,
        seconds=time.monotonic() - client.began,
        acknowledged=tuple(client.acknowledged),
        pending=tuple(client.pending),
        created=client.created,
        bytes=client.bytes,
        steps=tuple(client.steps),
        gap=max(client.data.gap, client.names.gap, key=lambda gap: gap[1]),
        errors=(*client.data.errors, *client.names.errors),
        marks=client.marks,
    )
    _keep(WRITTEN, report)


def check(place: str) -> None:
    """Read what the next client acknowledged; keep what was found."""
    began, host = time.monotonic(), socket.gethostname()
    directory = Path(expand(place))
    reports: list[Written] = []
    for file in sorted(Path(WRITTEN).iterdir()):
        reports.append(Written.from_json(untrusted.read_json(file)))
    hosts = [report.host for report in reports]
    other = reports[(hosts.index(host) + 1) % len(reports)]
    wrong: list[str] = []
    blocks = 0
    with open(directory / f"{other.host}.data", "rb") as data:
        for number, times in enumerate(other.acknowledged):
            if not times:
                continue
            blocks += 1
            data.seek(number * BLOCK_BYTES)
            state = state_of(data.read(BLOCK_BYTES), other.owner, number, times - 1)
            torn = state == "damaged" and number in other.pending
            if state != "right" and not torn:
                wrong.append(f"block {number} is {state}")
    for number in range(other.created):
        if not (directory / other.host / str(number)).exists():
            wrong.append(f"file {number} is lost")
    report = Checked(
        words=("failover", "check", place),
        host=host,
        of=other.host,
        seconds=time.monotonic() - began,
        blocks=blocks,
        files=other.created,
        wrong=tuple(wrong),
    )
    _keep(CHECKED, report)


def command(words: list[str]) -> int | None:
    """``failover write DIR PLAN`` or ``failover check DIR``; return None for other words."""
    match words:
        case ["write", directory, plan_file]:
            write(directory, plan_file)
            return 0
        case ["check", directory]:
            check(directory)
            return 0
    return None
