"""What an alarm says, from records as cases leave them; figures, the page and JUnit of the same."""

import json
import math
import re
from dataclasses import fields, replace
from datetime import datetime, timedelta, timezone
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from iogauge.cli import app
from iogauge.judge.verdict import Verdict
from iogauge.records import journal, query
from iogauge.report import history_table
from iogauge.report.endings import SessionRecords, conclude
from iogauge.report.export import junit
from iogauge_extras.page import charts, news, page
from iogauge_extras.page.charts import Curve, Run
from iogauge_extras.page.news import DRIFT, Alarm, Trouble
from iogauge_extras.page.past import Span
from support import records
from support.records import metric

BEGIN = datetime(2026, 1, 5, 1, tzinfo=timezone.utc)
NASTY = "<script>alert(1)</script> \x1b[31m `ls` & \"x\" 'y'"


def record(day, value=100.0, verdict="PASS", **more):
    reference = metric()["reference"] | {"value": 100.0} | more.pop("reference", {})
    measured = {"median": value, "spread": 0.01, "reason": f"median {value}"}
    plain = {
        "session": f"s{day}",
        "time": (BEGIN + timedelta(days=day)).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "system": "site",
        "partition": "scratch",
        "case": "IorPosix %files=shared",
        "reason": f"write_bw: median {value}",
        "price": None,
        "fingerprint": {"kernel": "5.14"},
        "metrics": [metric(verdict=verdict, reference=reference, **measured)],
    }
    return records.record(verdict, **plain | more)


def collected(folder, found, newest=1, **options):
    for one in found:
        journal.append(folder / "site" / f"{one.session}.jsonl", one.to_line())
    options.setdefault("gate", False)
    mine = SessionRecords(found[len(found) - newest :])
    return news.collect(folder, mine, **options)


def test_a_failure_says_case_metric_value_reference_since_and_cause(tmp_path):
    new = {"kernel": "5.15", "client": "2.15"}
    found = collected(
        tmp_path,
        [
            record(0, 99.0),
            record(1, 70.0, "FAIL", fingerprint=new),
            record(2, 60.0, "FAIL", fingerprint=new),
        ],
    )
    assert found.failed
    assert found.text.splitlines() == [
        "iogauge site: FAILED: site:scratch IorPosix shared: write_bw 40.0% below its reference since 2026-01-06",
        "FAILED: 1 failed (FAIL)",
        "",
        "FAIL site:scratch IorPosix shared write_bw: 60.00 MiB/s ±1.0%, 40.0% below its reference",
        "  expected: reference 100.0 MiB/s, at least 90.00 (acceptance)",
        "  since:    2026-01-06 01:00 UTC, session s1, 2 runs in a row; "
        "the last PASS: 2026-01-05 01:00 UTC with 99.00 MiB/s",
        "  cause:    changed just before: kernel: 5.14 -> 5.15; client: None -> 2.15",
        "  runs:     ▇▅▄",
    ]


@pytest.mark.parametrize("seen", [{"nodes": "n1", "command": "ior"}, {}])
def test_a_case_that_was_refused_before_a_look_at_the_node_blames_nothing(
    seen, tmp_path
):
    """What nobody saw has not changed, and may have."""
    refused = record(1, 60.0, "INVALID", fingerprint=seen)
    (trouble,) = collected(tmp_path, [record(0), refused]).troubles
    assert "the last PASS" in trouble.since
    assert trouble.cause == ""


@pytest.mark.parametrize("verdict", ["UNSTABLE", "INVALID"])
def test_a_gate_lets_only_pass_through(tmp_path, verdict):
    finding = {
        "guard": "G17",
        "outcome": verdict.lower(),
        "metric": "write_bw",
        "saw": "a",
        "demands": "b",
        "remedy": "wait for the others",
    }
    both = [record(0), record(1, 100.0, verdict, findings=[finding])]
    found = collected(tmp_path / "a", both, gate=True)
    assert found.failed and found.troubles[0].kind == verdict
    assert found.troubles[0].remedy == "G17: wait for the others"
    assert collected(tmp_path / "b", both).failed == (verdict == "INVALID")


