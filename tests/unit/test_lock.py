"""One holder at a time, none that blocks for ever: the lock with real processes, and what may be found in its place."""

import contextlib
import fcntl
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from iogauge.cli import running
from iogauge.core.paths import LIBRARY
from iogauge.site import machine
from iogauge.workspace import lock
from iogauge.workspace.lock import Holder, Lock, LockError, Occupied
from support import hanging
from support.depth import FULL
from support.shell import as_user, completed

SOURCE = LIBRARY.parent


def details(lease_s=60, *processes):
    return lock.describe(
        session="s", case="c", lease_s=lease_s, processes=processes or (os.getpid(),)
    )


def describe(lease_s=60, *processes):
    return json.dumps(details(lease_s, *processes)).encode() + b"\n"


def sleep(seconds):
    time.sleep(seconds)
    return False


def take(place, lease_s=60, wait_s=20, **more):
    words = {"wait_s": wait_s, "pause": sleep, "say": lambda text: None, **more}
    return lock.take(str(place), details(lease_s), **words)


def held(place):
    return place / "iogauge" / ".lock" / "held"


def put(place, content=b"", name="0" * 32):
    """A lock of somebody, with any content."""
    held(place).mkdir(parents=True)
    (held(place) / name).write_bytes(content)
    return held(place) / name


class Clock:
    """A monotonic clock that only a pause moves, by ``rate`` times as much as it says."""

    def __init__(self, monkeypatch, rate=1):
        self.now, self.rate, self.pauses = 0.0, rate, 0
        monkeypatch.setattr(lock.time, "monotonic", lambda: self.now)

    def pause(self, seconds):
        self.now += self.rate * seconds
        self.pauses += 1
        return False


#: Takes the lock, says so, beats twenty times in a lease, and ends with its input: "kept" or "lost".
HOLDER = """
import select, sys, os
from iogauge.workspace import lock
place, lease = sys.argv[1], float(sys.argv[2])
content = lock.describe(session="other", case="theirs", lease_s=lease, processes=(os.getpid(),))
mine = lock.take(place, content, wait_s=60, pause=lambda s: bool(select.select([], [], [], s)[0]), say=print)
print("taken", flush=True)
while not select.select([0], [], [], lease / 20)[0]:
    mine.beat()
print("kept" if mine.release() else "lost")
"""


class Other:
    """Another process that holds the lock, if asked so on a host of another name."""

    def __init__(self, place, lease_s, host=""):
        words = [sys.executable, "-c", HOLDER, str(place), str(lease_s)]
        if host:
            words = [
                "unshare",
                "-u",
                "sh",
                "-c",
                'hostname "$0" && exec "$@"',
                host,
                *words,
            ]
        self.process = subprocess.Popen(
            words,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout.readline() == "taken\n"

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        return self.process.communicate("", timeout=600)[0].strip()


@pytest.fixture
def other(tmp_path):
    made = []

    def make(lease_s, host=""):
        if host and completed(["unshare", "-u", "true"]).returncode != 0:
            pytest.skip("no other host name without root")
        made.append(Other(tmp_path, lease_s, host))
        return made[-1]

    yield make
    for one in made:
        one.kill()
        one.process.communicate()


# --- taking and giving up -------------------------------------------------------------------------


def test_a_lock_says_whose_it_is_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    mine = take(tmp_path)
    holder = lock.standing(str(tmp_path))
    assert holder.name == mine.name
    assert mine.beat()
    assert lock.standing(str(tmp_path)).name == mine.name != holder.name
    assert not holder.gone
    assert holder.lease_s == 60
    for word in (
        "session s",
        "case c",
        f"host {os.uname().nodename}",
        "job 77",
        "since 20",
    ):
        assert word in str(holder)
    assert str(held(tmp_path)) in str(holder)
    assert mine.release()
    assert list(tmp_path.iterdir()) == []
    assert lock.standing(str(tmp_path)) is None


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o777])
def test_others_may_read_and_break_it_whatever_the_umask(tmp_path, mask):
    before = os.umask(mask)
    try:
        mine = take(tmp_path)
        assert os.umask(mask) == mask
    finally:
        os.umask(before)
    places = [tmp_path / "iogauge", held(tmp_path).parent, held(tmp_path)]
    assert [place.stat().st_mode & 0o7777 for place in places] == [0o1777, 0o777, 0o777]
    assert (held(tmp_path) / mine.name).stat().st_mode & 0o7777 == 0o644


