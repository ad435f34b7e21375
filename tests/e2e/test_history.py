"""What is kept of runs and made of it: history, trend, references, derived figures; and a state directory that takes no more."""

import gzip
import json
import math
import random
import re
import statistics
import subprocess
import time
from datetime import datetime, timedelta, timezone

import pytest
import yaml

from e2e.rig import GENEROUS, RANDOM_READ, ROOT, Run, command, flat, mounted
from iogauge.records import journal
from iogauge.workspace import directory
from iogauge_extras.history.states import BASELINE
from support import programs, records
from support.records import METRIC, RECORD, append


@pytest.fixture
def rig(make_rig):
    rig = make_rig()
    rig.write_references(GENEROUS)
    return rig


def stored(rig, name, **change):
    """Append a record as a case leaves it."""
    file = rig.home / "history" / "rig" / f"{name}.jsonl"
    plain = {key: value for key, value in RECORD.items() if key != "schema"}
    append(file, plain | {"session": name, "system": "rig", **change})
    return file


def test_history_shows_the_newest_first_and_what_is_asked_for(rig):
    reads = {**METRIC, "name": "read_iops"}
    known = {"check": "FioRandomRead", "case": "FioRandomRead 128KiB"}
    stored(rig, "first", **known, time="2027-01-30T12:00:00Z", metrics=[reads])
    unknown = reads | {"verdict": "UNREFERENCED", "reference": None}
    stored(rig, "second", **known, verdict="UNREFERENCED", metrics=[unknown])
    run = rig.iogauge("history")
    assert run.rc == 0 and "2 of 2 record(s)" in flat(run.out), run.out
    rows = [line for line in run.out.splitlines() if "read_iops" in line]
    assert ["UNREFERENCED" in row for row in rows] == [True, False]
    assert "PASS" in rows[1]
    for options, count in (
        (["--verdict", "pass"], 1),
        (["-n", "^FioRandom"], 2),
        (["--metric", "write_bw"], 0),
        (["--limit", "1"], 1),
        (["--until", "1h"], 0),
    ):
        run = rig.iogauge("history", "--json", *options)
        assert (run.rc, len(run.out.splitlines())) == (0, count), run.out
    slip = rig.iogauge("history", "--system", "elsewhere")
    assert slip.rc == 2 and "no site 'elsewhere'; known: rig" in flat(slip.out), (
        slip.out
    )


def test_a_line_that_is_no_record_may_have_been_a_failure(rig):
    """Neither the report nor the alarm of its session ends well; the history names the line."""
    stored(rig, "good", verdict="PASS", findings=[])
    file = stored(rig, "bad", verdict="FAIL", findings=[], metrics=[{"median": "x"}])
    assert rig.iogauge("report", "good").rc == rig.iogauge("alarm", "good").rc == 0
    report, alarm = rig.iogauge("report", "bad"), rig.iogauge("alarm", "bad")
    assert report.rc == alarm.rc == 1, (report.out, alarm.out)
    # A long path is broken at the end of a line.
    assert f"{file}:1:skipped" in "".join(report.out.split())
    assert "line 1 is no record" in flat(alarm.out)
    assert rig.iogauge("history", "--damaged").out.startswith(f"{file}:1: ")


# --- a hundred real runs of IOR and fio, in the middle of which the storage got slower ---------------

#: The records that benchmarks/real_series.py left, whole and unchanged.
FILE = ROOT / "tests" / "data" / "history" / "real_series.jsonl.gz"
#: Runs at 40 MiB/s, then at 34, then at 40 again.
HEALTHY, SLOW, AGAIN = 72, 18, 10


def test_trend_finds_the_slowdown_by_name_and_its_end(rig):
    found = {}
    for line in gzip.decompress(FILE.read_bytes()).decode().splitlines():
        found.setdefault(json.loads(line)["session"], []).append(line)
    names = sorted(found)
    assert len(names) == HEALTHY + SLOW + AGAIN
    folder = rig.home / "history" / "capped"
    folder.mkdir(parents=True)

    def median(sessions, row):
        records = [json.loads(line) for name in sessions for line in found[name]]
        return statistics.median(
            one["median"]
            for record in records
            if record["case"] == row["case"]
            for one in record["metrics"]
            if one["name"] == row["metric"]
        )

    begin = 0
    for end, expected in (
        (HEALTHY, {"steady", "recovered"}),
        (HEALTHY + SLOW, {"alarm"}),
        (len(names), {"recovered"}),
    ):
        for name in names[begin:end]:
            (folder / f"{name}.jsonl").write_text("\n".join(found[name]) + "\n")
        begin = end
        run = rig.iogauge("status", "--trend", "--json")
        slow = expected == {"alarm"}
        assert run.rc == slow, run.out
        rows = json.loads(run.out)
        assert len(rows) == 4
        for row in rows:
            assert row["state"] in expected and row["baseline"] == BASELINE, row
            if slow:
                change = row["change"]
                assert abs(names.index(change["session"]) - HEALTHY) <= 2, row
                lost = (
                    median(names[HEALTHY:end], row) / median(names[:HEALTHY], row) - 1
                )
                assert change["share"] == pytest.approx(lost, abs=0.03), row


