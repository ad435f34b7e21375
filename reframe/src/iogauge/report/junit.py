"""A session as JUnit's XML, which GitLab shows beside a merge request and a pipeline.

ReFrame's own calls a skipped case a passed one; here nothing but PASS looks like a pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from xml.etree import ElementTree

from iogauge.core.text import visible
from iogauge.core.units import format_value
from iogauge.judge.verdict import Verdict
from iogauge.records.record import short_name
from iogauge.report import outcome

_ELEMENT: Final = {
    Verdict.FAIL: "failure",
    Verdict.INVALID: "failure",
    Verdict.ERROR: "error",
}


def junit(records: Sequence[dict[str, Any]], gate: bool) -> str:
    """Test suites, one a partition, a test case each case; the reason is the message of what is no PASS.

    UNREFERENCED, UNSTABLE and CONTAMINATED are skipped, and fail as a gate. A failure that is expected, or that a
    second run refuted, is skipped.
    """
    refuted = {id(record) for record in outcome.unconfirmed(records)}
    top = ElementTree.Element("testsuites", name="iogauge")
    suites: dict[str, ElementTree.Element] = {}
    counts: dict[str, dict[str, int]] = {}
    for record in records:
        place = visible(f"{record.get('system')}:{record['partition']}")
        if place not in suites:
            suites[place] = ElementTree.SubElement(top, "testsuite", name=place)
            counts[place] = {"tests": 0, "failure": 0, "error": 0, "skipped": 0}
        verdict = Verdict(record["verdict"])
        case = ElementTree.SubElement(
            suites[place],
            "testcase",
            classname=f"{place}.{visible(str(record.get('check')))}",
            name=visible(short_name(record["case"])),
        )
        counts[place]["tests"] += 1
        if verdict is not Verdict.PASS:
            kind = _ELEMENT.get(verdict, "failure" if gate else "skipped")
            if record.get("expected") or id(record) in refuted:
                kind = "skipped"
            counts[place][kind] += 1
            reason = visible(str(record["reason"]))
            told = ElementTree.SubElement(case, kind, message=f"{verdict.value}: {reason}")
            told.text = _table(record)
        ElementTree.SubElement(case, "system-out").text = _table(record)
    for place, suite in suites.items():
        suite.set("tests", str(counts[place]["tests"]))
        suite.set("failures", str(counts[place]["failure"]))
        suite.set("errors", str(counts[place]["error"]))
        suite.set("skipped", str(counts[place]["skipped"]))
    ElementTree.indent(top)
    return ElementTree.tostring(top, encoding="unicode", xml_declaration=True) + "\n"


def _table(record: dict[str, Any]) -> str:
    """Session, and a line for each metric."""
    lines = [f"session {record.get('session')}, {record.get('time')}: {record['verdict']}"]
    lines += [
        f"{m['name']}: {format_value(m['median'])} {m['unit']}: {m['verdict']}: {m['reason']}"
        for m in record["metrics"]
        if m["median"] is not None
    ]
    return "\n".join(visible(line) for line in lines)
