"""What the guards and the judge say of each built case stands in tests/data/verdicts.txt, a line each: a change shows there.

``IOGAUGE_GOLDEN=update`` writes the file anew, for a change on purpose.
"""

import os

from iogauge.guards.finding import Outcome
from support.project import DATA
from support.whole import SYSTEMS, data, metadata
from unit.test_whole_cases import HEALTHY, UNTRUE, judged, required

FILE = DATA / "verdicts.txt"
#: What sites make of each kind of file system.
ALTERED = {"": lambda case: case, ", witness required": required}


def table():
    """Each case by its name, with the function that judges it."""
    for system in SYSTEMS:
        for what, alter in ALTERED.items():
            for kind, case in (("data", data), ("files", metadata)):
                name = f"{system}, {kind}{what}"
                yield name, alter(case(system)).judged()
    for name, row in HEALTHY.items():
        yield name, judged(row)
    for name, row in UNTRUE.items():
        yield name, judged(row)


def line(name, judgement):
    """The name of a case, its verdict, those of its metrics, and what the guards find but OK."""
    metrics = " ".join(f"{m.metric.name}={m.verdict.name}" for m in judgement.metrics)
    findings = [
        f"{finding.name}={finding.outcome.name}({finding.metric or 'case'})"
        for finding in judgement.findings
        if finding.outcome is not Outcome.OK and finding.name != "G4 duration"
    ]
    found = ", ".join(dict.fromkeys(findings)) or "-"
    return f"{name} | {judgement.verdict.name} | {metrics} | {found}\n"


def test_each_case_has_the_verdict_of_the_table():
    lines = [line(name, judgement) for name, judgement in table()]
    if os.environ.get("IOGAUGE_GOLDEN") == "update":
        FILE.write_text("".join(lines))
    assert lines == FILE.read_text().splitlines(keepends=True)
    passed = {
        name
        for name, verdict, *_ in (one.split(" | ") for one in lines)
        if verdict == "PASS"
    }
    assert HEALTHY.keys() <= passed and passed.isdisjoint(UNTRUE)
