"""The command that asks all clients, on a file system that does not answer."""

import subprocess
import sys

import pytest

from support.devices import run

IOGAUGE = [sys.executable, "-c", "from iogauge.cli.app import app; app()"]


@pytest.mark.needs_loop
@pytest.mark.nightly
def test_clients_that_hang_keep_nobody_waiting_who_reads_what_the_command_prints(
    devices, tmp_path, monkeypatch
):
    disk = devices.formatted("ext4", mib=64)
    monkeypatch.setenv("IOGAUGE_HOME", str(tmp_path))
    target = disk / "target"
    target.mkdir()
    monkeypatch.setenv("IOGAUGE_TARGET", str(target))
    command = [*IOGAUGE, "check", "--clients"]
    run("fsfreeze", "-f", disk)
    try:
        # Reads until nobody holds the pipe any more.
        done = subprocess.run(command, capture_output=True, text=True, timeout=150)
    finally:
        run("fsfreeze", "-u", disk)
    assert done.returncode == 1
    assert "did not answer in 30 s" in " ".join(done.stdout.split())
