"""What runs on the nodes: look, open or refuse, empty the cache."""

import dataclasses
import json
import os
import tempfile
from pathlib import Path

import pytest

from iogauge.core import paths
from iogauge.job import agent, lead_agent
from iogauge.job import target as job_lustre
from iogauge.job.target import look_again
from iogauge.node import mounts
from iogauge.node.lustre import parameters, quotas
from iogauge.node.lustre.file_layout import Layouts
from iogauge.node.lustre.request import Pins
from iogauge.node.mounts import Mount, Space
from iogauge.node.view import View, look
from iogauge.plan.observations import FOUND, read
from iogauge.plan.stage import REFUSED, Opened
from iogauge.workspace.directory import session_dir
from support import shell
from support.lustre import attributes
from support.lustre.kernel import kernel
from support.orders import job_order
from support.project import TESTS
from support.shell import completed

PROGRAMS = TESTS / "support" / "lustre"


@pytest.fixture(autouse=True)
def stage(tmp_path, monkeypatch):
    (tmp_path / "stage").mkdir()
    monkeypatch.chdir(tmp_path / "stage")
    return tmp_path / "stage"


@pytest.fixture
def target(tmp_path):
    (tmp_path / "target").mkdir()
    return tmp_path / "target"


def case(place, **change):
    mount = mounts.find_mount(str(place))
    data = (
        job_order(str(place), type=mount.type, source=mount.source).to_json() | change
    )
    Path("case.json").write_text(json.dumps(data))
    return "case.json"


def opened():
    return json.loads(Path("open.json").read_text())


@pytest.mark.parametrize(
    "change, why",
    [
        ({"type": "lustre"}, "G9 identity: "),
        ({"source": "elsewhere"}, "G9 identity: "),
        ({"uuid": "12345678-1234-1234-1234-123456789abc"}, "G9 identity: "),
        ({"held_bytes": 1 << 60}, "G13 room: "),
        ({"max_fill": 0.0}, "G13 room: "),
        ({"max_of_free": 0.0}, "limits.max_of_free"),
        ({"files": 1 << 50}, "G14 inodes: "),
        ({"target": "/no/such/place"}, "/no/such/place"),
        ({"session": "../x"}, "is not a name"),
    ],
)
def test_a_target_that_will_not_do_is_refused(target, capsys, change, why):
    assert agent.main(["open", case(target, **change)]) == REFUSED == 3
    assert any(why in reason for reason in opened()["refused"])
    assert f"iogauge: refused: {opened()['refused'][0]}" in capsys.readouterr().err
    assert not list(target.iterdir())


def test_a_link_in_the_way_is_a_refusal(target, tmp_path):
    (target / "iogauge").symlink_to(tmp_path)
    assert agent.main(["open", case(target)]) == 3
    assert "symbolic links are not followed" in opened()["refused"][0]


@pytest.mark.parametrize(
    "kind, beneath, exact",
    [
        ("xfs", "", True),
        ("nfs4", "", False),
        ("overlay", "ext4", True),
        ("overlay", "zfs", False),
    ],
)
def test_an_overlay_counts_as_what_is_below_it(kind, beneath, exact, monkeypatch):
    """ZFS says only later how many inodes are in use."""
    monkeypatch.setattr(lead_agent, "upper_of", lambda _: "/u")
    monkeypatch.setattr(
        lead_agent, "find_mount", lambda _: Mount(2, "/", "s", beneath, "")
    )
    options = "rw,lowerdir=/l,upperdir=/u,workdir=/w"
    view = View("h", "/s", Mount(1, "/s", "s", kind, options), Space(100, 90, 0, 0), ())
    assert lead_agent._is_exact(kind, view) is exact
    assert lead_agent._is_exact(kind, None) is (kind != "nfs4")


def test_files_are_counted_before_the_directory_is_emptied(tmp_path, monkeypatch):
    """A phase may be the last one of its repetition."""
    case = tmp_path / "case"
    case.mkdir()
    (case / "file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IOG_DIR", str(case))
    emptied = []
    monkeypatch.setattr(
        lead_agent.directory, "empty_case", lambda path, **_: emptied.append(path)
    )
    lead_agent._LeadAgent._obey(None, "empty", "2", "")
    assert emptied == [str(case)]
    assert [count for _, count in read(Path()).counts(FOUND)] == [1]