# --- references -------------------------------------------------------------------------------------

#: Factors of a calm month: 30 runs with a spread of about 3 %, in no order.
CALM = [math.exp(0.04 * math.sin(2.4 * (n + 1) ** 2)) for n in range(30)]
START = datetime(2026, 9, 1, tzinfo=timezone.utc)


@pytest.mark.needs_fio
def test_a_month_of_runs_becomes_a_reference_that_the_next_run_is_judged_by(rig):
    rig.write_references("# made by hand\n")
    real = rig.run(*RANDOM_READ).record
    assert real["verdict"] == "UNREFERENCED"
    for old in (rig.home / "history" / "rig").glob("*.jsonl"):
        old.unlink()
    for day, factor in enumerate(CALM):
        # Other tests may have more work than this machine has cores.
        record = {**json.loads(json.dumps(real)), "busy": None}
        when = START + timedelta(days=day)
        record |= {
            "session": f"{when:%Y%m%d}-test-1",
            "time": f"{when:%Y-%m-%dT%H:%M:%SZ}",
        }
        for metric in record["metrics"]:
            metric["samples"] = [sample * factor for sample in metric["samples"]]
            metric["median"] *= factor
        append(rig.home / "history" / "rig" / f"{record['session']}.jsonl", record)
    shown = rig.iogauge("calibrate")
    assert shown.rc == 0 and re.search(r"^\+  rig:default:$", shown.out, re.M), (
        shown.out
    )
    assert (rig.site / "references.yaml").read_text() == "# made by hand\n"
    written = rig.iogauge("calibrate", "--system", "rig", "-n", "RandomRead", "--write")
    assert written.rc == 0, written.out
    text = (rig.site / "references.yaml").read_text()
    assert text.startswith("# made by hand\n")
    entry = yaml.safe_load(text)["FioRandomRead"]["rig:default"]["128KiB"]
    for metric in real["metrics"]:
        value, lower, upper, unit = entry[metric["name"]]
        assert value == pytest.approx(metric["median"], rel=0.03)
        assert (unit, upper) == (metric["unit"], None) and -0.3 < lower < -0.03
    assert "nothing to change" in rig.iogauge("calibrate").out
    assert rig.iogauge("check").rc == 0
    run = rig.run(*RANDOM_READ)
    for metric in run.record["metrics"]:
        used = metric["reference"]
        assert [used["value"], used["lower"]] == entry[metric["name"]][:2]
        assert used["source"] == "calibrated by iogauge from records of this site"


# --- a state directory that is full or read-only ----------------------------------------------------

#: Fills what a directory lies on to the last byte, once fio has done its work.
FILL = (
    '"$real" "$@"; rc=$?; '
    # A large write is made whole or not at all; small ones take the rest.
    'for size in 128k 512; do dd if=/dev/zero bs=$size >>"{place}/filler" 2>/dev/null; done; exit $rc'
)


@pytest.fixture
def place(rig):
    """A small file system at the directory of the history, with a record from before."""
    with mounted(rig.home / "history", "tmpfs", 16 << 20, options=",mode=755") as point:
        stored(rig, "20260131T120000-n1-1", verdict="FAIL")
        yield point


def again(rig):
    """The literal command; what was recorded before stays."""
    return rig.finish(rig.start(command(*RANDOM_READ)))


def verdicts(rig):
    """Verdicts of all records that can be read."""
    files = sorted((rig.home / "history").rglob("*.jsonl"))
    found = [record for file in files for record in journal.read(file)]
    return [record["verdict"] for record in found if isinstance(record, dict)]


@pytest.mark.needs_loop
@pytest.mark.needs_fio
def test_a_case_that_cannot_be_recorded_does_not_pass(rig, place):
    rig.program("fio", FILL.format(place=place))
    found = again(rig)
    found.never_passed(
        "a record was not written: No space left on device", re.escape(str(place))
    )
    # With room again, everything that was recorded is there, and new cases join it.
    (place / "filler").unlink()
    (rig.bin / "fio").unlink()
    assert again(rig).rc == 0
    assert verdicts(rig) == ["FAIL", "PASS"]
    subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True, timeout=600)
    found = again(rig)
    assert found.rc != 0 and "Read-only file system" in found.out, found.out
    rig.assert_clean()