def test_somebody_elses_work_stays(tmp_path):
    session = tmp_path / "iogauge" / "user" / "session"
    session.mkdir(parents=True)
    assert take(tmp_path).release()
    assert [path.name for path in (tmp_path / "iogauge").iterdir()] == ["user"]
    assert session.is_dir()


# --- waiting --------------------------------------------------------------------------------------


@pytest.mark.parametrize("listing", ["asked for", "old"])
def test_a_client_that_sees_an_old_beat_breaks_nothing(tmp_path, monkeypatch, listing):
    """Seen on NFS 3 with nocto and a long actimeo: the beat stayed old, and a living holder's lock was taken."""
    try:
        with hanging.mounted(tmp_path, old=True) as mount:
            first = Other(tmp_path / "back", 1)
            seen = lock.standing(str(mount.point))
            if listing == "old":
                monkeypatch.setattr(lock, "standing", lambda place: seen)
            messages = []
            with pytest.raises(Occupied):
                take(mount.point, wait_s=3, say=messages.append)
            assert [text for text in messages if "broken" in text] == []
            assert first.end() == "kept"
    except hanging.Unavailable as why:
        pytest.skip(str(why))


def test_waiting_ends_with_what_waits(tmp_path):
    put(tmp_path, describe())
    with pytest.raises(LockError, match="has ended"):
        take(tmp_path, pause=lambda seconds: True)


# --- the dead -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_killed_holder_elsewhere_is_followed_after_its_lease(tmp_path, other):
    first, said = other(2, "elsewhere"), []
    first.kill()
    with pytest.raises(Occupied, match="host elsewhere"):
        take(tmp_path, wait_s=0.5)
    start = time.monotonic()
    mine = take(tmp_path, say=said.append)
    assert time.monotonic() - start >= 2
    assert "no sign of life for 2.00 s" in said[-1]
    assert mine.release()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_holder_elsewhere_that_beats_is_left_alone(tmp_path, other):
    first = other(2, "elsewhere")
    with pytest.raises(Occupied):
        take(tmp_path, wait_s=5)
    assert first.end() == "kept"


def test_all_of_its_processes_must_have_ended(tmp_path):
    gone = subprocess.Popen(["true"])
    content = describe(3600, gone.pid, os.getpid())
    gone.wait()
    path = str(put(tmp_path, content))
    assert not Holder(path, "x", content).gone
    alone = json.loads(content)
    alone["processes"] = alone["processes"][:1]
    assert Holder(path, "x", json.dumps(alone).encode()).gone


def test_a_number_that_another_process_has_now_is_no_sign_of_life():
    said = json.loads(describe())
    said["processes"][0][1] += 1
    assert Holder("", "x", json.dumps(said).encode()).gone


@pytest.mark.parametrize("part", [0, 1, 2])
def test_of_another_host_boot_or_namespace_nothing_is_known(part):
    said = json.loads(describe())
    said["processes"] = [[1 << 30, 1]]
    assert Holder("", "x", json.dumps(said).encode()).gone
    said["node"][part] = "another"
    assert not Holder("", "x", json.dumps(said).encode()).gone


def test_clocks_that_jump_do_not_make_a_holder_dead(tmp_path, monkeypatch):
    """The waiter sleeps for hours between two looks, and has looked for less than a lease."""
    put(tmp_path, describe(100))
    clock = Clock(monkeypatch, rate=3600)
    with pytest.raises(Occupied):
        take(tmp_path, wait_s=50 * 3600, pause=clock.pause)
    assert clock.pauses == 50


# --- races ----------------------------------------------------------------------------------------


