"""What is kept of runs and made of it: history, trend, references; and a state directory that takes no more."""

import gzip
import json
import math
import re
import statistics
import subprocess
from contextlib import closing
from datetime import datetime, timedelta, timezone

import pytest
import yaml

from e2e.rig import GENEROUS, RANDOM_READ, ROOT, command, flat, mounted
from iogauge.records import journal, query
from iogauge.records.record import Record
from iogauge_extras.history.states import states_of
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
    shown = rig.iogauge("history").out
    assert f"{file}:1:skipped" in "".join(shown.split())


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
            if Record.from_json(record).line == row.line
            for one in record["metrics"]
            if one["name"] == row.metric
        )

    begin = 0
    for end, slow in (
        (HEALTHY, False),
        (HEALTHY + SLOW, True),
        (len(names), False),
    ):
        for name in names[begin:end]:
            (folder / f"{name}.jsonl").write_text("\n".join(found[name]) + "\n")
        begin = end
        with closing(query.connect(folder.parent)) as history:
            rows = states_of(history, query.Choice())
        assert len(rows) == 4
        for row in rows:
            assert not row.few and bool(row.change) is slow, row
            if row.change:
                assert abs(names.index(row.change.session) - HEALTHY) <= 2, row
                lost = (
                    median(names[HEALTHY:end], row) / median(names[:HEALTHY], row) - 1
                )
                assert row.change.share == pytest.approx(lost, abs=0.03), row
        run = rig.iogauge("status", "--since", "2020-01-01")
        assert (run.rc, "DRIFT" in flat(run.out)) == (slow, slow), run.out


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
    found = [entry for file in files for entry in journal.read_whole(file)]
    return [entry.verdict.value for entry in found if isinstance(entry, Record)]


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
