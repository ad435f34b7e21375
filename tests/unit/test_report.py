"""What a session found, as people read it, and the exit status that follows."""

from __future__ import annotations

import io
import itertools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from iogauge.cli.screen import new_console, show_ending
from iogauge.core.measurement import Metric
from iogauge.core.paths import history_dir
from iogauge.judge.verdict import Verdict
from iogauge.plan import case as cost
from iogauge.plan.case import Access
from iogauge.records.journal import append
from iogauge.records.record import LAYER_CHECKS, Record, ReferenceRecord
from iogauge.records.selected import Unmeasured, UnrunCase
from iogauge.report import outcome
from iogauge.report.outcome import SessionRecords
from iogauge_extras.ceilings import measured as ceilings
from iogauge_extras.page.commands import show_status
from support import records
from support.extras import extras

FAILS = {"FAIL", "INVALID", "ERROR"}


def metric(verdict: str = "PASS", **change: Any) -> dict[str, Any]:
    plain = {"median": 540.8, "spread": 0.0312, "reason": "its reason", "ceiling": 1144.4}
    return records.metric(**{"verdict": verdict, **plain, **change})


def finding(outcome: str, about: str | None = "write_bw", guard: str = "G6") -> dict[str, Any]:
    return {"guard": guard, "outcome": outcome, "metric": about, "saw": "saw 5", "demands": "3"}


def record(verdict: str = "PASS", **change: Any) -> Record:
    plain = {"case": "Ior %api=posix", "partition": "disk", "environment": "env", "price": None}
    plain |= {"reason": "the reason", "metrics": [metric(verdict)]}
    return records.record(verdict, **plain | change)


def exit_status(found: Sequence[Record], gate: bool) -> int:
    return SessionRecords(found).ending(gate).status


#: What the command tells of the run that a case belongs to.
RUN = {"session": "s", "time": "2027-01-31T12:00:00Z", "gate": False}


def undecided(file: Path, found: Sequence[Record], **run: Any) -> list[Record]:
    return outcome.undecided(file, found, RUN | run)


def shown(records: list[Record], width: int = 200, wide: bool = False) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None).print(
        outcome.table(outcome.rows(records), wide), soft_wrap=True
    )
    return stream.getvalue()


def ended(found: Sequence[Record]) -> str:
    """What a command prints at the end of a session."""
    stream = io.StringIO()
    of_session = SessionRecords(found)
    show_ending(Console(file=stream, width=200), of_session, of_session.ending(False))
    return stream.getvalue()


# --- the exit status ------------------------------------------------------------------------------


@pytest.mark.parametrize("gate", [False, True])
@pytest.mark.parametrize("verdict", [v.value for v in Verdict])
def test_exit_status_of_one_case(verdict: str, gate: bool) -> None:
    expected = verdict != "PASS" if gate else verdict in FAILS
    assert exit_status([record(verdict)], gate) == int(expected)


@pytest.mark.parametrize("gate", [False, True])
def test_the_worst_case_decides(gate: bool) -> None:
    for one, other in itertools.product([v.value for v in Verdict], repeat=2):
        both = exit_status([record(one), record(other)], gate)
        assert both == max(exit_status([record(v)], gate) for v in (one, other))


