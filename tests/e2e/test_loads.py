"""Special loads for real, at a small scale: a model's output, reads beside writes, hours."""

import os
import shutil
from pathlib import Path

import pytest

from e2e.rig import MIB
from e2e.test_scenarios import of
from support.devices import THROTTLE, capped

pytestmark = [pytest.mark.needs_fio]


def found(record):
    return {metric["name"]: metric for metric in record["metrics"]}


def said(record):
    """Guard, outcome and observation of each finding, a line each."""
    return "\n".join(
        f"{f['guard']} {f['outcome']} {f['saw']}" for f in record["findings"]
    )


# --- a burst that ends ----------------------------------------------------------------------------


SECONDS = 12
BURST, REST = 40, 10
_FIGURES = ("write_bw", "write_best_minute", "write_worst_minute", "write_longest_dip")


@pytest.mark.needs_loop
def test_a_burst_that_ends_is_found(make_rig, devices):
    target = devices.formatted("ext4")
    node = os.stat(devices.last).st_rdev
    slower = f"{os.major(node)}:{os.minor(node)} {REST * MIB}"
    rig = make_rig(
        tools=("fio",),
        tasks=1,
        target=target / "target",
        limits={"phase_seconds": f"{SECONDS} s", "case_bytes": "64 MiB"},
    )
    # The device slows down after half of the write, which begins when its first 4 MiB have arrived.
    written = f"$(awk '{{print $7}}' /sys/block/{devices.last.name}/stat)"
    begun = f"until [ {written} -gt $((before + 8192)) ]; do sleep 0.05; done"
    rig.program(
        "fio",
        f"case ${{@: -1}} in write.fio) (before={written}; {begun}; sleep {SECONDS / 2}; "
        f'echo "{slower}" >{THROTTLE}/blkio.throttle.write_bps_device) & ;; esac\n'
        'exec "$real" "$@"',
    )

    def measured():
        with capped(devices.last, written=BURST * MIB):
            return rig.run("-n", "^Endurance$")

    record = rig.again(measured).record
    assert record["verdict"] == "UNREFERENCED", record["reason"]
    found = {metric["name"]: metric["median"] for metric in record["metrics"]}
    assert tuple(found) == _FIGURES
    # A window lasts one second here. If others keep the disk below busy for a part of one, the worst
    # window is lower than the level, and a disk that catches up makes the best one higher.
    assert found["write_best_minute"] == pytest.approx(BURST, rel=0.3)
    assert 0 < found["write_worst_minute"] < 1.15 * REST
    (minutes,) = record["metrics"][0]["rounds"]
    assert len(minutes) == SECONDS
    of_minutes = minutes.values()
    slowest, fastest = min(of_minutes), max(of_minutes)
    assert slowest < fastest
    assert found["write_worst_minute"] <= slowest * 1.001
    assert found["write_best_minute"] >= fastest * 0.999
    rig.assert_clean()


# --- bandwidth without MPI ------------------------------------------------------------------------


def test_a_shared_file_through_the_page_cache(make_rig):
    rig = make_rig(tools=("fio",), tasks=2, limits={"case_bytes": "128 MiB"})
    run = rig.run(
        "-n", "FioSequential %files=shared %cache=buffered %block=1MiB".replace(" ", "")
    )
    record = run.record
    assert [metric["name"] for metric in record["metrics"]] == [
        "write_bw",
        "read_bw",
    ], run.out
    assert record["verdict"] == "UNREFERENCED", record["reason"]
    assert all(metric["median"] > 0 for metric in record["metrics"])
    said = {
        (f["metric"], f["guard"], f["outcome"], f["saw"].split(", then")[0])
        for f in record["findings"]
    }
    assert (None, "G8", "ok", "fio checked its data in the warm-up") in said
    times = record["repetitions"]
    assert (
        "read_bw",
        "G1",
        "ok",
        f"page cache proven empty {times} times",
    ) in said
    assert any(f[:3] == ("write_bw", "G2", "ok") for f in said)
    # No reference, and yet a line for each metric in ReFrame's performance log.
    (log,) = (rig.home / "perflogs").rglob("*.log")
    heading, *lines = [line.split("|") for line in log.read_text().splitlines()]
    logged = [dict(zip(heading, line, strict=True)) for line in lines]
    assert [
        (one["perf_var"], one["verdict"], float(one["perf_value"])) for one in logged
    ] == [
        (metric["name"], record["verdict"], metric["median"])
        for metric in record["metrics"]
    ]
    shared = {"filename=shared", "filesize=128m", "size=64m", "offset_increment=64m"}
    for way in ("write", "read"):
        assert shared <= set(run.file(f"{way}.fio").read_text().split())


