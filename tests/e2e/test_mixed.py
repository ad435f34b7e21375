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


def test_both_ways_are_measured_and_the_reads_alone(mixed):
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


def test_a_run_says_the_share_of_reads(mixing):
    data = mixing.settings()
    data["systems"][0]["partitions"][0]["extras"]["sweeps"] = {"read_shares": [30]}
    mixing.write_settings(data)
    done = mixing.run("-n", "^Mixed%order=(random%cache=direct|sequential%cache=buffered)")
    mixing.write_settings()
    by_cache = {record["parameters"]["cache"]: record for record in done.records}
    few = {name: metric["median"] for name, metric in found(by_cache["direct"]).items()}
    assert few["write_iops"] / few["read_iops"] == pytest.approx(7 / 3, rel=0.5)
    assert "expected more than 50, or O_DIRECT" in by_cache["buffered"]["reason"]


#: A change of fio's report of the mixed job.
THREE_TIMES = """
for key in ("io_bytes", "io_kbytes", "bw_bytes", "bw", "iops", "total_ios"):
    way[key] *= 3
for one in ("lat_ns", "clat_ns"):
    way[one]["N"] *= 3
"""


def test_an_untrue_report_of_reads_is_refused(mixing):
    script = mixing.base / "change.py"
    script.write_text(
        "import json, sys\n"
        "report = json.load(open(sys.argv[1]))\n"
        f"way = report['jobs'][0]['read']\n{THREE_TIMES}\n"
        "json.dump(report, open(sys.argv[1], 'w'))\n"
    )
    mixing.damage("fio", "fio-mixed.1.json", f'{sys.executable} {script} "$out"')
    done = mixing.run("-n", DIRECT)
    (mixing.bin / "fio").unlink()
    done.never_passed("its tasks asked the kernel for")