@pytest.mark.parametrize(("columns", "wrapped"), [("80", True), ("", False)])
def test_the_ending_breaks_between_words_and_is_whole_in_a_log(
    columns: str,
    wrapped: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    path = "/" + "a" * 100
    case = UnrunCase(
        check="Easy",
        case="Easy",
        derived=False,
        place="s:p",
        holder="environment e",
        feature="mdtest",
        why=f"x {path} y",
    )
    end = SessionRecords([records.record("UNREFERENCED")]).ending(
        False, Unmeasured(left_out=(case,), unmatched=("-n Foo selects no case",) * 3)
    )
    show_ending(new_console(), SessionRecords(), end)
    lines = capsys.readouterr().out.splitlines()
    assert (max(len(line) for line in lines if path not in line) <= 80) is wrapped
    assert path in (lines if wrapped else lines[1].split())
    assert [len(lines) > 2, " ".join(map(str.strip, lines))] == [
        wrapped,
        " ".join([f"iogauge: {end}", *end.remarks]),
    ]


def test_status_has_a_sentence_for_each_case_that_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("IOGAUGE_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    for verdict in ("PASS", "UNREFERENCED", "UNSTABLE", "CONTAMINATED"):
        metric = records.metric(verdict=verdict, reason=f"why {verdict}")
        one = records.record(
            verdict, check=verdict, case=verdict, session=f"s-{verdict}", metrics=[metric]
        )
        append(history_dir() / one.system / f"s-{verdict}.jsonl", one.to_line())
    show_status(system="", since="", wide=False)
    said = capsys.readouterr().out
    named = re.findall(r"^\S+ \S+ (\S+) .* is (\S+): why (\S+?)[.,;]", said, re.MULTILINE)
    assert sorted(named) == [("CONTAMINATED",) * 3, ("UNSTABLE",) * 3]
    # A run that is no gate fails on none of them.
    assert said.splitlines()[-1].startswith("iogauge: partly proven: 1 passed; 3 prove nothing")


def test_nothing_measured_fails_a_gate_only() -> None:
    assert (exit_status([], False), exit_status([], True)) == (0, 1)


@pytest.mark.parametrize("gate", [False, True])
def test_an_expected_failure_fails_no_run(gate: bool) -> None:
    expected = record("FAIL", expected=True)
    assert exit_status([expected, record()], gate) == 0
    assert exit_status([expected, record("FAIL")], gate) == 1


def test_an_unknown_verdict_is_no_pass() -> None:
    with pytest.raises(TypeError, match="GREAT"):
        record("GREAT")


# --- rows -----------------------------------------------------------------------------------------


def test_a_row() -> None:
    (row,) = outcome.rows([record()])
    assert row == outcome.Row(
        "Ior posix", "/s", "write_bw", "540.8 MiB/s ±3.1%", "500.0 -10%", "1144", Verdict.PASS
    )


@pytest.mark.parametrize(("better", "bound"), [("more", "100.0 -10%"), ("less", "100.0 +25%")])
def test_a_row_shows_the_bound_that_can_be_missed(better: str, bound: str) -> None:
    reference = {"value": 100.0, "lower": -0.1, "upper": 0.25, "unit": "us", "source": "x"}
    (row,) = outcome.rows(
        [record("PASS", metrics=[records.metric("p99", better=better, reference=reference)])]
    )
    assert row.reference == bound


def test_a_reference_that_is_a_share_of_the_ceiling_shows_the_share() -> None:
    efficiency = {"read": "80 %", "write": "90 %"}
    limits = {"source": "offer", "devices": {"write": "200 MiB/s"}, "efficiency": efficiency}
    partition = extras(topology=limits)
    access = Access(direction="write", saturates="bandwidth")
    stands_in = cost.ceiling_reference(Metric("write_bw", "MiB/s", "more"), access, partition, 1)
    assert stands_in
    of_ceiling = record(metrics=[metric(reference=ReferenceRecord.of(stands_in).to_json())])
    assert [row.reference for row in outcome.rows([of_ceiling])] == ["180.0 (90%)"]
    assert "180.0 (90%) is that share of the ceiling" in ended([of_ceiling])
    assert "share of the ceiling" not in ended([record()])


def test_a_metric_without_reference_ceiling_and_spread() -> None:
    lonely = metric("UNREFERENCED", reference=None, ceiling=None, spread=None)
    (row,) = outcome.rows([record("UNREFERENCED", metrics=[lonely])])
    assert (row.measured, row.reference, row.ceiling) == ("540.8 MiB/s", "none", "unknown")
    assert (row.verdict, row.reason) == (Verdict.UNREFERENCED, "its reason")


def test_a_case_without_metrics_is_seen() -> None:
    (row,) = outcome.rows([record("ERROR", metrics=[], target=None)])
    assert (row.target, row.measured, row.verdict, row.reason) == (
        "disk",
        "-",
        Verdict.ERROR,
        "the reason",
    )


def test_each_metric_has_its_own_verdict() -> None:
    both = [metric("PASS"), metric("FAIL", name="read_bw")]
    assert [r.verdict for r in outcome.rows([record("FAIL", metrics=both)])] == [
        Verdict.PASS,
        Verdict.FAIL,
    ]


@pytest.mark.parametrize(
    ("verdict", "findings", "reason"),
    [
        ("INVALID", [finding("invalid")], "G6: saw 5; demanded: 3"),
        ("INVALID", [finding("invalid", None), finding("warn")], "G6: saw 5; demanded: 3"),
        (
            "UNSTABLE",
            [finding("unstable"), finding("invalid", "read_bw")],
            "G6: saw 5; demanded: 3",
        ),
        ("PASS", [finding("warn")], "G6, a remark, no fault: saw 5"),
        ("PASS", [finding("warn", "read_bw")], ""),
        ("PASS", [finding("ok")], ""),
        ("FAIL", [finding("warn")], "its reason; G6, a remark, no fault: saw 5"),
        (
            "PASS",
            [finding("warn", guard="G4") | {"remedy": "Do this"}],
            "G4, a remark, no fault: saw 5. Do this",
        ),
    ],
)
def test_the_reason_of_a_row(verdict: str, findings: list[dict[str, Any]], reason: str) -> None:
    (row,) = outcome.rows([record(verdict, findings=findings)])
    assert row.reason == reason


def test_short_phases_are_not_remarked_upon_in_the_quick_tier() -> None:
    (row,) = outcome.rows([record(tier="quick", findings=[finding("warn", guard="G4")])])
    assert row.reason == ""


# --- the table ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["[red]x[/red]", "[/]", "[bold", "\\[x]", "[link=a]b[/link]", "x[/green]"]
)
def test_markup_from_outside_is_text(text: str) -> None:
    seen = shown(
        [
            record("ERROR", metrics=[], reason=text),
            record(case=text + "1", target={"path": text}),
            record(metrics=[metric(name=text, unit=text)]),
        ]
    )
    assert seen.count(text) >= 4


@pytest.mark.parametrize("verdict", [v.value for v in Verdict])
def test_every_verdict_is_written_out(verdict: str) -> None:
    assert verdict in shown([record(verdict)])


def test_a_scenario_is_named_once() -> None:
    both = [metric(), metric(name="read_bw")]
    assert shown([record(metrics=both)]).count("Ior posix") == 1


def of_the_readme() -> list[Record]:
    """Three of the cases in the README's table, with findings that repeat."""
    load = {"outcome": "warn", "metric": None, "saw": "load before the run 7.58 x cores"}
    busy = {"guard": "G15", "demands": "", "remedy": "See what else runs on the nodes", **load}
    loose = {"guard": "G17", "outcome": "unstable", "metric": "remove_rate"}
    loose |= {"saw": "the repetitions spread by 21.3%", "demands": "at most 20%"}
    loose |= {"remedy": "Repeat when the target is quiet, or raise limits.max_spread"}
    rate = {"unit": "ops/s", "reference": None, "ceiling": None, "reason": "nothing to compare"}
    slow = {"verdict": "FAIL", "spread": 0.175, "ceiling": None}
    files = "IorPosix %files=per-process %order=sequential %cache="
    return [
        record(
            "UNSTABLE",
            case="MdtestHard",
            metrics=[
                metric("UNREFERENCED", name="create_rate", median=28223, spread=0.08, **rate),
                metric("UNSTABLE", name="remove_rate", median=23429, spread=0.213, **rate),
            ],
            findings=[busy, loose],
        ),
        record(
            "FAIL",
            case="FioRandomRead %block=4KiB",
            metrics=[
                metric(
                    name="read_iops", median=18675, unit="ops/s", reason="at least 19000", **slow
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
    120: """\
target /s
scenario                                  metric       median ±spread       reference  ceiling  verdict       why
MdtestHard                                create_rate  28223 ops/s ±8.0%         none  unknown  UNREFERENCED  [1,2]
                                          remove_rate  23429 ops/s ±21.3%        none  unknown  UNSTABLE      [3]
FioRandomRead 4KiB                        read_iops    18675 ops/s ±17.5%  500.0 -10%  unknown  FAIL          [4,2]
                                          read_bw      72.95 MiB/s ±17.5%  500.0 -10%  unknown  FAIL          [4,2]
IorPosix per-process sequential direct    write_bw     540.8 MiB/s ±3.1%   500.0 -10%     1144  PASS
                                          read_bw      540.8 MiB/s ±3.1%   500.0 -10%     1144  PASS
IorPosix per-process sequential buffered  write_bw     540.8 MiB/s ±3.1%   500.0 -10%     1144  PASS
                                          read_bw      540.8 MiB/s ±3.1%   500.0 -10%     1144  PASS
[1] nothing to compare
[2] G15, a remark, no fault: load before the run 7.58 x cores. See what else runs on the nodes
[3] G17: the repetitions spread by 21.3%; demanded: at most 20%. Repeat when the target is quiet, or raise
    limits.max_spread
[4] at least 19000
""",
    80: """\
target /s
  metric       median ±spread       reference  ceiling  verdict       why
MdtestHard
  create_rate  28223 ops/s ±8.0%         none  unknown  UNREFERENCED  [1,2]
  remove_rate  23429 ops/s ±21.3%        none  unknown  UNSTABLE      [3]
FioRandomRead 4KiB
  read_iops    18675 ops/s ±17.5%  500.0 -10%  unknown  FAIL          [4,2]
  read_bw      72.95 MiB/s ±17.5%  500.0 -10%  unknown  FAIL          [4,2]
IorPosix per-process sequential direct
  write_bw     540.8 MiB/s ±3.1%   500.0 -10%     1144  PASS
  read_bw      540.8 MiB/s ±3.1%   500.0 -10%     1144  PASS
IorPosix per-process sequential buffered
  write_bw     540.8 MiB/s ±3.1%   500.0 -10%     1144  PASS
  read_bw      540.8 MiB/s ±3.1%   500.0 -10%     1144  PASS
[1] nothing to compare
[2] G15, a remark, no fault: load before the run 7.58 x cores. See what else
    runs on the nodes
[3] G17: the repetitions spread by 21.3%; demanded: at most 20%. Repeat when the
    target is quiet, or raise limits.max_spread
[4] at least 19000
""",
}


@pytest.mark.parametrize("width", SCREENS)
def test_the_screen(width: int) -> None:
    assert shown(of_the_readme(), width) == SCREENS[width]


def test_a_wide_row_is_one_line_with_its_reason() -> None:
    lines = shown(of_the_readme(), 80, wide=True).splitlines()
    assert len(lines) == 2 + 8
    assert all("G15, a remark, no fault: load before" in line for line in lines if "Fio" in line)


def test_the_load_of_each_case_is_one_remark_with_its_range() -> None:
    """A busy machine has another load before each case; the reason that matters must not hide among them."""
    found = [
        record(
            case=f"Ior {n}",
            findings=[
                {
                    **finding("warn", None, "G15"),
                    "saw": f"load before the run {load} x cores, 2 bound",
                }
            ],
        )
        for n, load in enumerate(("0.92", "10.10", "0.92", "1.30"))
    ]
    text = shown(found)
    assert "[1] G15, a remark, no fault: load before the run 0.92 to 10.10 x cores, 2 bound" in text
    assert "[2]" not in text
    assert text.count("[1]") == 5
    assert "load before the run 0.92 x cores" in shown(found[::2])
    assert "load before the run 1.30 x cores" in shown(found, wide=True)


def test_the_spread_of_each_unstable_case_is_one_reason_with_its_range() -> None:
    found = [
        record(
            case=f"Ior {n}",
            findings=[
                {
                    **finding("warn", None, "G17"),
                    "saw": f"coefficient of variation {spread}% over 3 repetitions",
                }
            ],
        )
        for n, spread in enumerate(("54.2", "8.9"))
    ]
    said = "[1] G17, a remark, no fault: coefficient of variation 8.9 to 54.2% over 3 repetitions"
    assert said in shown(found, 200)


def test_a_bandwidth_fails_with_its_operations_and_not_once_more() -> None:
    def pair(spread: float) -> list[str]:
        iops = metric("FAIL", name="read_iops", reason="too few", spread=0.1)
        found = [iops, metric("FAIL", name="read_bw", reason="too slow", spread=spread)]
        return [row.reason for row in outcome.rows([record("FAIL", metrics=found)])]

    assert pair(0.1) == ["too few", "too few"]
    assert pair(0.2) == ["too few", "too slow"]  # not the same samples


def test_json_has_the_figures_and_the_reasons() -> None:
    found = SessionRecords([*of_the_readme(), record("ERROR", metrics=[], case="Md")])
    told = json.loads(outcome.to_json(found, found.ending(False)))
    assert (told["word"], told["status"]) == ("FAILED", 1)
    loose, lost = told["metrics"][1], told["metrics"][-1]
    assert (loose["median"], loose["unit"], loose["verdict"]) == (23429, "ops/s", "UNSTABLE")
    assert loose["reasons"][0].startswith("G17: the repetitions spread by 21.3%")
    assert (lost["metric"], lost["median"], lost["reasons"]) == (None, None, ["the reason"])


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_the_table_fits_the_screen(width: int) -> None:
    lines = shown(of_the_readme(), width).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) < {60: 45}.get(width, 25)


# --- cases that never came to a verdict -----------------------------------------------------------


def case(name: str = "Ior %api=posix", **change: Any) -> dict[str, Any]:
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


def write(folder: Path, *cases: dict[str, Any]) -> Path:
    file = folder / "report.json"
    file.write_text(json.dumps({"runs": [{"testcases": list(cases)}]}))
    return file


def test_a_case_without_a_record_is_an_error(tmp_path: Path) -> None:
    (found,) = undecided(write(tmp_path, case(), case("Md %x=1")), [record()])
    assert (found.case, found.check, found.verdict) == ("Md %x=1", "Md", Verdict.ERROR)
    assert found.reason == "run_wait: time limit"
    assert exit_status([record(), found], gate=False) == 1
    assert outcome.rows([found])[0].verdict is Verdict.ERROR


def test_what_cannot_run_is_said_once_a_reason(tmp_path: Path) -> None:
    too_few = "sanity error: ERROR: this scenario cannot be run at this scale: too few bytes"
    names = ("Burst", "Steady %x=1", "Burst %x=2")
    cases = [case(name, fail_reason=too_few) for name in names]
    fine = case("Fine", result="pass", fail_reason=None)
    other = case("Other", fail_reason="type error: x")
    assert outcome.unable(write(tmp_path, *cases, fine, other)) == [
        "this scenario cannot be run at this scale: too few bytes. So 3 cases cannot run: Burst and 2 more",
        "type error: x. So 1 case cannot run: Other",
    ]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"runs": [{"testcases": [5]}]}'])
def test_a_report_without_form_says_nothing_of_what_cannot_run(tmp_path: Path, text: str) -> None:
    (tmp_path / "report.json").write_text(text)
    with pytest.raises(ValueError, match=r"report\.json"):
        outcome.unable(tmp_path / "report.json")


#: What a decided case's record has, and an undecided one has no knowledge of.
UNKNOWN = {"suite", "overridden", "price", "stack", "line", "series", "fingerprint", "layout"}


def documented() -> set[str]:
    """Keys of a record in docs/results.md."""
    text = (Path(__file__).parents[2] / "docs" / "results.md").read_text()
    text = text.partition("## Form of a record")[2].partition("Of a metric:")[0]
    cells = re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE)
    return {key for cell in cells for key in re.findall(r"`(\w+)`", cell)}


def test_an_undecided_case_has_the_documented_form(tmp_path: Path) -> None:
    """As much of it as ReFrame knows: its report has our variables under our names."""
    known = {
        "tier": "quick",
        "variant": "sound",
        "nodes": 1,
        "tasks_per_node": 2,
        "repetitions": 3,
    }
    file = write(tmp_path, case("Ior %tasks=4 %api=posix %fix.x=1", **known, tasks=4, api="posix"))
    (one,) = undecided(file, [], confirms="r", selection="-n x", accepts=False)
    found = one.to_json()
    assert {key: found[key] for key in known} == known
    assert one.parameters == {"tasks": 4, "api": "posix", "fix.x": "1"}
    assert documented() - set(found) == UNKNOWN | {"pinned"}
    assert set(found) <= documented()
    assert Record.from_line(one.to_line()) == one


def test_the_line_of_an_undecided_case_is_what_it_always_was(tmp_path: Path) -> None:
    (one,) = undecided(write(tmp_path, case(tier="quick", nodes=2)), [], confirms="r")
    assert one.to_line().decode() == (
        '{"schema":1,"time":"2027-01-31T12:00:00Z","gate":false,"system":"here","partition":"disk",'
        '"environment":"env","check":"Ior","case":"Ior %api=posix","hash":"abc","verdict":"ERROR",'
        '"reason":"run_wait: time limit","expected":false,"tier":"quick","nodes":2,'
        '"parameters":{"api":"posix"},"target":null,"tools":[],"commands":[],"metrics":[],"findings":[],'
        '"session":"s","confirms":"r"}'
    )


def test_a_case_that_was_not_set_up_has_no_scale(tmp_path: Path) -> None:
    zero = {"tier": "", "variant": "", "nodes": 0, "tasks_per_node": 0, "repetitions": 0}
    (found,) = undecided(write(tmp_path, case(**zero)), [])
    assert not set(zero) & set(found.to_json())


@pytest.mark.parametrize(
    "change", [{"partition": "other"}, {"environ": "other"}, {"display_name": "Ior"}]
)
def test_a_record_of_another_case_does_not_count(tmp_path: Path, change: dict[str, Any]) -> None:
    assert len(undecided(write(tmp_path, case(**change)), [record()])) == 1


def test_a_record_counts_once(tmp_path: Path) -> None:
    file = write(tmp_path, case(), case())
    assert len(undecided(file, [record()])) == 1
    assert undecided(file, [record(), record()]) == []


def test_a_case_that_reframe_passes_without_a_verdict_is_an_error(tmp_path: Path) -> None:
    file = write(tmp_path, case(result="pass", fail_reason=None, fail_phase=None))
    (found,) = undecided(file, [])
    assert found.reason == "run: ReFrame says pass, nothing was decided"
    assert found.verdict is Verdict.ERROR


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "5",
        "{}",
        '{"runs": 5}',
        '{"runs": [{}]}',
        '{"runs": [{"testcases": [{}]}]}',
        '{"runs": [{"testcases": [5]}]}',
    ],
)
def test_what_is_no_report_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "r").write_text(text)
    with pytest.raises(ValueError, match=r"."):
        undecided(tmp_path / "r", [])


