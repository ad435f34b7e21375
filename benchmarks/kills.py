"""Sessions killed at random moments: what is left, what is lost, what runs on.

    nice python benchmarks/kills.py [--kills 1000] [--seed 1]

Each worker has a small ext4 of its own (a plain directory where that cannot be mounted) on which foreign files, another
user's session and a living session of the caller's lie. It runs real sessions of one to three small cases of fio on it, or of one of
IOR or mdtest under mpirun where these are on PATH, and hits one of the processes, or all at once, at a random moment.
Then it looks:

- Nothing runs on.
- Everything foreign is bit for bit as it was.
- Each case of which ReFrame said how it ended has one record, and the record's verdict is what ReFrame said.
- No line that once stood in a file of records was changed. The files are read while the session runs, too.
- After every third kill it runs ``iogauge clean`` once: nothing of any session is left, and no lock.

Exit status 1, with the kill's number, if one of these does not hold; also if no case of one of the checks ended, because
then nothing was seen of its records.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Collection
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "reframe" / "src")]

from e2e.rig import GENEROUS, Rig, checks_of, mount_of, mounted, processes, program_of  # noqa: E402
from e2e.test_faults import MDTEST  # noqa: E402
from e2e.test_never_pass import IOR  # noqa: E402
from iogauge.judge.verdict import Verdict  # noqa: E402
from iogauge.records import journal  # noqa: E402
from iogauge.records.record import Record  # noqa: E402
from iogauge.workspace import (  # noqa: E402
    directory,
    permission,
)

KILL, TERM, INT, HUP = signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP
#: What is hit, and with what; ``janitor`` is a kill of everything, and then of ``iogauge clean``.
KINDS = {
    "tool": (KILL, TERM, INT),
    "job": (KILL, TERM, INT),
    "agent": (KILL, TERM),
    "session": (KILL, TERM, INT, HUP),
    "everything": (KILL, TERM, INT),
    "janitor": (KILL,),
}
CASES = [("-n", "FioRandomRead%block=4KiB"), ("-n", "FioRandomRead")]
if all(map(shutil.which, ("ior", "mdtest", "mpirun"))):
    CASES += [IOR, MDTEST]
TOOLS = ("fio", "ior", "mdtest", "mpirun")
#: A case's time limit: fio waits for ever where one of its processes was killed before it began.
TIME_LIMIT = "40s"
#: Seconds until everything that was hit must have ended, on a busy machine.
ANSWER_S = 600
#: A line of ReFrame's about a case that ended: how, and which. ABORT, of a case that did not end, is none of these.
ENDED = re.compile(
    r"^\[ +(OK|FAIL|SKIP|ERROR|XFAIL|XPASS) +\] \( *[0-9]+/[0-9]+\) (\w[^/\n]*?) */[0-9a-f]{8} ",
    re.MULTILINE,
)
#: What ReFrame says at the end of a session: how many cases ended, how many others were skipped, and how many
#: aborted. A case that is OK is ABORTed, too, if the session is interrupted before the next one begins.
RAN = re.compile(
    r"\] Ran ([0-9]+)/[0-9]+ test case.* ([0-9]+) skipped, ([0-9]+) aborted"
)
#: Sessions at once.
WORKERS = 4
#: How often the records are read while a session runs.
LOOK_S = 0.2


class Broken(Exception):
    """What was promised does not hold. The message says which."""


def demand(holds: object, text: str) -> None:
    if not holds:
        raise Broken(text)


def snapshot(target: Path) -> dict[str, str]:
    """Everything below a directory, by its path: kind, owner, mode, and of files time and content."""
    found = {}
    for path in [target, *target.rglob("*")]:
        info = path.lstat()
        said = f"{info.st_mode:o} {info.st_uid} {info.st_gid}"
        if path.is_symlink():
            said += f" {os.readlink(path)}"
        elif path.is_file():
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            said += f" {info.st_size} {info.st_mtime_ns} {digest}"
        found[str(path.relative_to(target))] = said
    return found


def lay_out(target: Path, chance: random.Random) -> None:
    """Foreign files, and sessions that no janitor may touch."""
    ours = target / "iogauge" / directory.user_name()
    theirs = target / "iogauge" / "somebody" / "20260101T000000-elsewhere-1"
    alive = ours / f"20260101T000000-{socket.gethostname()}-{os.getpid()}"
    bare = ours / "20260101T000000-no-marker-1"
    # Of half of the targets the directories of other cases lie there: what is measured is CONTAMINATED.
    case = chance.choice(["case", "."])
    for folder in (target / "data", theirs / case, alive / case, bare):
        folder.mkdir(parents=True)
        for number in range(5):
            (folder / f"file{number}").write_bytes(
                chance.randbytes(chance.randrange(1, 20_000))
            )
        (folder / "link").symlink_to("/etc/passwd")
    (target / "data" / "inward").symlink_to(theirs)
    for session in (theirs, alive):
        said = {
            "session": session.name,
            "host": socket.gethostname(),
            "expires": "2099-01-01T00:00:00Z",
        }
        (session / directory.MARKER).write_text(json.dumps(said))
    os.chmod(target / "iogauge", 0o1777)
    if os.getuid() == 0:
        for path in [theirs.parent, *theirs.parent.rglob("*")]:
            os.chown(path, 65534, 65534, follow_symlinks=False)


def unignore() -> None:
    """What a caller may ignore (nohup, a shell's background) must reach the session."""
    for number in (INT, HUP):
        signal.signal(number, signal.SIG_DFL)


def is_orphan(pid: int) -> bool:
    """Whether a process is the tool's, and what had started it is gone."""
    with contextlib.suppress(OSError):
        parent = int(
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
        )
        return program_of(pid) in TOOLS and program_of(parent) not in (
            *TOOLS,
            "bash",
            "sh",
        )
    return True


class Records:
    """The records of a rig's sessions. Each look demands that all that was there still is."""

    def __init__(self, history: Path) -> None:
        self.history = history
        self.seen: dict[Path, bytes] = {}

    def look(self) -> None:
        now = {file: file.read_bytes() for file in self.history.rglob("*.jsonl")}
        for file, text in self.seen.items():
            demand(now.get(file, b"").startswith(text), f"{file} was rewritten")
        self.seen = now

    def of_session(self, said: str, earlier: Collection[Path]) -> list[Record]:
        """Records of a session, from the one file that was not there earlier; raises :class:`Broken`.

        ``said`` is what ReFrame printed: every case that ended there has one record, with that end.
        """
        self.look()
        new = self.seen.keys() - earlier
        demand(len(new) <= 1, f"more than one file of records: {new}")
        found = [one for file in new for one in journal.read_whole(file)]
        records = [one for one in found if isinstance(one, Record)]
        damaged = [one for one in found if isinstance(one, journal.Damaged)]
        demand(not damaged, f"damaged: {damaged}")
        kept = Counter(record.case for record in records)
        demand(set(kept.values()) <= {1}, f"recorded twice: {kept}\n{said}")
        ended = {case.strip(): end for end, case in ENDED.findall(said)}
        lost = ended.keys() - kept
        demand(
            not lost, f"ended and not recorded: {lost} (recorded: {[*kept]})\n{said}"
        )
        for record in records:
            end = ended.get(record.case)
            fits = end is None or (end == "OK") == (record.verdict is Verdict.PASS)
            demand(
                fits,
                f"recorded as {record.verdict.value}, ended with {end}: {record.case}\n{said}",
            )
        for ran, skipped, aborted in RAN.findall(said):
            count = int(ran) + int(skipped)
            fits = count <= len(ended) <= count + int(aborted)
            demand(fits, f"{count} cases ended, {len(ended)} were read\n{said}")
        return [record for record in records if record.case in ended]


class Worker:
    """A rig on which one session after the other is hit."""

    def __init__(self, base: Path, target: Path, chance: random.Random) -> None:
        self.chance = chance
        self.rig = Rig(
            base=base,
            target=target,
            tools=("fio", "ior", "mdtest") if MDTEST in CASES else ("fio",),
            limits={
                "case_bytes": "8 MiB",
                "case_files": 2000,
                "phase_seconds": "0.2 s",
            },
        )
        self.rig.time_limit = TIME_LIMIT
        self.rig.write_settings()
        self.rig.write_references(GENEROUS)
        (target / permission.MARKER).touch()
        lay_out(target, chance)
        self.before = snapshot(target)
        self.records = Records(self.rig.home / "history")
        #: Records of cases that ended, by check and verdict.
        self.recorded: Counter[str] = Counter()
        #: Kills after which processes of the tool had lost what started them, and waited for it.
        self.orphans = 0
        #: Seconds from a session's first sign on the target to its end, as seen so far.
        self.span_s = 2.0

    def of_kind(self, kind: str) -> list[int]:
        """Processes of the session that a kind of kill may hit."""
        mine = [pid for pid in processes(str(self.rig.base)) if program_of(pid)]
        if kind == "everything":
            return mine

        def line(pid: int) -> bytes:
            with contextlib.suppress(OSError):
                return Path(f"/proc/{pid}/cmdline").read_bytes()
            return b""

        if kind == "tool":
            return [pid for pid in mine if program_of(pid) in TOOLS]
        mark = {"job": b"rfm_job.sh", "agent": b"job/start.py"}[kind]
        return [pid for pid in mine if mark in line(pid)]

    def sleep_until_near(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for a random moment; nine of ten are after the session's first sign on the target."""
        if self.chance.random() < 0.1:
            seconds = self.chance.uniform(0, 2 * self.span_s)
        else:
            while process.poll() is None and not self.sessions():
                time.sleep(0.005)
            seconds = self.chance.uniform(0, 1.2 * self.span_s)
        self.watch(process, seconds)

    def watch(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        """Look at the records until a time is over or the session ends."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.records.look()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(min(left, LOOK_S))
                return

    def sessions(self) -> list[str]:
        """Directories of sessions of ours on the target, but for those that lie there."""
        with contextlib.suppress(OSError):
            names = os.listdir(self.rig.target / "iogauge" / directory.user_name())
            return [name for name in names if not name.startswith("20260101")]
        return []

    def hit(
        self, kind: str, number: signal.Signals, process: subprocess.Popen[bytes]
    ) -> int:
        """Send a signal to what the kind says; how many processes were there to get it."""
        while True:
            if kind == "session":
                chosen = [process.pid] if process.poll() is None else []
            else:
                chosen = self.of_kind(kind)
                if kind != "everything" and chosen:
                    chosen = [self.chance.choice(chosen)]
            if chosen or process.poll() is not None:
                break
            time.sleep(0.02)
        for pid in chosen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return len(chosen)

    def clean(self, kill_after: float | None = None) -> None:
        code = "import sys; sys.argv[0] = 'iogauge'; from iogauge.cli.app import app; app()"
        words = [sys.executable, "-c", code, "clean"]
        environment = self.rig.environment(PYTHONPATH=str(ROOT / "reframe" / "src"))
        process = subprocess.Popen(
            words,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            out, _ = process.communicate(timeout=kill_after or ANSWER_S)
        except subprocess.TimeoutExpired:
            process.kill()
            out, _ = process.communicate()
            demand(kill_after, f"iogauge clean does not end: {out.decode()}")
            return
        demand(kill_after or process.returncode == 0, f"iogauge clean: {out.decode()}")

    def once(self, kind: str, number: signal.Signals) -> bool:
        """One session, one kill, one look; False where the session had ended before it could be hit."""
        rig = self.rig
        log = rig.base / "out.txt"
        with open(log, "wb") as out:
            case = self.chance.choice(CASES)
            process = subprocess.Popen(
                [
                    str(Path(sys.executable).with_name("reframe")),
                    *(word for file in checks_of(case) for word in ("-c", file)),
                    "-r",
                    *case,
                ],
                cwd=ROOT,
                env=rig.environment(RFM_COLORIZE="n"),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                preexec_fn=unignore,
            )
            began = time.monotonic()
            earlier = set(self.records.seen)
            self.sleep_until_near(process)
            count = self.hit(
                "everything" if kind == "janitor" else kind, number, process
            )
            self.watch(process, ANSWER_S)
            demand(
                process.poll() is not None, f"the session does not end in {ANSWER_S} s"
            )
        if not count and self.chance.random() < 0.5:
            self.span_s = max(0.2, 0.9 * self.span_s)
        elif time.monotonic() - began > 3 * self.span_s:
            self.span_s *= 1.05
        end = time.monotonic() + ANSWER_S
        before_that: list[int] = []
        while left := [pid for pid in processes(str(rig.base)) if program_of(pid)]:
            if left == before_that and all(map(is_orphan, left)):
                self.orphans += 1
                break
            demand(time.monotonic() < end, f"runs on: {[*map(program_of, left)]}")
            before_that = left
            time.sleep(0.5)
        if kind == "janitor":
            self.clean(self.chance.uniform(0.3, 2.5))
        if cleaned := kind == "janitor" or bool(left) or self.chance.random() < 1 / 3:
            self.clean()
            left = [pid for pid in processes(str(rig.base)) if program_of(pid)]
            demand(not left, f"runs on after iogauge clean: {[*map(program_of, left)]}")
        self.look(log.read_text(errors="replace"), earlier, cleaned)
        shutil.rmtree(rig.home / "reframe", ignore_errors=True)
        return count > 0

    def look(self, said: str, earlier: Collection[Path], cleaned: bool) -> None:
        """Raise :class:`Broken` unless all that was promised holds."""
        now = snapshot(self.rig.target)
        changed = [path for path, seen in self.before.items() if now.get(path) != seen]
        demand(not changed, f"foreign, and not as it was: {changed[:5]}\n{said}")
        left = sorted(now.keys() - self.before.keys())
        demand(not (cleaned and left), f"left after iogauge clean: {left[:5]}\n{said}")
        for record in self.records.of_session(said, earlier):
            self.recorded[f"{record.check} {record.verdict.value}"] += 1


def work(
    base: Path, place: Path, seed: int, kinds: list[tuple[str, int]]
) -> dict[str, object]:
    """Deliver some kills; counts by kind, and what broke."""
    chance = random.Random(seed)
    done: Counter[str] = Counter()
    sessions = 0
    broken: list[str] = []
    base.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        target = place
        if os.getuid() == 0 and shutil.which("mkfs.ext4"):
            with contextlib.suppress(OSError):
                target = stack.enter_context(
                    mounted(place, "ext4", 96 << 20, base / "image")
                )
                # Else what lies below counts as a cache, and nothing could pass.
                device = mount_of(target)[1]
                subprocess.run(
                    ["losetup", "--direct-io=on", device], check=True, timeout=60
                )
        worker = Worker(base / "rig", target, chance)
        for kind, number in kinds:
            name = f"{kind} {signal.Signals(number).name}"
            try:
                for _ in range(20):
                    sessions += 1
                    if worker.once(kind, signal.Signals(number)):
                        break
                else:
                    raise Broken("twenty sessions ended before they could be hit")
                done[name] += 1
                print(
                    f"{sum(done.values())}/{len(kinds)} {name}",
                    file=sys.stderr,
                    flush=True,
                )
            except Exception as error:
                text = (
                    str(error) if isinstance(error, Broken) else traceback.format_exc()
                )
                broken.append(
                    f"seed {seed}, kill {sum(done.values()) + 1} ({name}): {text}"
                )
                print(broken[-1], file=sys.stderr, flush=True)
                break
    return {
        "done": dict(done),
        "sessions": sessions,
        "orphans": worker.orphans,
        "recorded": dict(worker.recorded),
        "broken": broken,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    chance = random.Random(given.seed)
    all_kinds = [
        (kind, number) for kind, numbers in KINDS.items() for number in numbers
    ]
    kills = [(k, int(n)) for k, n in (all_kinds * given.kills)[: given.kills]]
    chance.shuffle(kills)
    start = time.monotonic()
    base = Path(tempfile.mkdtemp(prefix="iogauge-kills-"))
    with multiprocessing.get_context("fork").Pool(WORKERS) as pool:
        jobs = [
            (
                base / f"w{n}",
                base / f"w{n}" / "place",
                given.seed * 1000 + n,
                kills[n::WORKERS],
            )
            for n in range(WORKERS)
        ]
        results = pool.starmap(work, jobs)
    done: Counter[str] = Counter()
    recorded: Counter[str] = Counter()
    for result in results:
        done.update(result["done"])
        recorded.update(result["recorded"])
    broken = [text for result in results for text in result["broken"]]
    for name, count in sorted(done.items()):
        print(f"{name:20} {count:5}")
    print(
        f"{sum(done.values())} kills of {sum(r['sessions'] for r in results)} sessions in "
        f"{time.monotonic() - start:.0f} s; ended and recorded: {dict(sorted(recorded.items()))}; {sum(r['orphans'] for r in results)} times "
        f"processes of a tool were left and ended by iogauge clean; broken promises: {len(broken)}"
    )
    unseen = {words[1].partition("%")[0] for words in CASES} - {
        name.split()[0] for name in recorded
    }
    broken += [
        f"nothing was seen of its records, no case ended: {check}"
        for check in sorted(unseen)
    ]
    for text in broken:
        print(text)
    if broken:
        sys.exit(1)
    shutil.rmtree(base)


if __name__ == "__main__":
    main()
