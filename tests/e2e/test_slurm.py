"""The suite on a real Slurm of four nodes: the whole chain, all the ways in which a job does not reach its end, and a day."""

import json
import os
import re
import shutil
from collections import defaultdict

import pytest
import yaml

from e2e.rig import ROOT, command, verdict_of, wait_for
from support import compiler
from support import slurm as support
from support.hosts import Hosts
from support.shell import completed
from support.slurm import Slurm

pytestmark = [pytest.mark.needs_slurm, pytest.mark.needs_fio, pytest.mark.slow]

NODES = 4
#: Slurm's warning comes up to a minute early: far from what a case takes on a busy machine.
LIMIT = "10m"
OPTIONS = ("--exec-policy=serial", "--keep-stage-files")
#: IOR through POSIX, a file for each process and one for all, O_DIRECT.
IOR = "IorPosix%files={}%order=sequential%cache=direct"
#: fio's servers on all nodes, their client on the first.
RANDOM_READ = "RandomRead%block=128KiB%span=all"

REFERENCES = """\
$sources: {IorPosix: made up, RandomRead: made up}
IorPosix:
  $index: [$partition, files]
  'rig:default':
    per-process: {write_bw: [1, -0.5, null, MiB/s], read_bw: [1, -0.5, null, MiB/s]}
    shared: {write_bw: [1, -0.5, null, MiB/s], read_bw: [9.0e+6, -0.1, null, MiB/s]}
RandomRead:
  'rig:default': {read_iops: [1, -0.5, null, ops/s], read_bw: [0.1, -0.5, null, MiB/s]}
"""


@pytest.fixture(scope="module")
def slurm(storage):
    """Slurm with accounting, as most sites have it."""
    reason = support.why_not(True)
    if reason is not None:
        pytest.skip(reason)
    with Hosts(NODES + 1, storage) as hosts, Slurm(hosts, True) as slurm:
        yield slurm


class Cluster:
    """A rig's site on a Slurm, and what users do on its head."""

    def __init__(self, rig, slurm, **partition):
        self.rig, self.slurm = rig, slurm
        with rig.configured() as (settings, _):
            settings |= {"scheduler": "slurm", "launcher": "srun", **partition}
            # Ranks of several nodes share a core of this machine, and wait for each other.
            settings["env_vars"].append(["OMPI_MCA_mpi_yield_when_idle", "1"])
            # Slurm 22.05 lets some ranks pass MPI_Init before others with its other fences (docs/cluster.md).
            settings["env_vars"].append(["SLURM_PMIX_FENCE", "ring"])
            settings["extras"] |= {
                "scale": {"nodes": NODES, "tasks_per_node": 2},
                "interface": "eth0",
                "sweeps": {"tasks_per_client": [2]},
            }

    def start(self, *words, **extra):
        """Start ReFrame on the head."""
        path = f"{self.rig.environment(**extra)['PATH']}:/usr/sbin:/sbin"
        asked = self.slurm.hosts.command(self.slurm.head, command(*OPTIONS, *words))
        return self.rig.start(
            asked, **{**extra, **self.slurm.environment, "PATH": path}
        )

    def run(self, *names, **extra):
        """Run checks by name, to the end."""
        process = self.start("-n", "|".join(names), **extra)
        return self.rig.finish(process, 240)

    def running(self, program):
        """Whether a program runs on every node."""
        found = self.slurm.processes()
        return len(found) == NODES and all(
            any(re.search(rf"(^|/){program} ", line) for line in lines)
            for lines in found.values()
        )

    def await_program(self, program):
        """Wait until a program runs on all nodes and there is data on the target."""
        wait_for(lambda: self.running(program), 180, f"{program} on all nodes")
        wait_for(
            lambda: any(p.is_file() and p.stat().st_size > 0 for p in self.data()),
            180,
            "data",
        )

    def data(self):
        """Files on the target, without the session's marker."""
        return [
            p
            for p in self.rig.leftovers()
            if not p.is_dir() and p.name != ".iogauge-session"
        ]

    def assert_nothing_left(self):
        """No job, no process on any node, nothing on the target."""
        wait_for(lambda: not self.slurm.jobs(), 90, "the end of all jobs")
        wait_for(lambda: not self.slurm.processes(), 90, "the end of all processes")
        self.rig.assert_clean()