def test_a_missing_report_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        undecided(tmp_path / "r", [])


def test_control_characters_from_outside_are_shown_not_obeyed() -> None:
    (row,) = outcome.rows([record(case="A\x1b[2J", reason="gone\x1b]0;title\x07", metrics=[])])
    assert "\x1b" not in row.scenario + row.reason
    assert "\\x1b[2J" in row.scenario


# --- derived cases and cost -----------------------------------------------------------------------


def test_a_metric_that_could_not_be_computed_has_a_row() -> None:
    lacking = [
        finding("invalid", "read_hold", guard="points"),
        finding("warn", "read_fit", guard="points"),
        finding("warn", "write_bw", guard="points"),
    ]
    found = outcome.rows([record("INVALID", metrics=[metric("PASS")], findings=lacking)])
    assert [(row.metric, row.measured, row.verdict.value, row.reason) for row in found] == [
        ("write_bw", "540.8 MiB/s ±3.1%", "PASS", "points, a remark, no fault: saw 5"),
        ("read_hold", "-", "INVALID", "saw 5"),
        ("read_fit", "-", "UNREFERENCED", "saw 5"),
    ]


PRICE = {"currency": "USD", "per_gb_month": 0.095, "capacity": 51_200_000_000_000, "source": "list"}


def bandwidth(gb_s: float, verdict: str = "PASS", **change: Any) -> Record:
    measured = metric(verdict, median=gb_s, unit="GB/s")
    return record(verdict, **{"metrics": [measured], "price": PRICE, **change})