# --- what follows from records of other cases  ----------------------------------------------------


#: Bandwidth in MiB/s by tasks on each of four nodes: the plateau that RedLine published for four servers.
WRITES = {
    1: 806.25,
    2: 1612.5,
    4: 3225.0,
    8: 6450.0,
    16: 12900.0,
    24: 12850.0,
    32: 12800.0,
}
READS = {
    1: 781.25,
    2: 1562.5,
    4: 3125.0,
    8: 6250.0,
    16: 12500.0,
    24: 12400.0,
    32: 12450.0,
}
CURVE = {
    "write_plateau": [12900, -0.05, None, "MiB/s"],
    "read_plateau": [12500, -0.05, None, "MiB/s"],
    "write_linearity": [0.85, 0, None, "1"],
    "read_linearity": [0.85, 0, None, "1"],
    "write_hold": [0.95, 0, None, "1"],
    "read_hold": [0.95, 0, None, "1"],
}


def stamp(age_s):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - age_s))


def record_of(check, parameters, medians_of, verdict="PASS", age_s=3600, **change):
    """A record as a measuring case leaves it, with one verdict on all metrics."""
    name = " ".join([check, *(f"%{key}={value}" for key, value in parameters.items())])
    plain = {
        "time": stamp(age_s),
        "system": "rig",
        "partition": "default",
        "environment": "tools",
        "check": check,
        "case": name,
        "tier": "quick",
        "nodes": 4,
        "tasks_per_node": 16,
        "parameters": dict(parameters),
        "metrics": [
            records.metric(
                metric,
                verdict,
                unit="MiB/s" if metric.endswith("bw") else "ops/s",
                median=value,
                reference=None,
            )
            for metric, value in medians_of.items()
        ],
    }
    return records.values(verdict, **plain | change)


def task_scaling(tasks, verdict="PASS", age_s=3600, name="TaskScaling", **change):
    values = {"write_bw": WRITES[tasks], "read_bw": READS[tasks]}
    change["tasks_per_node"] = tasks
    return record_of(name, {"tasks": tasks}, values, verdict, age_s, **change)


def keep(swept, *records, session="20260101T000000-host-1"):
    file = swept.home / "history" / "rig" / f"{session}.jsonl"
    for one in records:
        append(file, {**one, "session": session})
    return file


def derive(swept, *arguments, gate=False):
    """``reframe -c checks/ -r -t derived`` over the records that the rig has; of them, the new ones.

    The ratios of access patterns, which every site has, only where an argument names them.
    """
    if not any("AccessRatios" in word for word in arguments):
        arguments = (*arguments, "-x", "^AccessRatios")
    extra = {"IOGAUGE_GATE": "1"} if gate else {}
    words = ["reframe", "-c", "checks/", "-r", "-t", "derived", *arguments]
    process = swept.start(words, IOGAUGE_SESSION="now", **extra)
    out, _ = process.communicate(timeout=600)
    file = swept.home / "history" / "rig" / "now.jsonl"
    found = (
        [r for r in journal.read(file) if isinstance(r, dict)] if file.exists() else []
    )
    file.unlink(missing_ok=True)
    reports = sorted(
        (swept.home / "reports").glob("*.json"), key=lambda f: f.stat().st_mtime_ns
    )
    report = json.loads(reports[-1].read_text()) if reports else None
    return Run(
        process.returncode,
        re.sub(r"\x1b\[[0-9;]*m", "", out),
        found,
        report,
        swept.stage,
    )


def medians_of(one):
    return {metric["name"]: metric["median"] for metric in one["metrics"]}


@pytest.fixture
def swept(make_rig):
    """A site with a sweep over tasks, and references as RedLine's plateau demands."""
    swept = make_rig(tools=("ior",), launcher="local")
    swept.declare(sweeps={"tasks_per_node": list(WRITES)})
    swept.write_references({"TaskScalingCurve": CURVE})
    return swept


