"""What a training does to storage, for real at a small scale: checkpoints within a time, reads in random order."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from e2e.rig import MIB, Rig, Run
from e2e.test_scenarios import of
from iogauge.core.units import parse_bytes

#: No whole number of transfers of two tasks: 66 MiB are written in 72.
STATE = "66 MiB"


pytestmark = [pytest.mark.needs_ior, pytest.mark.needs_fio]


def declare(rig: Rig, **models: dict[str, str]) -> None:
    """Declare models of a rig's site."""
    data = rig.settings()
    data["systems"][0]["partitions"][0]["extras"]["checkpoints"] = models
    rig.write_settings(data)


def checkpoint(save: str = "60 s", restart: str = "60 s") -> dict[str, str]:
    return {"state": STATE, "save": save, "restart": restart}


def found(record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {metric["name"]: metric for metric in record["metrics"]}


@pytest.fixture(scope="module")
def rig(make_module_rig: Callable[..., Rig]) -> Rig:
    rig = make_module_rig(tools=("ior",), tasks=2)
    declare(rig, small=checkpoint(), slow=checkpoint(save="1 ms", restart="60 s"))
    return rig


@pytest.fixture(scope="module")
def saved(rig: Rig) -> Run:
    done = rig.run(
        "-n",
        "^Checkpoint%model=(small%files=per-process|slow%files=shared)$",
        "--exec-policy=serial",
    )
    rig.assert_clean()
    return done


def test_a_budget_that_is_kept_passes_and_another_fails(saved: Run) -> None:
    records = of(saved, "Checkpoint")
    assert {r["verdict"] for r in records} == {"PASS", "FAIL"}, saved.out
    for record in records:
        kept = record["parameters"]["model"] == "small"
        metrics = found(record)
        assert list(metrics) == ["save_time", "restart_time", "write_bw", "read_bw"]
        kinds = {metrics[name]["verdict"] for name in ("save_time", "write_bw")}
        assert kinds == {"PASS" if kept else "FAIL"}, record["reason"]
        assert metrics["restart_time"]["verdict"] == "PASS", record["reason"]
        assert "the budget of checkpoints." in str(metrics["save_time"]["reference"])
        budget_s = 60 if kept else 0.001
        for name, value, lower, upper in (
            ("save_time", budget_s, None, 0),
            ("write_bw", parse_bytes(STATE) / 2**20 / budget_s, 0, None),
            ("restart_time", 60, None, 0),
            ("read_bw", parse_bytes(STATE) / 2**20 / 60, 0, None),
        ):
            reference = metrics[name]["reference"]
            assert reference["value"] == pytest.approx(value), name
            assert (reference["lower"], reference["upper"]) == (lower, upper), name


def test_the_whole_state_is_saved_and_read_cold(saved: Run) -> None:
    for record in of(saved, "Checkpoint"):
        metrics = found(record)
        for time, bandwidth in (("save_time", "write_bw"), ("restart_time", "read_bw")):
            moved = metrics[time]["median"] * metrics[bandwidth]["median"]
            assert moved == pytest.approx(72, rel=0.01)
        said = {(f["metric"], f["guard"], f["outcome"]) for f in record["findings"]}
        assert {("restart_time", "G1", "ok"), ("save_time", "G2", "ok")} <= said
        assert any(
            f["metric"] == "restart_time" and "emptied and proven empty" in f["saw"]
            for f in record["findings"]
        )
        shared = record["parameters"]["files"] == "shared"
        assert all(
            (" -F " in command) != shared for command in record["commands"] if "ior" in command
        )


def test_another_size_has_no_budget(rig: Rig) -> None:
    case = ("-n", "^Checkpoint%model=small%files=shared")
    done = rig.run(*case, "-S", f"total_bytes={96 * MIB}")
    assert done.record["verdict"] == "UNREFERENCED", done.out
    declare(rig, small=checkpoint() | {"state": "1 GiB"})
    rig.run(*case).never_passed(
        "checkpoints.small.state is 1 GiB", "raise the limit for Checkpoint"
    )


@pytest.fixture(scope="module")
def trainer(make_module_rig: Callable[..., Rig]) -> Rig:
    return make_module_rig(tools=("fio", "mdtest"), limits={"case_files": 400})


@pytest.fixture(scope="module")
def trained(trainer: Rig) -> Run:
    done = trainer.run(
        "-n", "^Training(Files|Samples%sample=32KiB)$", "--exec-policy=serial", "--keep-stage-files"
    )
    trainer.assert_clean()
    return done


def said(record: dict[str, Any]) -> str:
    """Guard, outcome and observation of each finding, a line each."""
    return "\n".join(f"{f['guard']} {f['outcome']} {f['saw']}" for f in record["findings"])


def test_all_processes_read_samples_of_all_large_files(trained: Run) -> None:
    (record,) = of(trained, "TrainingSamples")
    assert record["verdict"] == "UNREFERENCED", record["reason"]
    metrics = found(record)
    assert metrics["read_bw"]["median"] == pytest.approx(
        metrics["read_iops"]["median"] / 32, rel=0.01
    )
    findings = said(record)
    assert "G8 ok fio checked its data in the warm-up" in findings
    # A busy machine reads fewer than 32 in the time that it has.
    assert re.search(r"G8 ok [1-9]\d* block\(s\) of [1-8] file\(s\)", findings)
    assert "or more in each execution" in findings
    output = json.loads(trained.file("fio-randread.1.json").read_text())
    # Both processes read, each from all files: fio has no count by file, so the job file tells.
    job = trained.file("randread.fio").read_text().split()
    assert {"numjobs=2", "nrfiles=8", "file_service_type=random", "direct=1"} <= set(job)
    assert output["jobs"][0]["read"]["total_ios"] > 0


def test_each_small_file_is_read_once_from_storage(trained: Run) -> None:
    (record,) = of(trained, "TrainingFiles")
    assert record["verdict"] == "UNREFERENCED", record["reason"]
    assert list(found(record)) == ["read_rate"]
    findings = said(record)
    assert "G1 ok page cache emptied and proven empty 1 times" in findings
    # 400 files of 128 KiB, as the kernel counts them.
    assert ": 50 MiB or more in each execution" in findings
    (read,) = (command for command in record["commands"] if " -E " in command)
    assert " -X " in read
    assert " -R " in read
