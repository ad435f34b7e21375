"""Results that a tool damaged, or a tool that failed: the judge refuses them by phase and cause.

What is kept of a whole session with such a result is tests/e2e/test_never_pass.py: one for each way to say no
(the parser, the exit status, a guard).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iogauge.core.measurement import Reference, ToolOutputError
from iogauge.evidence import collect
from iogauge.judge import case
from iogauge.judge.verdict import Verdict
from support import stage as healthy
from support.extras import extras

REFERENCES = {
    "write_bw": Reference(500.0, -0.1, None, "MiB/s", "run 1"),
    "read_iops": Reference(20000.0, -0.1, None, "ops/s", "run 1"),
}
#: First judged repetition: what IOR and fio wrote.
IOR, FIO = "ior.1.json", "read.1.out"


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    return healthy.build(tmp_path / "stage")


def judged(stage: Path) -> case.Judgement:
    plan = healthy.plan()
    found = collect.collect(stage, plan, 0, ("s", "c"))
    return case.judge(plan, found, healthy.METRICS, REFERENCES, extras(), "quick")


def edit(file: Path, change: Callable[[Any], object]) -> None:
    """Change a tool's JSON document; fio may say something before it."""
    text = file.read_text()
    document = json.loads(text[text.index("{") :])
    change(document)
    file.write_text(json.dumps(document))


def of_ior(document: Any) -> Any:
    return document["tests"][0]["Results"][0]


def of_fio(document: Any) -> Any:
    return document["jobs"][0]["read"]


def refused(stage: Path, phase: str, cause: str) -> None:
    with pytest.raises(ToolOutputError, match=f"(?s){phase}.*({cause})"):
        judged(stage)


def test_undamaged_passes(stage: Path) -> None:
    assert judged(stage).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda j: of_ior(j).pop("bwMiB"), "bwMiB"),
        (lambda j: of_ior(j).update(bwMiB=float("nan")), "(?i:nan)"),
        (lambda j: of_ior(j).update(bwMiB=0), r"(bwMiB|write_bw).*\b0"),
        (lambda j: of_ior(j).update(bwMiB=-1700), "-1700"),
    ],
    ids=["missing", "nan", "zero", "negative"],
)
def test_a_damaged_result_of_ior(stage: Path, change: Callable[[Any], object], cause: str) -> None:
    edit(stage / IOR, change)
    refused(stage, "write", cause)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda j: of_fio(j).pop("iops"), "iops"),
        (lambda j: of_fio(j).update(iops=float("nan")), "(?i:nan)"),
        (lambda j: of_fio(j).update(iops=0), r"(iops|rate).*\b0"),
        (lambda j: of_fio(j).update(iops=-200000.5), "-200000.5"),
        (lambda j: j["jobs"][0].update(error=28), "28|No space left"),
        (lambda j: j.update(jobs=[]), "job"),
    ],
    ids=["missing", "nan", "zero", "negative", "error-28", "no-job"],
)
def test_a_damaged_result_of_fio(stage: Path, change: Callable[[Any], object], cause: str) -> None:
    edit(stage / FIO, change)
    refused(stage, "read", cause)


@pytest.mark.parametrize(("phase", "name"), [("write", IOR), ("read", FIO)])
@pytest.mark.parametrize(
    ("damage", "cause"),
    [
        (
            lambda f: f.write_bytes(f.read_bytes()[: f.stat().st_size // 2]),
            "JSON|truncated|damaged",
        ),
        (lambda f: f.write_bytes(b""), "0 bytes|wrote nothing"),
        (Path.unlink, "no output|No such file"),
    ],
    ids=["truncated", "empty", "no-file"],
)
def test_a_result_that_is_not_whole(
    stage: Path, phase: str, name: str, damage: Callable[[Path], object], cause: str
) -> None:
    damage(stage / name)
    refused(stage, phase, cause)


def fail(stage: Path, phase: str, status: int) -> None:
    """Let a phase end with an exit status."""
    runs = stage / "phases.tsv"
    before = f"1\t{phase}\t0\t"
    assert before in runs.read_text()
    runs.write_text(runs.read_text().replace(before, f"1\t{phase}\t{status}\t"))


@pytest.mark.parametrize("phase", ["write", "read"])
@pytest.mark.parametrize("status", [1, 2, 255])
def test_a_tool_that_failed(stage: Path, phase: str, status: int) -> None:
    fail(stage, phase, status)
    refused(stage, phase, f"exit status {status}\\b")


@pytest.mark.parametrize(
    ("sample", "status", "cause"),
    [
        ("ior_corrupt.json", 2, "exit status 2"),
        ("ior_nodir.json", 0, "0 bytes|JSON"),
        ("ior_enospc.json", 134, "SIGABRT"),
    ],
)
def test_what_ior_left_when_it_went_wrong(
    stage: Path, sample: str, status: int, cause: str
) -> None:
    shutil.copy(healthy.SAMPLES / sample, stage / IOR)
    fail(stage, "write", status)
    refused(stage, "write", cause)
