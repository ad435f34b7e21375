"""What a session found, as people read it, and the exit status that follows."""

import io
import itertools
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from iogauge.judge.verdict import Verdict
from iogauge.records.record import Record, decode
from iogauge.report import outcome, undone
from iogauge.report.endings import SessionRecords
from iogauge_extras.page import page
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


def shown(records, width=200, wide=False):
    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None).print(
        outcome.table(outcome.rows(records), wide), soft_wrap=True
    )
    return stream.getvalue()


# --- the exit status ------------------------------------------------------------------------------


@pytest.mark.parametrize("gate", [False, True])
def test_the_worst_case_decides(gate):
    for one, other in itertools.product([v.value for v in Verdict], repeat=2):
        both = exit_status([record(one), record(other)], gate)
        assert both == max(exit_status([record(v)], gate) for v in (one, other))


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


# --- the table ------------------------------------------------------------------------------------


def of_the_readme():
    """Three of the cases in the README's table, with findings that repeat."""
    load = {
        "outcome": "warn",
        "metric": None,
        "saw": "load before the run 7.58 x cores",
    }
    busy = {
        "guard": "G15",
        "demands": "",
        "remedy": "See what else runs on the nodes",
        **load,
    }
    loose = {"guard": "G17", "outcome": "unstable", "metric": "remove_rate"}
    loose |= {"saw": "the repetitions spread by 21.3%", "demands": "at most 20%"}
    loose |= {"remedy": "Repeat when the target is quiet, or raise limits.max_spread"}
    rate = {
        "unit": "ops/s",
        "reference": None,
        "ceiling": None,
        "reason": "nothing to compare",
    }
    slow = {"verdict": "FAIL", "spread": 0.175, "ceiling": None}
    files = "IorPosix %files=per-process %order=sequential %cache="
    return [
        record(
            "UNSTABLE",
            case="MdtestHard",
            metrics=[
                metric(
                    "UNREFERENCED",
                    name="create_rate",
                    median=28223,
                    spread=0.08,
                    **rate,
                ),
                metric(
                    "UNSTABLE", name="remove_rate", median=23429, spread=0.213, **rate
                ),
            ],
            findings=[busy, loose],
        ),
        record(
            "FAIL",
            case="FioRandomRead %block=4KiB",
            metrics=[
                metric(
                    name="read_iops",
                    median=18675,
                    unit="ops/s",
                    reason="at least 19000",
                    **slow,
                ),
                metric(name="read_bw", median=72.95, reason="at least 74.22", **slow),
            ],
            findings=[busy],
        ),
        record(case=f"{files}direct", metrics=[metric(), metric(name="read_bw")]),
        record(case=f"{files}buffered", metrics=[metric(), metric(name="read_bw")]),
    ]


#: Screens by their width.
SCREENS = {
    80: """\
target /s
  metric       median ±spread       reference  ceiling  verdict       why
MdtestHard
  create_rate  28223 ops/s ±8.0%         none  unknown  UNREFERENCED  [1]
  remove_rate  23429 ops/s ±21.3%        none  unknown  UNSTABLE      [2]
FioRandomRead 4KiB
  read_iops    18675 ops/s ±17.5%  500.0 -10%  unknown  FAIL          [3]
  read_bw      72.95 MiB/s ±17.5%  500.0 -10%  unknown  FAIL          [3]
IorPosix per-process sequential direct
  write_bw     540.8 MiB/s ±3.1%   500.0 -10%     1144  PASS
  read_bw      540.8 MiB/s ±3.1%   500.0 -10%     1144  PASS
IorPosix per-process sequential buffered
  write_bw     540.8 MiB/s ±3.1%   500.0 -10%     1144  PASS
  read_bw      540.8 MiB/s ±3.1%   500.0 -10%     1144  PASS
[1] nothing to compare
[2] G17: the repetitions spread by 21.3%; demanded: at most 20%. Repeat when the
    target is quiet, or raise limits.max_spread
[3] at least 19000
G15, a remark: load before the run 7.58 x cores. See what else runs on the nodes
(4 of 8 rows)
""",
}


@pytest.mark.parametrize("width", SCREENS)
def test_the_screen(width):
    assert shown(of_the_readme(), width) == SCREENS[width]


