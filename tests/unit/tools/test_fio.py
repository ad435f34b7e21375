"""fio: options to job files, and its JSON (recorded and real) to values."""

import configparser
import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iogauge.core.measurement import Phase, Quantity, ToolOutput, ToolOutputError
from iogauge.tools.fio import options
from iogauge.tools.fio.options import FioJob, arguments
from iogauge.tools.fio.output import (
    check_alone,
    in_flight,
    parse_json,
    told_seconds,
)
from iogauge_extras.loads.two_jobs import disturbed_pair, parse_disturbed, side_by_side
from support.shell import completed

SAMPLES = Path(__file__).parents[2] / "data" / "samples"
GOOD = [
    *(
        "fio_client_server.json.raw",
        "fio_two_servers.json",
        "fio_one_server.json",
        "fio_note.out",
    ),
    *("fio_file.json", "fio_randread.json", "fio_filecreate.json", "fio_filestat.json"),
    "fio_filedelete.json",
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


def test_a_stream_beside_a_storm():
    output = parse_disturbed(
        sample("fio_disturbed.json"), "disturbed", "disturber", "write"
    )
    (phase,) = output.phases
    disturber = output.disturber
    assert disturber is not None
    assert (phase.name, phase.bytes_moved) == ("write", output.totals["write"])
    assert (disturber.phase.bytes_moved, disturber.lead_s) == (None, 1.0)
    assert disturber.phase.seconds == pytest.approx(phase.seconds + 2, abs=0.1)
    assert disturber.active == pytest.approx(1, abs=0.15)


def test_a_stream_beside_a_storm_on_another_node():
    texts = [sample(f"fio_apart_{name}.json") for name in ("measured", "disturber")]
    output = parse_disturbed(texts[0], "disturbed", "disturber", "write", texts[1])
    (phase,) = output.phases
    disturber = output.disturber
    assert disturber is not None
    assert (phase.name, phase.bytes_moved) == ("write", output.totals["write"])
    assert (output.tasks, output.nodes) == (4, 2)
    assert set(output.parameters["jobs"]) == {"disturbed", "disturber"}
    # Three seconds are asked for, and the dates are whole seconds.
    assert disturber.lead_s in (1.0, 2.0, 3.0)
    assert disturber.phase.seconds == pytest.approx(phase.seconds + 6, abs=0.2)
    assert disturber.active == pytest.approx(1, abs=0.25)
    late = re.sub(
        r'("timestamp" : )(\d+)', lambda m: f"{m[1]}{int(m[2]) + 4}", texts[1]
    )
    moved = parse_disturbed(texts[0], "disturbed", "disturber", "write", late).disturber
    # It begins after the measurement: G19 refuses it.
    assert moved.lead_s == disturber.lead_s - 4 < 0
    with pytest.raises(ToolOutputError, match="phases"):
        parse_disturbed(texts[0], "disturbed", "disturber", "write", texts[0])


def test_two_starts_say_when_a_disturber_began():
    output = parse_disturbed(
        sample("fio_disturbed_342.json"), "disturbed", "disturber", "write"
    )
    assert (output.version[:4], output.disturber.lead_s) == (
        "3.42",
        pytest.approx(0.849),
    )
    # One that begins after the measurement has no lead: G19 refuses it.
    late = parse_disturbed(
        sample("fio_disturbed_342.json"), "disturber", "disturbed", "create"
    )
    assert late.disturber.lead_s == pytest.approx(-0.849)


def test_requests_in_flight_are_those_of_all_processes_of_a_node():
    told = {
        "runtime": "30s",
        "time_based": "1",
        "direct": "1",
        "iodepth": "4",
        "numjobs": "8",
    }
    rates = {"iops": Quantity(1000, "ops/s"), "latency_mean": Quantity(31_000, "us")}
    phase = Phase("read", rates, 30.0)
    output = ToolOutput("fio", "3.33", (phase,), nodes=1, parameters=told)
    assert in_flight(output) == (pytest.approx(31), 32)
    assert in_flight(replace(output, nodes=2)) is None
    unknown = replace(phase, rates={"iops": rates["iops"]})
    assert in_flight(replace(output, phases=(unknown,))) is None
    both = replace(output, phases=(phase, replace(phase, name="write")))
    assert in_flight(both) is None
    assert in_flight(replace(both, at_once=True)) == (pytest.approx(62), 32)
    for change in ({"direct": "0"}, {"time_based": "0"}, {"iodepth": "4:8"}):
        assert in_flight(replace(output, parameters=told | change)) is None


@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        ({"runtime": "30s", "time_based": "1"}, 30.0),
        ({"runtime": "2500ms", "time_based": "1"}, 2.5),
        ({"runtime": "30s"}, None),
        ({"runtime": "30s", "time_based": "0"}, None),
        ({"time_based": "1"}, None),
    ],
)
def test_only_a_job_that_runs_for_a_time_is_told_its_seconds(told, seconds):
    assert told_seconds(ToolOutput("fio", "3.33", (), parameters=told)) == seconds


