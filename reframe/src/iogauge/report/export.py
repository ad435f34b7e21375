"""The newest results, and the history, for other tools: Prometheus, InfluxDB, Parquet, merge requests.

docs/export.md lists every name, label and column. A value that is not valid is never exported as a
measurement: Prometheus gets its verdict alone, InfluxDB the field ``valid``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import polars as pl
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import push_to_gateway
from prometheus_client.openmetrics.exposition import generate_latest

from iogauge.core.text import visible
from iogauge.judge.verdict import Verdict
from iogauge.records import query
from iogauge.records.record import Record
from iogauge.report import table
from iogauge.report.ending import Ending
from iogauge.report.history_table import RecordChoice

#: Labels of every Prometheus metric that is of a metric; ``line`` keeps scales and tiers apart.
LABELS: Final = (
    *("system", "partition", "environment", "check", "case", "tier", "line", "metric", "unit"),
)

#: Names of the Prometheus metrics, and what they are.
GAUGES: Final = {
    "iogauge_median": "median of the newest valid run, in the unit of the label",
    "iogauge_spread": "coefficient of variation of the newest valid run",
    "iogauge_reference": "value of the reference, in the unit of the label",
    "iogauge_reference_least": "least value that meets the reference",
    "iogauge_reference_most": "largest value that meets the reference",
    "iogauge_ceiling": "most that the topology can carry, in the unit of the label",
    "iogauge_verdict": "1 for the verdict of the newest run, else 0",
    "iogauge_measured_timestamp_seconds": "time of the newest run",
}

#: Rows of a row group of Parquet: a scan that asks for one system reads few of them.
_ROW_GROUP: Final = 100_000

#: Columns of Parquet that the rows are sorted by, so that a question reads few row groups.
SORTED: Final = ("system", "partition", "case", "metric", "time")


class _Newest:
    """A collector of prometheus_client."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the metrics with their samples."""
        families = {
            name: GaugeMetricFamily(
                name, text, labels=[*LABELS, *(["verdict"] if name == "iogauge_verdict" else [])]
            )
            for name, text in GAUGES.items()
        }
        for record in self._records:
            for metric in record.metrics:
                labels = [
                    visible(str(value or ""))
                    for value in (
                        *(record.system, record.partition, record.environment, record.check),
                        *(record.short_name, record.tier, record.line, metric.name, metric.unit),
                    )
                ]
                reference = metric.reference
                bounds: tuple[float | None, ...] = (None, None, None)
                if reference:
                    shares = (0.0, reference.lower, reference.upper)
                    bounds = tuple(
                        None if share is None else reference.value * (1 + share) for share in shares
                    )
                valid = metric.verdict.is_valid
                values = (
                    metric.median if valid else None,
                    metric.spread if valid else None,
                    *bounds,
                    metric.ceiling,
                )
                for name, value in zip(GAUGES, values, strict=False):
                    if value is not None:
                        families[name].add_metric(labels, float(value))
                for verdict in Verdict:
                    families["iogauge_verdict"].add_metric(
                        [*labels, verdict.value], float(verdict is metric.verdict)
                    )
                time = datetime.fromisoformat(record.time.replace("Z", "+00:00")).timestamp()
                families["iogauge_measured_timestamp_seconds"].add_metric(labels, time)
        yield from families.values()


def _registry(records: Sequence[Record]) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(_Newest(records))
    return registry


def openmetrics(records: Sequence[Record]) -> str:
    """Return the newest results in the text form of OpenMetrics 1.0; ``records`` one a line."""
    text: bytes = generate_latest(_registry(records))  # type: ignore[no-untyped-call]
    return text.decode()


def push(records: Sequence[Record], gateway: str) -> None:
    """Send the newest results to a Pushgateway, as the job iogauge; raises OSError."""
    push_to_gateway(gateway, job="iogauge", registry=_registry(records))


