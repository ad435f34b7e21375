"""Write a session as JUnit's XML, which GitLab shows beside a merge request and a pipeline.

ReFrame's own JUnit file reports a skipped case as passed; here only PASS looks like a pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from xml.etree import ElementTree

from iogauge.core.text import visible
from iogauge.core.units import format_value
from iogauge.judge.verdict import Verdict
from iogauge.records.record import Record, short_name
from iogauge.records.selected import UnrunCase
from iogauge.report.ending import Ending
from iogauge.report.outcome import SessionRecords

_ELEMENT: Final = {
    Verdict.FAIL: "failure",
    Verdict.INVALID: "failure",
    Verdict.ERROR: "error",
}


def junit(
    records: SessionRecords, gate: bool, ending: Ending, left_out: Iterable[UnrunCase] = ()
) -> str:
    """Return the XML: a suite for each partition, with a test case for each case.

    The reason is the message of a case that is not PASS. UNREFERENCED, UNSTABLE and CONTAMINATED
    are skipped; in a gate they fail. A failure is skipped if it is expected, or if a second run
    refuted it. A case that a missing feature keeps from running is skipped. What no case shows has
    a test case of its own: it fails with the session, else it is skipped.
    """
    top = ElementTree.Element("testsuites", name=f"iogauge: {ending}")
    for record in records:
        place = visible(f"{record.system}:{record.partition}")
        case = _case(top, place, record.check, record.short_name)
        if record.verdict is not Verdict.PASS:
            kind = _ELEMENT.get(record.verdict, "failure" if gate else "skipped")
            if not records.counts(record):
                kind = "skipped"
            message = f"{record.verdict.value}: {visible(record.reason)}"
            ElementTree.SubElement(case, kind, message=message).text = _table(record)
        ElementTree.SubElement(case, "system-out").text = _table(record)
    for one in left_out:
        case = _case(top, visible(one.place), one.check, short_name(one.case))
        message = visible(f"not run: {one.holder} lacks {one.feature}: {one.why}")
        ElementTree.SubElement(case, "skipped", message=message)
    if ending.besides:
        case = _case(top, "iogauge", "session", "session")
        ElementTree.SubElement(case, "failure" if ending.status else "skipped", message=str(ending))
    for suite in top:
        suite.set("tests", str(len(suite)))
        for key, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            suite.set(key, str(len(suite.findall(f"testcase/{kind}"))))
    ElementTree.indent(top)
    return ElementTree.tostring(top, encoding="unicode", xml_declaration=True) + "\n"


def _case(top: ElementTree.Element, place: str, check: str, name: str) -> ElementTree.Element:
    """Add a test case to the suite of a partition, which is made for the first one."""
    suite = next((one for one in top if one.get("name") == place), None)
    if suite is None:
        suite = ElementTree.SubElement(top, "testsuite", name=place)
    return ElementTree.SubElement(
        suite, "testcase", classname=f"{place}.{visible(check)}", name=visible(name)
    )


def _table(record: Record) -> str:
    """Return a line for the session, and a line for each metric."""
    lines = [f"session {record.session}, {record.time}: {record.verdict.value}"]
    lines += [
        f"{m.name}: {format_value(m.median)} {m.unit}: {m.verdict.value}: {m.reason}"
        for m in record.metrics
    ]
    return "\n".join(visible(line) for line in lines)
