"""A case writes in one directory, and nothing that is not ours is ever removed."""

import errno
import json
import os
import pwd
import socket
import stat
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest

from iogauge.core import processes
from iogauge.workspace import directory, removal
from iogauge.workspace.directory import MARKER, WorkdirError
from iogauge.workspace.removal import NotRemoved

SESSION = "20260101T000000-host-1"


def make(target, session=SESSION, case="case", **more):
    return Path(directory.create(str(target), session, case, **more))


def parent(target):
    return Path(directory.session_dir(str(target), SESSION))


def refused(path, why, survivor):
    with pytest.raises(WorkdirError, match=why):
        directory.remove(str(path))
    assert os.path.lexists(survivor)


# --- making ---------------------------------------------------------------------------------------


def test_the_directory_of_a_case(tmp_path):
    case = make(tmp_path)
    assert case == tmp_path / "iogauge" / directory.user_name() / SESSION / "case"
    owner = json.loads((case.parent / MARKER).read_text())
    assert (owner["session"], owner["user"]) == (SESSION, directory.user_name())
    assert owner["host"] == socket.gethostname()
    modes = [
        stat.S_IMODE(path.stat().st_mode)
        for path in (case, case.parent, case.parents[1], case.parents[2])
    ]
    assert modes == [0o700, 0o700, 0o700, 0o1777]


@pytest.mark.parametrize(
    "name, plain",
    [("../../etc", ".._.._etc"), ("..", f"uid{os.getuid()}"), ("a b", "a_b")],
)
def test_a_user_name_that_leads_elsewhere_is_made_a_plain_one(monkeypatch, name, plain):
    known = pwd.getpwuid(os.getuid())
    monkeypatch.setattr(
        pwd, "getpwuid", lambda _: pwd.struct_passwd((name, *known[1:]))
    )
    assert directory.user_name() == plain


def test_a_case_never_takes_a_directory_that_is_there(tmp_path):
    make(tmp_path)
    with pytest.raises(FileExistsError):
        make(tmp_path)


@pytest.mark.parametrize("name", ["", "..", "a/b", "/x", "a\nb", "a\x00b"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path, name):
    for session, case in ((name, "case"), (SESSION, name)):
        with pytest.raises(WorkdirError, match="is not a name"):
            make(tmp_path, session, case)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("kind", ["link", "file"])
def test_nothing_is_made_through_a_link_or_a_file(tmp_path, level, kind):
    target, elsewhere = tmp_path / "target", tmp_path / "elsewhere"
    elsewhere.mkdir()
    target.mkdir()
    place = [parent(target).parents[1], parent(target).parent, parent(target)][level]
    place.parent.mkdir(parents=True, exist_ok=True)
    if kind == "link":
        place.symlink_to(elsewhere)
    else:
        place.touch()
    with pytest.raises(WorkdirError, match="is not a directory"):
        make(target)
    assert not list(elsewhere.iterdir())


@pytest.mark.needs_root
@pytest.mark.parametrize("level", [0, 1])
def test_nothing_is_made_in_another_users_directory(tmp_path, level):
    place = [parent(tmp_path).parent, parent(tmp_path)][level]
    place.mkdir(parents=True)
    os.chown(place, 12345, 12345)
    with pytest.raises(WorkdirError, match="belongs to another user"):
        make(tmp_path)


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EIO])
def test_a_file_system_need_not_know_fsync_of_directories(
    tmp_path, monkeypatch, number
):
    real = os.fsync

    def fsync(fd):
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(number, os.strerror(number))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    if number == errno.EIO:
        with pytest.raises(OSError, match="Input/output error"):
            make(tmp_path)
    else:
        assert (make(tmp_path).parent / MARKER).is_file()


@pytest.mark.needs_root
def test_a_shared_root_in_which_others_could_swap_directories_is_refused(tmp_path):
    (tmp_path / "iogauge").mkdir()
    (tmp_path / "iogauge").chmod(0o777)
    os.chown(tmp_path / "iogauge", 12345, 12345)
    with pytest.raises(WorkdirError, match=r"chmod \+t"):
        make(tmp_path)


