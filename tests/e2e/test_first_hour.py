"""docs/first-hour.md is what its script prints: the commands, and what each of them ends with."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from e2e.rig import ROOT
from support.depth import FULL

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs_fio,
    pytest.mark.needs_loop,
    pytest.mark.skipif(not FULL, reason="takes minutes: set IOGAUGE_TEST_FULL=1"),
]


def said(page: str) -> list[str]:
    """Commands, exit statuses and closing words of a page, without its figures."""
    kept = re.findall(r"^    (\$ .*|\(exit status \d+\)|iogauge: [a-zA-Z ]+:|mine: ok)", page, re.M)
    return [re.sub(r"\d+", "N", line) if line.startswith("iogauge") else line for line in kept]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts and slows a disk, which root may")
def test_the_page_is_what_the_script_prints(storage: Path) -> None:
    if not os.access("/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device", os.W_OK):
        pytest.skip("no cgroup v1 blkio that can be written")
    words = [ROOT / "benchmarks" / "first-hour", storage / "first-hour"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=1200)
    assert done.returncode == 0, done.stderr
    assert said(done.stdout) == said((ROOT / "docs" / "first-hour.md").read_text()), done.stdout