def test_two_loads_at_the_same_time():
    stream = replace(
        options.layout_job(directory="/t", file_bytes=2**20, numjobs=2),
        name="disturbed",
        runtime_s=30,
    )
    files = options.metadata_job("filecreate", directory="/t", files=10, runtime_s=30)
    storm = replace(files, name="disturber", endless=True)
    jobs = configparser.ConfigParser(allow_no_value=True, interpolation=None)
    jobs.read_string(side_by_side(*disturbed_pair(stream, storm, 1)))
    # The stream comes first, or it would not find the files of its layout job by their number.
    assert jobs.sections() == ["disturbed", "disturber"]
    assert (jobs["disturbed"]["startdelay"], jobs["disturbed"]["runtime"]) == (
        "1s",
        "30s",
    )
    assert jobs["disturber"]["runtime"] == "32s"
    assert jobs["disturber"]["unlink_each_loop"] == "1"
    # Without it fio adds both up.
    assert jobs["disturber"]["new_group"] == "1"
    turned = configparser.ConfigParser(allow_no_value=True, interpolation=None)
    turned.read_string(
        side_by_side(
            *disturbed_pair(
                replace(storm, name="disturbed"), replace(stream, name="disturber"), 1
            )
        )
    )
    assert turned.sections() == ["disturber", "disturbed"]
    assert turned["disturbed"]["startdelay"] == "1s"


def test_read_and_write_of_one_job():
    output = parse_json(sample("fio_note.out"))
    assert [phase.name for phase in output.phases] == ["read", "write"]
    assert output.phases[1].rates["bw"].value == 98304000 / 2**20
    assert output.warnings == ()


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


@pytest.mark.parametrize(
    ("name", "phase", "rate"),
    [
        ("fio_filecreate.json", "create", 54945.054945),
        ("fio_filestat.json", "stat", 588235.294118),
        ("fio_filedelete.json", "remove", 256410.25641),
    ],
)
def test_metadata(name, phase, rate):
    (found,) = parse_json(sample(name)).phases
    assert found.name == phase
    assert found.rates["rate"].value == rate
    percentiles = {"latency_p50", "latency_p99", "latency_p999"}
    assert set(found.rates) == {"rate", "latency_mean"} | percentiles
    assert (found.operations, found.bytes_moved) == (10000, None)


def test_creates_that_no_sample_of_the_latency_backs():
    """fio 3.28: it made 32 files once, and counted on without a system call until its time was over."""
    with pytest.raises(
        ToolOutputError, match=r"fio timed 1 of them: .* use 3[.]30 or newer"
    ):
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
    ("name", "message"),
    [
        ("fio_enospc.out", r"job 'x' failed with errno 28"),
        ("fio_odirect_ramfs.out", r"job 'x' failed with errno 22"),
        ("fio_status.out", r"job 'x' failed with errno 110"),
        ("fio_nodir.out", r"no fio JSON .*begins: fio: file:options\.c:1505"),
        ("fio_filestat_missing.json", r"job 'meta' failed with errno 2;"),
        ("fio_nogroup.json", r"several entries of one job: set group_reporting=1"),
    ],
)
def test_damaged_output(name, message):
    with pytest.raises(ToolOutputError, match=message):
        parse_json(sample(name))