@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_a_directory_of_the_callers_with_the_name_of_the_root_is_not_opened_to_others(
    tmp_path, mode
):
    mine = tmp_path / "iogauge"
    mine.mkdir(mode=mode)
    (mine / "README.md").touch()
    make(tmp_path)
    assert stat.S_IMODE(mine.stat().st_mode) == mode
    directory.remove(str(parent(tmp_path)))
    assert [path.name for path in mine.iterdir()] == ["README.md"]


@pytest.mark.needs_root
def test_the_shared_root_may_belong_to_another_user_and_keeps_its_mode(tmp_path):
    (tmp_path / "iogauge").mkdir(mode=0o755)
    os.chown(tmp_path / "iogauge", 12345, 12345)
    make(tmp_path)
    assert stat.S_IMODE((tmp_path / "iogauge").stat().st_mode) == 0o755


# --- removing -------------------------------------------------------------------------------------


def unmarked(path):
    (path / MARKER).unlink()


def marker_is_link(path):
    (path / MARKER).rename(path.parent / "m")
    (path / MARKER).symlink_to(path.parent / "m")


def marker_is_dir(path):
    (path / MARKER).unlink()
    (path / MARKER).mkdir()


def foreign_marker(path):
    os.chown(path / MARKER, 12345, 12345)


def foreign_session(path):
    os.chown(path, 12345, 12345)


@pytest.mark.parametrize(
    "spoil, why",
    [
        (unmarked, "has no marker"),
        (marker_is_link, "is not a regular file"),
        (marker_is_dir, "is not a regular file"),
        pytest.param(
            foreign_marker, "belongs to another user", marks=pytest.mark.needs_root
        ),
        pytest.param(
            foreign_session, "belongs to another user", marks=pytest.mark.needs_root
        ),
    ],
)
def test_a_directory_that_is_not_ours_is_not_removed(tmp_path, spoil, why):
    case = make(tmp_path)
    (case / "data").touch()
    spoil(case.parent)
    refused(case.parent, why, case / "data")
    assert directory.sessions(str(tmp_path)) == []


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_symbolic_link_on_the_way_is_refused(tmp_path, level):
    case = make(tmp_path)
    (case / "data").touch()
    place = [case.parent, case.parents[1], case.parents[2]][level]
    moved = tmp_path / "moved"
    place.rename(moved)
    place.symlink_to(moved)
    refused(case.parent, "symbolic link", case / "data")


@pytest.mark.parametrize("up", [0, 2, 3])
def test_only_a_sessions_directory_may_be_removed(tmp_path, up):
    case = make(tmp_path)
    (case / MARKER).touch()
    for place in case.parents[:3]:
        (place / MARKER).touch()
    path = [case, *case.parents][up]
    refused(path, "is not <target>/iogauge/<user>/<session>", case)


def test_a_path_with_dots_removes_what_was_checked_and_nothing_else(tmp_path):
    case, far = make(tmp_path), tmp_path / "far"
    (far / "inner").mkdir(parents=True)
    decoy = far / case.parent.name
    decoy.mkdir()
    (decoy / "precious").touch()
    link = case.parents[1] / "link"
    link.symlink_to(far / "inner")
    directory.remove(f"{link}/../{case.parent.name}")
    assert (decoy / "precious").exists()
    assert not case.parent.exists()


