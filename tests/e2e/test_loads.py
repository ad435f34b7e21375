"""Special loads for real, at a small scale: a training, a model's output, a full target, two loads at once, hours, queues."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from e2e.rig import MIB, command, verdict_of, wait_for
from e2e.test_scenarios import of
from iogauge.core.units import parse_bytes
from support.depth import FULL
from support.devices import THROTTLE, capped

pytestmark = [pytest.mark.needs_fio]

# --- a training -----------------------------------------------------------------------------------


#: No whole number of transfers of two tasks: 66 MiB are written in 72.
STATE = "66 MiB"


def checkpoint(save="60 s", restart="60 s"):
    return {"state": STATE, "save": save, "restart": restart}


def found(record):
    return {metric["name"]: metric for metric in record["metrics"]}


@pytest.fixture(scope="module")
def models(make_module_rig):
    rig = make_module_rig(tools=("ior",), tasks=2)
    rig.declare(
        checkpoints={
            "small": checkpoint(),
            "slow": checkpoint(save="1 ms", restart="60 s"),
        }
    )
    return rig


@pytest.fixture(scope="module")
def saved(models):
    done = models.run(
        "-n",
        "^Checkpoint%model=(small%files=per-process|slow%files=shared)$",
        "--exec-policy=serial",
    )
    models.assert_clean()
    return done


@pytest.mark.needs_ior
def test_a_budget_that_is_kept_passes_and_another_fails(saved):
    records = of(saved, "Checkpoint")
    assert {verdict_of(r) for r in records} == {"PASS", "FAIL"}, saved.out
    for record in records:
        kept = record["parameters"]["model"] == "small"
        metrics = found(record)
        assert list(metrics) == ["save_time", "restart_time", "write_bw", "read_bw"]
        kinds = {verdict_of(metrics[name]) for name in ("save_time", "write_bw")}
        assert kinds == {"PASS" if kept else "FAIL"}, record["reason"]
        assert metrics["restart_time"]["verdict"] == "PASS", record["reason"]
        assert "the budget of checkpoints." in str(metrics["save_time"]["reference"])
        budget_s = 60 if kept else 0.001
        for name, value, lower, upper in (
            ("save_time", budget_s, None, 0),
            ("write_bw", parse_bytes(STATE) / 2**20 / budget_s, 0, None),
            ("restart_time", 60, None, 0),
            ("read_bw", parse_bytes(STATE) / 2**20 / 60, 0, None),
        ):
            reference = metrics[name]["reference"]
            assert reference["value"] == pytest.approx(value), name
            assert (reference["lower"], reference["upper"]) == (lower, upper), name


@pytest.mark.needs_ior
def test_the_whole_state_is_saved_and_read_cold(saved):
    for record in of(saved, "Checkpoint"):
        metrics = found(record)
        for time, bandwidth in (("save_time", "write_bw"), ("restart_time", "read_bw")):
            moved = metrics[time]["median"] * metrics[bandwidth]["median"]
            assert moved == pytest.approx(72, rel=0.01)
        said = {(f["metric"], f["guard"], f["outcome"]) for f in record["findings"]}
        assert {("restart_time", "G1", "ok"), ("save_time", "G2", "ok")} <= said
        assert any(
            f["metric"] == "restart_time" and "emptied and proven empty" in f["saw"]
            for f in record["findings"]
        )
        shared = record["parameters"]["files"] == "shared"
        assert all(
            (" -F " in command) != shared
            for command in record["commands"]
            if "ior" in command
        )


@pytest.mark.needs_ior
def test_another_size_has_no_budget(models):
    case = ("-n", "^Checkpoint%model=small%files=shared")
    done = models.run(*case, "-S", f"total_bytes={96 * MIB}")
    assert done.record["verdict"] == "UNREFERENCED", done.out
    models.declare(checkpoints={"small": checkpoint() | {"state": "1 GiB"}})
    models.run(*case).never_passed(
        "checkpoints.small.state is 1 GiB", "raise the limit for Checkpoint"
    )


def said(record):
    """Guard, outcome and observation of each finding, a line each."""
    return "\n".join(
        f"{f['guard']} {f['outcome']} {f['saw']}" for f in record["findings"]
    )


# --- a target that is filled up to a level --------------------------------------------------------


LEVEL = 80


def fillable(filled, fill_bytes="900 MiB"):
    """Declare the levels, and the bytes that may be taken."""
    limits = {"fill_bytes": fill_bytes} if fill_bytes else {}
    filled.declare(sweeps={"fill_levels": [0, LEVEL]}, limits=limits)


@pytest.fixture(scope="module")
def filled(make_module_rig, module_devices):
    """A site on a file system of 1 GiB of its own."""
    target = module_devices.formatted("ext4") / "target"
    return make_module_rig(
        tools=("fio",), tasks=1, target=target, limits={"case_bytes": "32 MiB"}
    )


def fill_of(path):
    info = os.statvfs(path)
    return 1 - info.f_bavail / (info.f_blocks - info.f_bfree + info.f_bavail)


@pytest.mark.needs_loop
def test_the_target_is_as_full_as_declared_while_it_is_measured(filled):
    fillable(filled)
    planned = filled.iogauge("run", "--dry-run", "-n", f"^FillLevel%fill={LEVEL}")
    assert "932 MiB" in planned.out, planned.out
    before = fill_of(filled.target)
    filled.program(
        "fio",
        f'df --output=pcent "$IOG_DIR" | tail -n 1 >>{filled.base}/df\nexec "$real" "$@"',
    )
    done = filled.run("-n", f"^FillLevel%fill={LEVEL}")
    (filled.bin / "fio").unlink()
    filled.assert_clean()
    assert fill_of(filled.target) == pytest.approx(before, abs=0.002)
    assert done.record["verdict"] == "UNREFERENCED", done.record["reason"]
    # The case has 32 MiB of 1 GiB, and df rounds up.
    asked, *full = [
        int(word.rstrip("%")) for word in (filled.base / "df").read_text().split()
    ]
    # The first question is for fio's version.
    assert (
        asked < LEVEL
        and full
        and all(LEVEL - 1 <= share <= LEVEL + 5 for share in full)
    ), full
    (said,) = {
        f["saw"] for f in done.record["findings"] if "full, within" in f["demands"]
    }
    assert re.match(r"80\.\d% full, \d+ MiB of it in files of this case", said), said


@pytest.mark.needs_loop
@pytest.mark.parametrize(
    ("fill_bytes", "cause"),
    [
        (None, r"limits.fill_bytes is not set: filling needs the site's permission"),
        ("100 MiB", r"\d+ MiB are missing, and limits.fill_bytes allows 100 MiB"),
    ],
)
def test_nothing_is_filled_without_permission(filled, fill_bytes, cause):
    fillable(filled, fill_bytes)
    before = fill_of(filled.target)
    filled.program(
        "fio", f'[ "$1" = --version ] || touch {filled.base}/ran\nexec "$real" "$@"'
    )
    done = filled.run("-n", f"^FillLevel%fill={LEVEL}")
    (filled.bin / "fio").unlink()
    done.never_passed(cause)
    assert done.record["verdict"] == ("INVALID" if fill_bytes else "ERROR")
    assert not (filled.base / "ran").exists()
    assert fill_of(filled.target) == pytest.approx(before, abs=0.001)
    filled.assert_clean()


@pytest.mark.needs_loop
def test_what_fills_the_target_goes_after_a_kill(filled):
    fillable(filled)
    filled.program(
        "fio",
        f'[ "$1" != --version ] || exec "$real" "$@"\ntouch {filled.base}/holds\nsleep 300',
    )
    process = filled.start(command("-n", f"^FillLevel%fill={LEVEL}"))
    wait_for((filled.base / "holds").exists, 60, "fio to start on a full target")
    assert fill_of(filled.target) > LEVEL / 100 - 0.02

    filled.kill(process.pid)
    process.communicate(timeout=600)
    (filled.bin / "fio").unlink()
    left = sum(
        path.stat().st_blocks * 512 for path in filled.leftovers() if path.is_file()
    )
    assert left > 600 * MIB
    assert filled.iogauge("clean").rc == 0
    filled.assert_clean()
    assert fill_of(filled.target) < 0.05


# --- a stream and a storm of metadata -------------------------------------------------------------


@pytest.fixture
def quiet(make_rig, devices):
    """A site whose target nobody else uses: bytes of others on it are an objection."""
    limits = {"phase_seconds": "2 s", "max_foreign": "10 %", "witness": "required"}
    return make_rig(target=devices.formatted("ext4") / "target", limits=limits)


def medians(record):
    return {metric["name"]: metric["median"] for metric in record["metrics"]}


def of_disturber(record):
    """What was found about the load beside the measured one."""
    return [
        finding for finding in record["findings"] if "disturber" in finding["demands"]
    ]


@pytest.mark.needs_loop
def test_each_load_is_measured_alone_and_beside_the_other(quiet):
    done = quiet.run_until(
        lambda run: all(
            f["outcome"] == "ok" for one in run.records for f in of_disturber(one)
        ),
        "-n",
        "^Interference",
        "--exec-policy=serial",
    )
    quiet.assert_clean()
    found = {one["parameters"]["measured"]: one for one in done.records}
    assert set(found) == {"stream", "metadata"}
    for kind, one in found.items():
        # The load is ours: it is no load of others, on a target with a witness.
        # The stream before and after it may differ by more than 100 % if the machine is busy.
        assert one["verdict"] in ("UNREFERENCED", "UNSTABLE"), one["reason"]
        values = medians(one)
        for name in (
            ["write_bw"] if kind == "stream" else ["create_warm_p50", "create_warm_p99"]
        ):
            alone, disturbed, again, ratio = (
                values[f"{name}_{end}"]
                for end in ("alone", "disturbed", "again", "ratio")
            )
            assert ratio == pytest.approx(2 * disturbed / (alone + again))
        own = of_disturber(one)
        assert {f["outcome"] for f in own} == {"ok"}
        assert all("_disturbed" in f["metric"] or "_ratio" in f["metric"] for f in own)
        counted = [
            f for f in one["findings"] if (f["guard"], f["outcome"]) == ("G8", "ok")
        ]
        assert any("_disturbed" in (f["metric"] or "") for f in counted), (
            "nobody counted the stream's bytes"
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
    with capped(devices.last, written=BURST * MIB):
        done = rig.run("-n", "^Endurance$")
    record = done.record
    assert record["verdict"] in ("UNREFERENCED", "CONTAMINATED"), record["reason"]
    found = {metric["name"]: metric["median"] for metric in record["metrics"]}
    assert tuple(found) == _FIGURES
    # A window lasts one second here. If others keep the disk below busy for a part of one, the worst
    # window is lower than the level, and a disk that catches up makes the best one higher.
    assert found["write_best_minute"] == pytest.approx(BURST, rel=0.3)
    assert 0 < found["write_worst_minute"] < 1.15 * REST
    (steadiness,) = {f["saw"] for f in record["findings"] if "level" in f["demands"]}
    words = re.match(
        r"from ([\d.]+) MiB/s to ([\d.]+) MiB/s after ([\d.]+) s", steadiness
    )
    assert words, steadiness
    assert [float(word) for word in words.groups()] == pytest.approx(
        [BURST, REST, SECONDS / 2], rel=0.2
    )
    (minutes,) = record["metrics"][0]["rounds"]
    assert len(minutes) == SECONDS
    of_minutes = minutes.values()
    slowest, fastest = min(of_minutes), max(of_minutes)
    assert slowest < fastest
    assert found["write_worst_minute"] <= slowest * 1.001
    assert found["write_best_minute"] >= fastest * 0.999
    rig.assert_clean()


# --- requests in flight ---------------------------------------------------------------------------


DEPTHS = [1, 4]
VALID = {"UNREFERENCED", "CONTAMINATED"}


@pytest.fixture(scope="module")
def deep(make_module_rig):
    deep = make_module_rig(tools=("fio",), tasks=1)
    deep.declare(sweeps={"queue_depths": DEPTHS})
    return deep


@pytest.fixture(scope="module")
def measured(deep):
    done = deep.run("-n", "^QueueDepth%", "--exec-policy=serial")
    deep.assert_clean()
    return done


def test_reads_and_writes_at_each_depth_have_operations_and_percentiles(measured):
    found = {
        (r["parameters"]["access"], r["parameters"]["depth"]): r
        for r in measured.records
    }
    assert set(found) == {(way, depth) for way in ("read", "write") for depth in DEPTHS}
    for (way, depth), one in found.items():
        assert one["verdict"] in VALID, one["reason"]
        values = medians(one)
        assert list(values) == [
            f"{way}_{name}" for name in ("iops", "p50", "p99", "p999")
        ]
        assert 0 < values[f"{way}_p50"] <= values[f"{way}_p99"] <= values[f"{way}_p999"]
        # No more than the depth is in flight: half of the requests take the median or longer.
        assert values[f"{way}_iops"] * values[f"{way}_p50"] / 1e6 / 2 <= depth
        job = measured.file(f"QueueDepth_{one['hash']}/rand{way}.fio")
        assert f"iodepth={depth}\n" in job.read_text()


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
        (f["metric"], f["guard"], f["outcome"], f["saw"].split(" (")[0])
        for f in record["findings"]
    }
    assert (None, "G8", "ok", "fio checked its data in the warm-up") in said
    times = record["repetitions"]
    assert (
        "read_bw",
        "G1",
        "ok",
        f"page cache emptied and proven empty {times} times",
    ) in said
    assert any(f[:3] == ("write_bw", "G2", "ok") for f in said)
    # No reference, and yet a line for each metric in ReFrame's performance log.
    (log,) = (rig.home / "perflogs").rglob("*.log")
    heading, *lines = [line.split("|") for line in log.read_text().splitlines()]
    logged = [dict(zip(heading, line, strict=True)) for line in lines]
    assert [
        (one["perf_var"], one["verdict"], float(one["perf_value"])) for one in logged
    ] == [
        (metric["name"], record["verdict"], float(f"{metric['median']:.6g}"))
        for metric in record["metrics"]
    ]
    jobs = {name: (run.file(f"{name}.fio")).read_text() for name in ("write", "read")}
    for way, text in jobs.items():
        assert {
            "filename=shared",
            "filesize=128m",
            "size=64m",
            "offset_increment=64m",
        } <= set(text.split()), text
        assert ("end_fsync=1" in text) == (way == "write")


# --- reads and writes at once  --------------------------------------------------------------------


@pytest.fixture(scope="module")
def mixing(make_module_rig):
    return make_module_rig(
        tools=("fio",), limits={"phase_seconds": "1 s", "case_bytes": "96 MiB"}
    )


@pytest.fixture(scope="module")
def mixed(mixing):
    points = "" if FULL else "order=(random%cache=direct|sequential%cache=buffered)"
    done = mixing.run(
        "-n", f"^Mixed%{points}", "--exec-policy=serial", "--keep-stage-files"
    )
    mixing.assert_clean()
    return done


def test_both_ways_are_measured_and_the_reads_alone(mixed):
    records = of(mixed, "Mixed")
    points = {(r["parameters"]["order"], r["parameters"]["cache"]) for r in records}
    assert len(points) == len(records) == (4 if FULL else 2), mixed.out
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
            f["metric"] for f in record["findings"] if "or more in each" in f["saw"]
        }
        assert {"read_bw", "write_bw", "read_iops", "write_iops"} <= confirmed
        assert "G8 ok fio checked its data in the warm-up" in said(record)


def test_a_run_says_the_share_of_reads(mixing):
    mixing.declare(sweeps={"read_shares": [30]})
    mixing.write_references({"Mixed": {"read_p50": [1e9, None, 0.0, "us"]}})
    done = mixing.run(
        "-n", "^Mixed%order=(random%cache=direct|sequential%cache=buffered)"
    )
    mixing.write_settings()
    mixing.write_references(None)
    by_cache = {record["parameters"]["cache"]: record for record in done.records}
    few = {name: metric["median"] for name, metric in found(by_cache["direct"]).items()}
    assert few["write_iops"] / few["read_iops"] == pytest.approx(7 / 3, rel=0.5)
    assert found(by_cache["direct"])["read_p50"]["reference"]["value"] == 1e9
    assert "expected more than 50, or O_DIRECT" in by_cache["buffered"]["reason"]


def test_an_untrue_report_of_reads_is_refused(mixing):
    script = mixing.base / "change.py"
    script.write_text(
        "import json, sys\n"
        "report = json.load(open(sys.argv[1]))\n"
        "way = report['jobs'][0]['read']\n"
        "for key in ('io_bytes', 'io_kbytes', 'bw_bytes', 'bw', 'iops', 'total_ios'): way[key] *= 3\n"
        "for one in ('lat_ns', 'clat_ns'): way[one]['N'] *= 3\n"
        "json.dump(report, open(sys.argv[1], 'w'))\n"
    )
    mixing.damage("fio", "fio-mixed.1.json", f'{sys.executable} {script} "$out"')
    done = mixing.run("-n", "^Mixed%order=random%cache=direct%reads=70")
    (mixing.bin / "fio").unlink()
    done.never_passed(r"G8 witness: .*(its tasks asked the kernel for|[\w-]+ moved)")


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
    assert "or more in each execution" in findings
    assert "G22 ok wrf_io 1.14" in findings


@needs_wrf_io
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (
            """awk '/^Total write/ {$4 *= 3} /^Write bandwidth/ {$3 *= 3} {print}'""",
            "G8 [a-z ]+: the tool wrote 1.. MiB, as it says; its tasks asked the kernel for 6",
        ),
        (
            """sed 's/202$/201/; s/wrfout.1/wrfout.0/'""",
            "G22 [a-z ]+: .* it says .*wrfout.0.nc.* instead of",
        ),
        (
            """sed '/Write bandwidth/d'""",
            "'Write bandwidth' is 'missing': the report is damaged",
        ),
        (
            "cat >/dev/null; echo 'Error in cdl_hdr_open: fail to open file'",
            "0 reports, expected 1",
        ),
    ],
    ids=["bytes", "another file", "cut", "an error"],
)
def test_an_untrue_report_is_refused(model, script, reason):
    model.program(
        "wrf_io",
        f'case "$*" in *.1.nc) "$real" "$@" | {script} ;; *) exec "$real" "$@" ;; esac',
    )
    done = model.run("-n", "^WrfOutput")
    (model.bin / "wrf_io").unlink()
    done.never_passed(reason)


@needs_wrf_io
def test_an_output_that_lies_elsewhere_is_refused(model, tmp_path):
    model.program(
        "wrf_io",
        f'words=("$@"); words[-1]={tmp_path}/o.nc\n'
        f'"$real" "${{words[@]}}" | sed "s|{tmp_path}/o.nc|${{@: -1}}|"',
    )
    done = model.run("-n", "^WrfOutput")
    (model.bin / "wrf_io").unlink()
    done.never_passed("G8 [a-z ]+: ")
