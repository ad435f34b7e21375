"""Ceilings that are measured for real: streams between hosts whose links have known limits, copies from memory.

The hosts are namespaces of this machine. ``tc`` limits what each of them sends, and what it receives.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.rig import ROOT, Rig, Run
from e2e.test_hosts import open_mpi
from support import hosts as support
from support.hosts import Hosts

pytestmark = [pytest.mark.needs_fio, pytest.mark.slow]

#: Mbit/s that each host may send and receive; n3 has the slow link.
SEND = {"n1": 480, "n2": 480, "n3": 240}
RECEIVE = {"n1": 320, "n2": 480, "n3": 480}


def mib_s(mbit_s: float) -> float:
    return mbit_s * 1e6 / 8 / 2**20


@pytest.fixture(scope="module")
def cluster(storage: Path) -> Iterator[Hosts]:
    """Three hosts, with frames of 9000 bytes as fast networks have them: headers are 0.7 % of these."""
    missing = [name for name in ("tc", "iperf3") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"not on PATH: {', '.join(missing)}")
    if (reason := support.why_not()) is not None:
        pytest.skip(reason)
    if not open_mpi():
        pytest.skip("no mpirun of Open MPI on PATH")
    with Hosts(3, storage) as made:
        made.run("switch", ["ip", "link", "set", "br0", "mtu", "9000"])
        for host in made.names:
            for place, device, rate in (
                (host, "eth0", SEND[host]),
                ("switch", host, RECEIVE[host]),
            ):
                for words in (
                    f"ip link set {device} mtu 9000",
                    f"tc qdisc add dev {device} root tbf rate {rate}mbit burst 256k latency 20ms",
                ):
                    done = made.run(place, words.split())
                    if done.returncode != 0:
                        pytest.skip(f"{words}: {done.stderr}")
        yield made


@pytest.fixture(scope="module")
def rig(cluster: Hosts, make_module_rig: Callable[..., Rig]) -> Rig:
    made = make_module_rig(tools=("fio", "iperf3"), tasks=2, launcher="mpirun")
    data = made.settings()
    (partition,) = data["systems"][0]["partitions"]
    partition["env_vars"] = [
        ["OMPI_ALLOW_RUN_AS_ROOT", "1"],
        ["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"],
    ]
    partition["extras"] |= {
        "hosts": cluster.names,
        "interface": "eth0",
        "scale": {"nodes": 3, "tasks_per_node": 2},
        "ceilings": {"network": "tcp", "memory": True},
        "topology": {"source": "made up", "clients": {"nic": "480 Mbit/s"}},
        "cases": {"NetworkCeiling": {"phase_seconds": "8 s"}},
    }
    partition["extras"]["limits"]["repetitions"] = 2
    made.write_settings(data)
    return made


@pytest.fixture(scope="module")
def measured(cluster: Hosts, rig: Rig) -> Run:
    environment = rig.environment(
        OMPI_MCA_plm_rsh_agent=str(cluster.agent),
        OMPI_MCA_btl_tcp_if_include="eth0",
        OMPI_MCA_oob_tcp_if_include="eth0",
    )
    process = subprocess.Popen(
        cluster.command("n1", ["reframe", "-c", "checks/", "-r", "-t", "ceiling"]),
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    done = rig.finish(process, 300)
    rig.assert_clean()
    for host in cluster.names:
        left = [line for line in cluster.processes(host).values() if "iperf3" in line]
        assert left == [], f"left on {host}"
    return done


def metrics(run: Run, check: str) -> dict[str, dict[str, Any]]:
    (record,) = (record for record in run.records if record["check"] == check)
    assert record["verdict"] != "ERROR", run.out
    return {metric["name"]: metric for metric in record["metrics"]}


def test_the_limits_of_the_links_are_found(measured: Run) -> None:
    found = metrics(measured, "NetworkCeiling")
    pairs = found["pair_median"]["probes"]
    assert len(pairs) == 6, measured.out
    for pair, rate in pairs.items():
        sender, _, receiver = pair.split()
        assert rate == pytest.approx(mib_s(min(SEND[sender], RECEIVE[receiver])), rel=0.05), pair
    assert found["one_to_all"]["median"] == pytest.approx(mib_s(480), rel=0.05)
    assert found["all_to_one"]["median"] == pytest.approx(mib_s(320), rel=0.05)


def test_the_slow_link_is_named(measured: Run) -> None:
    slowest = metrics(measured, "NetworkCeiling")["pair_slowest"]
    assert slowest["verdict"] == "FAIL"
    assert "slowest is n3 to" in slowest["reason"]
