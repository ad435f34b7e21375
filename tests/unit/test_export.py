"""What other tools read: OpenMetrics, Parquet, Markdown and Grafana's dashboard."""

from __future__ import annotations

import http.server
import importlib
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from typer.testing import CliRunner

from iogauge.cli import app
from iogauge.judge.verdict import Verdict
from iogauge.records.query import COLUMNS
from iogauge.report import export
from iogauge.report.outcome import SessionRecords
from support import records
from support.records import append, metric

NASTY = 'a "b" \\ c,d=e f\n<script> | x'
DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana.json"


def samples(text: str) -> dict[tuple[str, str], float]:
    """Values by name and verdict, as Prometheus' own reader finds them."""
    return {
        (sample.name, sample.labels.get("verdict", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_valid_result_has_its_median_its_reference_and_its_ceiling() -> None:
    found = samples(export.openmetrics([records.record()]))
    assert found["iogauge_median", ""] == 540.75
    assert found["iogauge_reference", ""] == 500.0
    assert found["iogauge_reference_least", ""] == 450.0
    assert found["iogauge_ceiling", ""] == 600.0
    assert found["iogauge_verdict", "PASS"] == 1 and found["iogauge_verdict", "FAIL"] == 0
    assert found["iogauge_measured_timestamp_seconds", ""] == 1801396800.0
    assert {name for name, _ in found} <= set(export.GAUGES)


@pytest.mark.parametrize("verdict", [v for v in Verdict if not v.is_valid])
def test_what_is_not_valid_is_no_measurement(verdict: Verdict) -> None:
    found = samples(export.openmetrics([records.record(verdict.value)]))
    assert ("iogauge_median", "") not in found
    assert found["iogauge_verdict", verdict.value] == 1


def test_each_metric_has_its_own_verdict() -> None:
    both = [metric(), metric("read_bw", "FAIL")]
    text = export.openmetrics([records.record("FAIL", metrics=both)])
    found = {
        (sample.labels["metric"], sample.labels["verdict"])
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "iogauge_verdict" and sample.value
    }
    assert found == {("write_bw", "PASS"), ("read_bw", "FAIL")}


def test_labels_from_outside_are_read_as_they_were() -> None:
    text = export.openmetrics([records.record(system=NASTY)])
    found = {s.labels["system"] for f in text_string_to_metric_families(text) for s in f.samples}
    assert found == {NASTY.replace("\n", "\\n")}


def test_the_dashboard_asks_only_for_what_is_exported() -> None:
    text = DASHBOARD.read_text()
    assert set(re.findall(r"iogauge_\w+", text)) <= set(export.GAUGES)
    labels = set(re.findall(r"(\w+)(?:=~|!=|=)\\\"", text)) | set(re.findall(r"{{(\w+)}}", text))
    assert labels <= {*export.LABELS, "verdict"}
    panels = json.loads(text)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_grafanas_own_models_know_every_field_of_the_dashboard() -> None:
    """The models are made from the schemas of Grafana 11.6; a field that they do not know is lost."""
    why = "pip install 'grafana-foundation-sdk==1769699379!11.6.0'"
    models = pytest.importorskip("grafana_foundation_sdk.models.dashboard", reason=why)
    coder = importlib.import_module("grafana_foundation_sdk.cog.encoder").JSONEncoder
    importlib.import_module("grafana_foundation_sdk.cog.plugins").register_default_plugins()

    def known(data: object) -> Any:
        return json.loads(json.dumps(models.Dashboard.from_json(data), cls=coder))

    def lost(ours: Any, theirs: Any, where: str) -> list[str]:
        if isinstance(ours, dict) and isinstance(theirs, dict):
            return [x for k in ours for x in lost(ours[k], theirs.get(k), f"{where}.{k}")]
        if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
            return [
                x
                for k, both in enumerate(zip(ours, theirs, strict=True))
                for x in lost(*both, f"{where}[{k}]")
            ]
        return [] if ours == theirs else [where]

    data = json.loads(DASHBOARD.read_text())
    assert lost(data, known(data), "") == []
    data["panels"][0]["options"]["colourMode"] = "value"
    assert lost(data, known(data), "") == [".panels[0].options.colourMode"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A history of three records, of which one is a failure."""
    for day, verdict in enumerate(("PASS", "FAIL", "PASS"), 1):
        values = records.values(
            verdict, session=f"2027010{day}T1-n-1", time=f"2027-01-0{day}T12:00:00Z"
        )
        append(tmp_path / "history" / "mysite" / f"2027010{day}T1-n-1.jsonl", values)
    monkeypatch.setenv("IOGAUGE_HOME", str(tmp_path))
    return tmp_path


def run(*words: str) -> str:
    done = CliRunner().invoke(app.app, list(words))
    assert done.exit_code == 0, done.output
    return done.output


def test_parquet_has_the_documented_columns_and_the_site(home: Path) -> None:
    file = home / "h.parquet"
    assert "3 row(s)" in run("history", "--export", str(file), "--site", "here")
    frame = pl.read_parquet(file)
    assert dict(frame.schema) == {"site": pl.String, **COLUMNS}
    assert frame["site"].unique().to_list() == ["here"]
    assert frame["median"].to_list() == [540.75] * 3
    run("history", "--verdict", "FAIL", "--export", str(file))
    assert pl.read_parquet(file)["session"].to_list() == ["20270102T1-n-1"]


def test_the_exports_of_several_sites_are_merged(home: Path) -> None:
    one, two, both = (home / f"{name}.parquet" for name in ("one", "two", "both"))
    run("history", "--export", str(one), "--site", "north")
    run("history", "--export", str(two), "--site", "east", "--verdict", "FAIL")
    pl.read_parquet(two).drop("lower").write_parquet(two)  # as an older version would have written
    said = run("history", "--merge", str(one), "--merge", str(two), "--export", str(both))
    assert said.splitlines() == ["east: 1 row(s)", "north: 3 row(s)"]
    frame = pl.read_parquet(both)
    assert frame["site"].to_list() == ["east", *["north"] * 3]
    assert set(frame.columns) == {"site", *COLUMNS}
    (old,) = frame.filter(pl.col("site") == "east").iter_rows(named=True)
    assert old["lower"] is None
    assert frame.filter(pl.col("site") == "north").equals(pl.read_parquet(one), null_equal=True)
    # What was merged may be merged again: each site counts once.
    third, every = home / "third.parquet", home / "every.parquet"
    run("history", "--export", str(third), "--site", "west")
    said = run("history", "--merge", str(both), "--merge", str(third), "--export", str(every))
    assert said.splitlines() == ["east: 1 row(s)", "north: 3 row(s)", "west: 3 row(s)"]
    assert pl.read_parquet(every)["site"].to_list() == ["east", *["north"] * 3, *["west"] * 3]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            ("--merge", "one.parquet", "--export", "all.parquet"),
            "site north is in one.parquet and in one.parquet",
        ),
        (
            ("--merge", "again.parquet", "--export", "all.parquet"),
            "site north is in one.parquet and in again.parquet",
        ),
        (
            ("--merge", "none.parquet", "--export", "all.parquet"),
            "none.parquet names no site.*--site NAME",
        ),
        (
            ("--merge", "text", "--export", "all.parquet"),
            "text is no Parquet that iogauge has written",
        ),
        (("--export", "one.parquet"), "one.parquet is one of the files to merge"),
        ((), "--merge: name the file to write"),
        (("--system", "x", "--export", "all.parquet"), "--merge takes all rows"),
    ],
)
def test_exports_that_cannot_be_merged_are_named(
    home: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(home)
    run("history", "--export", "one.parquet", "--site", "north")
    run("history", "--export", "again.parquet", "--site", "north", "--verdict", "FAIL")
    run("history", "--export", "none.parquet")
    Path("text").write_text("no parquet")
    done = CliRunner().invoke(app.app, ["history", "--merge", "one.parquet", *more])
    assert done.exit_code == 2
    assert re.search(message, done.output.replace("\n", " "))
    assert not Path("all.parquet").exists()


@pytest.mark.parametrize("option", ["--html", "--junit", "--markdown", "--openmetrics"])
def test_a_file_that_cannot_be_written_is_named(home: Path, option: str) -> None:
    file = home / "nowhere" / "file"
    done = CliRunner().invoke(app.app, ["report", option, str(file)])
    assert done.exit_code == 2 and f"{file} was not written" in done.output.replace("\n", "")


def test_what_is_no_file_is_written_and_not_replaced(home: Path) -> None:
    pipe = home / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    run("report", "--markdown", str(pipe))
    assert os.read(reader, 100).startswith(b"**iogauge") and pipe.is_fifo()
    os.close(reader)


def test_an_unknown_suffix_is_refused(home: Path) -> None:
    done = CliRunner().invoke(app.app, ["history", "--export", str(home / "h.csv")])
    assert done.exit_code == 2 and not (home / "h.csv").exists()


def test_markdown_makes_no_markup_of_text_from_outside() -> None:
    bad = records.record("FAIL", system=NASTY, metrics=[metric(verdict="FAIL", reason=NASTY)])
    found = SessionRecords([bad])
    text = export.markdown(found, found.ending(False))
    assert "<script" not in text and text.startswith("**iogauge: FAILED: 1 failed (FAIL)**")
    (row,) = [line for line in text.splitlines() if line.startswith("| ❌")]
    assert len(re.findall(r"(?<!\\)\|", row)) == 7


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[str]:
    """Address of a real Pushgateway."""
    program = shutil.which("prometheus-pushgateway") or shutil.which("pushgateway")
    if program is None:
        pytest.skip("no Pushgateway here: apt-get install prometheus-pushgateway")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    process = subprocess.Popen([program, f"--web.listen-address={address}"], stderr=subprocess.PIPE)
    try:
        for _ in range(200):
            try:
                urllib.request.urlopen(f"http://{address}/-/ready", timeout=60).close()
                break
            except OSError:
                time.sleep(0.05)
        yield address
    finally:
        process.terminate()
        process.wait()


def test_a_pushgateway_takes_the_newest_results(home: Path, gateway: str) -> None:
    run("report", "--since", "2027-01-01", "--push", gateway)
    with urllib.request.urlopen(f"http://{gateway}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    (line,) = [line for line in text.splitlines() if line.startswith("iogauge_median{")]
    assert line.endswith(" 540.75") and 'job="iogauge"' in line


def test_a_gateway_that_is_not_there_is_said(home: Path) -> None:
    done = CliRunner().invoke(app.app, ["report", "--push", "127.0.0.1:1"])
    assert done.exit_code == 2 and "the Pushgateway 127.0.0.1:1 did not take it" in done.output


class _Metrics(http.server.BaseHTTPRequestHandler):
    """Serves a file as OpenMetrics."""

    file: Path

    def do_GET(self) -> None:
        text = self.file.read_bytes()
        self.send_response(200)
        self.send_header(
            "Content-Type", "application/openmetrics-text; version=1.0.0; charset=utf-8"
        )
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *words: object) -> None:
        """Say nothing."""


@pytest.fixture
def prometheus(tmp_path: Path, home: Path) -> Iterator[Callable[[str], list[dict[str, Any]]]]:
    """Asks a real Prometheus that scrapes the newest results of two cases, one of them failed."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("no Prometheus here: apt-get install prometheus")
    failed = records.values(
        "FAIL", session="20270104T1-n-1", time="2027-01-04T12:00:00Z", check="Other"
    )
    append(home / "history" / "mysite" / "20270104T1-n-1.jsonl", failed)
    CliRunner().invoke(
        app.app, ["report", "--since", "2027-01-01", "--openmetrics", str(home / "m.prom")]
    )
    handler = type("Handler", (_Metrics,), {"file": home / "m.prom"})
    with (
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server,
        socket.socket() as free,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        free.close()
        job = {
            "job_name": "x",
            "static_configs": [{"targets": [f"127.0.0.1:{server.server_port}"]}],
        }
        configuration = {"global": {"scrape_interval": "1s"}, "scrape_configs": [job]}
        (tmp_path / "p.yml").write_text(json.dumps(configuration))
        words = [f"--web.listen-address={address}", f"--storage.tsdb.path={tmp_path / 'data'}"]
        process = subprocess.Popen(
            [program, f"--config.file={tmp_path / 'p.yml'}", *words], stderr=subprocess.DEVNULL
        )

        def ask(question: str) -> list[dict[str, Any]]:
            query = urllib.parse.urlencode({"query": question})
            with urllib.request.urlopen(
                f"http://{address}/api/v1/query?{query}", timeout=10
            ) as told:
                found: list[dict[str, Any]] = json.load(told)["data"]["result"]
                return found

        try:
            for _ in range(600):
                try:
                    if ask("iogauge_verdict"):
                        break
                except OSError:
                    pass
                time.sleep(0.1)
            yield ask
        finally:
            process.terminate()
            process.wait()
            server.shutdown()


def test_every_panel_of_the_dashboard_gets_an_answer_from_a_real_prometheus(
    prometheus: Callable[[str], list[dict[str, Any]]],
) -> None:
    said: dict[str, list[float]] = {}
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            question = re.sub(r"\$(system|partition)", ".*", target["expr"])
            said[panel["title"]] = [float(one["value"][1]) for one in prometheus(question)]
    assert (said["accepted"], said["failed"]) == ([1], [1])
    assert (said["invalid"], said["unproven"]) == ([0], [0])
    assert said["Median over its reference"] == pytest.approx([1.06, 1.06], abs=0.2)
    assert len(said["Median over its ceiling"]) == 2
    assert len(said["Hours since the newest run"]) == 2
    assert said["What is not accepted"] == [1]
    assert [
        one["metric"]["check"] for one in prometheus('iogauge_verdict{verdict="FAIL"} == 1')
    ] == ["Other"]