USER_AND_GROUP = """cat <<'EOF'
Disk quotas for usr bench (uid 7):
     Filesystem  kbytes  bquota  blimit  bgrace   files  iquota  ilimit  igrace
/m 100 0 300 - 5 0 20 -
Disk quotas for grp bench (gid 8):
     Filesystem  kbytes  bquota  blimit  bgrace   files  iquota  ilimit  igrace
/m 1 0 0 - 1 0 0 -
EOF"""
PROJECT = (
    USER_AND_GROUP.replace("usr", "prj")
    .replace("uid 7", "pid 9")
    .partition("Disk quotas for grp")
)
LFS = f'if [ "$2" = -p ]; then {PROJECT[0]}EOF\nelse {USER_AND_GROUP}\nfi'


@pytest.mark.parametrize(
    "script, project, left, unanswered",
    [
        (LFS, 0, {"user 7": 200 << 10, "group 8": None}, ()),
        (LFS, 9, {"user 7": 200 << 10, "group 8": None, "project 9": 200 << 10}, ()),
        ("echo 'usr quotas are not enabled.' >&2; exit 3", 0, {}, ()),
        ("exec sleep 60", 9, {}, ("user and group: lfs", "project 9: lfs")),
        (
            f"{USER_AND_GROUP}\necho 'Some errors happened when getting quota info.' >&2",
            0,
            {},
            ("user and group: lfs quota /m: it complains",),
        ),
        (
            USER_AND_GROUP.replace("/m 1 ", "/m -12 "),
            0,
            {},
            ("/m -12 0 0 - 1 0 0 -",),
        ),
    ],
)
def test_quotas_are_asked_of_lfs(
    tmp_path, monkeypatch, script, project, left, unanswered
):
    shell.script(
        tmp_path / "lfs", f'#!/bin/sh\necho "$@" >>{tmp_path}/asked\n{script}\n'
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(quotas, "project_of", lambda _: project)
    monkeypatch.setattr(quotas, "QUOTA_SECONDS", 2 if unanswered else 30)
    found, silent = quotas.quotas_of("/m")
    assert {quota.owner: quota.bytes_left for quota in found} == left
    for text, begin in zip(silent, unanswered, strict=True):
        assert begin in text
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked == ["quota /m", "quota -p 9 /m"][: 2 if project else 1]


def answer(out):
    """What this node noted under a word."""
    return read(Path()).by_host(out)[os.uname().nodename]


def opened_elsewhere(target, **change):
    """Leave what another node leaves that has opened the case on this machine's file system."""
    case(target)
    first = dataclasses.replace(look(str(target)), host="n1", **change)
    Path("open.json").write_text(
        json.dumps(Opened(session="s", case="c", view=first).to_json())
    )


def test_a_node_that_sees_another_file_system_refuses_the_case(target):
    opened_elsewhere(target, uuid="another")
    _, said = look_again(str(target / "case"))
    assert said.startswith("G9 identity: ")
    for word in (
        "n1 sees UUID another",
        os.uname().nodename,
        look(str(target)).uuid,
    ):
        assert word in said


@pytest.fixture
def disk():
    with tempfile.TemporaryDirectory(prefix="iogauge-test-", dir="/var/tmp") as name:
        yield Path(name)


def test_each_node_writes_what_it_emptied(disk):
    (disk / "sub").mkdir()
    for name in ("a", "sub/b"):
        (disk / name).write_bytes(b"x" * 8192)
    assert agent.main(["evict", str(disk), "evict.1"]) == 0
    done = answer("evict.1")
    assert (done["files"], done["bytes"]) == (2, 16384)


# --- a path that only the job knows ---------------------------------------------------------------


@pytest.mark.parametrize(
    "path, value, expanded",
    [
        ("$DW_JOB_STRIPED/a/b", "/dw/1", "/dw/1/a/b"),
        ("/a/$DW_JOB_STRIPED", "/dw/1", "/a/$DW_JOB_STRIPED"),
        ("$DW_JOB_STRIPED.x/a", "/dw/1", "$DW_JOB_STRIPED.x/a"),
        ("/plain", "/dw/1", "/plain"),
    ],
)
def test_only_a_variable_in_front_is_expanded(monkeypatch, path, value, expanded):
    monkeypatch.setenv("DW_JOB_STRIPED", value)
    assert paths.expand(path) == expanded


@pytest.mark.parametrize(
    "value, why", [(None, "not set"), ("", "not set"), ("a/b", "'a/b'")]
)
def test_a_variable_without_a_path_is_a_refusal_that_names_it(
    target, monkeypatch, capsys, value, why
):
    monkeypatch.delenv("DW_JOB_STRIPED", raising=False)
    if value is not None:
        monkeypatch.setenv("DW_JOB_STRIPED", value)
    assert agent.main(["open", case(target, target="$DW_JOB_STRIPED")]) == REFUSED
    assert f"$DW_JOB_STRIPED is {why} in this job" in opened()["refused"][0]
    capsys.readouterr()
    assert agent.main(["evict", "$DW_JOB_STRIPED", "out"]) == 1
    assert f"evict: $DW_JOB_STRIPED is {why}" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["a@b", "a b", "a$(x)", "a\nb"])
