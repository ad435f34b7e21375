"""What a session found, as people read it, and the exit status that follows."""

import json
import re
from pathlib import Path

import pytest

from iogauge.judge.verdict import Verdict
from iogauge.records.record import Record, decode
from iogauge.report import outcome, undone
from iogauge.report.endings import SessionRecords
from support import records


def metric(verdict="PASS", **change):
    plain = {
        "median": 540.8,
        "spread": 0.0312,
        "reason": "its reason",
        "ceiling": 1144.4,
    }
    return records.metric(**{"verdict": verdict, **plain, **change})


def finding(outcome, about="write_bw", guard="G6"):
    return {
        "guard": guard,
        "outcome": outcome,
        "metric": about,
        "saw": "saw 5",
        "demands": "3",
    }


def record(verdict="PASS", **change):
    plain = {
        "case": "Ior %api=posix",
        "partition": "disk",
        "environment": "env",
        "price": None,
    }
    plain |= {"reason": "the reason", "metrics": [metric(verdict)]}
    return records.record(verdict, **plain | change)


def exit_status(found, gate):
    return SessionRecords(found).ending(gate).status


#: What the command tells of the run that a case belongs to.
RUN = {"session": "s", "time": "2027-01-31T12:00:00Z", "gate": False}


def undecided(file, found, **run):
    return undone.undecided(file, found, RUN | run)


# --- the exit status ------------------------------------------------------------------------------


@pytest.mark.parametrize("gate", [False, True])
def test_an_expected_failure_fails_no_run(gate):
    expected = record("FAIL", expected=True)
    assert exit_status([expected, record()], gate) == 0
    assert exit_status([expected, record("FAIL")], gate) == 1


# --- rows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdict", "findings", "reason"),
    [
        (
            "INVALID",
            [finding("invalid", None), finding("warn")],
            "G6: saw 5; demanded: 3",
        ),
        (
            "UNSTABLE",
            [finding("unstable"), finding("invalid", "read_bw")],
            "G6: saw 5; demanded: 3",
        ),
        ("PASS", [finding("warn")], ""),
        ("FAIL", [finding("warn")], "its reason"),
    ],
)
def test_the_reason_of_a_row(verdict, findings, reason):
    (row,) = outcome.rows([record(verdict, findings=findings)])
    assert "; ".join(row.reasons) == reason
    warned = any(one["outcome"] == "warn" for one in findings)
    assert row.remarks == ("G6, a remark: saw 5",) * warned


def test_sentences_that_differ_in_figures_are_one_and_names_stay_names():
    notes = outcome.notes_of(
        ["rank 3: 10.7% of 0.5 s", "rank 3: 9% of 0.5 s", "rank 4: 9% of 0.5 s"]
    )
    assert list(notes.values()) == ["rank 3: 9 to 10.7% of 0.5 s"] * 2 + [
        "rank 4: 9% of 0.5 s"
    ]
    notes = outcome.notes_of(
        ["moved 0 B. Look", "moved 582 MiB. Look", "moved 1.73 GiB. Look"]
    )
    assert set(notes.values()) == {"moved 0 B to 1.73 GiB. Look"}
    notes = outcome.notes_of(["median 4.088 MiB/s", "median 4.096 MiB/s"])
    assert set(notes.values()) == {"median 4.088 to 4.096 MiB/s"}
    notes = outcome.notes_of(["times = 1.70. Look", "times = 0.5. Look"])
    assert set(notes.values()) == {"times = 0.5 to 1.70. Look"}


# --- the table ------------------------------------------------------------------------------------


def test_json_has_the_figures_and_the_reasons():
    loose = finding("unstable", guard="G17")
    unstable = record("UNSTABLE", findings=[loose])
    found = SessionRecords([unstable, record("ERROR", metrics=[], case="Md")])
    told = json.loads(outcome.to_json(found, found.ending(False)))
    assert (told["word"], told["status"]) == ("FAILED", 1)
    first, lost = told["metrics"]
    assert (first["median"], first["verdict"]) == (540.8, "UNSTABLE")
    assert first["reasons"] == ["G17: saw 5; demanded: 3"]
    assert (lost["metric"], lost["reasons"]) == (None, ["the reason"])


# --- cases that never came to a verdict -----------------------------------------------------------


def case(name="Ior %api=posix", **change):
    return {
        "display_name": name,
        "partition": "disk",
        "environ": "env",
        "system": "here",
        "hashcode": "abc",
        "result": "fail",
        "fail_phase": "run_wait",
        "fail_reason": "time limit",
        **change,
    }