def influx(frame: pl.DataFrame) -> Iterator[str]:
    """Yield a line of InfluxDB's line protocol for each row of a frame that has a value."""
    tags = ("system", "partition", "environment", "check", "case", "tier", "line", "series")
    for row in frame.iter_rows(named=True):
        if row["metric"] is None or row["median"] is None:
            continue
        named = {name: row[name] for name in (*tags, "metric", "unit") if row[name]}
        valid = row["metric_verdict"] and Verdict(row["metric_verdict"]).is_valid
        fields = {
            "median": repr(row["median"]),
            "spread": None if row["spread"] is None else repr(row["spread"]),
            "reference": None if row["reference"] is None else repr(row["reference"]),
            "samples": f"{row['samples']}i",
            "valid": "true" if valid else "false",
            "verdict": _quoted(str(row["metric_verdict"] or "")),
            "session": _quoted(str(row["session"])),
        }
        nanoseconds = int(row["time"].timestamp() * 1_000_000) * 1000
        yield (
            "iogauge,"
            + ",".join(f"{name}={_tag(str(value))}" for name, value in named.items())
            + " "
            + ",".join(f"{name}={value}" for name, value in fields.items() if value is not None)
            + f" {nanoseconds}"
        )


def _quoted(text: str) -> str:
    """Return the text of a field."""
    return '"' + re.sub(r'(["\\])', r"\\\1", visible(text)) + '"'


def _tag(text: str) -> str:
    """Return a tag's value with InfluxDB's escapes; at its end a backslash would escape a comma."""
    return re.sub(r"([,= ])", r"\\\1", visible(text).rstrip("\\"))


def rows(folder: Path, choice: RecordChoice) -> pl.DataFrame:
    """Return all columns of the history for the chosen records and metrics, in the order of time."""
    chosen, _ = choice.of(folder)
    frame = query.load(folder)
    return frame.join(
        chosen.select("record", "metric").unique(),
        on=["record", "metric"],
        how="semi",
        nulls_equal=True,
    )


def parquet(frame: pl.DataFrame, file: Path, site: str) -> None:
    """Write rows of the history as Parquet, sorted so that a lazy scan reads little of them.

    ``site`` becomes the first column, which tells merged histories apart. Raises OSError.
    """
    sorted_rows = frame.sort(SORTED, maintain_order=True)
    named = sorted_rows.select(pl.lit(site).alias("site"), *sorted_rows.columns)
    named.write_parquet(file, compression="zstd", row_group_size=_ROW_GROUP, statistics=True)


_MARKS: Final = {
    Verdict.PASS: "✅",
    Verdict.FAIL: "❌",
    Verdict.ERROR: "❌",
    Verdict.INVALID: "⛔",
    Verdict.UNREFERENCED: "❔",
    Verdict.UNSTABLE: "⚠️",
    Verdict.CONTAMINATED: "⚠️",
}


def markdown(records: Iterable[Record], ending: Ending) -> str:
    """Return a session as Markdown for a merge request: the ending, then a row a metric."""
    lines = [
        f"**iogauge: {_cell(str(ending))}**",
        "",
        "| | scenario | metric | measured | reference | ceiling |",
        "|---|---|---|--:|--:|--:|",
    ]
    reasons = []
    for record in records:
        for row in table.rows([record]):
            cells = (
                f"{_MARKS[row.verdict]} {row.verdict.value}",
                f"{record.system}:{record.partition} {row.scenario}",
                *(row.metric, row.measured, row.reference, row.ceiling),
            )
            lines.append(f"| {' | '.join(map(_cell, cells))} |")
            if row.verdict.fails_run:
                reasons.append(f"- {_cell(f'{row.scenario} {row.metric}: {row.reason}')}")
    folded = ["", "<details><summary>Why</summary>", "", *reasons, "", "</details>"]
    return "\n".join([*lines, *(folded if reasons else []), ""])


def _cell(text: str) -> str:
    """Return text from outside that makes no Markdown and no tag of its own."""
    plain = visible(text).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\`*_\[\]|~@#!])", r"\\\1", plain)
