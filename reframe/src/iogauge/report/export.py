"""The newest results, and the history, for other tools: Prometheus, JUnit, Nagios.

docs/results.md lists every name and label. A value that is not valid is never exported as a measurement: Prometheus gets its
verdict alone.

GitLab shows JUnit's XML beside a merge request and a pipeline. ReFrame's own JUnit file reports a skipped case as passed;
here only PASS looks like a pass.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final
from xml.etree import ElementTree

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.openmetrics.exposition import generate_latest

from iogauge.core.text import visible
from iogauge.judge.verdict import Verdict
from iogauge.records.record import MetricRecord, Record, microseconds, short_name
from iogauge.records.selected import UnrunCase
from iogauge.report.endings import Ending, SessionRecords
from iogauge.report.ranking import ranked

#: Labels of every Prometheus metric that is of a metric; ``line`` keeps scales and tiers apart.
LABELS: Final = (
    *("system", "partition", "environment", "check"),
    *("case", "tier", "line", "metric", "unit"),
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


def _values(metric: MetricRecord) -> tuple[float | None, ...]:
    """Return the values of the first of :data:`GAUGES`; None for one that is not known, or not valid."""
    median = spread = value = least = most = None
    if metric.verdict.is_valid:
        median, spread = metric.median, metric.spread
    bound = metric.reference
    if bound:
        value, least, most = bound.value, bound.least, bound.most
    return (median, spread, value, least, most, metric.ceiling)


def openmetrics(records: Sequence[Record]) -> str:
    """Return the newest results in the text form of OpenMetrics 1.0; ``records`` one a line."""
    registry = CollectorRegistry()
    gauges = {}
    for name, text in GAUGES.items():
        labels = list(LABELS)
        if name == "iogauge_verdict":
            labels.append("verdict")
        gauges[name] = Gauge(name, text, labels, registry=registry)
    for record in records:
        for metric in record.metrics:
            of_both = (
                *(record.system, record.partition, record.environment, record.check),
                *(
                    record.short_name,
                    record.tier,
                    record.line,
                    metric.name,
                    metric.unit,
                ),
            )
            labels = [visible(str(value or "")) for value in of_both]
            for name, value in zip(GAUGES, _values(metric), strict=False):
                if value is not None:
                    gauges[name].labels(*labels).set(value)
            for verdict in Verdict:
                given = gauges["iogauge_verdict"].labels(*labels, verdict.value)
                given.set(verdict is metric.verdict)
            begun = microseconds(record.time) / 1e6
            gauges["iogauge_measured_timestamp_seconds"].labels(*labels).set(begun)
    lines: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]
    return lines.decode()


def junit(
    records: SessionRecords,
    gate: bool,
    ending: Ending,
    left_out: Iterable[UnrunCase] = (),
) -> str:
    """Return the XML: a suite for each partition, with a test case for each case, the gravest first.

    Its name is the ending. The message of a case that is not PASS is its reason.

    UNREFERENCED, UNSTABLE and CONTAMINATED are skipped; in a gate they fail. A failure is skipped if it is expected, or if a
    second run refuted it. A case that a missing feature keeps from running is skipped. What no case shows has a test case of
    its own: it fails with the session, else it is skipped.
    """
    top = ElementTree.Element("testsuites", name=f"iogauge: {ending}")
    for record in ranked(records):
        place = record.where
        again = re.search(
            r"%\.repeat_no=(\d+)", record.case
        )  # GitLab takes one case of a name
        name = record.short_name
        if again:
            name += f" {again[1]}"
        case = _case(top, place, record.check, name)
        if record.verdict is not Verdict.PASS:
            kind = "skipped"
            if record.verdict.is_trouble(gate) and records.counts(record):
                kind = "error" if record.verdict is Verdict.ERROR else "failure"
            message = f"{record.verdict.value}: {visible(record.reason)}"
            ElementTree.SubElement(case, kind, message=message)
    for unrun in left_out:
        case = _case(top, visible(unrun.place), unrun.check, short_name(unrun.case))
        message = visible(f"not run: {unrun.holder} lacks {unrun.feature}: {unrun.why}")
        ElementTree.SubElement(case, "skipped", message=message)
    if ending.besides:
        case = _case(top, "iogauge", "session", "session")
        kind = "failure" if ending.status else "skipped"
        ElementTree.SubElement(case, kind, message=str(ending))
    ElementTree.indent(top)
    return ElementTree.tostring(top, encoding="unicode", xml_declaration=True) + "\n"


def _case(
    top: ElementTree.Element, place: str, check: str, name: str
) -> ElementTree.Element:
    """Add a test case to the suite of a partition, which is made for the first one."""
    for suite in top:
        if suite.get("name") == place:
            break
    else:
        suite = ElementTree.SubElement(top, "testsuite", name=place)
    return ElementTree.SubElement(
        suite, "testcase", classname=f"{place}.{visible(check)}", name=visible(name)
    )


#: Words of a plugin of Nagios, by its exit status.
PLUGIN_STATES: Final = ("OK", "WARNING", "CRITICAL", "UNKNOWN")


def plugin_line(status: int, text: str, figures: str = "") -> str:
    """Return the line of a plugin of Nagios: state, text, and figures behind a bar."""
    line = f"IOGAUGE {PLUGIN_STATES[status]} - {text.replace('|', '/')}"
    if figures:
        line += f" | {figures}"
    return line