def write(folder, *cases):
    file = folder / "report.json"
    file.write_text(json.dumps({"runs": [{"testcases": list(cases)}]}))
    return file


def test_a_case_without_a_record_is_an_error(tmp_path):
    (found,) = undecided(write(tmp_path, case(), case("Md %x=1")), [record()])
    assert (found.case, found.check, found.verdict) == ("Md %x=1", "Md", Verdict.ERROR)
    assert found.reason == "run_wait: time limit"
    assert exit_status([record(), found], gate=False) == 1
    assert outcome.rows([found])[0].verdict is Verdict.ERROR


@pytest.mark.parametrize(
    "said",
    [
        "aborted due to ForceExitError",
        "force exit error: received signal 15",
        "cancelled by user",
    ],
)
def test_a_case_that_a_signal_kept_from_its_begin_says_so(tmp_path, said):
    """In ReFrame's words."""
    left = case(fail_phase="setup", fail_reason=said)
    (found,) = undecided(write(tmp_path, left), [])
    happened = "setup: a signal told the session to end, before the case began"
    assert found.reason == happened


def test_what_cannot_run_is_said_once_a_reason(tmp_path):
    too_few = (
        "sanity error: ERROR: this scenario cannot be run at this scale: too few bytes"
    )
    names = ("Burst", "Steady %x=1", "Burst %x=2")
    cases = [case(name, fail_reason=too_few, refusal="scale") for name in names]
    fine = case("Fine", result="pass", fail_reason=None)
    other = case("Other", fail_reason="type error: x")
    assert undone.unable(write(tmp_path, *cases, fine, other)) == [
        (
            "scale",
            "this scenario cannot be run at this scale: too few bytes. So 3 cases cannot run: Burst and 2 more",
        ),
        ("", "type error: x. So 1 case cannot run: Other"),
    ]


#: What a decided case's record has, and an undecided one has no knowledge of.
UNKNOWN = {
    "suite",
    "overridden",
    "price",
    "stack",
    "line",
    "series",
    "fingerprint",
    "layout",
}


def documented():
    """Keys of a record in docs/results.md."""
    text = (Path(__file__).parents[2] / "docs" / "results.md").read_text()
    text = text.partition("## Form of a record")[2].partition("Of a metric:")[0]
    cells = re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE)
    return {key for cell in cells for key in re.findall(r"`(\w+)`", cell)}


def test_an_undecided_case_has_the_documented_form(tmp_path):
    """As much of it as ReFrame knows: its report has our variables under our names."""
    known = {
        "tier": "quick",
        "variant": "sound",
        "nodes": 1,
        "tasks_per_node": 2,
        "repetitions": 3,
    }
    file = write(
        tmp_path,
        case("Ior %tasks=4 %api=posix %fix.x=1", **known, tasks=4, api="posix"),
    )
    (one,) = undecided(file, [], confirms="r", selection="-n x", accepts=False)
    found = one.to_json()
    assert {key: found[key] for key in known} == known
    assert one.parameters == {"tasks": 4, "api": "posix", "fix.x": "1"}
    assert documented() - set(found) == UNKNOWN | {"pinned", "busy", "load"}
    assert set(found) <= documented()
    assert Record.from_json(decode(one.to_line())) == one


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"runs": [{}]}', '{"runs": [{"testcases": [5]}]}']
)
def test_what_is_no_report_is_refused(tmp_path, text):
    (tmp_path / "r").write_text(text)
    with pytest.raises(ValueError, match=r"."):
        undecided(tmp_path / "r", [])


# --- a second run refutes a failure, or does not --------------------------------------------------


def one(verdict, session, **change):
    return record(verdict, session=session, **change)


@pytest.mark.parametrize(
    ("second", "status"),
    [
        (one("PASS", "b", confirms="a"), 0),
        (one("FAIL", "b", confirms="a"), 1),
        (one("UNSTABLE", "b", confirms="a"), 1),
        (one("PASS", "b", confirms="other"), 1),
        (one("PASS", "b", confirms="a", case="Other"), 1),
        (one("PASS", "b"), 1),
    ],
)
def test_a_failure_stands_unless_its_own_case_passed_when_measured_again(
    second, status
):
    first = one("FAIL", "a")
    assert exit_status([first, second], gate=False) == status
    session = SessionRecords([first, second])
    assert [session.is_unconfirmed(record) for record in session] == [
        status == 0,
        False,
    ]
    assert session.counts(first) == bool(status)
    assert ("not confirmed" in session.ending(False).sentence) == (status == 0)
