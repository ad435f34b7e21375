"""docs/first-hour.md: each of its commands ends as the page says, and the page is what its script prints."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from e2e.rig import ROOT, Rig

PAGE = ROOT / "docs" / "first-hour.md"
CAPPED = ROOT / "benchmarks" / "capped-fs"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs_fio,
    pytest.mark.needs_loop,
    pytest.mark.skipif(
        not os.access("/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device", os.W_OK),
        reason="mounts and slows a disk: needs root and cgroup v1 blkio",
    ),
]


def said(page: str) -> list[str]:
    """Commands, exit statuses and closing words of a page, without its figures."""
    kept = re.findall(r"^    (\$ .*|\(exit status \d+\)|iogauge: [a-zA-Z ]+:|mine: ok)", page, re.M)
    return [re.sub(r"\d+", "N", line) if line.startswith("iogauge") else line for line in kept]


@pytest.fixture
def disk(storage: Path) -> Iterator[Path]:
    place = storage / "first-hour"
    subprocess.run([CAPPED, "up", place, "1G", "10"], check=True, timeout=60)
    (place / "sites").mkdir()
    yield place
    subprocess.run([CAPPED, "down", place], check=True, timeout=60)


def repeat(rig: Rig, times: int) -> None:
    """Let the newest record stand for so many runs, a second apart: all that came before moves back."""
    newest, *before = sorted(
        (rig.home / "history" / "mine").glob("*.jsonl"), key=lambda f: -f.stat().st_mtime_ns
    )
    for file in before:
        (record,) = (json.loads(line) for line in file.read_text().splitlines())
        file.write_text(json.dumps(earlier(record, times)) + "\n")
    (record,) = (json.loads(line) for line in newest.read_text().splitlines())
    for n in range(1, times):
        again = earlier(record, n) | {"session": f"{record['session']}-again-{n}"}
        (newest.parent / f"{again['session']}.jsonl").write_text(json.dumps(again) + "\n")


def earlier(record: dict[str, Any], seconds: int) -> dict[str, Any]:
    time = datetime.fromisoformat(record["time"].replace("Z", "+00:00"))
    return record | {"time": f"{time - timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"}


def test_each_command_ends_as_the_page_says(disk: Path, make_rig: Callable[..., Rig]) -> None:
    """But for ``make bench`` (test_fresh.py); a single real run stands for repeated ones."""
    rig = make_rig(target=disk / "mnt")
    done = 0
    for block in re.split(r"^    \$ ", PAGE.read_text(), flags=re.M)[1:]:
        if "now carries 6 MiB/s" in PAGE.read_text().partition(block)[0]:
            subprocess.run([CAPPED, "cap", disk, "6"], check=True, timeout=60)
        command, *_ = block.splitlines()
        words = shlex.split(command.partition(" | ")[0].replace("/scratch", str(rig.target)))
        times = [int(word.partition("=")[2]) for word in words if word.startswith("--repeat=")]
        if words[0] == "sed":
            subprocess.run(words, cwd=disk, check=True, timeout=60)
        if words[0] != "iogauge":
            continue
        words = [word for word in words[1:] if not word.startswith("--repeat=")]
        status = int(re.findall(r"exit status (\d)", block)[0])
        for _ in range(3):
            run = rig.iogauge(*words, IOGAUGE_SITES=str(disk / "sites"))
            # A busy machine may miss the reference, which is no fault of the page.
            if run.rc == status or words[0] != "run":
                break
        found = said("".join(f"    {line}\n" for line in run.out.splitlines()))
        assert run.rc == status, f"{command}\n{run.out}"
        wanted = [line for line in said(block) if not line.startswith(("$", "("))]
        assert [line for line in wanted if line not in found] == [], f"{command}\n{run.out}"
        if times:
            repeat(rig, *times)
        done += 1
    assert done == 8