def test_a_curve_that_meets_its_references_passes_a_gate(swept):
    keep(swept, *(task_scaling(tasks) for tasks in WRITES))
    run = derive(swept, gate=True)
    assert run.rc == 0, run.out
    assert run.record["verdict"] == "PASS"
    assert len(re.findall(r"\[ +OK *\]", run.out)) == 1
    assert medians_of(run.record) == pytest.approx(
        {
            "write_plateau": 12900,
            "read_plateau": 12500,
            "write_linearity": 1,
            "read_linearity": 1,
            "write_hold": 12800 / 12900,
            "read_hold": 12400 / 12500,
        }
    )
    by_name = {metric["name"]: metric for metric in run.record["metrics"]}
    assert [
        (point["x"], point["value"], point["case"], point["session"])
        for point in by_name["read_hold"]["derived_from"]
    ] == [
        (16, 12500.0, "TaskScaling %tasks=16", "20260101T000000-host-1"),
        (24, 12400.0, "TaskScaling %tasks=24", "20260101T000000-host-1"),
    ]
    value, reference, *_ = run.cases[0]["perfvalues"]["rig:default:write_plateau"]
    assert (value, reference) == (12900, 12900)
    assert (swept.leftovers(), run.record["parameters"]) == ([], {})


def test_what_does_not_hold_beyond_saturation_fails_by_name(swept):
    keep(swept, *(task_scaling(tasks) for tasks in list(WRITES)[:-1]))
    low = task_scaling(32)
    low["metrics"][0]["median"] = 0.94 * WRITES[16]
    keep(swept, low)
    run = derive(swept)
    run.never_passed(r"write_hold=0\.94", "expected 0.95")
    assert run.record["verdict"] == "FAIL"
    assert [m["name"] for m in run.record["metrics"] if m["verdict"] == "FAIL"] == [
        "write_hold"
    ]


def test_before_anything_was_measured_it_names_what_to_run(swept):
    run = derive(swept)
    run.shows_no_pass()
    assert (run.rc, run.record["metrics"]) == (0, []), run.out
    assert run.record["verdict"] == "UNREFERENCED"
    for text in (
        "tasks=1 (not measured)",
        "Run first: reframe -c checks/ -r -n '^TaskScaling",
    ):
        assert text in run.out
    assert derive(swept, gate=True).rc == 1


# --- what benchmarks/kills.py demands of records  -------------------------------------------------


@pytest.fixture(scope="module")
def session(make_module_rig):
    """What ReFrame printed of a real session of two cases, and its file of records."""
    rig = make_module_rig(limits={"case_bytes": "16 MiB"})
    run = rig.run("-n", "FioRandomRead%block=4KiB", "-n", "FioRandomRead%block=32KiB")
    (file,) = (rig.home / "history").rglob("*.jsonl")
    return run.out, file.read_bytes()


def first(text):
    return text[: text.index(b"\n") + 1]


@pytest.mark.needs_fio
@pytest.mark.parametrize(
    ("words", "planted", "told"),
    [
        ("", lambda text: text, None),
        ("", first, "ended and not recorded"),
        ("", lambda text: text + first(text), "recorded twice"),
        (
            "",
            lambda text: re.sub(
                rb'"verdict":"\w+"', b'"verdict":"PASS"', text, count=1
            ),
            "recorded as PASS, ended with (SKIP|FAIL)",
        ),
        ("", lambda text: text[:-10], "damaged"),
        ("[     DONE ] (", lambda text: text, "2 cases ended, 0 were read"),
    ],
)
def test_the_records_of_a_session(session, words, planted, told, tmp_path):
    kills = programs.load("kills")
    said, text = session
    # Words that the program does not know.
    said = re.sub(r"(?m)^\[ +\w+ +\] \(", words, said) if words else said
    (tmp_path / "session.jsonl").write_bytes(planted(text))
    records = kills.Records(tmp_path)
    if told is None:
        assert len(records.of_session(said, set())) == 2
        (tmp_path / "session.jsonl").write_bytes(text * 2)
        records.look()  # what is appended is no change
        told, text = "was rewritten", first(text)
        (tmp_path / "session.jsonl").write_bytes(text)
    with pytest.raises(kills.Broken, match=told):
        records.of_session(said, set())


@pytest.mark.needs_fio
def test_what_lies_on_the_target(tmp_path):
    """Of others it is as it was; of a session nothing is left after the janitor."""
    kills = programs.load("kills")
    worker = kills.Worker(tmp_path / "rig", tmp_path / "target", random.Random(1))
    worker.look("", set(), cleaned=True)
    left = worker.rig.target / "iogauge" / directory.user_name() / "session"
    left.mkdir()
    worker.look("", set(), cleaned=False)
    with pytest.raises(kills.Broken, match="left after iogauge clean"):
        worker.look("", set(), cleaned=True)
    (worker.rig.target / "data" / "file0").write_bytes(b"")
    with pytest.raises(kills.Broken, match="foreign, and not as it was"):
        worker.look("", set(), cleaned=False)
