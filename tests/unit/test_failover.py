"""What clients report of a failure, and what a block is that was read afterwards."""

import json
import math
import os
import resource
import signal
import subprocess
import sys

import pytest

from e2e.rig import wait_for
from iogauge.cli.reporting import Asked
from iogauge.core.measurement import ToolOutputError
from iogauge.evidence.collect import stage_folder
from iogauge.plan.stage import SAYS
from iogauge.report.endings import SessionRecords
from iogauge_extras.loads import client_stream
from iogauge_extras.loads.blocks import BLOCK_BYTES, block, state_of
from iogauge_extras.loads.client_stream import (
    BATCH,
    CHECKED,
    WRITTEN,
    StreamPlan,
    Written,
)
from iogauge_extras.loads.failover_check import parse_check, parse_stream
from iogauge_extras.page import news, page
from support import records

MIB = 1 << 20
#: 40 steps of half a second: 100 MiB/s, nothing from 5 to 10 s, half of it to 13 s, and 98 MiB/s.
STEPS = [50] * 10 + [0] * 10 + [25] * 6 + [49] * 14


def report(host="n1", steps=STEPS, **change):
    values = {
        "words": ["failover", "write", "/t", "stream.json"],
        "host": host,
        "owner": "t n1",
        "seconds": 20.0,
        "acknowledged": [2] * 8 + [1] * 4,
        "created": 20,
        "bytes": 20 * MIB,
        "steps": [step * MIB for step in steps],
        "gap": [5.0, 5.5],
        "errors": [],
        "marks": [5.0, 10.0, 0],
    }
    return {f"{host}.json": json.dumps(values | change)}


def values_of(texts, clients=1):
    output = parse_stream(texts, clients)
    rates = output.phases[0].rates
    return {name: quantity.value for name, quantity in rates.items()}, output


def test_figures_of_a_failure():
    found, output = values_of(report())
    assert found == pytest.approx(
        {
            "outage_s": 5.5,
            "outage_median_s": 5.5,
            "recovery_s": 8.0,
            "succeeded": 1.0,
            "before_bw": 100.0,
            "meanwhile_bw": 1e-6,
            "rebuild_bw": pytest.approx(66 + 2 / 3, 0.2),
            "after_bw": 98.0,
        }
    )
    assert output.phases[0].bytes_moved == 20 * MIB
    assert output.parameters["marks"] == {
        "fails": 5.0,
        "mended": 10.0,
        "as before": 13.0,
    }
    assert not output.unsettled


@pytest.mark.parametrize(
    ("rounds", "shown"), [([{"0": 100.0, "0.5": 2.0}], 1), ([{"n1": 1.0}], 0)]
)
def test_the_page_shows_the_bandwidth_over_time_with_its_marks(tmp_path, rounds, shown):
    bandwidth = records.metric("before_bw", rounds=rounds)
    outage = records.metric(
        "outage_s", "UNREFERENCED", unit="s", rounds=[{"fails": 0.5}]
    )
    made = records.record(metrics=[bandwidth, outage])
    alarm = news.collect(tmp_path, Asked(SessionRecords([made])), gate=False)
    assert page.page(alarm, [made]).count("fails, 0.5 s") == shown


def test_the_longest_of_all_clients_counts():
    quick = report("n2", gap=[5.0, 1.0], marks=None, errors=["EIO", "EIO"])
    slow = report("n3", gap=[5.5, 7.0], marks=None)
    found, output = values_of(report() | quick | slow, 3)
    assert (found["outage_s"], found["outage_median_s"]) == (7.0, 5.5)
    assert found["before_bw"] == pytest.approx(300)
    calls = 3 * (sum(STEPS) + 20)
    assert found["succeeded"] == pytest.approx(calls / (calls + 2))
    assert output.notes["succeeded"] == "2 error(s) seen by programs; n2: EIO"
    assert output.notes["outage_s"].startswith("on n3, after 5.5 s")


def test_without_a_command_the_outage_is_the_failure():
    found, _ = values_of(report(marks=None, gap=[5.0, 5.0]))
    assert found["recovery_s"] == 8.0
    assert found["meanwhile_bw"] == pytest.approx(1e-6)


def test_what_does_not_come_back_is_open():
    _, output = values_of(report(steps=STEPS[:26] + [30] * 14))
    left_open = output.unsettled["recovery_s"]
    assert left_open.value == math.inf
    assert "not 95% of 100 MiB/s again within 15 s" in left_open.why
    assert output.unsettled.keys() == {"recovery_s", "rebuild_bw", "after_bw"}