def test_a_line_that_is_no_record_is_a_trouble(tmp_path):
    good = collected(tmp_path, [record(0)])
    assert not good.failed
    lost = journal.Damaged(
        tmp_path / "site" / "s0.jsonl", 3, "metrics[0].median is 'x'"
    )
    found = collected(tmp_path, [record(0)], damaged=[lost])
    (trouble,) = found.troubles
    assert (
        str(found.ending) == "FAILED: 1 passed; 1 line(s) of the history are no record"
    )
    assert (
        trouble.headline
        == "ERROR site: s0: line 3 is no record: metrics[0].median is 'x'"
    )


def test_a_record_that_contradicts_itself_is_not_ok(tmp_path):
    bad = record(0, verdict="PASS", metrics=[metric(verdict="FAIL", reference=None)])
    found = collected(tmp_path, [bad])
    assert str(found.ending) == "FAILED: 1 passed; 1 trouble(s)"


def test_a_partition_that_was_not_measured(tmp_path):
    found = collected(tmp_path, [record(0)], expected=["site:scratch", "site:home"])
    assert [(t.kind, t.where) for t in found.troubles] == [("ERROR", "site:home")]
    assert str(found.ending) == "FAILED: 1 passed; nothing was measured on site:home"
    assert collected(tmp_path / "none", [], 0, expected=["site:home"]).failed


def test_of_a_confirmed_failure_the_second_is_told_and_a_refuted_one_is_not(tmp_path):
    first = record(1, 60.0, "FAIL")
    again = record(2, 61.0, "FAIL", confirms="s1")
    (trouble,) = collected(tmp_path / "a", [record(0), first, again], 2).troubles
    assert trouble.measured.startswith("61.00") and "2 runs in a row" in trouble.since
    better = record(2, 99.0, confirms="s1")
    found = collected(tmp_path / "b", [record(0), first, better], 2)
    assert (found.failed, found.troubles) == (False, ())


def series(drop, after=6, day=40, verdict="PASS"):
    values = [100 * math.exp(0.01 * math.sin(k * 1.7)) for k in range(day)]
    values += [v * (1 - drop) for v in values[:after]]
    return [
        record(
            k,
            v,
            "PASS" if k < day else verdict,
            fingerprint={"kernel": f"5.1{4 + (k >= day)}"},
        )
        for k, v in enumerate(values)
    ]


def test_a_drift_within_the_reference_is_an_alarm(tmp_path):
    found = collected(tmp_path, series(0.08))
    (trouble,) = found.troubles
    assert (
        str(found.ending) == "FAILED: 1 passed; 1 metric(s) have become worse (DRIFT)"
    )
    assert trouble.kind == DRIFT
    assert trouble.since == "2026-02-14 01:00 UTC, session s40"
    assert re.match(
        r"-[78]\.\d% \(-\d+\.\d% to -[67]\.\d%\) against the level of (99|100)\.",
        trouble.trend,
    )
    assert trouble.cause == "changed just before: kernel: 5.14 -> 5.15"
    assert trouble.curve is not None and trouble.curve.since == BEGIN + timedelta(
        days=40
    )


@pytest.mark.parametrize(
    ("before", "last", "fell"),
    [
        ([100, 101, 99, 100, 102], 60, True),
        ([100, 101, 99, 100, 102], 80, False),  # a quarter is the least loss
        ([100, 60, 99, 100, 102], 45, False),  # they differ as much among themselves
        ([100, 101, 99, 100], 60, False),  # too few
    ],
)
def test_a_fall_before_there_are_runs_for_a_trend_is_an_alarm(
    tmp_path, before, last, fell
):
    unreferenced = {"verdict": "UNREFERENCED", "reference": None}
    runs = [
        record(day, verdict="UNREFERENCED", metrics=[metric(**unreferenced, median=v)])
        for day, v in enumerate([*before, last])
    ]
    found = collected(tmp_path, runs)
    kinds = [(one.kind, one.metric) for one in found.troubles]
    assert kinds == ([(DRIFT, "write_bw")] if fell else [])
    assert bool(found.ending.status) is fell
    slower = [20.0, 20.1, 19.9, 20.0, 20.2]
    assert news.fell(31, slower, "less") and not news.fell(31, slower, "more")


