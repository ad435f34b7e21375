"""The servers' counters: what lctl and exporters print, who is asked how, what a dip was, and what the record keeps."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from iogauge.plan import observations
from iogauge.plan.observations import SERVERS, NodeObservations, Observation
from iogauge.plan.stage import PhaseRun
from iogauge_extras.loads.servers import ask, explain, for_record, looks_of, parse
from iogauge_extras.page import charts, sweeps
from support.records import record
from support.web import served

SAMPLES = Path(__file__).parents[1] / "data" / "samples"
MIB = 1 << 20
RUN = PhaseRun(1, "write", 0, 100.0, 160.0, "t")
#: As lustrefs-exporter 0.14 and lustre_exporter 2.1 print; an older one has the label ``ost``.
EXPORTED = """# HELP lustre_write_bytes_total The total number of bytes that have been written.
# TYPE lustre_write_bytes_total counter
lustre_write_bytes_total{component="ost",operation="write",target="rig-OST0000",otel_scope_name="lustre"} 4971114377425
lustre_read_bytes_total{component="ost",target="rig-OST0000"} 1.048576e+06
lustre_read_bytes_total{ost="rig-OST0001"} 3
lustre_read_bytes_total{component="client",target="rig-ffff88105db50000"} 7
lustre_job_write_bytes_total{component="ost",jobid="334",target="rig-OST0000"} 2.08901812224e+11
lustre_stats_total{component="mdt",operation="close",target="rig-MDT0000",otel_scope_name="lustre"} 7632
lustre_stats_total{component="mdt",operation="rename",target="rig-MDT0000",otel_scope_name="lustre"} 10
lustre_stats_total{component="mdt",operation="samedir_rename",target="rig-MDT0000",otel_scope_name="lustre"} 10
lustre_io_time_milliseconds_total{component="ost",operation="write",size="1024",target="rig-OST0000",otel_scope_name="lustre"} 4
lustre_io_time_milliseconds_total{component="ost",operation="read",size="2",target="rig-OST0000"} 10
lustre_stats_total{component="ost",operation="statfs",target="rig-OST0000"} 314187
"""


def test_lctl_of_a_server_tells_each_target():
    found = parse((SAMPLES / "lctl_servers_2.17.0.txt").read_text(encoding="utf-8"))
    assert sorted(found) == [
        *(f"rig-MDT000{n}" for n in range(2)),
        *(f"rig-OST000{n}" for n in range(4)),
    ]
    assert found["rig-OST0002"] == (8890215547, 7094, 27664)
    text = "mdt.rig-MDT0000.md_stats=\nopen 84 samples [usecs] 228 90545 244584 9631\nread_bytes 1 samples [bytes] 9 9 9 81\n"
    text += "rename 5 samples [reqs]\nsamedir_rename 5 samples [reqs]\nparallel_rename_dir 5 samples [reqs]\n"
    assert parse(text) == {"rig-MDT0000": (9, 89, 0)}


def test_exporters_tell_each_target():
    assert parse(EXPORTED) == {
        "rig-OST0000": (4971114377425 + 1048576, 14, 2 * 10 + 1024 * 4),
        "rig-OST0001": (3, 0, 0),
        "rig-MDT0000": (0, 7642, 0),
    }
    with pytest.raises(ValueError, match="no counters"):
        parse("<html>It works!</html>")


@pytest.fixture
def exporter():
    """An exporter that counts on by a MiB with each question."""

    def answer(number, path):
        text = f'lustre_write_bytes_total{{target="rig-OST0000"}} {number * MIB}\n'
        return 200 if path == "/metrics" else 404, {}, text

    with served(answer) as server:
        yield server.url


def test_an_exporter_is_asked(exporter):
    assert ask(f"{exporter}/metrics") == {"rig-OST0000": (MIB, 0, 0)}
    with pytest.raises(OSError, match="404"):
        ask(f"{exporter}/other")
    with pytest.raises(OSError, match="refused"):
        ask("http://127.0.0.1:9/metrics")


def test_they_are_asked_beside_the_agent_and_no_longer(exporter, tmp_path):
    code = """
