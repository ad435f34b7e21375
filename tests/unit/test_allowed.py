"""Where this suite may write: rules, the administrator's file, and what no file can allow."""

import os
import pwd
import tempfile
from pathlib import Path

import pytest

from iogauge.node.mounts import Mount, find_mount
from iogauge.node.view import look
from iogauge.workspace import permission
from iogauge.workspace.permission import MARKER, Marker, NotAllowed, Place
from support.shell import as_user

LUSTRE = Mount(7, "/scratch", "10.0.0.1@o2ib:/scratch", "lustre", "rw")
DISK = Mount(1, "/", "/dev/sda1", "ext4", "rw")
ALICE, ROOT = 1000, 0


@pytest.fixture(autouse=True)
def names(monkeypatch):
    monkeypatch.setattr(permission, "_user_name", {ALICE: "alice", ROOT: "root"}.get)


def place(path="/scratch/alice/bench", uid=ALICE, **change):
    values = {"path": path, "uid": uid, "owner": ALICE, "mount": LUSTRE}
    return Place(**values | change)


decide = permission.decide


def refused(why, where):
    with pytest.raises(NotAllowed, match=why) as found:
        decide(where)
    assert where.path in str(found.value)


# --- without a word of the administrator ------------------------------------------------------------


def test_a_directory_of_the_callers_own_will_do():
    assert decide(place()) == "user alice owns it"
    assert decide(place("/scratch/alice")) == "user alice owns it"
    assert (
        decide(place("/root/bench", ROOT, owner=0, mount=DISK)) == "user root owns it"
    )


@pytest.mark.parametrize("owner", [0, 1001])
def test_a_directory_of_somebody_else_will_not(owner):
    refused(
        f"belongs to user {owner}, not to alice.*iogauge (site )?allow",
        place(owner=owner),
    )


def test_root_may_write_everywhere_and_still_needs_to_own_it():
    refused("belongs to user 1000, not to root", place(uid=ROOT))


def test_what_lies_directly_below_the_root_needs_a_marker():
    refused("is directly below /", place("/data", mount=DISK))


def test_a_mount_point_needs_a_marker():
    home = Mount(8, "/mnt/projects/p1", "server:/p1", "nfs", "rw")
    refused("is a mount point", place("/mnt/projects/p1", mount=home))
    assert decide(place("/mnt/projects/p1/bench", mount=home))


@pytest.mark.parametrize("path", ["/etc/iogauge", "/var/lib/x", "/dev/disk"])
def test_the_systems_own_tree_is_not_roots_to_give(path):
    refused("is part of the system", place(path, ROOT, owner=0, mount=DISK))
    assert decide(place(path, mount=DISK))  # somebody else's there is not the system's


@pytest.mark.parametrize("path", ["/var/tmp/bench", "/varnish/x"])
def test_places_for_everybodys_files_are_not_the_systems(path):
    assert decide(place(path, ROOT, owner=0, mount=DISK))


# --- never ------------------------------------------------------------------------------------------


def test_a_marker_does_not_open_the_root_or_a_home():
    refused("iogauge never writes there", place("/", marker=Marker(), mount=DISK))
    refused(
        "home directory of alice",
        place("/home/alice", home_of="alice", marker=Marker()),
    )


# --- the marker -------------------------------------------------------------------------------------


def test_an_empty_marker_allows_everybody():
    assert "everybody" in decide(
        place("/scratch", owner=0, marker=permission.parse_marker(""))
    )


@pytest.mark.parametrize("source", ["10.0.0.1@o2ib:/scratch", "/scratch"])
def test_a_marker_that_fits(source):
    marker = permission.parse_marker(f"type: lustre\nsource: {source}")
    assert decide(place("/scratch", owner=0, marker=marker))
    assert permission.parse_marker(marker.to_yaml()) == marker


@pytest.mark.parametrize(
    "text, why",
    [
        ("type: ext4", "is lustre from .*allows ext4 from anywhere"),
        ("source: 10.0.0.2@o2ib:/scratch", "allows any type"),
        (
            "uuid: scratch@10.0.0.9@o2ib",
            "was written for scratch@10.0.0.9.*allow --replace",
        ),
    ],
)
def test_a_marker_that_does_not_fit_refuses_the_owner_too(text, why):
    marker = permission.parse_marker(text)
    refused(why, place(marker=marker, uuid="scratch@10.0.0.1@o2ib"))


@pytest.mark.parametrize(
    "text, why",
    [
        ("users: [alice]", "users: unknown"),
        ("alice", "expected lines"),
        ("type:", "type is None"),
        ("type: a\ntype: b", "line:2: key .type. stands here a second time"),
    ],
)
def test_a_marker_with_a_mistake_allows_nothing(text, why):
    with pytest.raises(ValueError, match=why):
        permission.parse_marker(text)


# --- on a real disk ---------------------------------------------------------------------------------


@pytest.fixture
def top(tmp_path):
    (tmp_path / "target").mkdir()
    return tmp_path / "target"


