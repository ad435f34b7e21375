"""Of some 300 recorded cases the judge and the guards say today what they said before: verdicts and outcomes. Words may change."""

from __future__ import annotations

from typing import Any

from support import oracle


def outcomes(said: Any) -> Any:
    """Verdicts and outcomes of an answer; of an error its words."""
    if isinstance(said, dict) and "findings" in said:
        metrics = [(one["metric"], one["verdict"]) for one in said["metrics"]]
        return said["verdict"], metrics, outcomes(said["findings"])
    if isinstance(said, dict):
        return said
    return [(one["guard"], one["outcome"], one.get("metric")) for one in said]


def test_the_judge_and_the_guards_say_of_recorded_evidence_what_they_said() -> None:
    recorded = [
        (outcomes(one["said"]), outcomes(oracle.said(one["ask"], one["of"])))
        for one in oracle.cases()
    ]
    assert len(recorded) > 200
    wrong = [(was, now) for was, now in recorded if was != now]
    for was, now in wrong[:3]:
        print("was:", was, "\nnow:", now)
    assert not wrong, f"{len(wrong)} of {len(recorded)} cases"
