"""A day of probes in fast motion on a real disk: three slow times are planted and found; nothing else is."""

import contextlib
import ctypes
import os
import time
from pathlib import Path

import pytest

from iogauge_extras.probe import probe_command, probe_lines, slowdown
from support.devices import THROTTLE, Devices, capped
from support.extras import extras as of_partition

MINUTES = 5 * 60
MIB = 1 << 20
_CLONE_NEWUTS = 0x04000000


def as_node(name, work):
    """Do something in a process that has the name of another host; return its exit status."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            libc = ctypes.CDLL(None)
            libc.unshare(_CLONE_NEWUTS)
            libc.sethostname(name.encode(), len(name))
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@contextlib.contextmanager
def capped_alone(device, most):
    """This process and its children alone have a slow way to a device."""
    group = THROTTLE / f"iogauge-{os.getpid()}"
    group.mkdir()
    number = Path(f"/sys/block/{device.name}/dev").read_text().strip()
    for way in ("read", "write"):
        file = group / f"blkio.throttle.{way}_bps_device"
        file.write_text(f"{number} {most}")
    (group / "cgroup.procs").write_text(f"{os.getpid()}")
    try:
        yield
    finally:
        (THROTTLE / "cgroup.procs").write_text(f"{os.getpid()}")
        group.rmdir()


@pytest.mark.nightly
@pytest.mark.needs_loop
@pytest.mark.skipif(
    not os.access(THROTTLE / "blkio.throttle.read_bps_device", os.W_OK),
    reason="slows a disk: needs root and cgroup v1 blkio",
)
def test_a_day_with_a_slow_disk_slow_writes_and_a_slow_node(tmp_path, monkeypatch):
    monkeypatch.setenv("IOGAUGE_HOME", str(tmp_path / "home"))
    (tmp_path / "devices").mkdir()
    with contextlib.ExitStack() as leaving:
        devices = Devices(tmp_path / "devices", leaving)
        target = devices.formatted("ext4") / "target"
        target.mkdir()
        extras = of_partition(
            target={"path": str(target), "type": "ext4", "source": None}
        )
        start = int(time.time()) - 288 * MINUTES

        def probe(step):
            return probe_command.probe_once("mine:mnt", extras, start + step * MINUTES)

        states = {}
        for step in range(288):
            with contextlib.ExitStack() as planted:
                if 120 <= step < 132:
                    planted.enter_context(
                        capped(devices.last, read=8 * MIB, written=8 * MIB)
                    )
                if 170 <= step < 182:
                    planted.enter_context(capped(devices.last, writes=6))
                states[step] = probe(step)
            if step >= 220:
                with contextlib.ExitStack() as planted:
                    if step >= 270:
                        planted.enter_context(capped_alone(devices.last, 8 * MIB))
                    assert as_node("n2", lambda at=step: probe(at)) == 0
        own = os.uname().nodename
        lines = probe_lines.recent(
            probe_lines.folder("mine", "mnt") / own, start + 288 * MINUTES
        )
        found = list(slowdown.stretches(lines))
        at = [(s.start - start) // MINUTES for s in found]
        until = [(s.end - start) // MINUTES for s in found]
        assert (at, until) == ([120, 170], [131, 181])
        assert found[0].factors["data"] > 2
        assert found[1].factors["data"] > 2
        assert states[122].status in (1, 2)
        assert not states[135].is_slow

        def told():
            state = probe_command._state("mine:mnt", start + 287 * MINUTES)
            assert f"{own}: as usual; look at n2 first" in state.text

        assert as_node("n2", told) == 0
        assert os.listdir(target) == []
