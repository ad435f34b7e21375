"""What the doctor says of a target: on stand-ins of Lustre, as root and as an ordinary user; and beside its declarations."""

import os
from pathlib import Path

import pytest

from iogauge.cli import doctor, ready
from iogauge.node.kinds import Below
from iogauge.node.lustre import client
from iogauge.node.mounts import Mount, Space
from iogauge.node.view import View
from iogauge.workspace import lock, permission
from support.extras import EXTRAS, extras
from support.lustre.kernel import kernel

STAND_INS = Path(__file__).parents[1] / "support" / "lustre"


@pytest.fixture
def examined(tmp_path, monkeypatch):
    """The lines about a target of four storage targets on two servers; knobs are the stand-ins'."""
    target = tmp_path / "target"
    target.mkdir()
    settings = {
        "LFS_STATE": str(tmp_path / "state"),
        "LFS_MOUNT": str(target),
        "LFS_FSNAME": "rig",
        "LFS_SERVERS": "2",
        "LFS_SERVER_VERSION": "2.15.5.0",
        "LCTL_USER": "0",
        "PATH": f"{STAND_INS}{os.pathsep}{os.environ['PATH']}",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(permission, "reason", lambda _: "you own it")
    monkeypatch.syspath_prepend(STAND_INS)
    import parameters

    def look(**knobs):
        for name, value in knobs.items():
            monkeypatch.setenv(name, value)
        shown = {}
        # What Lustre says of a connection that is switched off was not recorded.
        off = "LFS_INACTIVE" in knobs
        for last in (
            "version",
            "ost_conn_uuid",
            "numobd",
            *([] if off else ["import"]),
        ):
            shown |= parameters.parameters(last)
        top = kernel(
            tmp_path / "kernel",
            {name: text for name, text in shown.items() if "jobid" not in name},
        )
        tops = (str(top / "sys/fs/lustre"), str(top / "sys/kernel/debug/lustre"))
        monkeypatch.setattr(client, "TOPS", tops)
        there = {
            "path": str(target),
            "type": "ext4",
            "source": None,
            "striping": "lustre",
        }
        servers = {"count": 2, "nic": "100 GB/s"}
        topology = {"source": "made up", "targets": 4, "servers": servers}
        place = extras(target=there, topology=topology)
        return doctor.of_target(place)

    return look


def said(checks, state):
    return "\n".join(check.text for check in checks if check.state == state)


def test_root_is_told_all(examined):
    found = examined()
    text = said(found, "ok")
    for words in (
        "Lustre client 2.17.0, servers 2.15.5.0",
        "4 storage target(s) (OST), 2 metadata target(s) (MDT), storage served from 10.0.0.11@tcp, 10.0.0.12@tcp",
        "G12 health: 4 storage targets, all active",
        "fullest storage target: rig-OST0000_UUID, 0% full",
        "no limit",
        "new files get: stripe_count: 1 stripe_size: 4194304 pattern: 0 stripe_offset: -1",
        "the directory itself: lmv_stripe_count: 0 lmv_stripe_offset: 0 lmv_hash_type: none",
        "pools: none",
        "nobody holds its lock",
    ):
        assert words in text
    assert "hidden" not in said(found, "note")
    assert said(found, "problem") == ""


def test_a_user_is_told_what_is_hidden_and_who_sees_it(examined):
    found = examined(LCTL_USER="1")
    assert "servers of a version that only root sees" in said(found, "ok")
    (hidden,) = [check for check in found if check.text.startswith("hidden")]
    assert "evictions" in hidden.text
    assert (
        hidden.remedy == "root sees them: lctl get_param 'osc.*.state' 'osc.*.import'"
    )


@pytest.mark.parametrize(
    ("knobs", "state", "words"),
    [
        ({"LFS_INACTIVE": "1"}, "problem", "G12 health: inactive: rig-OST0001_UUID"),
        ({"LFS_DEGRADED": "2"}, "note", "G12 health: rig-OST0002_UUID (degraded)"),
        ({"LFS_OSTS": "3"}, "problem", "G12 health: 3 storage targets"),
        (
            {"LFS_QUOTA": "24 1024 3 10"},
            "ok",
            f"quota of user {os.getuid()}: 1000 KiB and 7 files left",
        ),
    ],
)
def test_a_state_is_named(examined, knobs, state, words):
    found = examined(**knobs)
    assert words.lower() in said(found, state).lower(), found
    assert all(check.remedy for check in found if check.state == "problem")


def test_who_holds_the_lock_is_named(examined, tmp_path):
    content = lock.describe(
        session="night", case="IorPosix", lease_s=600, processes=[os.getpid()]
    )
    mine = lock.Lock(str(tmp_path / "target"), content)
    assert mine.claim()
    try:
        (check,) = [check for check in examined() if "locked by" in check.text]
        assert "session night, case IorPosix" in check.text
        assert check.text.endswith(", whose processes run")
        assert check.remedy == "wait until it has ended"
    finally:
        mine.release()
    assert "nobody holds its lock" in said(examined(), "ok")


@pytest.mark.parametrize(
    ("target", "seen", "said_of_it"),
    [
        ({"type": "xfs"}, {}, [("problem", "G9 identity: ")]),
        ({"source": "/dev/another"}, {}, [("problem", "G9 identity: ")]),
        (
            {"uuid": "3f6d1c88-0000-4000-8000-000000000000"},
            {},
            [("problem", "sees UUID")],
        ),
        (
            {"compresses": False},
            {"below": Below(compresses="dm-vdo")},
            [("problem", "G18 data: data may be compressed, or stored once (dm-vdo)")],
        ),
    ],
)
def test_what_a_site_declares_is_compared_with_what_this_host_sees(
    target, seen, said_of_it
):
    view = View(
        host="n1",
        path="/data",
        mount=Mount(1, "/data", "/dev/sdb1", "ext4", "rw"),
        space=Space(1, 1, 1, 1),
        uuid="7c0e2a11-0000-4000-8000-000000000000",
        below=seen.get("below", Below()),
    )
    declared = {"path": "/data", "type": "ext4", "source": "/dev/sdb1", **target}
    found = list(
        doctor._target_otherwise("target /data", extras(target=declared), view)
    )
    assert [check.state for check in found] == [state for state, _ in said_of_it], found
    for check, (_, words) in zip(found, said_of_it, strict=True):
        assert words in check.text
        assert check.remedy and check.remedy in str(check)


@pytest.mark.parametrize(("lock", "said"), [(None, 1), ("/s", 0)])
def test_partitions_on_one_file_system_without_one_lock(lock, said):
    """Five partitions loaded each other on a real Lustre."""
    base = {
        "type": "lustre",
        "source": "mgs@tcp:/scr",
        **({"lock": lock} if lock else {}),
    }
    partitions = [
        {"name": name, "extras": {**EXTRAS, "target": {**base, "path": f"/s/{name}"}}}
        for name in ("a", "b")
    ]
    site = {"systems": [{"partitions": partitions}]}
    found = list(ready._same_file_system(Path("mine"), site))
    assert len(found) == said
    assert not found or found[0].remedy.endswith("target: {lock: /s/a}")