def test_the_gravest_is_first_and_what_is_back_at_its_level_last(tmp_path):
    def other(name, verdict, value=100.0, **more):
        case = {"case": f"IorPosix %files={name}", "parameters": {"files": name}}
        return record(45, value, verdict, **case, **more)

    back = [*series(0.08)[:-1], record(45, 100.0, fingerprint={"kernel": "5.15"})]
    wrong = {"guard": "G8", "outcome": "invalid", "metric": None}
    wrong |= {"saw": "3 of 32 blocks differ", "demands": "none"}
    newest = [
        other("noisy", "UNSTABLE"),
        other("broken", "ERROR"),
        other("slow", "FAIL", 80.0),
        other("slower", "FAIL", 60.0),
        record(45, verdict="ERROR", partition="dead"),
        other("wrong", "INVALID", findings=[wrong]),
    ]
    alarm = collected(tmp_path, [*back, *newest], len(newest) + 1, gate=True)
    assert [trouble.rank.name for trouble in alarm.troubles] == [
        "WRONG_DATA",
        "FAIL",
        "FAIL",
        "DEAD_TARGET",
        "ERROR",
        "UNSTABLE",
        "BACK",
    ]
    assert [round(trouble.loss, 2) for trouble in alarm.troubles[1:3]] == [0.4, 0.2]
    assert alarm.gist.startswith("INVALID site:scratch IorPosix wrong")
    found = SessionRecords([back[-1], *newest])
    xml = ElementTree.fromstring(junit(found, True, alarm.ending).encode())
    assert next(xml.iter("testcase")).get("name") == "IorPosix wrong"


def test_all_unstable_cases_of_a_target_are_one_trouble(tmp_path):
    def noisy(name, spread):
        finding = {
            "guard": "G17",
            "outcome": "unstable",
            "metric": "write_bw",
            "saw": f"{spread}% over 3 repetitions",
            "demands": "10%",
            "remedy": "repeat",
        }
        reason = f"G17: spread {spread}%"
        bad = metric(verdict="UNSTABLE", reason=reason)
        case = {"case": f"IorPosix {name}", "parameters": {"files": name}}
        return record(
            1, verdict="UNSTABLE", findings=[finding], **case | {"metrics": [bad]}
        )

    both = [noisy("one", 12.5), noisy("two", 31.0)]
    (trouble,) = collected(tmp_path, both, 2, gate=True).troubles
    assert trouble.headline == (
        "UNSTABLE site:scratch 2 cases: G17: spread 12.5 to 31.0%"
    )
    assert (trouble.cases, trouble.remedy) == (
        "IorPosix one, IorPosix two",
        "G17: repeat",
    )


def test_the_load_of_a_node_is_a_cause_and_repeats_are_counted(tmp_path):
    busy = {"guard": "G15", "outcome": "warn", "metric": None, "demands": "0.1"}
    busy |= {"saw": "load before the run 51.2 x cores"}
    runs = [
        record(
            1,
            value,
            verdict,
            case=f"IorPosix %files=shared %.repeat_no={nth}",
            parameters={"files": "shared"},
            time=f"2026-01-06T01:0{nth}:00Z",
            findings=[busy],
        )
        for nth, (value, verdict) in enumerate(
            [(99.0, "PASS"), (98.0, "PASS"), (60.0, "FAIL"), (61.0, "FAIL")]
        )
    ]
    (trouble,) = collected(tmp_path, runs, 4).troubles
    assert trouble.repeats == "2 of 4 runs of this session passed"
    assert "51.2 x their cores" in trouble.cause and "storage" not in trouble.cause


# Figures.


def points(values, **more):
    return [
        Run(
            BEGIN + timedelta(days=k),
            f"s{k}",
            v,
            Verdict.PASS,
            more.get("series", "a"),
            None,
        )
        for k, v in enumerate(values)
    ]


def shapes(text, name):
    return ElementTree.fromstring(text).findall(f".//{name}")


def curve_of(values, verdicts=(), **more):
    runs = points(list(values))
    every = verdicts or [Verdict.PASS] * len(runs)
    runs = [replace(run, verdict=v) for run, v in zip(runs, every, strict=True)]
    return Curve(title="t", unit="MiB/s", points=runs, **more)


