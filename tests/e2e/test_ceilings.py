"""Ceilings that are measured for real: streams between hosts whose links have known limits, reads of devices.

The hosts are namespaces of this machine. ``tc`` limits what each of them sends, and what it receives.
"""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from e2e.rig import command, verdict_of
from support import hosts as support
from support.devices import Devices
from support.hosts import Hosts
from support.shell import completed

pytestmark = [pytest.mark.needs_fio, pytest.mark.slow]

#: The blkio controller's limit of reads, in bytes/s.
CAP = Path("/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device")

#: Mbit/s that each host may send and receive; n3 has the slow link.
SEND = {"n1": 480, "n2": 480, "n3": 240}
RECEIVE = {"n1": 320, "n2": 480, "n3": 480}


@pytest.fixture(scope="module")
def cluster(storage):
    """Three hosts, with frames of 9000 bytes as fast networks have them: headers are 0.7 % of these."""
    missing = [name for name in ("tc", "iperf3") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"not on PATH: {', '.join(missing)}")
    if (reason := support.why_not()) is not None:
        pytest.skip(reason)
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
                    if "qdisc kind is unknown" in done.stderr:
                        pytest.skip(
                            f"needs the kernel's tbf, which limits a rate: {done.stderr}"
                        )
                    assert done.returncode == 0, f"{words}: {done.stderr}"
        yield made


@pytest.fixture(scope="module")
def disks(storage):
    """Two loop devices that are read at so many MiB/s and no more."""
    if not os.access(CAP, os.W_OK):
        pytest.skip(f"{CAP} is not writable")
    folder = storage / f"disks-{os.getpid()}"
    folder.mkdir()
    found = {}
    with contextlib.ExitStack() as leaving:
        leaving.callback(shutil.rmtree, folder)
        devices = Devices(folder, leaving)
        for name, mib_s in (("fast", 60), ("slow", 30)):
            image = devices.image(name, 32)
            image.write_bytes(os.urandom(32 << 20))
            loop = devices.loop(image)
            number = Path(f"/sys/block/{loop.name}/dev").read_text().strip()
            CAP.write_text(f"{number} {mib_s << 20}")
            leaving.callback(CAP.write_text, f"{number} 0")
            found[str(loop)] = mib_s
        yield found


@pytest.fixture(scope="module")
def rig(cluster, disks, make_module_rig):
    made = make_module_rig(tools=("fio", "iperf3"), tasks=2, launcher="mpirun")
    with made.configured() as (partition, _):
        root = "OMPI_ALLOW_RUN_AS_ROOT"
        partition["env_vars"] = [[root, "1"], [f"{root}_CONFIRM", "1"]]
        partition["extras"] |= {
            "hosts": cluster.names,
            "interface": "eth0",
            "scale": {"nodes": 3, "tasks_per_node": 2},
            "ceilings": {"network": "tcp", "devices": list(disks)},
            "topology": {"source": "made up", "clients": {"nic": "1 Gbit/s"}},
            "cases": {
                "NetworkCeiling": {"phase_seconds": "8 s"},
                "DeviceCeiling": {"phase_seconds": "4 s"},
            },
        }
    return made


def measure(cluster, rig, *checks):
    """Run checks from the first host."""
    process = rig.start(
        cluster.command("n1", command(*checks)),
        OMPI_MCA_plm_rsh_agent=str(cluster.agent),
        OMPI_MCA_btl_tcp_if_include="eth0",
        OMPI_MCA_oob_tcp_if_include="eth0",
    )
    done = rig.finish(process, 300)
    rig.assert_clean()
    return done


@pytest.fixture(scope="module")
def measured(cluster, rig):
    done = measure(cluster, rig, "-t", "ceiling")
    for host in cluster.names:
        left = [line for line in cluster.processes(host).values() if "iperf3" in line]
        assert left == [], f"left on {host}"
    return done


@pytest.fixture(scope="module")
def table(measured, rig):
    """What ``iogauge site ceilings`` says afterwards."""
    if "CONTAMINATED" in {record["verdict"] for record in measured.records}:
        pytest.skip(
            "this machine had more work than cores while the layers were measured"
        )
    return rig.finish(
        rig.start(["iogauge", "site", "ceilings", "--system=rig"], COLUMNS="150")
    )


def metrics(run, check):
    """The newest figures of a check."""
    *_, record = (record for record in run.records if record["check"] == check)
    assert record["verdict"] != "ERROR", run.out
    return {metric["name"]: metric for metric in record["metrics"]}


@pytest.mark.nightly
def test_the_limits_of_the_devices_are_found(measured, cluster, rig, disks):
    """A ceiling is the best figure: others may keep the machine busy. No figure is higher."""
    found = metrics(measured, "DeviceCeiling")
    for _ in range(2):
        assert found["devices_bw"]["median"] < 90 * 1.05
        if found["devices_bw"]["probes"] == pytest.approx(disks, rel=0.05):
            break
        found = metrics(measure(cluster, rig, "-n", "^DeviceCeiling"), "DeviceCeiling")
    assert found["devices_bw"]["median"] == pytest.approx(90, rel=0.05)
    assert found["devices_bw"]["probes"] == pytest.approx(disks, rel=0.05)
    slowest = found["devices_slowest"]
    assert verdict_of(slowest) == "FAIL"
    assert f"slowest is {list(disks)[1]}" in slowest["reason"]


def test_declared_and_measured_stand_side_by_side(table):
    assert table.rc == 0, table.out
    (network, *_) = (
        line for line in table.out.splitlines() if "client network" in line
    )
    assert "358 MiB/s" in network, table.out  # declared: 3 x 1 Gbit/s
    assert "read: limited by devices (measured)" in table.out
    assert "write: limited by client network (measured)" in table.out


def of_device(make_rig, device):
    """A run of the check that reads a device past the file system."""
    rig = make_rig(limits={"phase_seconds": "2 s"})
    rig.declare(ceilings={"devices": [device]})
    return rig.run("-n", "DeviceCeiling")


def test_memory_and_caches_are_no_devices(make_rig, tmp_path):
    """A loop device without direct I/O is the page cache. The case is refused before a byte is read."""
    image = tmp_path / "image"
    image.write_bytes(bytes(8 << 20))
    done = completed(["losetup", "--find", "--show", str(image)])
    if done.returncode:
        pytest.skip(done.stderr.strip())
    device = done.stdout.strip()
    try:
        run = of_device(make_rig, device)
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)
    run.never_passed(
        f"G9 devices: {device} is no storage: .* goes through the page cache"
    )
