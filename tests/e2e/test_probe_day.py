"""A day of probes in fast motion on a real disk: two slow times are planted and found; nothing else is."""

import contextlib
import os
import time

import pytest

from iogauge_extras.probe import probe_command, probe_lines, slowdown
from support.devices import THROTTLE, Devices, capped
from support.extras import extras as of_partition

MINUTES = 5 * 60
MIB = 1 << 20


@pytest.mark.nightly
@pytest.mark.needs_loop
@pytest.mark.skipif(
    not os.access(THROTTLE / "blkio.throttle.read_bps_device", os.W_OK),
    reason="slows a disk: needs root and cgroup v1 blkio",
)
def test_a_day_with_a_slow_disk_and_slow_writes(tmp_path, monkeypatch):
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

        assert os.listdir(target) == []