def test_who_broke_too_late_breaks_nothing(tmp_path):
    put(tmp_path, describe())
    old = lock.standing(str(tmp_path))
    assert old is not None
    assert lock.remove(old)
    mine = take(tmp_path, wait_s=0)
    before = lock.standing(str(tmp_path))
    assert mine.beat()
    assert not lock.remove(old)
    assert not lock.remove(before)
    lock.tidy(str(tmp_path))
    assert mine.release()


def test_a_taker_that_was_swept_away_has_nothing_and_begins_again(
    tmp_path, monkeypatch
):
    rename = os.rename

    def swept(source, target, **fds):
        monkeypatch.setattr(os, "rename", rename)
        (tmp_path / "iogauge" / ".lock" / source / source).unlink()
        rename(source, target, **fds)

    monkeypatch.setattr(os, "rename", swept)
    mine = Lock(str(tmp_path), details())
    assert not mine.try_take()
    assert list(held(tmp_path).iterdir()) == []
    assert mine.try_take()
    assert mine.release()


@pytest.mark.parametrize("number", ["ENOENT", "EEXIST", "ENOTEMPTY"])
def test_a_rename_that_a_server_was_asked_for_twice(tmp_path, monkeypatch, number):
    import errno

    rename = os.rename

    def twice(source, target, **fds):
        rename(source, target, **fds)
        # A beat renames a file, whose old name is gone the second time.
        error = number if target == "held" else "ENOENT"
        raise OSError(getattr(errno, error), "the second time")

    monkeypatch.setattr(os, "rename", twice)
    assert take(tmp_path, wait_s=0).release()


@pytest.mark.parametrize("kind", ["another lock", "an empty one"])
def test_a_file_system_that_renames_over_nothing_only(tmp_path, monkeypatch, kind):
    rename = os.rename

    def strict(source, target, **fds):
        if os.path.lexists(tmp_path / "iogauge" / ".lock" / target):
            raise FileExistsError(17, "exists")
        rename(source, target, **fds)

    monkeypatch.setattr(os, "rename", strict)
    held(tmp_path).mkdir(parents=True)
    if kind == "another lock":
        (held(tmp_path) / ("0" * 32)).write_bytes(describe())
        with pytest.raises(Occupied):
            take(tmp_path, wait_s=0)
    else:
        assert take(tmp_path, wait_s=0).release()


def _contend(place, oracle, log, count, seed):
    """Take the lock so many times. A flock of this machine, which a death gives back, says whether one is alone."""
    rng = random.Random(seed)
    content = details(80000)
    with open(oracle) as alone, open(log, "a") as lines:
        for _ in range(count):
            mine = lock.take(
                place,
                content,
                wait_s=120,
                pause=lambda seconds: sleep(rng.uniform(0.001, 0.01)),
                say=lambda text: None,
            )
            try:
                fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lines.write("twice\n")
            if rng.random() < 0.2:
                time.sleep(rng.uniform(0, 0.002))
            fcntl.flock(alone, fcntl.LOCK_UN)
            lines.write("kept\n" if mine.release() else "lost\n")
            lines.flush()


@pytest.mark.slow
def test_many_contenders_and_sudden_deaths(tmp_path):
    """Twenty processes, twenty times each, while some are killed wherever they are: never two at once, none stuck."""
    times = 50 if FULL else 20
    oracle, log, place = tmp_path / "oracle", tmp_path / "log", tmp_path / "place"
    place.mkdir()
    oracle.touch()
    log.touch()
    rng, fork = random.Random(1), multiprocessing.get_context("fork")

    def start(seed):
        process = fork.Process(
            target=_contend,
            args=(str(place), str(oracle), str(log), times, seed),
            daemon=True,
        )
        process.start()
        return process

    workers = [start(seed) for seed in range(20)]
    killed, doomed = 0, []
    while alive := [worker for worker in workers if worker.is_alive()]:
        time.sleep(rng.uniform(0, 0.02 if killed < 10 else 0.06))
        for victim in doomed:
            victim.kill()
        doomed.clear()
        victim = rng.choice(alive)
        if killed < 40 and victim.is_alive():
            # Half of them stop first, in the midst of something, and are away for a while.
            if killed % 2:
                os.kill(victim.pid, signal.SIGSTOP)
                doomed.append(victim)
            else:
                victim.kill()
            killed += 1
            workers[workers.index(victim)] = start(100 + killed)
    for victim in doomed:
        victim.kill()
    lines = log.read_text().split()
    assert all(worker.exitcode == 0 for worker in workers)
    assert set(lines) == {"kept"}
    assert killed >= 10
    assert len(lines) >= 20 * times
    assert list(place.iterdir()) == []


