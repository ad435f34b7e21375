"""fio: options to job files, and its JSON (recorded and real) to values."""

import json
import re

import pytest

from iogauge.core.measurement import ToolOutput, ToolOutputError
from iogauge.tools.fio import fio_options
from iogauge.tools.fio.fio_output import (
    check_alone,
    parse_json,
    time_limit_s,
)
from support.project import SAMPLES

GOOD = [
    "fio_client_server.json.raw",
    "fio_two_servers.json",
    "fio_one_server.json",
    "fio_note.out",
    "fio_file.json",
    "fio_randread.json",
]


def sample(name):
    return (SAMPLES / name).read_text()


# --- recorded outputs -----------------------------------------------------------------------------


def test_random_read():
    output = parse_json(sample("fio_randread.json"))
    assert (output.tool, output.version, output.tasks, output.nodes) == (
        "fio",
        "3.33",
        2,
        1,
    )
    (phase,) = output.phases
    assert phase.name == "read"
    assert {k: (q.value, q.unit) for k, q in phase.rates.items()} == {
        "bw": (94959240 / 2**20, "MiB/s"),
        "iops": (23183.408296, "ops/s"),
        "latency_mean": (85869.604592 / 1e3, "us"),
        "latency_p50": (84480 / 1e3, "us"),
        "latency_p99": (144384 / 1e3, "us"),
        "latency_p999": (358400 / 1e3, "us"),
    }
    assert (phase.seconds, phase.bytes_moved, phase.operations) == (
        2.001,
        190013440,
        46390,
    )
    assert phase.transfer_bytes == 4096
    assert output.parameters["ioengine"] == "psync"
    assert output.parameters["direct"] == "1"
    assert output.parameters["engine"] == "psync"
    assert output.warnings == ()


@pytest.mark.parametrize(
    "told, seconds",
    [
        ({"runtime": "30s", "time_based": "1"}, 30.0),
        ({"runtime": "2500ms", "time_based": "1"}, 2.5),
        ({"runtime": "30s"}, None),
        ({"runtime": "30s", "time_based": "0"}, None),
        ({"time_based": "1"}, None),
    ],
)
def test_only_a_job_that_runs_for_a_time_is_told_its_seconds(told, seconds):
    assert time_limit_s(ToolOutput("fio", "3.33", (), parameters=told)) == seconds


def test_three_servers():
    output = parse_json(sample("fio_client_server.json.raw"))
    assert (output.version, output.nodes, output.tasks) == ("3.37", 3, 3)
    (phase,) = output.phases
    assert phase.rank_seconds == ()
    assert phase.bytes_moved == 1986056192
    assert phase.rates["bw"].value == 661137214 / 2**20
    assert phase.rates["latency_mean"].value == 73982.01784 / 1e3
    assert "latency_p99" not in phase.rates


def test_two_servers_of_one_host_are_one_node():
    output = parse_json(sample("fio_two_servers.json"))
    assert (output.nodes, output.tasks) == (1, 4)


def test_one_server_has_no_entry_for_all():
    output = parse_json(sample("fio_one_server.json"))
    assert (output.nodes, output.tasks) == (1, 2)
    assert output.phases[0].rates["latency_p99"].value == 2932.736


def test_creates_that_no_sample_of_the_latency_backs():
    """fio 3.28: it made 32 files once, and counted on without a system call until its time was over."""
    with pytest.raises(ToolOutputError, match="fio timed 1 of them: it counts"):
        parse_json(sample("fio_storm_328.json"))


@pytest.mark.parametrize(
    "said",
    [
        "fio: pid=19550, got signal=9",
        "<node7> fio: pid=19550, got signal=11",
        "fio: pid=19550 disappeared 7",
        "fio: job 'x' (state=5) hasn't exited in 300 seconds, it appears to be stuck. Doing forceful exit of this job.",
    ],
)
@pytest.mark.parametrize("where", ["before", "after"])
def test_a_process_that_was_lost_leaves_no_result(said, where):
    """fio 3.33 to 3.37 print this, no error in the results, and exit with status 0."""
    result = sample("fio_randread.json")
    with pytest.raises(
        ToolOutputError, match=f"lost a process.*{re.escape(said[:40])}"
    ):
        parse_json(f"{said}\n{result}" if where == "before" else f"{result}\n{said}\n")