def test_bars_have_the_scale_of_the_figure():
    assert charts.bars(curve_of([100.0, 50.0, 1.0]), 30) == "▇▄▁"
    assert charts.bars(curve_of([]), 30) == ""
    # An outlier that is not valid hides no loss of 30 %: it is an arrow, and beyond the axis.
    values, verdicts = (
        [4363.0, *[320.0] * 6, *[224.0] * 3],
        [Verdict.UNSTABLE, *[Verdict.PASS] * 9],
    )
    outlier = curve_of(values, verdicts)
    assert charts.bars(outlier, 30) == "↑▇▇▇▇▇▇▄▄▄"
    assert charts.scale_of(outlier)[1] < 400
    text = charts.svg(outlier)
    assert text.count('class="run clip off"') == 1 and "beyond the axis" in text


def test_a_chart_has_level_limits_steps_and_says_what_it_is_of():
    runs = points([100.0] * 20 + [70.0] * 5)
    curve = Curve(
        title="t",
        unit="s",
        points=runs,
        level=100.0,
        low=97.0,
        high=103.0,
        steps=(runs[20].time,),
        since=runs[20].time,
        under="ior 4.0.0",
    )
    text = charts.svg(curve)
    assert text.count('class="limit"') == 2 and "the level changed here" in text
    assert curve.caption == "n = 25 runs; s; 2026-01-05 to 2026-01-29; ior 4.0.0"


@pytest.mark.parametrize(
    "values", [[], [5.0], [5.0] * 30, [1e-9, 1e12], [100.0, 30.0, 101.0]]
)
def test_a_figure_is_whole_whatever_the_values(values):
    curve = Curve(
        title=NASTY, unit="MiB/s", points=points(values), reference=90.0, least=80.0
    )
    text = charts.svg(curve)
    found = shapes(text, "circle")
    assert len(found) + text.count('class="run clip') == len(values)
    bottom = charts.BASE
    assert all(charts.TOP <= float(c.get("cy", "-1")) <= bottom for c in found)
    assert (
        "<script" not in text
        and "nan" not in text
        and "inf" not in text.replace("info", "")
    )