@pytest.mark.slow
def test_a_removal_out_of_time_keeps_the_marker_and_can_be_taken_up_again(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(directory, "Removal", partial(removal.Removal, per_second=200))
    case = make(tmp_path)
    for number in range(600):
        (case / f"{number}").touch()
    with pytest.raises(NotRemoved, match=r"out of time with \d+ names removed"):
        directory.remove(str(case.parent), seconds=0.7)
    assert 0 < len(os.listdir(case)) < 600
    assert (case.parent / MARKER).exists()
    directory.remove(str(case.parent))
    assert not list(tmp_path.iterdir())


def test_where_names_keep_appearing_the_marker_stays(tmp_path, monkeypatch):
    session = make(tmp_path).parent
    unlink = os.unlink

    def followed(name, **fds):
        unlink(name, **fds)
        if name == MARKER:
            (session / "stray").touch()

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", followed)
        with pytest.raises(NotRemoved, match="names keep appearing"):
            directory.remove(str(session))
    assert (session / MARKER).exists()
    directory.remove(str(session))
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_emptied_keeps_its_marker(tmp_path, monkeypatch):
    case = make(tmp_path)
    (case / "stubborn").touch()
    unlink = os.unlink

    def refuse(path, **options):
        if path == "stubborn":
            raise PermissionError(errno.EPERM, "not permitted")
        unlink(path, **options)

    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(
        NotRemoved, match="could not be emptied: stubborn in case: not permitted"
    ):
        directory.remove(str(case.parent))
    assert sorted(os.listdir(case.parent)) == [MARKER, "case"]


# --- what is left ---------------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["{", "\xff"])
def test_a_session_with_a_damaged_marker_is_still_found(tmp_path, content):
    case = make(tmp_path)
    (case.parent / MARKER).write_text(content, encoding="latin-1")
    (found,) = directory.sessions(str(tmp_path))
    assert (found.path, found.owner) == (str(case.parent), {})


@pytest.mark.parametrize("left", [[], [f"{MARKER}.node.17"]])
def test_what_was_killed_before_its_marker_is_removed_after_a_week(tmp_path, left):
    session = parent(tmp_path).parent / "killed"
    session.mkdir(parents=True)
    for name in left:
        (session / name).touch()
    (found,) = directory.sessions(str(tmp_path))
    assert directory.may_be_alive(found)
    os.utime(session, (time.time() - 8 * 86400,) * 2)
    (found,) = directory.sessions(str(tmp_path))
    assert not directory.may_be_alive(found)
    directory.remove(found.path)
    assert list(tmp_path.iterdir()) == []


def test_a_target_that_cannot_be_looked_at_is_not_without_sessions(tmp_path):
    with pytest.raises(FileNotFoundError, match="gone"):
        directory.sessions(str(tmp_path / "gone"))


def test_a_name_that_was_used_before_is_taken_over_from_the_dead_only(tmp_path):
    one = subprocess.Popen(["sleep", "600"])
    try:
        dead = [one.pid, 1]
        first = make(tmp_path, owner_process=dead)
        make(tmp_path, case="second", owner_process=processes.identity(os.getpid()))
        (found,) = directory.sessions(str(tmp_path))
        assert found.owner["process"] == processes.identity(os.getpid())
        assert directory.may_be_alive(found)
        with pytest.raises(WorkdirError, match="which is running: choose another name"):
            make(tmp_path, case="third", owner_process=processes.identity(one.pid))
        assert first.is_dir()
    finally:
        one.kill()
        one.wait()


@pytest.mark.parametrize(
    "host, pid, age, alive",
    [
        ("here", "self", 1, True),
        ("here", "self", 1e6, True),
        ("here", "dead", 1, False),
        ("elsewhere", "dead", 1e6, True),
        ("nobody", "dead", 1, True),
        ("nobody", "dead", 1e6, False),
    ],
)
def test_which_session_may_be_alive(host, pid, age, alive):
    process = processes.identity(os.getpid()) if pid == "self" else [4194305, 1]
    expires = utc(time.time() + 60)
    owner = {
        "process": process,
        "host": socket.gethostname() if host == "here" else host,
        "expires": expires,
    }
    found = directory.FoundSession("/x", {} if host == "nobody" else owner, age)
    assert directory.may_be_alive(found) is alive


# --- expiry ---------------------------------------------------------------------------------------


def utc(moment):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))


def test_a_marker_expires_a_day_after_the_longest_case(tmp_path):
    def expires():
        (found,) = directory.sessions(str(tmp_path))
        return str(found.owner["expires"])

    for number, (limit, longest) in enumerate(((3600, 3600), (7200, 7200), (60, 7200))):
        before = time.time()
        directory.create(str(tmp_path), SESSION, f"case{number}", time_limit_s=limit)
        day = 86400
        assert (
            utc(before + longest + day - 60)
            < expires()
            <= utc(time.time() + longest + day)
        )
    (found,) = directory.sessions(str(tmp_path))
    assert sorted(os.listdir(found.path)) == [MARKER, "case0", "case1", "case2"]
