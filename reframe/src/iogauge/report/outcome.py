"""What a session's records mean for its exit status, and which cases have none."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from iogauge.core import untrusted
from iogauge.judge.verdict import Verdict


def summary(records: Sequence[dict[str, Any]]) -> str:
    """Cases by verdict, the best first: ``12 cases: 3 PASS, 9 UNREFERENCED``."""
    counts = Counter(Verdict(record["verdict"]) for record in records)
    parts = [f"{counts[v]} {v.value}" for v in Verdict if counts[v]]
    if refuted := unconfirmed(records):
        parts.append(f"of which {len(refuted)} FAIL not confirmed by a second run")
    return f"{len(records)} case(s): " + (", ".join(parts) or "nothing was measured")


def needs_confirmation(record: dict[str, Any]) -> bool:
    """Whether a case failed in a way that a second measurement may refute: a FAIL that nobody expects."""
    failed = record["verdict"] == Verdict.FAIL.value and not record.get("expected")
    return failed and not record.get("confirms")


def _place(record: dict[str, Any], session: object) -> tuple[object, ...]:
    return (session, *(record.get(key) for key in ("system", "partition", "environment", "hash")))


def unconfirmed(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records of failures whose case passed when it was measured once more."""
    passed = {
        _place(record, record["confirms"])
        for record in records
        if record.get("confirms") and record["verdict"] == Verdict.PASS.value
    }
    return [r for r in records if needs_confirmation(r) and _place(r, r.get("session")) in passed]


def exit_status(records: Sequence[dict[str, Any]], gate: bool) -> int:
    """0 where the run may go on, 1 where it failed; as a gate all but PASS fails, and so does no PASS at all.

    A failure that a reference says to expect fails no run, and is no PASS; nor does one that a confirmation
    run, where that was asked for, did not confirm.
    """
    refuted = [id(record) for record in unconfirmed(records)]
    verdicts = [
        Verdict(record["verdict"])
        for record in records
        if not record.get("expected") and id(record) not in refuted
    ]
    if gate:
        return 0 if Verdict.PASS in verdicts and all(v is Verdict.PASS for v in verdicts) else 1
    return 1 if any(v.fails_run for v in verdicts) else 0


def undecided(reframe_report: Path, records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records of the cases that ReFrame ran and that never came to a verdict (time limit, cancelled).

    Taken from ReFrame's run report; raises OSError or ValueError where that cannot be read.
    """
    try:
        return _undecided(untrusted.read_json(reframe_report), records)
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{reframe_report}: not a run report: {error!r}") from error


#: What ReFrame reports under our names; empty, or 0, where the case was not set up.
_KNOWN: Final = ("tier", "variant", "nodes", "tasks_per_node", "repetitions")


def _parameters(case: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters that the case's name tells, with their values as ReFrame reports them, else as text."""
    told = re.findall(r"%([\w.]+)=(\S+)", case["display_name"])
    return {name: case.get(name, text) for name, text in told}


def _undecided(report: Any, records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    decided = Counter((r["case"], r["partition"], r["environment"]) for r in records)
    found = []
    for run in report["runs"]:
        for case in run["testcases"]:
            name, partition, environment = key = untrusted.build(
                tuple[str, str, str], (case["display_name"], case["partition"], case["environ"])
            )
            if decided[key] > 0:
                decided[key] -= 1
                continue
            reason = str(
                case.get("fail_reason") or f"ReFrame says {case['result']}, nothing was decided"
            )
            found.append(
                {
                    "time": None,
                    "gate": False,
                    "system": untrusted.build(str | None, case.get("system"), "system"),
                    "partition": partition,
                    "environment": environment,
                    "check": name.split()[0],
                    "case": name,
                    "hash": untrusted.build(str | None, case.get("hashcode"), "hashcode"),
                    "verdict": Verdict.ERROR.value,
                    "reason": f"{case.get('fail_phase') or 'run'}: {reason}",
                    "expected": False,
                    **{key: case[key] for key in _KNOWN if case.get(key)},
                    "parameters": _parameters(case),
                    "target": None,
                    "tools": [],
                    "commands": [],
                    "metrics": [],
                    "findings": [],
                }
            )
    return found