class Page(HTMLParser):
    """Tags and text of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.links = []
        self.names = set()
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href")]
        self.names |= {value for name, value in attrs if name == "id"}

    def handle_data(self, data):
        self.words += data


def test_the_page_tells_everything_and_fetches_nothing(tmp_path):
    bad = record(
        1, 60.0, "FAIL", case=f"IorPosix %files={NASTY}", reason=NASTY, partition="home"
    )
    both = [record(0), bad]
    text = page.page(collected(tmp_path, both, 2), both)
    seen = Page(text)
    assert seen.tags.count("script") == 1 and "@import" not in text
    assert all(str(link).startswith("#") for link in seen.links)
    assert "\x1b" not in text
    assert {str(link)[1:] for link in seen.links} <= seen.names
    # Gauges, and the overview without and with published systems: a line of one run needs no figure.
    assert text.count('<svg class="iog') == 4
    for words in ("FAILED", "60.00 MiB/s", "at least 90.00", "alert(1)"):
        assert words in seen.words


@pytest.mark.parametrize("verdict", Verdict)
def test_the_page_shows_every_verdict(verdict, tmp_path):
    last = record(1, verdict=verdict.value, metrics=[], reason="the disk is away")
    records = [record(0, verdict=verdict.value), last]
    text = page.page(collected(tmp_path, records), records)
    sign = page.SIGNS[verdict.value]
    said = f'<td class="{verdict.value}"><span class="word">{sign} {verdict.value}<'
    assert text.count(said) == 2
    failed = collected(tmp_path, records).failed
    assert ("What somebody must look at" in text) == failed
    assert ("<dt>reason</dt><dd>the disk is away" in text) == failed


@pytest.mark.parametrize(
    "field",
    [
        field.name
        for field in fields(Trouble)
        if field.type == "str" and field.name != "kind"
    ],
)
def test_text_in_a_trouble_is_shown_and_makes_no_tag(field):
    texts = {"where": "w", "case": "c", "measured": "1 s"}
    alarm = Alarm(
        sessions=(NASTY,),
        systems=(NASTY,),
        ending=conclude({}, gate=True, problems=[NASTY]),
        troubles=(),
    )
    shown = []
    for trouble in (texts, texts | {field: NASTY}):
        known = replace(alarm, troubles=(Trouble(kind="FAIL", **trouble),))
        text = page.page(known, [])
        seen = Page(text)
        assert seen.tags.count("script") == 1 and "\x1b" not in text
        shown.append(seen.words.count("<script>alert(1)</script>"))
    assert shown[0] < shown[1]


def test_junit_calls_nothing_but_pass_a_pass():
    found = SessionRecords(record(k, verdict=v.value) for k, v in enumerate(Verdict))
    for gate in (False, True):
        (suite,) = ElementTree.fromstring(
            junit(found, gate, found.ending(gate)).encode()
        )
        kinds = {
            str(case.get("name")) + str(k): [
                child.tag for child in case if child.tag != "system-out"
            ]
            for k, case in enumerate(suite)
        }
        told = list(kinds.values())
        assert [not kind for kind in told] == [False] * 6 + [True]
        fails = sum(kind in (["failure"], ["error"]) for kind in told)
        assert (
            fails
            == int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            == (6 if gate else 3)
        )


# --- a span of time -------------------------------------------------------------------------------


def test_a_span_shows_the_newest_run_of_every_case_in_it(tmp_path):
    runs = [record(day, 100.0 + day) for day in range(4)]
    other = record(1, 50.0, partition="home")
    collected(tmp_path, [*runs, other])
    span = Span(BEGIN + timedelta(hours=12), BEGIN + timedelta(days=2))
    found, damaged = history_table.newest_records(
        tmp_path, query.Choice(system="site", since=span.since, until=span.until)
    )
    assert [(r.partition, r.session) for r in found] == [
        ("home", "s1"),
        ("scratch", "s2"),
    ]
    assert damaged == []
    with pytest.raises(ValueError, match=r"no case of it is recorded \(recorded: "):
        history_table.newest_records(tmp_path, query.Choice(system="elsewhere"))
    alarm = news.collect(tmp_path, SessionRecords(found), gate=False, span=span)
    curve = next(one for one in alarm.history.curves if one.title.startswith("scratch"))
    assert [run.session for run in curve.points] == ["s1", "s2"]


def test_status_is_the_same_order_as_text_and_as_json(tmp_path, monkeypatch):
    def other(day, name, verdict, value=100.0):
        case = {"case": f"IorPosix %files={name}", "parameters": {"files": name}}
        now = datetime.now(timezone.utc) - timedelta(hours=9 - day)
        time = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        return record(day, value, verdict, time=time, **case)

    runs = [other(day, "good", "PASS") for day in range(3)]
    runs += [other(day, "noisy", "UNSTABLE") for day in range(3)]
    runs += [
        other(0, "slow", "PASS"),
        *(other(d, "slow", "FAIL", 60.0) for d in (1, 2)),
    ]
    collected(tmp_path / "history", runs)
    monkeypatch.setenv("IOGAUGE_HOME", str(tmp_path))
    done = CliRunner().invoke(app.app, ["status", "--json"])
    shown = json.loads(done.output)
    assert (done.exit_code, shown["word"]) == (1, "FAILED")
    order = [(case["case"], case["verdict"]) for case in shown["cases"]]
    assert order == [
        ("IorPosix slow", "FAIL"),
        ("IorPosix noisy", "UNSTABLE"),
        ("IorPosix good", "PASS"),
    ]
    assert shown["cases"][0]["verdicts"] == ["PASS", "FAIL", "FAIL"]
    lines = CliRunner().invoke(app.app, [], env={"COLUMNS": "200"}).output.splitlines()
    first = "site:scratch IorPosix slow: write_bw 40.0% below its reference since "
    assert lines[0].startswith(f"iogauge: FAILED: {first}")
    assert lines[2].startswith(f"FAIL for 2 runs: {first}")
    assert lines[3].startswith("UNSTABLE for 3 runs: site:scratch IorPosix noisy")


def test_the_level_changes_once_within_a_session():
    runs = [replace(run, session="s") for run in points([100.0] * 20 + [70.0] * 5)]
    text = charts.svg(Curve(title="t", unit="s", points=runs, steps=(runs[20].time,)))
    assert text.count("the level changed here") == 1
