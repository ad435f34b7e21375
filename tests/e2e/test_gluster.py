"""The suite on GlusterFS: real bricks on two hosts, whose clients are programs (FUSE)."""

import json

import pytest

from e2e.rig import GENEROUS
from e2e.test_several_hosts import of_shared_files, offered, run_on
from support import gluster
from support import hosts as support
from support.hosts import Hosts

pytestmark = [
    pytest.mark.needs_ior,
    pytest.mark.needs_fio,
    pytest.mark.slow,
    pytest.mark.nightly,
]

CHECKS = "^IorPosix%files=per-process%order=sequential"


@pytest.fixture(scope="module")
def site(storage, make_module_rig):
    """Two hosts, and a site on a volume that has a brick on each."""
    for reason in (support.why_not(), gluster.why_not()):
        if reason is not None:
            pytest.skip(reason)
    with (
        Hosts(2, storage) as hosts,
        gluster.volume(hosts, storage / "gluster") as point,
    ):
        assert hosts.run("n1", ["mkdir", str(point / "t")]).returncode == 0
        rig = make_module_rig(
            target=point / "t",
            # A read through PnetCDF needs a cache that can be emptied.
            tools=("fio", "mdtest", *({*offered()} - {"ior-ncmpi"})),
            declared={
                "type": gluster.TYPE,
                "source": gluster.source(hosts),
                "uuid": f"glusterfs-{gluster.VOLUME}",
                "honours_o_direct": True,
            },
            limits={"case_files": 2000, "phase_seconds": "2 s"},
        )
        rig.declare(
            scale={"nodes": 2, "tasks_per_node": 1},
            hosts=hosts.names,
            interface="eth0",
        )
        rig.write_references(GENEROUS)
        yield hosts, rig


@pytest.fixture(scope="module")
def run(site):
    """IOR, fio and mdtest from two hosts."""
    return run_on(*site, "-n", CHECKS, "--keep-stage-files")


def test_a_healthy_volume_is_not_refused(run):
    assert sorted((r["check"], r["verdict"]) for r in run.records) == [
        ("IorPosix", "PASS"),
        ("IorPosix", "PASS"),
    ], run.out


def test_clients_on_two_hosts_agree_on_all_that_the_file_system_claims(site):
    """Its clients keep what they know for a second: three questions are not claimed. Locks, names and lines hold across hosts."""
    done = run_on(*site, "-n", "^Semantics", "--keep-stage-files")
    (record,) = done.records
    assert record["verdict"] == "PASS", record["reason"]
    (noted,) = site[1].stage.rglob("semantics.1.json")
    answers = json.loads(noted.read_text())["answers"]
    states = [answer["state"] for answer in answers]
    assert states.count("not claimed") <= 3
    assert "does not hold" not in states


def is_unproven(record):
    """Whether a node reads what it wrote itself: nobody can say that this client's cache is empty."""
    is_own = record["parameters"].get("cache") == "buffered"
    # mdtest's second shift comes back to the first of two nodes.
    is_own = is_own or record["check"].startswith("MdtestHard")
    return is_own and "G1 client cache" in record["reason"]


def test_no_check_at_all_is_refused(site):
    # Nothing here counts the bytes of Endurance, which is an ERROR then.
    found = run_on(*site, "-x", "^Endurance", timeout=3000)
    wrong = [
        f"{one['case']}: {one['reason']}"
        for one in found.records
        if one["verdict"] in ("INVALID", "ERROR") and not is_unproven(one)
    ]
    assert len(found.records) > 30 and not wrong, "\n".join(wrong)


def test_a_shared_file_is_read_by_the_host_that_did_not_write_it(site):
    """Each host is a client with a cache of its own. What the tasks send each other meanwhile confirms no byte on storage."""
    done = run_on(*site, "-n", "^SharedFile")
    found = of_shared_files(done)
    assert "MPIIO" in found, done.out
    for metrics in found.values():
        verdicts = {metric["verdict"] for metric in metrics.values()}
        assert verdicts <= {"UNREFERENCED", "UNSTABLE"}, [
            r["reason"] for r in done.records
        ]
    for record in done.records:
        said = {
            f["metric"]: f
            for f in record["findings"]
            if "no second witness" in f["saw"]
        }
        assert {"write_bw", "read_bw"} <= said.keys(), record["findings"]
