"""Removing: all of a tree and nothing else, at a rate, in a time, whatever is swapped meanwhile."""

import contextlib
import ctypes
import errno
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from iogauge.workspace import directory
from iogauge.workspace.removal import NotRemoved, Removal
from support.shell import completed

SESSION = "20260101T000000-host-1"


def empty(path, **options):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return Removal(**options).run(fd, str(path))
    finally:
        os.close(fd)


def fill(path, files, depth=0, width=2):
    """Make files, and directories of them; returns how many names that were."""
    path.mkdir(exist_ok=True)
    for number in range(files):
        (path / f"f{number}").touch()
    inner = (
        sum(fill(path / f"d{n}", files, depth - 1, width) + 1 for n in range(width))
        if depth
        else 0
    )
    return files + inner


def test_a_tree_deeper_than_files_may_be_open(tmp_path):
    """By default; the limit is raised, or the removal says where it stops."""
    code = (
        "import os, resource, sys; from iogauge.workspace import directory as removal\n"
        "soft, hard = int(sys.argv[2]), int(sys.argv[3])\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))\n"
        "fd = os.open(sys.argv[1], os.O_RDONLY)\n"
        "try: print(removal.Removal().run(fd, sys.argv[1]))\n"
        "except removal.NotRemoved as error: print(error)\n"
    )
    path = tmp_path
    for _ in range(400):
        path = path / "d"
        path.mkdir()

    def run(soft, hard):
        words = [sys.executable, "-c", code, str(tmp_path), str(soft), str(hard)]
        return completed(words).stdout

    assert "Too many open files" in run(100, 100)
    assert run(100, 1000) == "400\n"
    assert list(tmp_path.iterdir()) == []


def test_odd_names_and_kinds(tmp_path):
    for name in ("-rf", "a b", "new\nline", "*", ".hidden", os.fsdecode(b"\xff")):
        (tmp_path / name).touch()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dangling").symlink_to("/no/such")
    assert empty(tmp_path) == 8
    assert list(tmp_path.iterdir()) == []


def test_the_rate_is_kept(tmp_path):
    fill(tmp_path, 300)
    start = time.monotonic()
    empty(tmp_path, per_second=200)  # a fifth of a second's worth may come at once
    assert time.monotonic() - start >= 300 / 200 - 0.25


# --- what is mounted below ------------------------------------------------------------------------


@pytest.fixture
def mount():
    done = []

    def run(*words):
        call = ["mount", *map(str, words)]
        try:
            completed(call, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"nothing can be mounted here: {error}")
        done.append(Path(words[-1]))

    yield run
    for point in done:
        completed(["umount", str(point)], check=True)


@pytest.mark.parametrize("kind", ["tmpfs", "bind"])
def test_what_is_mounted_below_is_not_entered(tmp_path, mount, kind):
    precious, tree = tmp_path / "precious", tmp_path / "tree"
    fill(precious, 3)
    point = tree / "sub" / "point"
    point.mkdir(parents=True)
    (tree / "file").touch()
    if kind == "bind":  # of the same file system: st_dev alone does not tell
        mount("--bind", precious, point)
    else:
        mount("-t", "tmpfs", "iogauge-place", point)
        fill(point, 3)
    with pytest.raises(NotRemoved, match="another file system is mounted at point"):
        empty(tree)
    assert len(list(point.iterdir())) == 3
    assert [p.name for p in tree.iterdir()] == ["sub"]  # all else is gone


# --- swaps ----------------------------------------------------------------------------------------


def swap(spot, aside, precious, swaps, stop):
    """Exchange a directory and a link to another one in one step, again and again; in a process of its own."""
    exchange = ctypes.CDLL(None, use_errno=True).renameat2
    here, both = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    while not stop.value:
        if exchange(here, os.fsencode(spot), here, os.fsencode(aside), both) == 0:
            swaps.value += 1
            continue
        if not os.path.islink(aside):  # one of them was removed: begin anew
            with contextlib.suppress(OSError):
                os.rename(aside, f"{aside}-{time.monotonic_ns()}")
            with contextlib.suppress(OSError):
                os.symlink(precious, aside)


