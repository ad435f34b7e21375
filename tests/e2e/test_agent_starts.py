"""How often a case starts the agent, and Lustre's programs: each start costs a node a tenth of a second."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable

import pytest

from e2e.rig import ROOT, Rig

pytestmark = pytest.mark.needs_fio

STAND_INS = ROOT / "tests" / "support" / "lustre"


def logged(rig: Rig, name: str, program: str | None) -> None:
    """Put a program on the rig's PATH that logs its words, and does what another one does."""
    file = rig.bin / name
    file.write_text(f'#!/bin/sh\necho {name} "$@" >>{rig.base}/started\nexec {program} "$@"\n')
    file.chmod(0o755)


def started(rig: Rig) -> list[list[str]]:
    return [line.split() for line in (rig.base / "started").read_text().splitlines()]


def test_a_plain_case_starts_the_agent_once(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    logged(rig, "env", shutil.which("env"))
    run = rig.run("-n", "^FioRandomRead%block=128")
    assert run.record["verdict"] == "UNREFERENCED", run.out
    words = [line for line in started(rig) if "iogauge.job.agent" in line]
    commands = Counter(line[line.index("iogauge.job.agent") + 1] for line in words)
    assert commands == {"open": 1}
