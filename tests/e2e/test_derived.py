"""What follows from records of other cases is judged like a measurement, and passes no more easily."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from e2e.rig import Rig, Run
from iogauge.records import journal
from support import records
from support.records import append

#: Bandwidth in MiB/s by tasks on each of four nodes: the plateau that RedLine published for four servers.
WRITES = {1: 806.25, 2: 1612.5, 4: 3225.0, 8: 6450.0, 16: 12900.0, 24: 12850.0, 32: 12800.0}
READS = {1: 781.25, 2: 1562.5, 4: 3125.0, 8: 6250.0, 16: 12500.0, 24: 12400.0, 32: 12450.0}
CURVE = {
    "write_plateau": [12900, -0.05, None, "MiB/s"],
    "read_plateau": [12500, -0.05, None, "MiB/s"],
    "write_linearity": [0.85, 0, None, "1"],
    "read_linearity": [0.85, 0, None, "1"],
    "write_hold": [0.95, 0, None, "1"],
    "read_hold": [0.95, 0, None, "1"],
}


def stamp(age_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - age_s))


def record(
    check: str,
    parameters: Mapping[str, Any],
    metrics: Mapping[str, float],
    verdict: str = "PASS",
    age_s: float = 3600,
    **change: Any,
) -> dict[str, Any]:
    """A record as a measuring case leaves it, with one verdict on all metrics."""
    name = " ".join([check, *(f"%{key}={value}" for key, value in parameters.items())])
    plain = {
        "time": stamp(age_s),
        "system": "rig",
        "partition": "default",
        "environment": "tools",
        "check": check,
        "case": name,
        "tier": "quick",
        "nodes": 4,
        "tasks_per_node": 16,
        "parameters": dict(parameters),
        "metrics": [
            records.metric(
                metric,
                verdict,
                unit="MiB/s" if metric.endswith("bw") else "ops/s",
                median=value,
                reference=None,
            )
            for metric, value in metrics.items()
        ],
    }
    return records.values(verdict, **plain | change)


def task_scaling(
    tasks: int,
    verdict: str = "PASS",
    age_s: float = 3600,
    name: str = "TaskScaling",
    **change: Any,
) -> dict[str, Any]:
    values = {"write_bw": WRITES[tasks], "read_bw": READS[tasks]}
    change["tasks_per_node"] = tasks
    return record(name, {"tasks": tasks}, values, verdict, age_s, **change)


def keep(rig: Rig, *records: dict[str, Any], session: str = "20260101T000000-host-1") -> Path:
    file = rig.home / "history" / "rig" / f"{session}.jsonl"
    for one in records:
        append(file, {**one, "session": session})
    return file


def derive(rig: Rig, *arguments: str, gate: bool = False) -> Run:
    """``reframe -c checks/ -r -t derived`` over the records that the rig has; of them, the new ones.

    The ratios of access patterns, which every site has, only where an argument names them.
    """
    if not any("AccessRatios" in word for word in arguments):
        arguments = (*arguments, "-x", "^AccessRatios")
    extra = {"IOGAUGE_GATE": "1"} if gate else {}
    words = ["reframe", "-c", "checks/", "-r", "-t", "derived", *arguments]
    process = rig.start(words, IOGAUGE_SESSION="now", **extra)
    out, _ = process.communicate(timeout=600)
    file = rig.home / "history" / "rig" / "now.jsonl"
    found = [r for r in journal.read(file) if isinstance(r, dict)] if file.exists() else []
    file.unlink(missing_ok=True)
    reports = sorted((rig.home / "reports").glob("*.json"), key=lambda f: f.stat().st_mtime_ns)
    report = json.loads(reports[-1].read_text()) if reports else None
    return Run(process.returncode, re.sub(r"\x1b\[[0-9;]*m", "", out), found, report, rig.stage)


def metrics(one: dict[str, Any]) -> dict[str, float]:
    return {metric["name"]: metric["median"] for metric in one["metrics"]}


@pytest.fixture
def rig(make_rig: Callable[..., Rig]) -> Rig:
    """A site with a sweep over tasks, and references as RedLine's plateau demands."""
    rig = make_rig(tools=("ior",), launcher="local")
    settings = rig.settings()
    extras = settings["systems"][0]["partitions"][0]["extras"]
    extras["sweeps"] = {"tasks_per_node": list(WRITES)}
    rig.write_settings(settings)
    rig.write_references({"TaskScalingCurve": CURVE})
    return rig


def test_a_curve_that_meets_its_references_passes_a_gate(rig):
    keep(rig, *(task_scaling(tasks) for tasks in WRITES))
    run = derive(rig, gate=True)
    assert run.rc == 0, run.out
    assert run.record["verdict"] == "PASS"
    assert len(re.findall(r"\[ +OK *\]", run.out)) == 1
    assert metrics(run.record) == pytest.approx(
        {
            "write_plateau": 12900,
            "read_plateau": 12500,
            "write_linearity": 1,
            "read_linearity": 1,
            "write_hold": 12800 / 12900,
            "read_hold": 12400 / 12500,
        }
    )
    by_name = {metric["name"]: metric for metric in run.record["metrics"]}
    assert [
        (point["x"], point["value"], point["case"], point["session"])
        for point in by_name["read_hold"]["derived_from"]
    ] == [
        (16, 12500.0, "TaskScaling %tasks=16", "20260101T000000-host-1"),
        (24, 12400.0, "TaskScaling %tasks=24", "20260101T000000-host-1"),
    ]
    value, reference, *_ = run.cases[0]["perfvalues"]["rig:default:write_plateau"]
    assert (value, reference) == (12900, 12900)
    assert (rig.leftovers(), run.record["parameters"]) == ([], {})


def test_what_does_not_hold_beyond_saturation_fails_by_name(rig):
    keep(rig, *(task_scaling(tasks) for tasks in list(WRITES)[:-1]))
    low = task_scaling(32)
    low["metrics"][0]["median"] = 0.94 * WRITES[16]
    keep(rig, low)
    run = derive(rig)
    run.never_passed(r"write_hold=0\.94", "expected 0.95")
    assert run.record["verdict"] == "FAIL"
    assert [m["name"] for m in run.record["metrics"] if m["verdict"] == "FAIL"] == ["write_hold"]


def test_before_anything_was_measured_it_names_what_to_run(rig):
    run = derive(rig)
    run.shows_no_pass()
    assert (run.rc, run.record["metrics"]) == (0, []), run.out
    assert run.record["verdict"] == "UNREFERENCED"
    for text in ("tasks=1 (not measured)", "Run first: reframe -c checks/ -r -n '^TaskScaling"):
        assert text in run.out
    assert derive(rig, gate=True).rc == 1