import sys, time
from iogauge.core import processes, registry
from iogauge.job.agent import main
processes.beside(lambda: main(["servers", "rig", *sys.argv[1:]]))
print(flush=True)
sys.stdin.read()
"""
    words = [
        sys.executable,
        "-c",
        code,
        f"{exporter}/metrics",
        "http://127.0.0.1:9/metrics",
    ]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, cwd=tmp_path, **pipes) as agent:
        deadline = time.monotonic() + 60
        while (
            len([*observations.read(tmp_path).each(SERVERS)]) < 3
            and time.monotonic() < deadline
        ):
            time.sleep(0.1)
        children = (
            Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
        )
        agent.communicate()
    looks, problems = looks_of(observations.read(tmp_path))
    assert [count.bytes for _, count in looks["rig-OST0000"][:2]] == [MIB, 2 * MIB]
    assert list(problems) == ["http://127.0.0.1:9/metrics"]
    assert children
    while any(os.path.exists(f"/proc/{child}") for child in children):
        assert time.monotonic() < deadline, "it goes on without the agent"
        time.sleep(0.1)


def counted(rates, step=5, ms=None):
    """What was noted from 95 s on, of targets with these MiB/s in each step; in the dip an I/O of 1 MiB takes the disks ``ms``."""
    sums = {target: [0, 0, 0] for target in rates}
    notes = []
    for n in range(len(next(iter(rates.values()))) + 1):
        notes.append(
            Observation(
                95.0 + n * step, SERVERS, ["lctl", "", json.loads(json.dumps(sums))]
            )
        )
        for target, of in rates.items():
            if n < len(of):
                moved = of[n] * step
                slow = (ms or {}).get(target, 4.0) if 6 <= n <= 8 else 4.0
                for place, more in enumerate((moved * MIB, moved, moved * slow)):
                    sums[target][place] += int(more)
    return NodeObservations({"n1": notes})


def told(noted):
    return explain(looks_of(noted)[0], 126.0, 138.0, RUN, 1795000000.0)


def test_a_target_that_fell_is_named_and_nobody_else():
    steady = [60.0] * 14
    rates = {f"rig-OST000{n}": steady for n in range(3)} | {
        "rig-OST0007": [0.0] * 14,
        "rig-MDT0000": steady,
    }
    rates["rig-OST0002"] = [60.0] * 6 + [3.0] * 3 + [60.0] * 5
    assert told(counted(rates)) == (
        "the servers counted from 11:08:45 to 11:09:00 UTC: rig-OST0002 moved 3.000 MiB/s, 60.00 MiB/s at other times; "
        "the 2 other(s) 60.00 MiB/s, 60.00 MiB/s at other times"
    )


def test_if_all_wait_for_one_its_disks_tell():
    fell = [60.0] * 6 + [3.0] * 3 + [60.0] * 5
    rates = {f"rig-OST000{n}": fell for n in range(4)}
    alike = "the 3 other(s) 3.000 MiB/s, 60.00 MiB/s at other times"
    assert told(counted(rates)).endswith(alike)
    slow = told(counted(rates, ms={"rig-OST0001": 900.0}))
    assert slow.endswith(
        f"{alike}; an I/O took the disks of rig-OST0001 about 900 ms, the others 4 ms"
    )


def test_if_none_fell_others_may_have_used_them():
    rates = {f"rig-OST000{n}": [60.0] * 14 for n in range(4)}
    assert told(counted(rates)).endswith(
        "the 3 other(s) 60.00 MiB/s, 60.00 MiB/s at other times"
    )
    assert told(NodeObservations({})) == ""


def test_a_target_that_began_anew_is_left_out():
    notes = [
        Observation(at, SERVERS, ["lctl", "", {"rig-OST0000": [count, 0, 0]}])
        for at, count in ((95.0, 9 * MIB), (170.0, 1))
    ]
    assert told(NodeObservations({"n1": notes})) == ""
    assert for_record(NodeObservations({"n1": notes}), [RUN]) == {}


def test_the_record_keeps_a_rate_for_each_step():
    rates = {
        "rig-OST0000": [60.0] * 14,
        "rig-OST0001": [0.0] * 14,
        "rig-MDT0000": [8.0] * 14,
    }
    silent = Observation(99.0, SERVERS, ["http://oss2/metrics", "refused", {}])
    noted = counted(rates)
    found = for_record(
        NodeObservations({"n1": [*noted.notes["n1"], silent]}),
        [RUN, PhaseRun(2, "write", 0, 400.0, 460.0, "t")],
    )
    assert found["unanswered"] == {"http://oss2/metrics": "refused"}
    assert list(found) == ["write.1", "unanswered"]
    assert sorted(found["write.1"]) == ["rig-MDT0000", "rig-OST0000"]
    assert found["write.1"]["rig-OST0000"][:2] == [(2.5, 60.0), (7.5, 60.0)]
    assert {rate for _, rate in found["write.1"]["rig-MDT0000"]} == {8.0}
    figure = ElementTree.fromstring(charts.over_time("t", found["write.1"], "MiB/s"))
    lines = [one.get("class") for one in figure.iter() if one.tag.endswith("polyline")]
    assert lines == ["trace c0", "trace c1"]
    ((title, unit, curves, caption), metadata) = sweeps.of_servers(
        record(servers=found)
    )
    assert (unit, metadata[1], list(curves)) == ("MiB/s", "ops/s", ["rig-OST0000"])
    assert "write.1: OSTs of" in title
    assert (
        caption
        == "counted by the servers, for all clients; a rate is that of 5.0 s; refused"
    )