def test_cost_at_the_ceiling_of_the_published_server() -> None:
    (cost,) = outcome.costs([bandwidth(3.125)])
    assert cost == outcome.BandwidthPrice(
        "/s",
        "USD",
        0.095,
        "write_bw",
        "Ior posix",
        3.125,
        pytest.approx(1556.48),  # type: ignore[arg-type]
        "list",
        cost.record,
    )


def test_the_price_of_a_target_does_not_rest_on_a_layer_below_it() -> None:
    assert set(LAYER_CHECKS) == set(ceilings._METRICS)
    layers = [bandwidth(40.0, check=name, case=name) for name in LAYER_CHECKS]
    found = outcome.costs([bandwidth(3.125), *layers])
    assert [(cost.case, cost.gb_s, cost.record.check) for cost in found] == [
        ("Ior posix", 3.125, "IorPosix")
    ]


def test_cost_rests_on_the_newest_valid_value_of_the_best_case() -> None:
    other = bandwidth(2.0, case="Ior %api=mpiio")
    found = outcome.costs(
        [bandwidth(9.0), bandwidth(2.5, "FAIL"), bandwidth(8.0, "INVALID"), other, record()]
    )
    assert [(cost.case, cost.gb_s) for cost in found] == [("Ior posix", 2.5)]