def test_a_variable_that_would_lead_a_tool_elsewhere_is_a_refusal(
    target, monkeypatch, name
):
    (target / name).mkdir()
    monkeypatch.setenv("DW_JOB_STRIPED", str(target / name))
    assert agent.main(["open", case(target, target="$DW_JOB_STRIPED")]) == REFUSED
    assert "$DW_JOB_STRIPED is " in opened()["refused"][0]
    assert list((target / name).iterdir()) == []


def test_a_target_that_only_the_job_knows_is_opened(target, monkeypatch):
    monkeypatch.setenv("DW_JOB_STRIPED", str(target))
    assert agent.main(["open", case(target, target="$DW_JOB_STRIPED")]) == 0
    assert opened()["view"]["path"] == str(target)
    assert opened()["directory"] == f"{session_dir(str(target), 'session')}/case"
    assert (Path(session_dir(str(target), "session")) / "case").is_dir()


# --- Lustre ---------------------------------------------------------------------------------------


@pytest.fixture
def lustre(target, tmp_path, monkeypatch):
    """The target counts as a Lustre file system with four storage targets on two servers."""
    monkeypatch.setenv("PATH", f"{PROGRAMS}:{os.environ['PATH']}")
    monkeypatch.setenv("LFS_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("LFS_MOUNT", str(target))
    monkeypatch.setenv("LFS_SERVERS", "2")
    monkeypatch.setattr(os, "getxattr", attributes.getxattr)
    addresses = {
        f"osc.lustre-OST000{i}-osc-ffff88.ost_conn_uuid": f"10.0.0.{11 + i % 2}@tcp"
        for i in range(4)
    }
    default = {"stripecount": "1", "stripesize": "4194304"}
    default = {
        f"lov.lustre-clilov-ffff88.{name}": value for name, value in default.items()
    }
    kernel(tmp_path, addresses | default)
    monkeypatch.setattr(parameters, "TOPS", (str(tmp_path / "sys/fs/lustre"),))
    return target


@pytest.mark.parametrize(
    "variable, value, why",
    [
        ("LFS_INACTIVE", "2", "G12 health: inactive: lustre-OST0002_UUID"),
        (
            "LFS_NO_CREATE",
            "1",
            "G12 health: new files land elsewhere than on lustre-OST0001_UUID",
        ),
        ("LFS_FULL", "3", "G13 storage targets: lustre-OST0003_UUID: 1008 KiB free"),
        ("LFS_QUOTA", "1000 1024 0 0", "G14 quota: quota of user"),
        ("LFS_QUOTA", "2000 0 0 0 1024 expired", "G14 quota: quota of user"),
        ("LFS_MOUNT", "", "lfs df {}: exit status 95: df:{} Not a Lustre filesystem"),
        ("PATH", "/nowhere", "lfs cannot be run on"),
    ],
)
def test_a_striped_target_that_will_not_do_is_refused(
    lustre, monkeypatch, variable, value, why
):
    monkeypatch.setenv(variable, value)
    wish = case(lustre, striping="lustre", held_bytes=1 << 24, max_fill=0.85)
    assert agent.main(["open", wish]) == REFUSED
    wanted = why.format(lustre, lustre)
    assert any(wanted in reason for reason in opened()["refused"]), opened()["refused"]
    assert not list(lustre.iterdir())


def pin(directory, pins):
    """Open a case, and pin names in a directory that need not be its own."""
    if not Path("open.json").exists():
        assert agent.main(["open", case(directory, striping="lustre")]) == 0
    Path("pins.in").write_text(json.dumps(pins.to_json()))
    return agent.main(["pin", "pins.in", str(directory), "pinned.1"])


def landed(directory):
    """The targets of each file, as they are noted."""
    job_lustre.note_layouts(1, str(directory))
    noted = Layouts.from_json(answer("layouts"))
    assert not noted.problem
    return {file.path: file.osts for file in noted.files if "iogauge" not in file.path}


FILES = Pins(names=tuple(f"sub/f.{i:08d}" for i in range(9)), kind="file")
DIRECTORIES = Pins(names=("k0", "k1", "a/k2", "a/k3"), kind="directory")


@pytest.mark.slow
def test_directories_are_made_with_their_storage_targets(lustre):
    assert pin(lustre, DIRECTORIES) == 0
    assert answer("pinned.1")["placed"] == {"k0": 0, "k1": 1, "a/k2": 2, "a/k3": 3}
    (lustre / "a/k3/probe").write_bytes(b"x")
    (lustre / "k1/sub").mkdir()
    (lustre / "k1/sub/probe").write_bytes(b"x")
    assert landed(lustre) == {"a/k3/probe": (3,), "k1/sub/probe": (1,)}


@pytest.mark.slow
@pytest.mark.parametrize("servers, where", [(1, {0, 2}), (2, {0, 1, 2, 3})])
def test_pins_go_to_the_servers_asked_for(lustre, servers, where):
    assert pin(lustre, Pins(names=FILES.names, kind="file", servers=servers)) == 0
    assert {osts[0] for osts in landed(lustre).values()} == where


def test_layouts_that_cannot_be_read_are_noted_with_the_reason(lustre, monkeypatch):
    (lustre / "f").touch()
    monkeypatch.setenv("LFS_MOUNT", "")
    job_lustre.note_layouts(2, str(lustre))
    noted = Layouts.from_json(answer("layouts"))
    assert (noted.repetition, noted.files) == (2, ())
    assert (
        "f was not answered" in noted.problem and "it is not on Lustre" in noted.problem
    )


@pytest.mark.slow
def test_what_a_target_passes_on_is_seen_before_the_first_byte(lustre):
    completed(["lfs", "setstripe", "-c", "2", str(lustre)], check=True)
    wish = case(lustre, striping="lustre")
    assert agent.main(["open", wish]) == 0
    seen = Opened.from_json(opened()).directory_seen
    assert seen is not None and seen.default is not None
    assert (str(seen.default), seen.mdts) == ("2 x default size", (0,))
    assert [target.index for target in seen.metadata] == [0, 1]
    assert not seen.unanswered


@pytest.mark.slow
@pytest.mark.parametrize("full, refused", [("0", True), ("1", False)])
def test_the_metadata_target_that_gets_the_files_must_have_room(
    lustre, monkeypatch, full, refused
):
    """The directory lies on metadata target 0."""
    monkeypatch.setenv("LFS_MDT_FULL", full)
    wish = case(lustre, striping="lustre")
    assert agent.main(["open", wish]) == (REFUSED if refused else 0)
    assert (
        not refused
        or f"G14 metadata targets: MDT {full}: 64 of 838864 inodes"
        in opened()["refused"][0]
    )


def test_what_is_mounted_where_the_directory_was_is_named(tmp_path, capsys):
    """What a tmpfs over the target left of a case: no tool says why its files are gone."""
    gone = f"{session_dir(str(tmp_path), 's')}/c"
    assert agent._remove(gone, 0) == 0
    at = mounts.find_mount(str(tmp_path))
    said = f"iogauge: remove: {gone} was gone, and {at.point} is {at.type} from"
    assert said in capsys.readouterr().err


def test_facts_never_fail(target, capsys):
    assert agent.main(["facts", str(target / "gone"), "gone"]) == 0
    assert agent.main(["facts", "$NOT_SET/x", "unset"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert [line.partition("left out:")[0] for line in said] == ["iogauge: facts: "]
    seen = read(Path())
    assert seen.by_host("gone") and not seen.by_host("unset")