def why_not(path):
    with pytest.raises(NotAllowed) as found:
        permission.reason(str(path))
    return str(found.value)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_link_in_any_component_is_named(tmp_path, level):
    real = tmp_path / "a" / "b" / "c"
    real.mkdir(parents=True)
    spot = [real, real.parent, real.parents[1]][level]
    spot.rename(tmp_path / "moved")
    spot.symlink_to(tmp_path / "moved")
    text = why_not(real)
    assert f"{real}: {spot} is a symbolic link" in text
    assert f"real path: {os.path.realpath(real)}" in text


@pytest.mark.parametrize("path", ["relative", "", ".."])
def test_a_path_from_somewhere_is_refused(path):
    assert "not an absolute path" in why_not(path)


def test_homes_are_refused(top, monkeypatch, tmp_path):
    assert "iogauge never writes there" in why_not("/")
    home = pwd.getpwuid(os.getuid()).pw_dir
    if not Path(home).is_symlink():
        assert "home directory of" in why_not(home)
    monkeypatch.setenv("HOME", str(top))
    assert "your home directory" in why_not(top)
    link = tmp_path / "link"
    link.symlink_to(top)
    monkeypatch.setenv("HOME", str(link))
    assert "your home directory" in why_not(top)
    monkeypatch.setenv("HOME", "/nonexistent")
    entry = pwd.struct_passwd(("bob", "x", 4242, 4242, "", f"{top}/", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwall", lambda: [entry])
    assert "home directory of bob" in why_not(top)


@pytest.mark.needs_root
def test_a_marker_counts_only_from_root_or_the_owner(top):
    os.chown(top, 12345, 12345)
    assert "belongs to user 12345" in why_not(top)
    file = top / MARKER
    file.touch()
    assert "everybody" in permission.reason(str(top))
    os.chown(file, 12345, 12345)
    assert "everybody" in permission.reason(str(top))
    os.chown(file, 12346, 12346)
    assert "does not count: it belongs to user 12346" in why_not(top)
    os.chown(file, 0, 0)
    for mode in (0o664, 0o646):
        file.chmod(mode)
        assert "others may write it" in why_not(top)


@pytest.mark.needs_root
@pytest.mark.parametrize("kind", ["link", "directory", "pipe"])
def test_only_a_regular_file_is_a_marker(top, kind):
    os.chown(top, 12345, 12345)
    file = top / MARKER
    if kind == "link":
        (top / "real").touch()
        file.symlink_to(top / "real")
    elif kind == "directory":
        file.mkdir()
    else:
        os.mkfifo(file)
    assert "does not count" in why_not(top)


def test_a_marker_with_a_mistake_is_a_refusal(top):
    (top / MARKER).write_text("user: alice\n")
    assert f"{top / MARKER}: user: unknown" in why_not(top)
    (top / MARKER).write_text("#" * 70_000)
    assert "longer than 65536 bytes" in why_not(top)


# --- iogauge site allow ----------------------------------------------------------------------------------


def test_allow_writes_a_marker_that_counts(top):
    written = permission.allow(str(top))
    assert permission.parse_marker((top / MARKER).read_text()) == written
    assert written.type and written.type in permission.reason(str(top))
    assert (top / MARKER).stat().st_mode & 0o777 == 0o644
    with pytest.raises(NotAllowed, match="--replace"):
        permission.allow(str(top))
    assert permission.allow(str(top), replace=True) == written
    assert os.listdir(top) == [MARKER]


def test_allow_writes_the_uuid_and_a_copy_elsewhere_does_not_count(top):
    written = permission.allow(str(top))
    assert written.uuid == look(str(top)).uuid
    kind = find_mount(str(top))
    if kind is None or kind.type not in ("ext4", "xfs", "btrfs"):
        pytest.skip(
            f"needs ext4, xfs or btrfs, which have a UUID: {top} is on {kind and kind.type}"
        )
    assert written.uuid
    text = (top / MARKER).read_text()
    assert f'uuid: "{written.uuid}"\n' in text
    assert f"with UUID {written.uuid}" in permission.reason(str(top))
    another = "12345678-1234-1234-1234-123456789abc"
    (top / MARKER).write_text(text.replace(written.uuid, another))
    why = why_not(top)
    assert f"is on the file system {written.uuid}" in why
    assert f"written for {another}" in why
    permission.allow(str(top), replace=True)
    assert permission.reason(str(top))


def test_allow_refuses_what_nothing_can_allow(top, monkeypatch):
    monkeypatch.setenv("HOME", str(top))
    link = top.parent / "link"
    link.symlink_to(top)
    for path in ("/", str(top), str(link)):
        with pytest.raises(NotAllowed):
            permission.allow(path, replace=True)
    assert not list(top.iterdir())
    assert not os.path.lexists(f"/{MARKER}")


@pytest.mark.needs_root
def test_only_root_and_the_owner_can_allow():
    with tempfile.TemporaryDirectory(prefix="iogauge-test-", dir="/var/tmp") as name:
        os.chmod(name, 0o1777)
        said = as_user(12345, lambda: permission.allow(name))
        assert said.startswith("NotAllowed: ") and "only root and its owner" in said
        assert os.listdir(name) == []


@pytest.mark.parametrize(
    "mode, said", [(0o777, True), (0o1777, False), (0o2770, False), (0o755, False)]
)
def test_where_everybody_can_swap_directories_that_is_said(top, mode, said):
    top.chmod(mode)
    assert (f"chmod +t {top}" in permission.reason(str(top))) is said