def test_a_bandwidth_fails_with_its_operations_and_not_once_more():
    def pair(spread):
        iops = metric("FAIL", name="read_iops", reason="too few", spread=0.1)
        found = [iops, metric("FAIL", name="read_bw", reason="too slow", spread=spread)]
        return [
            "; ".join(row.reasons)
            for row in outcome.rows([record("FAIL", metrics=found)])
        ]

    assert pair(0.1) == ["too few", "too few"]
    assert pair(0.2) == ["too few", "too slow"]  # not the same samples


def test_json_has_the_figures_and_the_reasons():
    found = SessionRecords([*of_the_readme(), record("ERROR", metrics=[], case="Md")])
    told = json.loads(outcome.to_json(found, found.ending(False)))
    assert (told["word"], told["status"]) == ("FAILED", 1)
    loose, lost = told["metrics"][1], told["metrics"][-1]
    assert (loose["median"], loose["unit"], loose["verdict"]) == (
        23429,
        "ops/s",
        "UNSTABLE",
    )
    assert loose["reasons"][0].startswith("G17: the repetitions spread by 21.3%")
    assert (lost["metric"], lost["median"], lost["reasons"]) == (
        None,
        None,
        ["the reason"],
    )


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


def test_what_cannot_run_is_said_once_a_reason(tmp_path):
    too_few = (
        "sanity error: ERROR: this scenario cannot be run at this scale: too few bytes"
    )
    names = ("Burst", "Steady %x=1", "Burst %x=2")
    cases = [case(name, fail_reason=too_few) for name in names]
    fine = case("Fine", result="pass", fail_reason=None)
    other = case("Other", fail_reason="type error: x")
    assert undone.unable(write(tmp_path, *cases, fine, other)) == [
        "this scenario cannot be run at this scale: too few bytes. So 3 cases cannot run: Burst and 2 more",
        "type error: x. So 1 case cannot run: Other",
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
    assert documented() - set(found) == UNKNOWN | {"pinned", "busy"}
    assert set(found) <= documented()
    assert Record.from_json(decode(one.to_line())) == one


def test_a_record_counts_once(tmp_path):
    file = write(tmp_path, case(), case())
    assert len(undecided(file, [record()])) == 1
    assert undecided(file, [record(), record()]) == []


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"runs": [{}]}', '{"runs": [{"testcases": [5]}]}']
)
def test_what_is_no_report_is_refused(tmp_path, text):
    (tmp_path / "r").write_text(text)
    with pytest.raises(ValueError, match=r"."):
        undecided(tmp_path / "r", [])


# --- derived cases and cost -----------------------------------------------------------------------


def test_a_metric_that_could_not_be_computed_has_a_row():
    lacking = [
        finding("invalid", "read_hold", guard="points"),
        finding("warn", "read_fit", guard="points"),
        finding("warn", "write_bw", guard="points"),
    ]
    found = outcome.rows(
        [record("INVALID", metrics=[metric("PASS")], findings=lacking)]
    )
    assert [
        (row.metric, row.measured, row.verdict.value, "; ".join(row.reasons))
        for row in found
    ] == [
        ("write_bw", "540.8 MiB/s ±3.1%", "PASS", ""),
        ("read_hold", "-", "INVALID", "saw 5"),
        ("read_fit", "-", "UNREFERENCED", "saw 5"),
    ]


PRICE = {
    "currency": "USD",
    "per_gb_month": 0.095,
    "capacity": 51_200_000_000_000,
    "source": "list",
}


def bandwidth(gb_s, verdict="PASS", **change):
    measured = metric(verdict, median=gb_s, unit="GB/s")
    return record(verdict, **{"metrics": [measured], "price": PRICE, **change})


def test_cost_rests_on_the_newest_valid_value_of_the_best_case():
    other = bandwidth(2.0, case="Ior %api=mpiio")
    found = page.costs(
        [
            bandwidth(9.0),
            bandwidth(2.5, "FAIL"),
            bandwidth(8.0, "INVALID"),
            other,
            record(),
        ]
    )
    assert [(one.short_name, bytes_s) for one, _, bytes_s in found] == [
        ("Ior posix", 2.5e9)
    ]


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