def long_fio(make, **fields):
    """A rig on which a random read lasts longer than anybody waits, at a pace that leaves the machine to others."""
    limits = {"phase_seconds": "300 s", "case_bytes": "64 MiB", "lock_lease": "10 s"}
    rig = make(tools=("fio", "ior"), limits=limits, **{"time_limit": LIMIT, **fields})
    paced = "grep -q rate_iops randread.fio || echo rate_iops=50 >>randread.fio"
    rig.program(
        "fio", f'case "$*" in *randread.fio*) {paced} ;; esac; exec "$real" "$@"'
    )
    return rig


def reason_of(run):
    """Why the only case was an ERROR."""
    assert run.rc != 0
    run.shows_no_pass()
    assert run.record["verdict"] == "ERROR", run.out
    return str(run.record["reason"])


# --- The whole chain --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def measured(slurm, make_module_rig):
    """IOR and fio on four nodes, with references."""
    compiler.demand()
    if shutil.which("ior") is None:
        pytest.skip("not on PATH: ior")
    rig = make_module_rig(tools=("fio", "ior"), time_limit=LIMIT)
    library, where = rig.base / "where.so", rig.base / "where"
    source = ROOT / "tests" / "support" / "where.c"
    completed(["gcc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    where.mkdir()
    rig.program("ior", f'WHERE={where}/ior LD_PRELOAD={library} exec "$real" "$@"')
    cluster = Cluster(rig, slurm)
    rig.write_references(REFERENCES)
    run = cluster.run(f"^{IOR.format('shared')}", f"^{RANDOM_READ}")
    cluster.assert_nothing_left()
    return run, rig


def test_what_meets_its_reference_passes(measured):
    run, _ = measured
    assert {(r["nodes"], r["fingerprint"]["nodes"]) for r in run.records} == {
        (NODES, "n[1-4]")
    }
    found = {record["check"]: record for record in run.records}
    assert {check: verdict_of(record) for check, record in found.items()} == {
        "IorPosix": "FAIL",
        "RandomRead": "PASS",
    }, "\n".join(record["reason"] for record in run.records)
    # On a machine that was too busy the miss is CONTAMINATED, which ends with 0.
    assert run.rc == (found["IorPosix"]["verdict"] == "FAIL")
    assert "read_bw" in found["IorPosix"]["reason"]
    bandwidths = {
        metric["name"]: verdict_of(metric) for metric in found["IorPosix"]["metrics"]
    }
    assert bandwidths == {"write_bw": "PASS", "read_bw": "FAIL"}
    (script,) = run.stage.rglob("RandomRead*/rfm_job.sh")
    (warned,) = re.findall(
        r"^#SBATCH --signal=B:USR1@(\d+)$", script.read_text(), re.MULTILINE
    )
    assert int(warned) >= 30 and f"IOG_WARNED={warned}\n" in script.read_text()


def accesses(rig, what):
    """Hosts by case, file and offset from which IOR did something."""
    found = defaultdict(set)
    for line in (rig.base / "where" / "ior").read_text().splitlines():
        host, did, path, offset = line.split()
        _, _, _user, _session, case, *names = path.split("/")
        if did == what:
            found[case, "/".join(names), int(offset)].add(host)
    return found


def shifted(hosts):
    """The next host in order; the first after the last."""
    return {f"n{int(host[1:]) % NODES + 1}" for host in hosts}


def test_every_byte_is_read_by_another_node_than_wrote_it(measured):
    _, rig = measured
    wrote, read = (accesses(rig, what) for what in ("write", "read"))
    places = wrote.keys()
    assert places == read.keys()
    assert len(places) >= 8
    for place in places:
        assert len(wrote[place]) == len(read[place]) == 1
        assert wrote[place].isdisjoint(read[place])
    # Ranks fill a node after the other; -Q 1 shifts the readers by one node.
    assert {shifted(read[place]) == wrote[place] for place in places} == {True}
    assert set().union(*(wrote[place] for place in places)) == {"n1", "n2", "n3", "n4"}


def test_the_clients_of_fio_are_the_nodes(measured):
    run, _ = measured
    served = [line.split() for line in run.file("servers.txt").read_text().splitlines()]
    assert [host for host, *_ in served] == ["n1", "n2", "n3", "n4"]
    text = run.file("fio-randread.1.json").read_text()
    clients = json.loads(text[text.index("{") :])["client_stats"]
    per_client = [
        client["hostname"] for client in clients if client["jobname"] != "All clients"
    ]
    addresses = [address.partition(",")[0] for _, address, _ in served]
    assert (
        sorted(per_client) == sorted(2 * addresses) or sorted(per_client) == addresses
    )
    total = {client["jobname"]: client["read"]["total_ios"] for client in clients}
    assert 0 < total["randread"] < total["All clients"]


@pytest.mark.parametrize("cyclic", [False, True], ids=["block", "cyclic"])
def test_ranks_stand_where_they_are_asked_to(slurm, cyclic):
    from iogauge.plan.script import binding_options, placing_options

    options = [
        *placing_options("srun", 2, cyclic),
        *binding_options("srun", 2, os.cpu_count() or 1),
    ]
    told = "echo $SLURM_PROCID $(uname -n) $(sed -n 's/^Cpus_allowed_list:.//p' /proc/self/status)"
    words = [
        "srun",
        "--nodes=4",
        "--ntasks=8",
        "--ntasks-per-node=2",
        "--exclusive",
        *options,
    ]
    lines = [line.split() for line in slurm.run(*words, "sh", "-c", told).splitlines()]
    ranks = [host for _, host, _ in sorted(lines, key=lambda line: int(line[0]))]
    nodes = slurm.nodes
    assert ranks == (
        nodes * 2 if cyclic else [node for node in nodes for _ in range(2)]
    )
    if (os.cpu_count() or 1) >= 2:
        for node in nodes:
            first, second = (cores for _, host, cores in lines if host == node)
            assert first.isdigit() and second.isdigit() and first != second


# --- Jobs that do not reach their end ---------------------------------------------------------------


def test_one_launch_asks_the_nodes_what_they_lack(slurm, make_rig):
    """They see the clone and the target; a queue that does not exist answers nothing."""

    def check(scale=None, **partition):
        cluster = Cluster(make_rig(tools=("fio",)), slurm, **partition)
        data = yaml.safe_load((cluster.rig.site / "settings.yaml").read_text())
        data["systems"][0]["partitions"][0]["extras"]["scale"] |= scale or {}
        cluster.rig.write_settings(data)
        path = f"{cluster.rig.environment()['PATH']}:/usr/sbin:/sbin"
        asked = slurm.hosts.command(slurm.head, ["iogauge", "check", "--all", "rig"])
        process = cluster.rig.start(asked, **{**slurm.environment, "PATH": path})
        return cluster.rig.finish(process, 240)

    said = " ".join(check().out.split())
    assert f"nodes of default: {NODES} answered: " in said, said
    assert "does not see" not in said and "cannot write" not in said, said
    said = " ".join(check(access=["--partition=nowhere"]).out.split())
    assert (
        "nodes of default: no node answered: srun: error: invalid partition" in said
    ), said
    assert "not ready" in said, said
    slurm.run("scontrol", "update", "PartitionName=compute", "MaxTime=5")
    try:
        said = " ".join(check(scale={"nodes": NODES + 1}).out.split())
        assert "time_limit is 10m, and compute allows 5 min" in said, said
        assert f"a case has {NODES + 1} nodes, and compute has {NODES}" in said, said
    finally:
        slurm.run("scontrol", "update", "PartitionName=compute", "MaxTime=INFINITE")


def test_a_job_that_never_starts_ends_with_the_reason_of_slurm(slurm, make_rig):
    rig = make_rig(tools=("fio",), time_limit=LIMIT, limits={"queue_wait": "20 s"})
    slurm.run("scontrol", "update", "PartitionName=compute", "MaxTime=5")
    try:
        run = Cluster(rig, slurm).run("^FioRandomRead%block=128KiB")
    finally:
        slurm.run("scontrol", "update", "PartitionName=compute", "MaxTime=INFINITE")
    reason = reason_of(run)
    assert "the job waited 20 s in the queue and was cancelled" in reason
    assert "PartitionTimeLimit" in reason, run.out
    rig.assert_clean()


def test_nodes_take_turns(slurm, make_rig):
    """Two nights measure two nodes, of which each has a line of its own."""
    cluster = Cluster(make_rig(tools=("fio",)), slurm)
    data = yaml.safe_load((cluster.rig.site / "settings.yaml").read_text())
    extras = data["systems"][0]["partitions"][0]["extras"]
    extras["scale"]["nodes"] = 1
    extras["in_turn"] = list(slurm.nodes)
    cluster.rig.write_settings(data)
    hosts = []
    for _ in slurm.nodes[:2]:
        run = cluster.run("^FioRandomRead%block=128KiB")
        hosts.append(json.loads(run.file("open.json").read_text())["view"]["host"])
    records = run.records
    assert hosts == [record["pinned"] for record in records] == slurm.nodes[:2]
    assert len({record["line"] for record in records}) == len(records)


def test_a_burst_buffer_that_slurm_does_not_have_is_no_pass(slurm, make_rig):
    """It passes over what is asked of it, with `#BB` and with `--bb`."""
    buffers = [{"name": "bb", "options": ["#BB create_persistent capacity={capacity}"]}]
    cluster = Cluster(make_rig(tools=("fio",)), slurm, resources=buffers)
    data = yaml.safe_load((cluster.rig.site / "settings.yaml").read_text())
    data["systems"][0]["partitions"][0]["extras"]["resources"] = ["bb"]
    cluster.rig.write_settings(data)
    assert "this Slurm has no burst buffers" in reason_of(
        cluster.run("^FioRandomRead%block=128KiB")
    )


@pytest.mark.nightly
def test_the_time_limit(slurm, make_rig):
    """The job is warned, tidies up, and its record says why."""
    rig = long_fio(make_rig, time_limit="1m")
    cluster = Cluster(rig, slurm)
    process = cluster.start("-n", f"^{RANDOM_READ}")
    cluster.await_program("fio")
    run = rig.finish(process, 240)
    cluster.assert_nothing_left()
    reason = reason_of(run)
    assert re.search("phase randread, repetition [01] never finished", reason)
    assert "the scheduler warned of the time limit, told to end by SIGUSR1" in reason


def test_a_node_that_dies(slurm, make_rig):
    """Network and power are gone while data is written; n1 runs the job script."""
    rig = long_fio(make_rig)
    cluster = Cluster(rig, slurm)
    process = cluster.start("-n", f"^{RANDOM_READ}")
    cluster.await_program("fio")
    slurm.cut("n1")
    try:
        run = rig.finish(process, 240)
        assert "the scheduler says NODE_FAIL" in reason_of(run)
        wait_for(lambda: not slurm.jobs(), 120, "the end of the job")
        wait_for(lambda: not slurm.processes(), 120, "the end of all processes")
        # It kept the lock, and nobody can ask whether it is dead.
        assert all(".lock" in path.parts for path in cluster.data())
        done = rig.iogauge("clean", "--all", "--target", str(rig.target))
        assert done.rc == 0 and "removed: the lock of" in done.out, done.out
        rig.assert_clean()
    finally:
        slurm.mend("n1")
