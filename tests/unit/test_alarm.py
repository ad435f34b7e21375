"""What an alarm says, from records as cases leave them; figures, the page and JUnit of the same."""

import math
import re
from datetime import timedelta
from xml.etree import ElementTree

import pytest

from iogauge.cli.reporting import Asked
from iogauge.judge.verdict import Verdict
from iogauge.records import journal
from iogauge.report.endings import SessionRecords
from iogauge.report.export import junit
from iogauge_extras.page import drifts, news, page
from iogauge_extras.page.trouble import DRIFT
from iogauge_extras.probe import probe_lines
from iogauge_extras.probe.slowdown import Line
from support.records import FIRST as BEGIN
from support.records import metric
from support.records import night as record

NASTY = "<script>alert(1)</script> \x1b[31m `ls` & \"x\" 'y'"


def collected(folder, found, newest=1, **options):
    for one in found:
        journal.append(folder / "site" / f"{one.session}.jsonl", one.to_line())
    options.setdefault("gate", False)
    mine = SessionRecords(found[len(found) - newest :])
    asked = Asked(mine, damaged=options.pop("damaged", ()))
    return news.collect(folder, asked, **options)


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
    failure = "FAIL site:scratch IorPosix shared write_bw: 60.00 MiB/s ±1.0%, 40.0% below its reference since 2027-01-02"
    assert found.text.splitlines() == [
        f"iogauge site: FAILED: {failure}",
        "FAILED: 1 failed (FAIL)",
        "",
        failure,
        "  expected: reference 100.0 MiB/s, at least 90.00 (acceptance)",
        "  since:    2027-01-02 02:00 UTC, session s001-scratch, 2 runs in a row; "
        "the last PASS: 2027-01-01 02:00 UTC with 99.00 MiB/s",
        "  cause:    changed just before: kernel: 5.14 -> 5.15, client: None -> 2.15",
    ]


def test_the_first_line_is_the_slow_part_that_a_case_names(tmp_path):
    slow = metric(verdict="FAIL", median=0.4, notes="OST0003 is slow; 9 of 9 turns")
    alarm = collected(tmp_path, [record(0, verdict="FAIL", metrics=[slow])])
    assert " write_bw: OST0003 is slow since 20" in alarm.gist


def test_what_is_damaged_absent_or_contradicts_itself_is_a_trouble(tmp_path):
    lost = journal.Damaged(tmp_path / "site" / "s0.jsonl", 3, "median is 'x'")
    bad = record(0, verdict="PASS", metrics=[metric(verdict="FAIL", reference=None)])
    endings = [
        collected(tmp_path / "a", [record(0)], damaged=[lost]),
        collected(tmp_path / "b", [record(0)], expected=["site:home"]),
        collected(tmp_path / "c", [bad]),
        collected(tmp_path / "d", [], 0, expected=["site:home"]),
    ]
    assert [str(found.ending) for found in endings[:3]] == [
        "FAILED: 1 passed; 1 line(s) of the history are no record",
        "FAILED: 1 passed; nothing was measured on site:home",
        "FAILED: 1 passed; 1 trouble(s)",
    ]
    assert all(found.failed and len(found.troubles) == 1 for found in endings)


def series(drop):
    values = [100 * math.exp(0.01 * math.sin(k * 1.7)) for k in range(40)]
    values += [v * (1 - drop) for v in values[:6]]
    return [
        record(
            k,
            v,
            fingerprint={"kernel": f"5.1{4 + (k >= 40)}"},
        )
        for k, v in enumerate(values)
    ]


