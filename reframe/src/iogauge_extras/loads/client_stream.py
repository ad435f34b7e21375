"""What a client does in Failover: it writes and creates until its time is over, and later checks what another one acknowledged.

A block is acknowledged when an fsync after it has succeeded, a file when one of its directory has. A client writes its file part
by part. It goes through a part again and again, until the failure begins or a batch fails or stalls: then that part stays as it
was acknowledged, and it goes on in the next one.
"""

import json
import os
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from iogauge.core import untrusted
from iogauge.core.paths import expand
from iogauge_extras.loads.blocks import BLOCK_BYTES, block, state_of

#: Blocks, and files, between two calls of fsync.
BATCH = 4
#: Parts of a client's file.
PARTS = 4
#: Seconds of a step of the bandwidth over time; of a batch that has stalled; to wait after an error, and after files.
STEP_S = 0.5
STALLED_S = 2.0
_PAUSE_S = 0.1
#: Status of a command that has not ended; no program has it.
UNENDED = 256
#: The one client that makes this file in the stage directory starts the site's command.
_MARK = "failover.command"
#: Folders of the stage directory with each client's report of what it wrote, and of what it found.
WRITTEN = "failover.write"
CHECKED = "failover.check"


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
    #: The generation of each block that was acknowledged last; 0: none, or it was being overwritten at the end.
    acknowledged: tuple[int, ...]
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


class _Client:
    """A client of the target, with a file and a directory of its own."""

    def __init__(self, place: str, plan: StreamPlan) -> None:
        """Make the directory; raises OSError."""
        self.plan = plan
        self.host = socket.gethostname()
        self.owner = f"{uuid.uuid4().hex} {self.host}"
        self.began = time.monotonic()
        self.steps = [0] * (int(plan.seconds / STEP_S) + 1)
        self.acknowledged = [0] * (PARTS * plan.blocks)
        #: The part of the file that it goes through, the block of it that is next, and the generation.
        self.part = self.next = self.generation = 0
        self.created = self.bytes = 0
        self.failing = False
        #: Length and begin of the times without an acknowledgement; when the last block had one.
        self.gaps: list[tuple[float, float]] = []
        self.last = 0.0
        self.errors: list[str] = []
        self.marks: tuple[float, float, int] | None = None
        self.file = Path(place, f"{self.host}.data")
        self.directory = Path(place, self.host)
        self.directory.mkdir()

    def now(self) -> float:
        """Return the seconds since it began."""
        return time.monotonic() - self.began

    def run(self, batch: Callable[[], None], pause_s: float) -> None:
        """Do batches, with a pause after each, until its time is over; note how long each takes until it succeeds."""
        while self.now() < self.plan.seconds:
            started = self.now()
            done = False
            while not done and self.now() < self.plan.seconds:
                try:
                    batch()
                    done = True
                except OSError as error:
                    self.errors.append(str(error)[:200])
                    self.failing = True
                    time.sleep(_PAUSE_S)
            self.gaps.append((self.now() - started, started))
            time.sleep(pause_s)

    def write(self) -> None:
        """Write a batch of blocks, and sync; raises OSError."""
        if self.failing and self.part < PARTS - 1:
            self.part += 1
            self.next = 0
            self.failing = False
        first = self.part * self.plan.blocks + self.next
        numbers = range(first, first + BATCH)
        self.generation += 1
        fd = os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            for number in numbers:
                self.acknowledged[number] = 0
                content = block(self.owner, number, self.generation)
                taken = os.pwrite(fd, content, number * BLOCK_BYTES)
                self.bytes += taken
                if taken < BLOCK_BYTES:
                    raise OSError(f"block {number}: write took {taken} bytes")
            os.fsync(fd)
        finally:
            os.close(fd)
        for number in numbers:
            self.acknowledged[number] = self.generation
        self.next = (self.next + BATCH) % self.plan.blocks
        now = self.now()
        self.failing |= now - self.last > STALLED_S
        self.last = now
        step = min(int(now / STEP_S), len(self.steps) - 1)
        self.steps[step] += BATCH * BLOCK_BYTES

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

    def fail(self) -> None:
        """Run the site's command when its time has come, or ask somebody to do it; on one client alone."""
        time.sleep(self.plan.after)
        self.failing = True
        try:
            os.close(os.open(_MARK, os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return
        if not self.plan.command:
            # Its imports take time that the clock of no client may count.
            from iogauge.plan.stage import SAYS

            Path(SAYS).write_text("pull it now, and bring it back")
            return
        began = self.now()
        self.marks = (began, self.plan.seconds, UNENDED)
        # Whoever ends the job ends its process group. The command goes on: it brings back what it took away.
        done = subprocess.run(
            ["sh", "-c", self.plan.command],
            stdin=subprocess.DEVNULL,
            stdout=2,
            check=False,
            start_new_session=True,
        )
        self.marks = (began, self.now(), done.returncode)


def _keep(folder: str, report: Written | Checked) -> None:
    """Keep a client's report in a folder of the stage directory: a launcher may mix what several clients print."""
    os.makedirs(folder, exist_ok=True)
    text = json.dumps(report.to_json())
    Path(folder, f"{report.host}.json").write_text(text, encoding="utf-8")


def _write(words: list[str]) -> Written:
    """Write, create and fail."""
    _, place, plan_file = words
    plan = StreamPlan.from_json(untrusted.read_json(plan_file))
    client = _Client(expand(place), plan)
    # So many files that the last one is made at the end.
    pause_s = max(_PAUSE_S, plan.seconds * BATCH / plan.files)
    threading.Thread(target=client.fail, daemon=True).start()
    creating = threading.Thread(target=client.run, args=(client.create, pause_s))
    creating.start()
    client.run(client.write, 0.0)
    creating.join()
    length, begin = max(client.gaps)
    return Written(
        words=("failover", *words),
        host=client.host,
        owner=client.owner,
        seconds=client.now(),
        acknowledged=tuple(client.acknowledged),
        created=client.created,
        bytes=client.bytes,
        steps=tuple(client.steps),
        gap=(begin, length),
        errors=tuple(client.errors),
        marks=client.marks,
    )


def _check(words: list[str]) -> Checked:
    """Read what the next client acknowledged."""
    began, host = time.monotonic(), socket.gethostname()
    directory = Path(expand(words[1]))
    reports: list[Written] = []
    for file in sorted(Path(WRITTEN).iterdir()):
        reports.append(Written.from_json(untrusted.read_json(file)))
    hosts = [report.host for report in reports]
    other = reports[(hosts.index(host) + 1) % len(reports)]
    wrong: list[str] = []
    blocks = 0
    with open(directory / f"{other.host}.data", "rb") as data:
        for number, due in enumerate(other.acknowledged):
            if due:
                blocks += 1
                data.seek(number * BLOCK_BYTES)
                state = state_of(data.read(BLOCK_BYTES), other.owner, number, due)
                if state != "right":
                    wrong.append(f"block {number} is {state}")
    for number in range(other.created):
        if not (directory / other.host / str(number)).exists():
            wrong.append(f"file {number} is lost")
    return Checked(
        words=("failover", *words),
        host=host,
        of=other.host,
        seconds=time.monotonic() - began,
        blocks=blocks,
        files=other.created,
        wrong=tuple(wrong),
    )


def command(words: list[str]) -> int | None:
    """``failover write DIR PLAN`` or ``failover check DIR``; return None for other words."""
    match words:
        case ["write", _, _]:
            _keep(WRITTEN, _write(words))
        case ["check", _]:
            _keep(CHECKED, _check(words))
        case _:
            return None
    return 0