# --- what may be found in its place ---------------------------------------------------------------

GOOD = json.loads(describe())
DAMAGED = {
    "empty": b"",
    "garbage": bytes(range(256)) * 40,
    "odd fields": json.dumps(
        {**GOOD, "processes": [[-1, 0]], "lease_s": "soon", "user": {"a": "\x1b[2J"}}
    ).encode(),
    "no processes": json.dumps({**GOOD, "processes": []}).encode(),
    "an endless lease": json.dumps({**GOOD, "lease_s": 1e99}).encode(),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_lock_lasts_for_the_usual_lease(tmp_path, monkeypatch, kind):
    put(tmp_path, DAMAGED[kind])
    holder = lock.standing(str(tmp_path))
    assert not holder.gone
    assert "\x1b" not in str(holder)
    clock = Clock(monkeypatch)
    lease_s = 60 if kind in ("no processes", "odd processes") else lock.LEASE_S
    mine = take(tmp_path, wait_s=600, pause=clock.pause)
    assert clock.now == lease_s
    assert mine.release()
    assert list(tmp_path.iterdir()) == []


def _link(path):
    (path.parent / "elsewhere").mkdir()
    (path.parent / "elsewhere" / ("0" * 32)).write_bytes(b"precious")
    path.symlink_to(path.parent / "elsewhere")


IN_THE_WAY = {
    "a file": lambda path: path.write_bytes(b""),
    "a link": _link,
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "a pipe": lambda path: os.mkfifo(path),
    "a directory with a file": lambda path: (path / "data").mkdir(parents=True),
    "a directory with a directory": lambda path: (path / ("0" * 32) / "x").mkdir(
        parents=True
    ),
    "a directory with a link": lambda path: (
        path.mkdir() or (path / "results").symlink_to("/etc/passwd")
    ),
}


@pytest.mark.parametrize("kind", IN_THE_WAY)
def test_what_is_no_lock_is_waited_for_and_never_removed(tmp_path, monkeypatch, kind):
    held(tmp_path).parent.mkdir(parents=True)
    IN_THE_WAY[kind](held(tmp_path))
    before = sorted(tmp_path.rglob("*"))
    clock = Clock(monkeypatch)
    # A directory of a lock's name that cannot be unlinked ends the waiting after a lease.
    with pytest.raises(
        (Occupied, LockError), match=r"is no lock|cannot be broken"
    ) as caught:
        take(tmp_path, wait_s=600, pause=clock.pause)
    assert clock.now >= (600 if caught.type is Occupied else lock.LEASE_S)
    assert str(held(tmp_path)) in str(caught.value)
    lock.tidy(str(tmp_path))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.needs_root
def test_a_full_target_is_an_error_and_leaves_nothing(tmp_path):
    words = [
        "mount",
        "-t",
        "tmpfs",
        "-o",
        "size=64k",
        "iogauge-test-lock",
        str(tmp_path),
    ]
    if completed(words).returncode != 0:
        pytest.skip("no tmpfs can be mounted here")
    try:
        with (
            contextlib.suppress(OSError),
            open(tmp_path / "data", "wb", buffering=0) as file,
        ):
            while True:
                file.write(b"x" * 4096)
        with pytest.raises(OSError, match="No space left"):
            take(tmp_path)
        assert [path.name for path in tmp_path.rglob("*")] == ["data"]
        completed(["mount", "-o", "remount,ro", str(tmp_path)], check=True)
        with pytest.raises(OSError, match="Read-only"):
            take(tmp_path)
    finally:
        completed(["umount", str(tmp_path)], check=True)


# --- several users --------------------------------------------------------------------------------


@pytest.fixture
def shared():
    """A directory that every user reaches and may write in."""
    import shutil
    import tempfile

    place = Path(tempfile.mkdtemp(prefix="iogauge-lock-"))
    place.chmod(0o1777)
    yield place
    shutil.rmtree(place)


@pytest.mark.needs_root
def test_another_user_takes_over_from_the_dead_and_from_nobody_else(shared):
    def hold_and_die():
        return take(shared).name

    def follow():
        return str(take(shared, wait_s=0).release())

    name = as_user(65534, hold_and_die)
    assert (held(shared) / name).stat().st_uid == 65534
    assert as_user(65533, follow) == "True"
    # The empty directories of the one who died first stay until that user is here again.
    assert [path.name for path in shared.rglob("*")] == ["iogauge", ".lock"]
    assert as_user(65534, follow) == "True"
    assert list(shared.iterdir()) == []
    mine = take(shared)
    assert as_user(65533, follow).startswith("Occupied: ")
    assert mine.release()


def precious(tmp_path):
    """A directory whose names look like those of a lock, and all that lies in it."""
    found = tmp_path / "precious"
    for name in ("0" * 32, "1" * 32):
        (found / name).mkdir(parents=True)
        (found / name / name).write_text("precious")
    (found / ("2" * 32)).write_text("precious")
    return found, sorted(map(str, found.rglob("*")))


@pytest.mark.parametrize("link", ["iogauge", "iogauge/.lock", "iogauge/.lock/held"])
def test_nothing_is_touched_through_a_link(tmp_path, link):
    place = tmp_path / "place"
    away, before = precious(tmp_path)
    for name in (".lock", "held"):
        (away / name).mkdir()
    before = sorted(map(str, away.rglob("*")))
    (place / link).parent.mkdir(parents=True)
    (place / link).symlink_to(away)
    with pytest.raises((OSError, Occupied)):
        take(place, wait_s=0)
    lock.tidy(str(place))
    assert sorted(map(str, away.rglob("*"))) == before
    assert (place / link).is_symlink()


# --- other users of the lock ----------------------------------------------------------------------------------


def test_a_target_that_is_in_use_is_not_measured(tmp_path, monkeypatch):

    def measure(directory):
        assert lock.standing(str(tmp_path)) is not None
        with pytest.raises(lock.Occupied):
            running._write_speed(str(tmp_path))
        return 1e9

    monkeypatch.setattr(machine, "write_speed", measure)
    assert running._write_speed(str(tmp_path)) == 1e9
    assert list(tmp_path.iterdir()) == []


def test_what_a_dead_taker_left_goes_with_the_next(tmp_path):
    left = held(tmp_path).parent / ("a" * 32)
    left.mkdir(parents=True)
    (left / left.name).write_bytes(b"half a")
    (held(tmp_path).parent / ("b" * 32)).mkdir()
    assert take(tmp_path, wait_s=0).release()
    assert list(tmp_path.iterdir()) == []


def test_a_lock_is_dated_when_it_is_taken_and_one_that_waits_goes_first(tmp_path):
    """Whoever gives the lock up and takes it again at once finds that the other one has had it."""
    mine = take(tmp_path)
    got = []

    def wait():
        got.append(take(tmp_path))
        got[0].release()

    waiter = threading.Thread(target=wait)
    waiter.start()
    while not mine.awaited:
        time.sleep(0.01)
    time.sleep(1.1)  # the date has whole seconds
    first = json.loads(mine.content)["since"]
    for _ in range(5):  # a busy machine may not let the other one look in time
        assert mine.release()
        mine = take(tmp_path)
        if got:
            break
    assert got and json.loads(got[0].content)["since"] > first
    waiter.join()
    assert not (held(tmp_path).parent / "waiting").exists()
    assert mine.release()
    assert not (tmp_path / "iogauge").exists()
