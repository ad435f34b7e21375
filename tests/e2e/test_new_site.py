"""``iogauge site new`` from a wheel: what it writes outside the clone is sound, and a real run gives a valid record."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from e2e.rig import ROOT

pytestmark = pytest.mark.slow


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
        subprocess.run([*pip, *words, str(clone / "reframe")], check=True, timeout=120)
        shutil.rmtree(clone)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", base / "venv"], check=True)
        (wheel,) = base.glob("*.whl")
        self.bin = base / "venv" / "bin"
        install = ["--python", str(self.bin / "python"), "install", "--no-deps", "--no-index"]
        subprocess.run([*pip, *install, str(wheel)], check=True, timeout=120)
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


@pytest.mark.needs_fio
def test_a_wheel_measures_a_site_outside_the_clone(storage: Path) -> None:
    base, target = storage / "wheel", storage / "wheel" / "target"
    target.mkdir(parents=True)
    installed = Installed(base)
    refused = installed.run("iogauge", "site", "new", "mine", status=2)
    assert "no folder of your own for the site" in refused
    words = ("--target", str(target), "--repository", "repository", "--ceiling", "50 GB/s")
    said = installed.run("iogauge", "site", "new", "mine", *words)
    assert "time_limit: " in said
    assert "case(s), one at a time" in said
    sites = {"IOGAUGE_SITES": str(base / "repository" / "sites")}
    case = ("-n", "FioRandomRead%block=128KiB", "--system=mine", "-S", "repetitions=1")
    installed.run("iogauge", "run", *case, **sites)
    history = base / "state" / "iogauge" / "history" / "mine"
    is_valid([json.loads(line) for file in history.glob("*.jsonl") for line in file.open()])
