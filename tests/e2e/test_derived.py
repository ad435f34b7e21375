"""What follows from records of other cases is judged like a measurement, and passes no more easily."""

from __future__ import annotations

import copy
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
DAY = 86400


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
    out, _ = process.communicate(timeout=120)
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


def test_a_curve_that_meets_its_references_passes_a_gate(rig: Rig) -> None:
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


def test_what_does_not_hold_beyond_saturation_fails_by_name(rig: Rig) -> None:
    keep(rig, *(task_scaling(tasks) for tasks in list(WRITES)[:-1]))
    low = task_scaling(32)
    low["metrics"][0]["median"] = 0.94 * WRITES[16]
    keep(rig, low)
    run = derive(rig)
    run.never_passed(r"write_hold=0\.94", "expected 0.95")
    assert run.record["verdict"] == "FAIL"
    assert [m["name"] for m in run.record["metrics"] if m["verdict"] == "FAIL"] == ["write_hold"]


@pytest.mark.parametrize("gate", [False, True])
def test_before_anything_was_measured_it_names_what_to_run(rig: Rig, gate: bool) -> None:
    run = derive(rig, gate=gate)
    run.shows_no_pass()
    assert run.rc == int(gate), run.out
    assert re.search(r"\[ +FAIL *\]" if gate else r"\[ +SKIP *\]", run.out)
    assert run.record["verdict"] == "UNREFERENCED"
    assert run.record["metrics"] == []
    for text in ("tasks=1 (not measured)", "Run first: reframe -c checks/ -r -n '^TaskScaling"):
        assert text in run.out


def access(pattern: str, write: float, read: float, **change: Any) -> dict[str, Any]:
    return record(
        "AccessMatrix", {"pattern": pattern}, {"write_bw": write, "read_bw": read}, **change
    )


def test_one_case_over_another(rig: Rig) -> None:
    """Ratios of patterns; the newest valid record of each counts."""
    keep(
        rig,
        access("sequential-buffered-4m", 3000, 2000),
        access("random-buffered-4m", 1500, 1000, age_s=7200),
        access("random-buffered-4m", 2000, 1600),
        access("random-direct-4m", 1000, 800),
    )
    done = derive(rig, "-n", "^AccessRatios")
    assert metrics(done.record) == {
        "write_sequential_over_random": pytest.approx(1.5),
        "read_sequential_over_random": pytest.approx(1.25),
        "write_direct_over_buffered": pytest.approx(0.5),
        "read_direct_over_buffered": pytest.approx(0.5),
    }


# --- servers, stripes, baselines ------------------------------------------------------------------

#: 361 GB written with one stripe and with 144, in MiB/s (KAUST: 674.26 s and 10.35 s).
ONE_STRIPE, ALL_STRIPES = 361e9 / 674.26 / 2**20, 361e9 / 10.35 / 2**20


