"""From a real record to a reference that ReFrame and the verdict use; and expected failures that end."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
import yaml

from e2e.rig import Rig, Run
from e2e.test_values import GENEROUS, RANDOM_READ

pytestmark = pytest.mark.needs_fio

#: Factors of a calm month: 30 runs with a spread of about 3 %, in no order.
CALM = [math.exp(0.04 * math.sin(2.4 * (n + 1) ** 2)) for n in range(30)]
START = datetime(2026, 9, 1, tzinfo=timezone.utc)


@pytest.fixture(scope="module")
def rig(make_module_rig: Callable[..., Rig]) -> Rig:
    return make_module_rig()


@pytest.fixture(scope="module")
def real(rig: Rig) -> dict[str, Any]:
    """A record that a real run left."""
    rig.write_references(None)
    run = rig.run(*RANDOM_READ)
    assert run.record["verdict"] == "UNREFERENCED", run.out
    return run.record


def remember(rig: Rig, real: dict[str, Any], factors: list[float], **given: Any) -> None:
    """Make the history one of such records, a run a day, all metrics scaled by the day's factor."""
    folder = rig.home / "history" / "rig"
    for old in folder.glob("*.jsonl"):
        old.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    for day, factor in enumerate(factors):
        record = json.loads(json.dumps(real)) | given
        record["session"] = f"{START + timedelta(days=day):%Y%m%dT%H%M%S}-test-1"
        record["time"] = f"{START + timedelta(days=day):%Y-%m-%dT%H:%M:%SZ}"
        for metric in record["metrics"]:
            metric["samples"] = [sample * factor for sample in metric["samples"]]
            metric["median"] *= factor
        (folder / f"{record['session']}.jsonl").write_text(json.dumps(record) + "\n")


def calibrate(rig: Rig, *options: str) -> Run:
    return rig.iogauge("calibrate", *options)


def references(rig: Rig) -> Any:
    return yaml.safe_load((rig.site / "references.yaml").read_text())


def test_a_month_of_runs_becomes_a_reference_that_the_next_run_is_judged_by(
    rig: Rig, real: dict[str, Any]
) -> None:
    rig.write_references("# made by hand\n")
    remember(rig, real, CALM)
    shown = calibrate(rig)
    assert shown.rc == 0, shown.out
    assert "not written: review, then --write" in shown.out
    assert re.search(r"^\+  rig:default:$", shown.out, re.M), shown.out
    assert (rig.site / "references.yaml").read_text() == "# made by hand\n"

    written = calibrate(rig, "--system", "rig", "-n", "RandomRead", "--write")
    assert written.rc == 0 and "references.yaml: written" in written.out.replace("\n", "")
    assert (rig.site / "references.yaml").read_text().startswith("# made by hand\n")
    entry = references(rig)["FioRandomRead"]["rig:default"]["128KiB"]
    for metric in real["metrics"]:
        value, lower, upper, unit = entry[metric["name"]]
        assert value == pytest.approx(metric["median"], rel=0.03)
        assert (unit, upper) == (metric["unit"], None) and -0.3 < lower < -0.03

    again = calibrate(rig)
    assert again.rc == 0 and "nothing to change" in again.out, again.out

    valid = rig.iogauge("validate")
    assert valid.rc == 0, valid.out
    run = rig.run(*RANDOM_READ)
    used = {metric["name"]: metric["reference"] for metric in run.record["metrics"]}
    for name, (value, lower, _, _) in entry.items():
        assert (used[name]["value"], used[name]["lower"]) == (value, lower)
    assert used["read_iops"]["source"] == "calibrated by iogauge from records of this site"


def with_expected_failure(rig: Rig, reason: str) -> None:
    xfail = ["$xfail", reason, [1e9, -0.1, None, "ops/s"]]
    rig.write_references({"FioRandomRead": {**GENEROUS["FioRandomRead"], "read_iops": xfail}})


def test_an_expected_failure_that_has_ended_fails_the_run(rig: Rig) -> None:
    with_expected_failure(rig, "ticket 42, until 2020-01-01")
    run = rig.run(*RANDOM_READ)
    run.never_passed("read_iops")
    assert (run.record["verdict"], run.record["expected"]) == ("FAIL", False)
    assert "the expected failure expired after 2020-01-01" in run.record["reason"]
    assert [case["result"] for case in run.cases] == ["fail"]