# --- reads and writes at once  --------------------------------------------------------------------


@pytest.fixture(scope="module")
def mixing(make_module_rig):
    return make_module_rig(
        tools=("fio",), limits={"phase_seconds": "1 s", "case_bytes": "96 MiB"}
    )


@pytest.fixture(scope="module")
def mixed(mixing):
    done = mixing.run("-n", "^Mixed%", "--exec-policy=serial", "--keep-stage-files")
    mixing.assert_clean()
    return done


def test_both_ways_are_measured_and_the_reads_alone(mixed):
    records = of(mixed, "Mixed")
    assert len(records) == 2, mixed.out
    for record in records:
        assert record["verdict"] == "UNREFERENCED", record["reason"]
        metrics = {name: metric["median"] for name, metric in found(record).items()}
        tails = ["p50", "p99"] + ["p999"] * (record["parameters"]["order"] == "random")
        compared = ["read_iops", *(f"read_{tail}" for tail in tails)]
        ratios = [f"{name}_ratio" for name in compared]
        assert list(metrics) == [
            "read_bw",
            "write_bw",
            "write_iops",
            *compared,
            *ratios,
        ]
        # A disk that others use does few operations in a second.
        assert 0.15 < metrics["write_iops"] / metrics["read_iops"] < 1
        assert metrics["read_p99"] >= metrics["read_p50"] > 0
        confirmed = {
            f["metric"]
            for f in record["findings"]
            if "as many bytes as the tool" in f["saw"]
        }
        assert {"read_bw", "write_bw", "read_iops", "write_iops"} <= confirmed
        assert "G8 ok fio checked its data in the warm-up" in said(record)


def test_a_run_says_the_share_of_reads(mixing):
    mixing.declare(sweeps={"read_shares": [30]})
    mixing.write_references({"Mixed": {"read_p50": [1e9, None, 0.0, "us"]}})
    record = mixing.run("-n", "^Mixed%order=random").record
    mixing.write_settings()
    mixing.write_references(None)
    few = {name: metric["median"] for name, metric in found(record).items()}
    assert few["write_iops"] / few["read_iops"] == pytest.approx(7 / 3, rel=0.5)
    assert found(record)["read_p50"]["reference"]["value"] == 1e9


# --- a weather model's output by WRF-IO  ----------------------------------------------------------


HEADER = (
    Path(shutil.which("wrf_io") or "/").parent.parent
    / "share"
    / "wrf-io"
    / "wrf_header.txt"
)
needs_wrf_io = pytest.mark.skipif(
    not HEADER.exists(),
    reason="no wrf_io with its header on PATH (docs/checks.md says how to build it)",
)


@pytest.fixture(scope="module")
def model(make_module_rig):
    rig = make_module_rig(tools=("ior",), tasks=2, limits={"case_bytes": "64 MiB"})
    with rig.configured() as (_, environment):
        environment["extras"] = {"wrf_io": str(HEADER)}
    return rig


@needs_wrf_io
def test_an_output_is_timed_from_open_to_sync(model):
    record = model.run("-n", "^WrfOutput").record
    model.assert_clean()
    assert record["verdict"] == "UNREFERENCED", record["reason"]
    metrics = {name: metric["median"] for name, metric in found(record).items()}
    assert list(metrics) == ["write_time", "define_time", "write_bw"]
    assert 0 < metrics["define_time"] < metrics["write_time"]
    # The sync belongs to both.
    moved = metrics["write_time"] * metrics["write_bw"]
    assert 55 < moved < 64
    findings = said(record)
    assert "G2 ok fsync in the timed region" in findings
    assert "as many bytes as the tool reports" in findings
    assert "G22 ok wrf_io 1.14" in findings
