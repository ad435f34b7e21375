"""Reads and writes at once, for real: what is measured, and what is refused if it is untrue."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from e2e.rig import Rig, Run
from e2e.test_loads import found, said
from e2e.test_scenarios import of

pytestmark = pytest.mark.needs_fio

DIRECT = "^Mixed%order=random%cache=direct%reads=70"


@pytest.fixture(scope="module")
def mixing(make_module_rig: Callable[..., Rig]) -> Rig:
    return make_module_rig(tools=("fio",), limits={"phase_seconds": "1 s", "case_bytes": "96 MiB"})


@pytest.fixture(scope="module")
def mixed(mixing: Rig) -> Run:
    done = mixing.run("-n", "^Mixed%", "--exec-policy=serial", "--keep-stage-files")
    mixing.assert_clean()
    return done


def test_both_ways_are_measured_and_the_reads_alone(mixed: Run) -> None:
    records = of(mixed, "Mixed")
    points = {(r["parameters"]["order"], r["parameters"]["cache"]) for r in records}
    assert len(points) == len(records) == 4, mixed.out
    for record in records:
        assert record["verdict"] == "UNREFERENCED", record["reason"]
        metrics = {name: metric["median"] for name, metric in found(record).items()}
        tails = ["p50", "p99"] + ["p999"] * (record["parameters"]["order"] == "random")
        compared = ["read_iops", *(f"read_{tail}" for tail in tails)]
        ratios = [f"{name}_ratio" for name in compared]
        assert list(metrics) == ["read_bw", "write_bw", "write_iops", *compared, *ratios]
        # A disk that others use does few operations in a second.
        assert 0.15 < metrics["write_iops"] / metrics["read_iops"] < 1
        assert metrics["read_p99"] >= metrics["read_p50"] > 0
        confirmed = {f["metric"] for f in record["findings"] if "or more in each" in f["saw"]}
        assert {"read_bw", "write_bw", "read_iops", "write_iops"} <= confirmed
        assert "G8 ok fio checked its data in the warm-up" in said(record)


def test_a_run_says_the_share_of_reads(mixing: Rig) -> None:
    data = mixing.settings()
    data["systems"][0]["partitions"][0]["extras"]["sweeps"] = {"read_shares": [30]}
    mixing.write_settings(data)
    done = mixing.run("-n", "^Mixed%order=(random%cache=direct|sequential%cache=buffered)")
    mixing.write_settings()
    by_cache = {record["parameters"]["cache"]: record for record in done.records}
    few = {name: metric["median"] for name, metric in found(by_cache["direct"]).items()}
    assert few["write_iops"] / few["read_iops"] == pytest.approx(7 / 3, rel=0.5)
    assert "expected more than 50, or O_DIRECT" in by_cache["buffered"]["reason"]


#: Changes of fio's report of the mixed job.
THREE_TIMES = """
for key in ("io_bytes", "io_kbytes", "bw_bytes", "bw", "iops", "total_ios"):
    way[key] *= 3
for one in ("lat_ns", "clat_ns"):
    way[one]["N"] *= 3
"""
THIRD_OF_TIME = """
for way in (job["read"], job["write"]):
    way["runtime"] //= 3
    for key in ("bw_bytes", "bw", "iops"):
        way[key] *= 3
    for one in ("lat_ns", "clat_ns"):
        way[one]["mean"] /= 3
"""


@pytest.mark.parametrize(
    ("way", "change", "reason"),
    [
        ("read", THREE_TIMES, "its tasks asked the kernel for"),
        ("write", THREE_TIMES, "its tasks asked the kernel for"),
        ("read", THIRD_OF_TIME, "it was told to run 1.00 s"),
    ],
    ids=["reads", "writes", "seconds"],
)
def test_an_untrue_report_of_either_way_is_refused(
    mixing: Rig, way: str, change: str, reason: str
) -> None:
    script = mixing.base / "change.py"
    script.write_text(
        "import json, sys\n"
        "report = json.load(open(sys.argv[1]))\n"
        f"job = report['jobs'][0]\nway = job[{way!r}]\n{change}\n"
        "json.dump(report, open(sys.argv[1], 'w'))\n"
    )
    mixing.damage("fio", "fio-mixed.1.json", f'{sys.executable} {script} "$out"')
    done = mixing.run("-n", DIRECT)
    (mixing.bin / "fio").unlink()
    done.never_passed(reason)


def test_reads_from_memory_are_refused(mixing: Rig) -> None:
    """fio drops what is cached of its files when it starts: another program reads them a moment later."""
    mixing.program(
        "fio",
        "case $out in fio-mixed.1.json) while sleep 0.1; do\n"
        'cat "$IOG_DIR"/.[0-9]* >/dev/null || break; kill -0 $$ || break; done 2>/dev/null & esac\n'
        'exec "$real" "$@"',
    )
    done = mixing.run("-n", DIRECT.replace("direct", "buffered"))
    (mixing.bin / "fio").unlink()
    done.never_passed(
        "read_bw: G1 client cache: ", "another program had read the other data into the page cache"
    )
