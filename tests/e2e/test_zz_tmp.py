import pytest

from e2e.test_several_hosts import run_on
from support import gluster
from support.hosts import Hosts


@pytest.mark.parametrize("x", [1])
def test_brick(storage, make_module_rig, x):
    with (
        Hosts(2, storage) as hosts,
        gluster.volume(hosts, storage / "gluster", "replica", "2") as point,
    ):
        hosts.run("n1", ["mkdir", str(point / "t")])
        rig = make_module_rig(
            target=point / "t",
            tools=("fio",),
            tasks=1,
            declared={
                "type": gluster.TYPE,
                "source": gluster.source(hosts),
                "uuid": f"glusterfs-{gluster.VOLUME}",
                "honours_o_direct": True,
            },
            limits={
                "case_files": 2000,
                "phase_seconds": "40 s",
                "case_bytes": "128 MiB",
            },
        )
        command = "kill -9 $(cat /run/gluster/vols/scratch/*.pid); sleep 5; gluster volume start scratch force"
        rig.declare(
            scale={"nodes": 2, "tasks_per_node": 1},
            hosts=hosts.names,
            interface="eth0",
            failover={"command": command, "after": "8 s"},
        )
        done = run_on(hosts, rig, "-n", "^Failover")
        print(done.out)
        for r in done.records:
            print(r["verdict"], r["reason"])
            for m in r["metrics"]:
                print(m["name"], m["median"], m["verdict"])
        assert 0