@pytest.mark.parametrize(
    ("old", "new", "message"),
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


@pytest.mark.parametrize("name", ["filecreate", "filestat", "filedelete"])
def test_a_count_of_files_that_nobody_asked_for_is_refused(name):
    """All figures of an output three times too large agree with each other."""
    data = json.loads(sample(f"fio_{name}.json"))
    way = "read" if name == "filestat" else "write"
    for key in ("total_ios", "io_bytes", "bw", "bw_bytes", "iops"):
        data["jobs"][0][way][key] *= 3
    data["jobs"][0][way]["clat_ns"]["N"] *= 3
    with pytest.raises(ToolOutputError, match=r"operations; its options ask for \d+"):
        parse_json(json.dumps(data))


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
    with pytest.raises(ToolOutputError, match="fio wrote nothing"):
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


def job(**changes):
    fields = {
        "name": "x",
        "directory": "/t",
        "pattern": "read",
        "block_bytes": 4096,
        "file_bytes": 2**20,
    }
    return FioJob(**{**fields, **changes})


def test_job_file():
    layout = options.layout_job(directory="/d", file_bytes=4 * 2**30, numjobs=128)
    made = options.reader_of(layout, block_bytes=32768, runtime_s=30)
    assert made.job_file() == (
        "[randread]\ndescription=${IOG_TOKEN}\ndirectory=/d\nfilename_format=$clientuid.$jobnum.$filenum\nunique_filename=0\n"
        "ioengine=psync\nrw=randread\nbs=32k\nfilesize=4g\nnrfiles=1\nnumjobs=128\ngroup_reporting=1\n"
        "fallocate=none\ndisk_util=0\niodepth=1\ndirect=1\nrefill_buffers=1\nrandrepeat=0\ntime_based=1\n"
        "runtime=30s\nsync=1\nnorandommap=1\n"
    )
    assert made.bytes_total == 128 * 4 * 2**30


@given(
    block=st.integers(1, 2**24),
    blocks=st.integers(1, 1000),
    files=st.integers(1, 9),
    numjobs=st.integers(1, 256),
    iodepth=st.integers(1, 64),
    milliseconds=st.integers(0, 900)
    | st.integers(0, 900).map(lambda seconds: 1000 * seconds),
    pattern=st.sampled_from(["read", "write", "randread", "randwrite"]),
)
def test_job_file_says_what_the_job_says(
    block, blocks, files, numjobs, iodepth, milliseconds, pattern
):
    made = job(
        pattern=pattern,
        block_bytes=block,
        file_bytes=block * blocks,
        files=files,
        numjobs=numjobs,
        engine="io_uring",
        iodepth=iodepth,
        runtime_s=milliseconds / 1000,
    )
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(made.job_file())
    found = parser["x"]
    sizes = []
    for key in ("bs", "filesize"):
        match = re.fullmatch(r"(\d+)([kmgt]?)", found[key])
        sizes.append(int(match[1]) * 1024 ** " kmgt".index(match[2] or " "))
    assert sizes == [block, block * blocks]
    assert sizes[1] * int(found["nrfiles"]) * int(found["numjobs"]) == made.bytes_total
    assert int(found["iodepth"]) == iodepth
    assert found["rw"] == pattern
    seconds, rest = divmod(milliseconds, 1000)
    said = f"{milliseconds}ms" if rest else f"{seconds}s"
    assert found.get("runtime") == (said if milliseconds else None)


# --- the real program -----------------------------------------------------------------------------

needs_fio = pytest.mark.skipif(shutil.which("fio") is None, reason="no fio on PATH")


def run(made, directory):
    (directory / "job.fio").write_text(made.job_file())
    done = completed(
        ["fio", *arguments("job.fio", "out.json")],
        cwd=directory,
        env=os.environ | {"IOG_TOKEN": "job.1.x"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    output = parse_json((directory / "out.json").read_text())
    assert output.tasks == made.numjobs
    return output


@pytest.mark.slow
@pytest.mark.needs_fio
@needs_fio
def test_real_layout_and_random_read(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    layout = options.layout_job(directory=str(data), file_bytes=2**23, numjobs=2)
    (written,) = run(layout, tmp_path).phases
    assert (written.name, written.bytes_moved) == ("write", layout.bytes_total)
    before = sorted((path.name, path.stat().st_size) for path in data.iterdir())
    assert [size for _, size in before] == [2**23] * 2
    reader = options.reader_of(layout, block_bytes=4096, runtime_s=1)
    (read,) = run(reader, tmp_path).phases
    assert (read.name, read.transfer_bytes) == ("read", 4096)
    assert read.seconds == pytest.approx(1, abs=0.2)
    percentiles = {"latency_p50", "latency_p99", "latency_p999"}
    assert {"bw", "iops", "latency_mean"} | percentiles == set(read.rates)
    # It read the files that the layout job wrote, and made none of its own.
    assert before == sorted((path.name, path.stat().st_size) for path in data.iterdir())


@pytest.mark.slow
@pytest.mark.needs_fio
@needs_fio
def test_real_creates_stop_after_their_time(tmp_path):
    """A file more needs another name: none is made twice."""
    data = tmp_path / "data"
    data.mkdir()
    many = 300_000
    made = options.metadata_job(
        "filecreate", directory=str(data), files=many, runtime_s=1
    )
    (phase,) = run(made, tmp_path).phases
    assert phase.operations is not None
    assert 0 < phase.operations < many
    assert phase.seconds == pytest.approx(1, abs=0.3)
    assert sum(1 for _ in data.iterdir()) == phase.operations


@pytest.mark.parametrize(
    ("before", "after"), [("\0" * 10_000, ""), ("hello\n", ""), ("", "\nmore")]
)
def test_what_another_program_wrote_into_fios_file_is_refused(before, after):
    text = before + sample("fio_file.json") + after
    with pytest.raises(ToolOutputError, match="which fio does not write"):
        check_alone(text)


@pytest.mark.parametrize("name", sorted(path.name for path in SAMPLES.glob("fio_*")))
def test_what_fio_writes_beside_its_json_is_accepted(name):
    check_alone(sample(name))
