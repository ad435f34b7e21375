"""How often a case starts the agent: each start costs a node a tenth of a second."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable

import pytest

from e2e.rig import Rig

pytestmark = pytest.mark.needs_fio


def test_a_plain_case_starts_the_agent_five_times(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    log, env = rig.base / "started", rig.bin / "env"
    env.write_text(f'#!/bin/sh\necho "$@" >>{log}\nexec {shutil.which("env")} "$@"\n')
    env.chmod(0o755)
    run = rig.run("-n", "^FioMetadata")
    assert run.record["verdict"] == "UNREFERENCED", run.out
    words = [line.split() for line in log.read_text().splitlines() if "iogauge.job.agent" in line]
    commands = Counter(line[line.index("iogauge.job.agent") + 1] for line in words)
    assert commands == {"open": 1, "facts": 3, "remove": 1}
