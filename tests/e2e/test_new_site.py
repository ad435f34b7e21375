"""A newcomer's way: ``iogauge site new`` from a wheel, and each command of docs/first-hour.md."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from e2e.rig import ROOT, Rig


def is_valid(records: list[dict[str, Any]]) -> None:
    """A record of the site, valid and without a reference; a busy machine may be unstable."""
    (record,) = records
    assert record["verdict"] in ("UNREFERENCED", "UNSTABLE", "CONTAMINATED"), record["reason"]
    assert record["system"] == "mine"
    assert all(metric["median"] > 0 for metric in record["metrics"])


class Installed:
    """The library as a wheel in an environment of its own, with the packages of this one."""

    def __init__(self, base: Path) -> None:
        clone, self.base = base / "clone", base
        for name in ("reframe", "checks", "site-configs", "environments", "docs", "ci"):
            ignored = shutil.ignore_patterns(".spack-env", "build", "*.egg-info", "__pycache__")
            shutil.copytree(ROOT / name, clone / name, ignore=ignored)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        words = ["wheel", "--no-deps", "--no-index", "--no-build-isolation", "-w", str(base)]
        subprocess.run([*pip, *words, str(clone / "reframe")], check=True, timeout=600)
        shutil.rmtree(clone)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", base / "venv"], check=True)
        (wheel,) = base.glob("*.whl")
        self.bin = base / "venv" / "bin"
        install = ["--python", str(self.bin / "python"), "install", "--no-deps", "--no-index"]
        subprocess.run([*pip, *install, str(wheel)], check=True, timeout=600)
        packages = next((base / "venv" / "lib").glob("python*/site-packages"))
        # A path file is not followed to other path files: the clone stays out of sight.
        (packages / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
        reframe = (Path(sys.executable).parent / "reframe").read_text().split("\n", 1)[1]
        (self.bin / "reframe").write_text(f"#!{self.bin / 'python'}\n{reframe}")
        (self.bin / "reframe").chmod(0o755)

    def run(self, *words: str, status: int = 0, **extra: str) -> str:
        """Run a command away from the clone; return what it printed."""
        own = {
            n: v for n, v in os.environ.items() if not n.startswith(("IOGAUGE", "RFM", "PYTHON"))
        }
        own["PATH"] = f"{self.bin}:{own['PATH']}"
        done = subprocess.run(
            words,
            cwd=self.base,
            env=own | {"XDG_STATE_HOME": str(self.base / "state")} | extra,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=240,
        )
        assert done.returncode == status, done.stdout
        return done.stdout


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.needs_fio
def test_a_wheel_measures_a_site_outside_the_clone(storage):
    base, target = storage / "wheel", storage / "wheel" / "target"
    target.mkdir(parents=True)
    installed = Installed(base)
    refused = installed.run("iogauge", "site", "new", "mine", status=2)
    assert "no folder of your own for the site" in refused
    (base / "sites").mkdir()
    sites = {"IOGAUGE_SITES": str(base / "sites")}
    words = ("--target", str(target), "--ceiling", "50 GB/s")
    said = installed.run("iogauge", "site", "new", "mine", *words, **sites)
    assert "time_limit: " in said
    assert "case(s), one at a time" in said
    case = ("-n", "FioRandomRead%block=128KiB", "--system=mine", "-S", "repetitions=1")
    installed.run("iogauge", "run", *case, **sites)
    history = base / "state" / "iogauge" / "history" / "mine"
    is_valid([json.loads(line) for file in history.glob("*.jsonl") for line in file.open()])


# --- the first hour -------------------------------------------------------------------------------


PAGE = ROOT / "docs" / "first-hour.md"
CAPPED = ROOT / "benchmarks" / "capped-fs"


def said(page: str) -> list[str]:
    """Commands, exit statuses and closing words of a page, without its figures."""
    kept = re.findall(
        r"^    (\$ .*|\(exit status \d+\)|iogauge: [a-zA-Z ]+:|ready: mine:)", page, re.M
    )
    return [re.sub(r"\d+", "N", line) if line.startswith("iogauge") else line for line in kept]


@pytest.fixture
def disk(storage: Path) -> Iterator[Path]:
    place = storage / "first-hour"
    subprocess.run([CAPPED, "up", place, "1G", "10"], check=True, timeout=600)
    (place / "sites").mkdir()
    yield place
    subprocess.run([CAPPED, "down", place], check=True, timeout=600)


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


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.needs_fio
@pytest.mark.needs_loop
@pytest.mark.skipif(
    not os.access("/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device", os.W_OK),
    reason="mounts and slows a disk: needs root and cgroup v1 blkio",
)
def test_each_command_ends_as_the_page_says(disk, make_rig):
    """But for ``make bench`` (test_fresh.py); a single real run stands for repeated ones."""
    rig = make_rig(target=disk / "mnt")
    done = 0
    for block in re.split(r"^    \$ ", PAGE.read_text(), flags=re.M)[1:]:
        if "now carries 6 MiB/s" in PAGE.read_text().partition(block)[0]:
            subprocess.run([CAPPED, "cap", disk, "6"], check=True, timeout=600)
        command, *_ = block.splitlines()
        words = shlex.split(command.partition(" | ")[0].replace("/scratch", str(rig.target)))
        times = [int(word.partition("=")[2]) for word in words if word.startswith("--repeat=")]
        if words[0] == "sed":
            subprocess.run(words, cwd=disk, check=True, timeout=600)
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
