"""Write a session as JUnit's XML, which GitLab shows beside a merge request and a pipeline.

ReFrame's own JUnit file reports a skipped case as passed; here only PASS looks like a pass.
"""

from __future__ import annotations

from typing import Final
from xml.etree import ElementTree

from iogauge.core.text import visible
from iogauge.core.units import format_value
from iogauge.judge.verdict import Verdict
from iogauge.records.record import Record
from iogauge.report.outcome import SessionRecords

_ELEMENT: Final = {
    Verdict.FAIL: "failure",
    Verdict.INVALID: "failure",
    Verdict.ERROR: "error",
}


def junit(records: SessionRecords, gate: bool) -> str:
    """Return the XML: a suite for each partition, with a test case for each case.

    The reason is the message of a case that is not PASS. UNREFERENCED, UNSTABLE and CONTAMINATED
    are skipped; in a gate they fail. A failure is skipped if it is expected, or if a second run
    refuted it.
    """
    top = ElementTree.Element("testsuites", name="iogauge")
    suites: dict[str, ElementTree.Element] = {}
    counts: dict[str, dict[str, int]] = {}
    for record in records:
        place = visible(f"{record.system}:{record.partition}")
        if place not in suites:
            suites[place] = ElementTree.SubElement(top, "testsuite", name=place)
            counts[place] = {"tests": 0, "failure": 0, "error": 0, "skipped": 0}
        case = ElementTree.SubElement(
            suites[place],
            "testcase",
            classname=f"{place}.{visible(record.check)}",
            name=visible(record.short_name),
        )
        counts[place]["tests"] += 1
        if record.verdict is not Verdict.PASS:
            kind = _ELEMENT.get(record.verdict, "failure" if gate else "skipped")
            if not records.counts(record):
                kind = "skipped"
            counts[place][kind] += 1
            message = f"{record.verdict.value}: {visible(record.reason)}"
            problem = ElementTree.SubElement(case, kind, message=message)
            problem.text = _table(record)
        ElementTree.SubElement(case, "system-out").text = _table(record)
    for place, suite in suites.items():
        suite.set("tests", str(counts[place]["tests"]))
        suite.set("failures", str(counts[place]["failure"]))
        suite.set("errors", str(counts[place]["error"]))
        suite.set("skipped", str(counts[place]["skipped"]))
    ElementTree.indent(top)
    return ElementTree.tostring(top, encoding="unicode", xml_declaration=True) + "\n"


def _table(record: Record) -> str:
    """Return a line for the session, and a line for each metric."""
    lines = [f"session {record.session}, {record.time}: {record.verdict.value}"]
    lines += [
        f"{m.name}: {format_value(m.median)} {m.unit}: {m.verdict.value}: {m.reason}"
        for m in record.metrics
    ]
    return "\n".join(visible(line) for line in lines)