@contextlib.contextmanager
def swapping(spot, aside, precious):
    """Have a directory swapped meanwhile; gives the number of swaps."""
    context = multiprocessing.get_context("fork")
    swaps, stop = context.Value("l", 0), context.Value("b", 0)
    aside.symlink_to(precious)
    words = (str(spot), str(aside), str(precious), swaps, stop)
    process = context.Process(target=swap, args=words, daemon=True)
    process.start()
    try:
        yield swaps
    finally:
        stop.value = 1
        process.join(10)
    assert process.exitcode == 0


@pytest.mark.slow
@pytest.mark.parametrize("level", ["iogauge", "session", "inner"])
def test_nothing_precious_is_lost_when_directories_are_swapped(tmp_path, level):
    """Thousands of swaps of a directory for a link, at every level, while the removal runs over and over."""
    precious, top = tmp_path / "precious", tmp_path / "target"
    # It looks like ours at every level, so that only the link tells.
    session = Path(directory.session_dir(str(top), SESSION))
    case = session / "case"
    places = {
        "iogauge": session.parents[1],
        "user": session.parent,
        "session": session,
        "case": case,
        "inner": case / "inner",
    }
    spot = places[level]
    theirs = precious / (case / "inner").relative_to(spot)
    theirs.mkdir(parents=True)
    for where in (theirs, *theirs.parents):
        if where == tmp_path:
            break
        (where / "data").write_text("precious")
        (where / directory.MARKER).write_text("{}")
    before = set(precious.rglob("*"))
    removed = refused = 0
    end = time.monotonic() + 600
    top.mkdir()
    with swapping(spot, tmp_path / "aside", precious) as swaps:
        while (
            swaps.value < 2_000 or removed < 20 or (refused < 20 and level != "inner")
        ):
            assert time.monotonic() < end, (swaps.value, removed, refused)
            with contextlib.suppress(OSError):
                (case / "inner").mkdir(parents=True, exist_ok=True)
                for where in (session, case, case / "inner"):
                    (where / "f").touch()
                (session / directory.MARKER).touch()
            for remove, path in (
                (directory.remove_case, case),
                (directory.remove, session),
            ):
                try:
                    remove(str(path))
                    removed += 1
                except OSError:
                    refused += 1
    assert before <= set(precious.rglob("*"))
    assert {p.read_text() for p in precious.rglob("data")} == {"precious"}


def test_nothing_is_made_through_a_swapped_directory(tmp_path):
    """A directory of ours that turns into a link while another case is made in it."""
    elsewhere, top = tmp_path / "elsewhere", tmp_path / "target"
    elsewhere.mkdir()
    session = Path(directory.session_dir(str(top), SESSION))
    session.mkdir(parents=True)
    made = refused = 0
    end = time.monotonic() + 600
    with swapping(session.parent, tmp_path / "aside", elsewhere) as swaps:
        while swaps.value < 2000 or made < 20 or refused < 20:
            assert time.monotonic() < end, (swaps.value, made, refused)
            try:
                directory.create(str(top), SESSION, f"case{made + refused}")
                made += 1
            except OSError:
                refused += 1
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
def test_a_directory_that_cannot_be_listed_does_not_keep_the_others(
    tmp_path, monkeypatch, number
):
    for name in ("bad", "good", "other"):
        (tmp_path / "top" / name / "below").mkdir(parents=True)
    scandir = os.scandir

    def broken(fd):
        if os.readlink(f"/proc/self/fd/{fd}").endswith("/bad"):
            if number == errno.ESTALE:  # another one has removed it
                completed(["rm", "-r", str(tmp_path / "top" / "bad")], check=True)
            raise OSError(number, os.strerror(number), fd)
        return scandir(fd)

    monkeypatch.setattr(directory.os, "scandir", broken)
    fd = os.open(tmp_path / "top", os.O_RDONLY)
    try:
        if number == errno.EIO:
            with pytest.raises(NotRemoved, match="bad: Input/output error"):
                Removal().run(fd, "top")
        else:
            Removal().run(fd, "top")
    finally:
        os.close(fd)
    assert os.listdir(tmp_path / "top") == (["bad"] if number == errno.EIO else [])