@pytest.mark.parametrize(
    "name, message",
    [
        ("fio_enospc.out", r"job 'x' failed with errno 28"),
        ("fio_odirect_ramfs.out", r"job 'x' failed with errno 22"),
        ("fio_status.out", r"job 'x' failed with errno 110"),
        ("fio_nodir.out", r"0 fio JSON .*begins: fio: file:options\.c:1505"),
        ("fio_nogroup.json", r"several entries of one job: set group_reporting=1"),
    ],
)
def test_damaged_output(name, message):
    with pytest.raises(ToolOutputError, match=message):
        parse_json(sample(name))


@pytest.mark.parametrize(
    "old, new, message",
    [
        ('"bw" : 92733', '"bw" : 94959240', r"'bw' \(KiB/s\) gives 97238261760 B/s"),
        ('"bw_bytes" : 94959240', '"bw_bytes" : 92733', r"'bw_bytes' is 92733"),
        ('"bw_bytes" : 94959240', '"bw_bytes" : NaN', r"the number NaN"),
        ('"iops" : 23183', '"iops" : 13183', r"'iops' times the mean I/O size"),
        ('"runtime" : 2001', '"runtime" : 0', r"'runtime' is 0 ms"),
        ('"runtime" : 2001', '"runtime" : 4001', r"'io_bytes' over 'runtime'"),
        ('"total_ios" : 46390', '"total_ios" : 0', r"0 I/Os: nothing was measured"),
        ('"error" : 0', '"error" : 5', r"job 'rr' failed with errno 5"),
        ('"jobs" : [', '"job" : [', r"key 'jobs' is missing"),
    ],
)
def test_damage_by_hand(old, new, message):
    text = sample("fio_randread.json")
    assert old in text
    with pytest.raises(ToolOutputError, match=message):
        parse_json(text.replace(old, new, 1))


def test_a_server_that_is_missing():
    document = json.loads(sample("fio_client_server.json.raw"))
    del document["client_stats"][1]
    with pytest.raises(ToolOutputError, match="2 servers sum up to"):
        parse_json(json.dumps(document))
    document["client_stats"][0]["error"] = 111
    with pytest.raises(
        ToolOutputError, match=r"'rr' on 10\.77\.0\.1 failed with errno 111"
    ):
        parse_json(json.dumps(document))


def test_several_documents_or_none():
    with pytest.raises(ToolOutputError, match="2 fio JSON documents"):
        parse_json(sample("fio_file.json") * 2)
    with pytest.raises(ToolOutputError, match=r"0 fio JSON .*\(nothing\)"):
        parse_json("\n")


def test_short_ios_are_a_warning():
    text = sample("fio_randread.json").replace('"short_ios" : 0', '"short_ios" : 3', 1)
    assert parse_json(text).warnings == ("fio: 3 short I/Os",)


# --- properties of the parser ---------------------------------------------------------------------


@pytest.mark.parametrize("name", GOOD)
def test_every_truncation_is_refused(name):
    text = sample(name).rstrip()
    parse_json(text)
    for length in [*range(0, len(text), 29), len(text) - 1]:
        with pytest.raises(ToolOutputError):
            parse_json(text[:length])


# --- options --------------------------------------------------------------------------------------


def test_job_file():
    layout = fio_options.layout_job(file_bytes=4 * 2**30, numjobs=128)
    made = fio_options.reader_of(layout, block_bytes=32768, runtime_s=30)
    assert made.job_file() == (
        "[randread]\ndescription=${IOG_TOKEN}\ndirectory=${IOG_DIR}\nfilename_format=$clientuid.$jobnum.$filenum\nunique_filename=0\n"
        "ioengine=psync\nrw=randread\nbs=32k\nfilesize=4g\nnrfiles=1\nnumjobs=128\ngroup_reporting=1\n"
        "fallocate=none\ndisk_util=0\niodepth=1\ndirect=1\nrefill_buffers=1\nrandrepeat=0\ntime_based=1\n"
        "runtime=30s\nsync=1\nnorandommap=1\n"
    )
    assert made.bytes_total == 128 * 4 * 2**30


# --- the real program -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "before, after", [("\0" * 10_000, ""), ("hello\n", ""), ("", "\nmore")]
)
def test_what_another_program_wrote_into_fios_file_is_refused(before, after):
    text = before + sample("fio_file.json") + after
    with pytest.raises(ToolOutputError, match="which fio does not write"):
        check_alone(text)


@pytest.mark.parametrize("name", sorted(path.name for path in SAMPLES.glob("fio_*")))
def test_what_fio_writes_beside_its_json_is_accepted(name):
    check_alone(sample(name))
