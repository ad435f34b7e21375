"""Fixtures of the end-to-end tests: a storage directory, a rig for a test, a rig for a module."""

import contextlib
import fcntl
import functools
import itertools
import os
import pickle
import shutil
import time
from pathlib import Path

import pytest

from e2e.dry_runs import DRY_RUNS
from e2e.rig import ROOT, Rig, command_of, mount_of, mounted, processes, program_of
from iogauge.workspace import permission
from support.devices import Devices, run, unmount
from support.shell import kill

_MEMORY = ("tmpfs", "ramfs")
#: Size of the workers' file systems, near that of the stand-in of Lustre. Only what is written takes space.
_IMAGE_BYTES = 15 << 30


@pytest.fixture(scope="session")
def storage(tmp_path_factory):
    """A directory on storage, not in memory: below $IOGAUGE_TEST_TARGET, pytest's, or the project's.

    Root has a file system of its own there, if no target is given: neither the load of other workers nor the machine's
    own file system matters then. ext4 without a journal takes seconds for files that are made after others were removed.
    """
    given = os.environ.get("IOGAUGE_TEST_TARGET")
    places = [Path(given)] if given else [tmp_path_factory.getbasetemp(), ROOT]
    for place in places:
        if mount_of(place)[0] not in _MEMORY:
            directory = place / f".e2e-{os.getpid()}"
            directory.mkdir()
            with contextlib.ExitStack() as leaving:
                leaving.callback(shutil.rmtree, directory)
                yield directory if given else _own(directory, leaving)
            return
    pytest.skip(f"no storage at {', '.join(map(str, places))}: set IOGAUGE_TEST_TARGET")


def _own(directory, leaving):
    """A new ext4 with a journal below a directory, mounted; the directory itself where that is not possible."""
    image, point = directory / "image", directory / "ext4"
    point.mkdir()
    try:
        with image.open("wb") as file:
            file.truncate(_IMAGE_BYTES)
        run(
            "mkfs.ext4", "-q", "-F", "-m", "0", "-N", "400000", "-E", "nodiscard", image
        )
        device = run("losetup", "-f", "--show", "--direct-io=on", image)
        leaving.callback(run, "losetup", "-d", device)
        direct = Path("/sys/block") / Path(device).name / "loop" / "dio"
        if direct.read_text().strip() != "1":
            return directory
        run("mount", "-o", "noinit_itable", device, point)
        leaving.callback(unmount, point)
    except OSError:
        return directory
    return point


@pytest.fixture(scope="session")
def _number():
    return itertools.count()


def _rigs(storage, number):
    made = []

    def make(**fields):
        base = storage / f"rig{next(number)}"
        fields.setdefault("target", base / "target")
        made.append(Rig(base=base, **fields))
        return made[-1]

    yield make
    for rig in made:
        # What was told to end may take a moment.
        for _ in range(100):
            left = {
                pid: command_of(pid)
                for pid in processes(str(rig.base))
                if program_of(pid)
            }
            if not left:
                break
            time.sleep(0.2)
        kill(*left)
        shutil.rmtree(rig.base, ignore_errors=bool(left))
        assert left == {}, f"left running, and killed: {left}"


@pytest.fixture
def make_rig(storage, _number):
    """Makes rigs that last for a test; nothing of them may run on."""
    yield from _rigs(storage, _number)


@pytest.fixture(scope="module")
def make_module_rig(storage, _number):
    """Makes rigs that last for a module."""
    yield from _rigs(storage, _number)


@pytest.fixture(scope="session")
def dry_run(storage, _number, tmp_path_factory):
    """Cases of a dry run by its name. Each is done once, whichever of pytest's workers asks first."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent

    @functools.cache
    def cases(name):
        file = shared / f"dry-run-{name}.pickle"
        with open(f"{file}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not file.exists():
                with contextlib.contextmanager(_rigs)(storage, _number) as make:
                    done = pickle.dumps(DRY_RUNS[name](make))
                file.write_bytes(done)
        found = pickle.loads(file.read_bytes())
        return found

    return cases


def _devices(storage, number):
    folder = storage / f"devices{next(number)}"
    folder.mkdir()
    with contextlib.ExitStack() as leaving:
        yield Devices(folder, leaving)
    shutil.rmtree(folder)


@pytest.fixture
def devices(storage, _number):
    """Loop devices and file systems that last for a test."""
    yield from _devices(storage, _number)


@pytest.fixture
def small_fs(tmp_path):
    """Mounts a small file system of its own; skips where that is not allowed."""
    stack = []

    def make(kind, size, options=""):
        context = mounted(tmp_path / "small", kind, size, tmp_path / "image", options)
        try:
            point = context.__enter__()
        except (OSError, FileNotFoundError) as error:
            pytest.skip(f"no {kind} can be mounted here: {error}")
        stack.append(context)
        (point / permission.MARKER).touch()
        return point

    yield make
    for context in stack:
        context.__exit__(None, None, None)