@pytest.fixture(scope="module")
def lustre(make_module_rig: Callable[..., Rig]) -> Run:
    """Two partitions of a system: the published figures of three sites as their records."""
    rig = make_module_rig(
        tools=("ior", "ior-mpiio"), launcher="local", declared={"striping": "lustre"}
    )
    settings = rig.settings()
    (four,) = settings["systems"][0]["partitions"]
    topology = {"source": "as published", "servers": {"count": 4, "nic": "30 Gbit/s"}}
    four["extras"] |= {
        "topology": topology,
        "sweeps": {"servers": [4, 8], "stripe_counts": [1, 64, 144]},
    }
    eight = copy.deepcopy(four)
    eight["name"] = "eight"
    eight["extras"]["sweeps"] = {}
    eight["extras"]["topology"]["servers"]["count"] = 8
    eight["extras"]["baseline"] = {
        "partition": "default",
        "checks": ["Burst", "IorPosix", "Steady"],
    }
    settings["systems"][0]["partitions"].append(eight)
    rig.write_settings(settings)
    rig.write_references(
        "$sources: {ServerScalingCurve: RedLine, StripeSpeedup: KAUST, AgainstBaseline: Oracle}\n"
        "ServerScalingCurve:\n"
        "  'rig:default':\n"
        "    write_scale_out: [0.9, 0, null, '1']\n"
        "    read_scale_out: [0.9, 0, null, '1']\n"
        "    write_fit: [0.98, 0, null, '1']\n"
        "    read_fit: [0.98, 0, null, '1']\n"
        "StripeSpeedup:\n"
        "  'rig:default':\n"
        "    write_speedup: [30, 0, null, '1']\n"
        "    best_stripe_count: [2, 0, null, '1']\n"
        "AgainstBaseline:\n"
        "  $index: [$partition, check]\n"
        "  'rig:eight':\n"
        "    IorPosix:\n"
        "      write_bw_ratio: [1, 0, 0.35, '1']\n"
        "      read_bw_ratio: [1, 0, 0.35, '1']\n"
        "      write_bw_time_ratio: [0.95, null, 0, '1']\n"
        "      read_bw_time_ratio: [0.95, null, 0, '1']\n"
        "      write_bw_scale_out: [0.9, 0, null, '1']\n"
        "      read_bw_scale_out: [0.5, 0, null, '1']\n"
        "    Steady:\n"
        "      write_bw_ratio: [1, 0, null, '1']\n"
        "      read_bw_ratio: [1, 0, null, '1']\n"
    )

    def posix(order: str, **values: float) -> dict[str, Any]:
        return record("IorPosix", {"order": order}, values)

    keep(
        rig,
        record("ServerScaling", {"servers": 4}, {"write_bw": 12900, "read_bw": 12500}),
        record("ServerScaling", {"servers": 8}, {"write_bw": 26000, "read_bw": 27000}),
        *(
            record("StripeCount", {"api": "MPIIO", "stripe_count": count}, {"write_bw": value})
            for count, value in ((1, ONE_STRIPE), (64, 20000), (144, ALL_STRIPES))
        ),
        # Of another library, and no point of this curve.
        record("StripeCount", {"api": "HDF5", "stripe_count": 64}, {"write_bw": 1e6}),
        record("Steady", {}, {"write_bw": 1000, "read_bw": 1000}),
        {**record("Steady", {}, {"write_bw": 1100}), "partition": "eight"},
        posix("sequential", write_bw=1000, read_bw=1000),
        posix("random", write_bw=900, read_bw=900, read_iops=7),
        {**posix("sequential", write_bw=1070, read_bw=1230), "partition": "eight"},
        {**posix("random", write_bw=800, read_bw=800), "partition": "eight"},
    )
    return derive(rig)


def of_check(run: Run, name: str) -> dict[str, Any]:
    (found,) = [r for r in run.records if r["case"].startswith(name)]
    return found


def test_scale_out_over_servers(lustre: Run) -> None:
    found = of_check(lustre, "ServerScalingCurve")
    assert found["verdict"] == "PASS", found["reason"]
    values = metrics(found)
    assert values["write_scale_out"] == pytest.approx(1.008, abs=5e-4)
    assert values["read_scale_out"] == pytest.approx(1.08)
    assert values["write_fit"] > 0.999


def test_a_partition_against_its_baseline(lustre: Run) -> None:
    found = of_check(lustre, "AgainstBaseline %check=IorPosix")
    assert metrics(found) == pytest.approx(
        {
            "write_bw_ratio": 1.07,
            "write_bw_time_ratio": 1 / 1.07,
            "write_bw_scale_out": 0.535,
            "read_bw_ratio": 1.23,
            "read_bw_time_ratio": 1 / 1.23,
            "read_bw_scale_out": 0.615,
        }
    )
    assert found["verdict"] == "FAIL"
    assert [m["name"] for m in found["metrics"] if m["verdict"] != "PASS"] == ["write_bw_scale_out"]
    used = found["metrics"][0]["derived_from"]
    assert [(p["partition"], p["case"]) for p in used] == [
        ("eight", "IorPosix %order=sequential"),
        ("default", "IorPosix %order=sequential"),
    ]
    assert re.search(r"write_bw_scale_out=0\.53\d* 1, expected 0\.9", lustre.out)
