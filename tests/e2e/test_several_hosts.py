"""The suite itself on several hosts: a site without a scheduler, whose tasks mpirun starts over a host file.

The hosts are namespaces of this machine (tests/support/hosts.py): networks, names and processes of their own,
but one kernel, so that a buffered read from "another node" may meet the page cache of the first. The suite must
see that.
"""

import os
import re
import shutil

import pytest

from e2e.rig import command
from e2e.test_scenarios import STAND_INS, of, striped
from iogauge.site import programs
from iogauge_extras.suites.io500_check import BW, MD, METRICS, SCORE
from support import hosts as support
from support.depth import FULL
from support.hosts import Hosts
from support.shell import script

pytestmark = [pytest.mark.needs_ior, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster(storage):
    reason = support.why_not()
    if reason is not None:
        pytest.skip(reason)
    with Hosts(3, storage) as made:
        yield made


def run_on(cluster, rig, *words, timeout=300, **environment):
    """Run ReFrame on n1, where mpirun reaches the other hosts through the rig's agent; earlier records are dropped first."""
    shutil.rmtree(rig.home / "history", ignore_errors=True)
    state = rig.base / "lfs"
    state.mkdir(exist_ok=True)
    path = os.pathsep.join([str(STAND_INS), rig.environment()["PATH"]])
    own = {
        "LFS_STATE": str(state),
        "LFS_SERVERS": "2",
        "PATH": path,
        "OMPI_MCA_plm_rsh_agent": str(cluster.agent),
        "OMPI_MCA_btl_tcp_if_include": "eth0",
        "OMPI_MCA_oob_tcp_if_include": "eth0",
        # Ranks of several hosts share a core of this machine, and wait for each other.
        "OMPI_MCA_mpi_yield_when_idle": "1",
    }
    process = rig.start(
        cluster.command("n1", command("--exec-policy=serial", *words)),
        **own | environment,
    )
    return rig.finish(process, timeout)


@pytest.fixture(scope="module")
def everything(cluster, make_module_rig):
    """IOR and fio on three hosts of two tasks each."""
    rig = striped(
        make_module_rig,
        scale={"nodes": 3, "tasks_per_node": 2},
        hosts=cluster.names,
        interface="eth0",
        sweeps={"tasks_per_client": [2]},
    )
    names = "IorPosix%files=per-process%order=sequential"
    names += "|RandomRead%.*4KiB%span=one-server" if FULL else ""
    done = run_on(cluster, rig, "-n", f"^({names})")
    rig.assert_clean()
    for host in cluster.names:
        left = [
            line
            for line in cluster.processes(host).values()
            if "fio" in line or "ior" in line
        ]
        assert left == [], f"left on {host}"
    return done


@pytest.mark.needs_fio
def test_readers_on_the_next_host_are_believed_with_o_direct_alone(everything):
    """Hosts of one kernel share a cache, and the suite sees it."""
    found = {r["parameters"]["cache"]: r for r in of(everything, "IorPosix")}
    direct, buffered = found["direct"], found["buffered"]
    assert direct["verdict"] in ("UNREFERENCED", "UNSTABLE"), direct["reason"]
    assert direct["nodes"] == 3
    (read,) = (command for command in direct["commands"] if " -r " in command)
    assert " -C " in read and " -Q 1 " in read
    assert buffered["verdict"] == "INVALID"
    assert "of 3 node(s), which have 1 page cache(s)" in buffered["reason"]
    verdicts = {metric["name"]: metric["verdict"] for metric in buffered["metrics"]}
    assert verdicts["write_bw"] in (
        "UNREFERENCED",
        "UNSTABLE",
    )  # only the read is in doubt


def test_what_a_site_declares_reaches_the_tasks_on_all_hosts(cluster, make_rig):
    """ssh starts a daemon of mpirun with an environment of its own."""
    rig = make_rig(tools=("ior",))
    with rig.configured() as (partition, environment):
        partition["env_vars"].append(["STORAGE_TUNED", "'by site'"])
        environment["env_vars"] = [["STORAGE_NET", "tcp"]]
        partition["extras"] |= {
            "scale": {"nodes": 2, "tasks_per_node": 1},
            "hosts": cluster.names[:2],
            "interface": "eth0",
        }
    bare = f'#!/bin/sh\nexec env -i PATH=/usr/bin:/bin {cluster.agent} "$@"\n'
    ssh = script(rig.base / "ssh", bare)
    told = rig.base / "told"
    rig.program(
        "ior",
        f'echo "$(hostname) $STORAGE_TUNED $STORAGE_NET" >>{told}; exec $real "$@"',
    )
    words = ("-n", "IorPosix%files=per-process%order=sequential%cache=direct")
    run = run_on(cluster, rig, *words, OMPI_MCA_plm_rsh_agent=str(ssh))
    assert set(told.read_text().splitlines()) == {"n1 by site tcp", "n2 by site tcp"}, (
        run.out
    )


# --- IO500 from two hosts -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hosts(storage):
    if (reason := support.why_not()) is not None:
        pytest.skip(reason)
    with Hosts(2, storage) as made:
        yield made


def short(hosts, rig):
    """Run the short form from both hosts; return its record, with what the tool printed as ``printed``."""
    rig.declare(
        scale={"nodes": 2, "tasks_per_node": 2}, hosts=hosts.names, interface="eth0"
    )
    done = run_on(hosts, rig, "-n", "Io500Short", "--keep-stage-files")
    rig.assert_clean()
    assert len(done.records) == 1, done.out
    printed = [file.read_text() for file in done.stage.rglob("io500.1.out")]
    assert printed, done.out
    return {**done.records[0], "printed": printed[0]}


def assert_values_are_the_tools(record):
    """The medians of the record are the figures that IO500 printed, the scores as well."""
    values = {metric["name"]: metric["median"] for metric in record["metrics"]}
    assert list(values) == [m.name for m in (*METRICS.values(), BW, MD, SCORE)]
    printed = dict(
        re.findall(r"^\[RESULT\] +(\S+) +(\S+) ", record["printed"], re.MULTILINE)
    )
    assert {METRICS[name].name: float(value) for name, value in printed.items()} == {
        name: value
        for name, value in values.items()
        if name not in ("bw", "md", "score")
    }
    total = re.search(
        r"Bandwidth (\S+) GiB/s : IOPS (\S+) kiops : TOTAL (\S+)", record["printed"]
    )
    assert [values["bw"], values["md"], values["score"]] == pytest.approx(
        [float(value) for value in total.groups()], rel=1e-4
    )


@pytest.mark.skipif(shutil.which("io500") is None, reason="io500 is not on PATH")
def test_hosts_with_one_cache_read_and_stat_nothing_that_is_believed(
    hosts, storage, make_module_rig
):
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
        "ior_easy_write_bw",
        "ior_hard_write_bw",
        "mdtest_easy_write_rate",
        "mdtest_hard_write_rate",
        "find_rate",
        "mdtest_easy_delete_rate",
        "mdtest_hard_delete_rate",
    }, record["reason"]
    witnessed = [
        f
        for f in record["findings"]
        if f["guard"] == "G8" and f["metric"] == "ior_hard_write_bw"
    ]
    assert any("as many bytes as the tool" in f["saw"] for f in witnessed), witnessed
    # The counters over time tell the phases apart: both writes moved their bytes while they ran.
    by_phase = {
        f["metric"]: f["saw"]
        for f in record["findings"]
        if "while it ran" in f["demands"]
    }
    for metric in ("ior_easy_write_bw", "ior_hard_write_bw"):
        assert "counted while the phase ran" in by_phase[metric]


