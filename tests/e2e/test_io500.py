"""IO500 through the suite, from two hosts: on a network's file system, and on a disk that both hosts cache."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.rig import Rig, Run
from e2e.test_hosts import open_mpi
from e2e.test_several_hosts import run_on
from iogauge_extras.suites.io500_check import BW, MD, METRICS, SCORE
from support import hosts as support
from support.hosts import Hosts

pytestmark = [
    pytest.mark.needs_ior,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("io500") is None, reason="io500 is not on PATH"),
]


@pytest.fixture(scope="module")
def hosts(storage: Path) -> Iterator[Hosts]:
    if (reason := support.why_not()) is not None:
        pytest.skip(reason)
    if not open_mpi():
        pytest.skip("no mpirun of Open MPI on PATH")
    with Hosts(2, storage) as made:
        yield made


def short(hosts: Hosts, rig: Rig) -> dict[str, Any]:
    """Run the short form from both hosts; return its record, with what the tool printed as ``printed``."""
    settings = rig.settings()
    (partition,) = settings["systems"][0]["partitions"]
    partition["extras"] |= {
        "scale": {"nodes": 2, "tasks_per_node": 2},
        "hosts": hosts.names,
        "interface": "eth0",
    }
    rig.write_settings(settings)
    done: Run = run_on(hosts, rig, "-n", "Io500Short", "--keep-stage-files")
    rig.assert_clean()
    assert len(done.records) == 1, done.out
    printed = [file.read_text() for file in done.stage.rglob("io500.1.out")]
    assert printed, done.out
    return {**done.records[0], "printed": printed[0]}


def assert_values_are_the_tools(record: dict[str, Any]) -> None:
    """The medians of the record are the figures that IO500 printed, the scores as well."""
    values = {metric["name"]: metric["median"] for metric in record["metrics"]}
    assert list(values) == [m.name for m in (*METRICS.values(), BW, MD, SCORE)]
    printed = dict(re.findall(r"^\[RESULT\] +(\S+) +(\S+) ", record["printed"], re.MULTILINE))
    assert {METRICS[name].name: float(value) for name, value in printed.items()} == {
        name: value for name, value in values.items() if name not in ("bw", "md", "score")
    }
    total = re.search(r"Bandwidth (\S+) GiB/s : IOPS (\S+) kiops : TOTAL (\S+)", record["printed"])
    assert total
    assert [values["bw"], values["md"], values["score"]] == pytest.approx(
        [float(value) for value in total.groups()], rel=1e-4
    )


def test_hosts_with_one_cache_read_and_stat_nothing_that_is_believed(
    hosts: Hosts, storage: Path, make_module_rig: Callable[..., Rig]
) -> None:
    rig = make_module_rig(
        tools=("io500", "ior"),
        limits={"case_files": 20_000, "case_bytes": "4 GiB", "phase_seconds": "1 s"},
    )
    record = short(hosts, rig)
    assert record["verdict"] == "INVALID", record["reason"]
    assert_values_are_the_tools(record)
    verdicts = {metric["name"]: metric["verdict"] for metric in record["metrics"]}
    believed = {name for name, verdict in verdicts.items() if verdict == "UNREFERENCED"}
    assert believed == {
        *("ior_easy_write_bw", "ior_hard_write_bw", "mdtest_easy_write_rate"),
        *("mdtest_hard_write_rate", "find_rate"),
        *("mdtest_easy_delete_rate", "mdtest_hard_delete_rate"),
    }, record["reason"]
    witnessed = [
        f for f in record["findings"] if f["guard"] == "G8" and f["metric"] == "ior_hard_write_bw"
    ]
    assert any("or more in each execution" in f["saw"] for f in witnessed), witnessed
    # The counters over time tell the phases apart: both writes moved their bytes while they ran.
    by_phase = {f["metric"]: f["saw"] for f in record["findings"] if "while it ran" in f["demands"]}
    for metric in ("ior_easy_write_bw", "ior_hard_write_bw"):
        assert "or more while it ran" in by_phase[metric]
    clocks = [f for f in record["findings"] if "of the phase that the counters" in f["demands"]]
    assert {f["outcome"] for f in clocks} <= {"ok"}
