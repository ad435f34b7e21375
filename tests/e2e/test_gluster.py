"""The suite on GlusterFS: real bricks on two hosts, whose clients are programs (FUSE)."""

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

CHECKS = "^(IorPosix%files=per-process%order=sequential|Checkpoint%.*files=shared)"


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
                "honours_o_direct": True,
            },
            limits={"case_files": 2000},
        )
        rig.declare(
            scale={"nodes": 2, "tasks_per_node": 1},
            hosts=hosts.names,
            interface="eth0",
            checkpoints={
                "small": {"state": "66 MiB", "save": "10 min", "restart": "10 min"}
            },
        )
        rig.write_references(GENEROUS)
        yield hosts, rig


def record_of(run, check, **parameters):
    """The only record of a check with some parameters."""
    (found,) = (
        r
        for r in run.records
        if r["check"] == check and parameters.items() <= r["parameters"].items()
    )
    return found


@pytest.fixture(scope="module")
def run(site):
    """IOR, fio and mdtest from two hosts."""
    return run_on(*site, "-n", CHECKS, "--keep-stage-files")


def test_a_healthy_volume_is_not_refused(run):
    assert sorted((r["check"], r["verdict"]) for r in run.records) == [
        ("Checkpoint", "PASS"),
        ("IorPosix", "PASS"),
        ("IorPosix", "PASS"),
    ], run.out


#: IOR does not shift its readers over shuffled offsets in a shared file, and nobody can say that this client's cache is empty.
UNPROVEN = {"files": "shared", "order": "random", "cache": "buffered"}


def test_no_check_at_all_is_refused(site):
    found = run_on(*site, timeout=3000)
    wrong = [
        f"{one['case']}: {one['reason']}"
        for one in found.records
        if one["verdict"] in ("INVALID", "ERROR") and one["parameters"] != UNPROVEN
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


@pytest.fixture(scope="module")
def walk(site):
    """A software stack that one host unpacked and the other walks."""
    return run_on(*site, "-n", "^ColdWalk")


def test_a_walk_is_over_the_tree_of_the_other_host(walk):
    assert [r["verdict"] for r in walk.records] == ["UNREFERENCED"] * 2, walk.out
    for meanwhile in ("alone", "changed"):
        record = record_of(walk, "ColdWalk", meanwhile=meanwhile)
        values = {metric["name"]: metric["median"] for metric in record["metrics"]}
        assert list(values) == [
            "unpack_rate",
            "list_rate",
            "clone_rate",
            "remove_rate",
            "import_time",
        ]
        assert all(value > 0 for value in values.values())
        said = {(f["metric"], f["guard"], f["saw"]) for f in record["findings"]}
        for metric in ("list_rate", "clone_rate", "remove_rate", "import_time"):
            assert (metric, "G1", "readers shifted by 1 of 2 nodes") in said


@pytest.mark.parametrize(
    ("program", "script", "reason"),
    [
        (
            "find",
            '"$real" "$@" | head -n 20',
            r"list, repetition 0: walk: task . handled \d+ files, expected",
        ),
        ("cp", "exit 0", "clone, repetition 0: walk: task . handled 0 files, expected"),
        (
            "rm",
            'case "$*" in *tree.*) exit 0 ;; esac; "$real" "$@"',
            "remove, repetition 0: walk: task . handled 0 files, expected",
        ),
        # Its links lead to files that lie elsewhere.
        (
            "tar",
            'd=$(mktemp -d); "$real" "${@:1:3}" "$d"; ln -s "$d"/* "${@: -1}"',
            "walk: task . handled 0 files",
        ),
    ],
)
def test_a_walk_that_did_less_is_refused(site, program, script, reason):
    _, rig = site
    rig.program(program, script)
    try:
        done = run_on(*site, "-n", "ColdWalk%meanwhile=alone")
    finally:
        (rig.bin / program).unlink()
    done.never_passed(reason)
