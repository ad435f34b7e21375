"""What other tools read: OpenMetrics, Markdown and Grafana's dashboard."""

import os
import re
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from typer.testing import CliRunner

from iogauge.cli import app
from iogauge.judge.verdict import Verdict
from iogauge.report import export
from support import records
from support.records import append

NASTY = 'a "b" \\ c,d=e f\n<script> | x'
DOCS = Path(__file__).parents[2] / "docs"
DASHBOARD, ALERTS = DOCS / "grafana.json", DOCS / "alerts.yml"


def samples(text):
    """Values by name and verdict, as Prometheus' own reader finds them."""
    return {
        (sample.name, sample.labels.get("verdict", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_valid_result_has_its_median_its_reference_and_its_ceiling():
    found = samples(export.openmetrics([records.record()]))
    assert found["iogauge_median", ""] == 540.75
    assert found["iogauge_reference", ""] == 500.0
    assert found["iogauge_reference_least", ""] == 450.0
    assert found["iogauge_ceiling", ""] == 600.0
    assert (
        found["iogauge_verdict", "PASS"] == 1 and found["iogauge_verdict", "FAIL"] == 0
    )
    assert found["iogauge_measured_timestamp_seconds", ""] == 1801396800.0
    assert {name for name, _ in found} <= set(export.GAUGES)


@pytest.mark.parametrize("verdict", [v for v in Verdict if not v.is_valid])
def test_what_is_not_valid_is_no_measurement(verdict):
    found = samples(export.openmetrics([records.record(verdict.value)]))
    assert ("iogauge_median", "") not in found
    assert found["iogauge_verdict", verdict.value] == 1


def test_labels_from_outside_are_read_as_they_were():
    text = export.openmetrics([records.record(system=NASTY)])
    found = {
        s.labels["system"]
        for f in text_string_to_metric_families(text)
        for s in f.samples
    }
    assert found == {NASTY.replace("\n", "\\n")}


@pytest.mark.parametrize("file", [DASHBOARD, ALERTS])
def test_a_dashboard_and_rules_ask_only_for_what_is_exported(file):
    assert set(re.findall(r"iogauge_\w+", file.read_text())) <= set(export.GAUGES)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A history of three records, of which one is a failure."""
    for day, verdict in enumerate(("PASS", "FAIL", "PASS"), 1):
        values = records.values(
            verdict, session=f"2027010{day}T1-n-1", time=f"2027-01-0{day}T12:00:00Z"
        )
        append(tmp_path / "history" / "mysite" / f"2027010{day}T1-n-1.jsonl", values)
    monkeypatch.setenv("IOGAUGE_HOME", str(tmp_path))
    return tmp_path


def test_a_file_that_cannot_be_written_is_named(home):
    file = home / "nowhere" / "file"
    done = CliRunner().invoke(app.app, ["report", "--html", str(file)])
    assert done.exit_code == 2 and f"{file} was not written" in done.output.replace(
        "\n", ""
    )


def test_what_is_no_file_is_written_and_not_replaced(home):
    pipe = home / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    CliRunner().invoke(app.app, ["report", "--junit", str(pipe)])
    assert os.read(reader, 100).startswith(b"<?xml") and pipe.is_fifo()
    os.close(reader)