#: The back ends of IOR through which all tasks write one file, by the feature of an IOR that has them.
BACK_ENDS = {"ior-mpiio": "MPIIO", "ior-hdf5": "HDF5", "ior-ncmpi": "NCMPI"}


def offered():
    """The features of the IOR on PATH, back ends among them."""
    return ["ior", *(one for one in BACK_ENDS if one in programs.machine().features)]


def of_shared_files(run):
    """The metrics by name of each back end."""
    records = of(run, "SharedFile")
    for record in records:
        # PnetCDF makes each file twice, and IOR says so: that is no fault.
        assert "warning of the tool" not in str(record)
    return {
        record["parameters"]["api"]: {
            metric["name"]: metric for metric in record["metrics"]
        }
        for record in records
    }


def test_a_shared_file_is_written_by_all_hosts_through_each_library(
    cluster, make_module_rig
):
    """It is read back by the next host, whose cache is that of the writer here: so the read is not believed.

    IOR cannot do that through PnetCDF: there each reads its own part, from an emptied cache.
    """
    rig = make_module_rig(tools=offered(), limits={"case_bytes": "96 MiB"})
    hosts = cluster.names[: 3 if FULL else 2]
    scale = {"nodes": len(hosts), "tasks_per_node": 2}
    rig.declare(scale=scale, hosts=hosts, interface="eth0")
    done = run_on(cluster, rig, "-n", "^SharedFile")
    rig.assert_clean()
    found = of_shared_files(done)
    assert {*found} == {BACK_ENDS[one] for one in offered()[1:]}, done.out
    for api, metrics in found.items():
        assert metrics["write_bw"]["verdict"] in ("UNREFERENCED", "UNSTABLE"), done.out
        believed = metrics["read_bw"]["verdict"] in ("UNREFERENCED", "UNSTABLE")
        assert believed == (api == "NCMPI"), done.out
    assert {record["nodes"] for record in done.records} == {len(hosts)}