@pytest.mark.parametrize(
    "one",
    [
        record(),
        bandwidth(3.0, "INVALID"),
        record(price=PRICE, metrics=[metric(unit="ops/s")]),
        record(price=PRICE, metrics=[]),
    ],
)
def test_without_price_or_valid_bandwidth_there_is_no_cost(one: Record) -> None:
    assert outcome.costs([one]) == []


def test_the_table_of_costs_shows_text_from_outside_as_text() -> None:
    one = bandwidth(3.125, price={**PRICE, "source": "[red]\x1b[2J"})
    stream = io.StringIO()
    Console(file=stream, width=200, color_system=None).print(
        outcome.cost_table(outcome.costs([one]))
    )
    for text in ("0.095 USD", "3.125", "1,556.48 USD", "[red]\\x1b[2J"):
        assert text in stream.getvalue()


# --- a second run refutes a failure, or does not --------------------------------------------------


def one(verdict: str, session: str, **change: Any) -> Record:
    return record(verdict, session=session, **change)


@pytest.mark.parametrize(
    ("second", "status"),
    [
        (one("PASS", "b", confirms="a"), 0),
        (one("FAIL", "b", confirms="a"), 1),
        (one("UNSTABLE", "b", confirms="a"), 1),
        (one("PASS", "b", confirms="other"), 1),
        (one("PASS", "b", confirms="a", hash="2"), 1),
        (one("PASS", "b"), 1),
    ],
)
def test_a_failure_stands_unless_its_own_case_passed_when_measured_again(
    second: Record, status: int
) -> None:
    first = one("FAIL", "a")
    assert exit_status([first, second], gate=False) == status
    session = SessionRecords([first, second])
    assert [session.is_unconfirmed(record) for record in session] == [status == 0, False]
    assert session.counts(first) == bool(status)
    assert ("not confirmed" in session.ending(False).sentence) == (status == 0)


def test_only_a_failure_can_be_refuted() -> None:
    assert not one("INVALID", "a").needs_confirmation
    assert not one("FAIL", "a", expected=True).needs_confirmation
    assert not one("FAIL", "b", confirms="a").needs_confirmation
