"""To some 300 recorded cases the judge and the guards give the verdicts and outcomes that they gave before. Words may change."""

from support import oracle


def test_the_judge_and_the_guards_say_of_recorded_evidence_what_they_said():
    recorded = oracle.cases()
    wrong = [
        one for one in recorded if oracle.said(one["ask"], one["of"]) != one["said"]
    ]
    assert len(recorded) > 200
    for one in wrong[:3]:
        print("was:", one["said"], "\nnow:", oracle.said(one["ask"], one["of"]))
    assert not wrong, f"{len(wrong)} of {len(recorded)} cases"