def test_a_drift_within_the_reference_is_an_alarm(tmp_path):
    found = collected(tmp_path, series(0.08))
    (trouble,) = found.troubles
    ended = "FAILED: 1 passed; 1 metric(s) have become worse (DRIFT)"
    assert str(found.ending) == ended
    assert trouble.kind == DRIFT
    assert trouble.since == "2027-02-10 02:00 UTC, session s040-scratch"
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
    assert drifts.fell(31, slower, "less") and not drifts.fell(31, slower, "more")


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
    assert [str(trouble.incidents[0]) for trouble in alarm.troubles[:-1]] == [
        "WRONG_DATA site:scratch IorPosix wrong",
        "loss site:scratch IorPosix slower write_bw",
        "loss site:scratch IorPosix slow write_bw",
        "DEAD_TARGET site:dead",
        "ERROR site:scratch IorPosix broken",
        "UNSTABLE site:scratch",
    ]
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
    plain = news.collect(tmp_path, Asked(SessionRecords(both)), gate=False)
    assert plain.troubles == () and not plain.failed
    elsewhere = [record(2, 50.0, "FAIL", partition=name) for name in ("a", "b")]
    several = news.collect(
        tmp_path, Asked(SessionRecords([*both, *elsewhere])), gate=False
    )
    assert several.gist.endswith("; also site:a") or several.gist.endswith(
        "; also site:b"
    )


def test_the_load_of_a_node_is_a_cause_and_repeats_are_counted(tmp_path):
    runs = [
        record(
            1,
            value,
            verdict,
            case=f"IorPosix %files=shared %.repeat_no={nth}",
            parameters={"files": "shared"},
            time=f"2026-01-06T01:0{nth}:00Z",
            load=51.2,
        )
        for nth, (value, verdict) in enumerate(
            [(99.0, "PASS"), (98.0, "PASS"), (60.0, "FAIL"), (61.0, "FAIL")]
        )
    ]
    (trouble,) = collected(tmp_path, runs, 4).troubles
    assert trouble.repeats == "2 of 4 runs of this session passed"
    assert "51.2 x their cores" in trouble.cause and "storage" not in trouble.cause


def test_a_failure_quotes_the_probes_of_its_time(tmp_path, monkeypatch):
    monkeypatch.setenv("IOGAUGE_HOME", str(tmp_path / "home"))
    node = probe_lines.folder("site", "scratch") / "n7"
    ended = 1_767_661_200  # 2026-01-06 01:00 UTC
    for minutes in (40, 35, 30, 25):
        line = Line(
            time=ended - 60 * minutes, factors={"data": 3.0}, slow=("data",), write=1.0
        )
        probe_lines.append(node, line)
    probe_lines.append(node, Line(time=ended - 600, write=3.0))
    runs = [record(1, 60.0, "FAIL", time="2026-01-06T01:00:00Z")]
    (trouble,) = collected(tmp_path, runs, 1).troubles
    assert "slow between 2026-01-06 00:20 UTC and 2026-01-06 00:35 UTC" in trouble.cause
    assert "data 3.0 x the usual time; probe on n7" in trouble.cause


# Figures.


def test_the_page_tells_everything_and_fetches_nothing(tmp_path):
    bad = record(
        1, 60.0, "FAIL", case=f"IorPosix %files={NASTY}", reason=NASTY, partition="home"
    )
    both = [record(0), bad]
    text = page.page(collected(tmp_path, both, 2), both)
    assert "<script" not in text and "\x1b" not in text
    assert not re.findall(r'(?:href|src)="([^"]*)"', text)
    # A line of one run needs no figure.
    assert text.count('<svg class="iog') == 0
    for words in ("FAILED", "60.00 MiB/s", "at least 90.00", "&lt;script&gt;alert(1)"):
        assert words in text


def test_junit_calls_nothing_but_pass_a_pass():
    found = SessionRecords(record(k, verdict=v.value) for k, v in enumerate(Verdict))
    for gate in (False, True):
        (suite,) = ElementTree.fromstring(
            junit(found, gate, found.ending(gate)).encode()
        )
        told = [[child.tag for child in case] for case in suite]
        assert [not kind for kind in told] == [False] * 6 + [True]
        fails = sum(kind in (["failure"], ["error"]) for kind in told)
        assert fails == (6 if gate else 3)