IDLE = report(marks=None, gap=[3.0, 0.4])


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({}, "reports of 0 client"),
        (report(), "reports of 1 client"),
        ({"n1.json": report()["n1.json"][:-9]} | report("n2"), "damaged"),
        (report(marks=[5.0, 6.0, 3]) | report("n2"), "ended with status 3"),
        (IDLE | report("n2", marks=None, gap=[2.0, 1.9]), "nothing was taken away"),
        (report(created="8") | report("n2"), "damaged"),
    ],
)
def test_reports_that_are_not_whole_are_refused(texts, words):
    with pytest.raises(ToolOutputError, match=words):
        parse_stream(texts, 2)


CONTENT = block("t n1", 3, 7)
TORN = CONTENT[: BLOCK_BYTES // 2] + block("t n1", 3, 6)[BLOCK_BYTES // 2 :]


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (CONTENT, "right"),
        (block("t n1", 3, 8), "right"),
        (block("t n1", 3, 6), "old"),
        (block("t n2", 3, 7), "foreign"),
        (block("u n1", 3, 7), "foreign"),
        (block("t n1", 4, 7), "foreign"),
        (bytes(BLOCK_BYTES), "lost"),
        (b"", "lost"),
        (CONTENT[:-1], "damaged"),
        (TORN, "damaged"),
        (CONTENT[:-4096] + bytes(4096), "damaged"),
        (os.urandom(BLOCK_BYTES), "damaged"),
    ],
)
def test_what_a_block_is(found, state):
    assert state_of(found, "t n1", 3, 7) == state


WRITE = ["write", "target", "stream.json"]


def planned(folder, **change):
    """Make a target, and the plan of a stream on it."""
    (folder / "target").mkdir()
    plan = {"seconds": 2.0, "after": 1.0, "blocks": 8, "files": 80, "command": "true"}
    (folder / "stream.json").write_text(json.dumps(plan | change))


def write(folder, **change):
    """Let a stream run, in the stage directory; return its reports."""
    planned(folder, **change)
    client_stream.command(WRITE)
    return stage_folder(folder / WRITTEN)


@pytest.fixture
def stream(tmp_path, monkeypatch):
    """Two seconds of a stream on this file system; returns what a check of it finds."""
    monkeypatch.chdir(tmp_path)
    (text,) = write(tmp_path).values()
    written = Written.from_json(json.loads(text))

    def check():
        client_stream.command(["check", "target"])
        return stage_folder(tmp_path / CHECKED)

    return written, tmp_path / "target", check


def test_a_stream_and_its_check(stream):
    written, target, check = stream
    # The second part was begun when the failure did.
    assert all(written.acknowledged[::8][:2]) and not any(written.acknowledged[16:])
    assert written.bytes == sum(written.steps) >= 12 * BLOCK_BYTES
    assert written.marks[2] == 0
    output = parse_check(check(), 1)
    assert output.phases[0].rates["intact"].value == 1
    assert output.parameters["shift"] == 0
    assert output.warnings == ()
    # A block that went back to zeros, and a file that went.
    with open(target / f"{written.host}.data", "r+b") as data:
        data.write(bytes(BLOCK_BYTES))
    (target / written.host / "2").unlink()
    output = parse_check(check(), 1)
    (warning,) = output.warnings
    assert warning.endswith("block 0 is lost, file 2 is lost")
    assert 0 < output.phases[0].rates["intact"].value < 1


def test_a_block_of_which_write_took_a_part_is_not_acknowledged(tmp_path):
    """The last block of a batch: no later write meets the limit. What was there before may be torn now, and is not checked."""
    plan = StreamPlan(seconds=2.0, after=1.0, blocks=8, files=80, command="")
    client = client_stream._Client(str(tmp_path), plan)
    client.write()
    client.next = 0
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (BATCH * BLOCK_BYTES - 4096, before[1]))
    try:
        with pytest.raises(OSError, match="block 3: write took"):
            client.write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not any(client.acknowledged)


def test_without_a_command_somebody_is_asked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, seconds=0.5, after=0.1, command="")
    assert (tmp_path / SAYS).read_text() == "pull it now, and bring it back"


def test_a_command_that_outlives_the_streams_is_an_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reports = write(tmp_path, seconds=1.0, after=0.1, command="sleep 3")
    with pytest.raises(ToolOutputError, match="may run still"):
        parse_stream(reports, 1)


def test_a_command_brings_back_what_it_took_although_the_job_is_ended(tmp_path):
    """An interrupted session once left the network of a client of Lustre down: its command had died half-way."""
    down, back = tmp_path / "down", tmp_path / "back"
    planned(tmp_path, after=0.1, command=f"touch {down}; sleep 1; touch {back}")
    program = f"from {client_stream.__name__} import command; command({WRITE})"
    job = subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path, start_new_session=True
    )
    wait_for(down.exists, 20, "the failure")
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()
    assert not back.exists()
    wait_for(back.exists, 20, "the end of the command")
