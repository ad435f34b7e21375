"""What a site declares is held against its nodes, its servers and its ceilings."""

from types import SimpleNamespace

import pytest
import yaml

from iogauge.cases import job_files
from iogauge.guards.cache import client_cache, write_back
from iogauge.guards.finding import Outcome
from iogauge.node import inventory
from iogauge.site.references import References
from support import stage as healthy
from support.extras import extras
from support.whole import data

MIB, GIB = 1 << 20, 1 << 30
OK, WARN, INVALID = Outcome.OK, Outcome.WARN, Outcome.INVALID


# --- memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "declared, seen, needed, told",
    [
        (
            12 * MIB,
            24 * GIB,
            48 * GIB,
            "M = 24 GiB, as a node says (node.memory: 12 MiB)",
        ),
        (16 * GIB, 0, 32 * GIB, "M = 16 GiB"),
        # Nodes tell whole GiB: 23.6 GiB become 24.
        (int(23.6 * GIB), 24 * GIB, 2 * int(23.6 * GIB), "M = 23.6 GiB"),
        (int(23.4 * GIB), 24 * GIB, 48 * GIB, "M = 24 GiB, as a node says"),
    ],
)
def test_the_larger_memory_counts(declared, seen, needed, told):
    whole = data(o_direct=False).declared(node={"memory": f"{declared} B"})
    whole = whole.alter(nodes={"n1": {"mem.bytes": seen}} if seen else {})
    for size, outcome in ((needed, OK), (needed - 1, INVALID)):
        planned = whole.planned("read", evict=False, data_bytes=size)
        planned = planned.planned("write", fsync=False, data_bytes=size)
        read, write = (
            client_cache(planned.phase("read")),
            write_back(planned.phase("write")),
        )
        assert read and write
        assert (read.outcome, write.outcome) == (outcome, outcome)
        assert told in read.saw and told in write.demands


@pytest.mark.parametrize(
    "groups, files, limit",
    [
        ("0::/job\n", {"sys/fs/cgroup/job/memory.max": f"{GIB}\n"}, GIB),
        # The limits of all groups above hold too.
        ("0::/job/step_0\n", {"sys/fs/cgroup/job/memory.max": f"{GIB}\n"}, GIB),
        # Version 1, and both versions side by side.
        (
            "5:cpu,cpuacct:/other\n4:memory:/job\n0::/\n",
            {"sys/fs/cgroup/memory/job/memory.limit_in_bytes": f"{GIB}\n"},
            GIB,
        ),
        (
            "4:memory:/job\n",
            {"sys/fs/cgroup/memory/job/memory.limit_in_bytes": "9223372036854771712\n"},
            None,
        ),
        # A group outside of what is mounted here, and none at all.
        ("0::/../job\n", {"sys/fs/cgroup/memory.max": f"{GIB}\n"}, None),
    ],
)
def test_a_control_group_limits_memory(tmp_path, groups, files, limit):
    told = {
        "proc/meminfo": "MemTotal: 263816952 kB\n",
        "proc/self/cgroup": groups,
        **files,
    }
    for name, text in told.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    facts = inventory.collect(str(tmp_path), root=tmp_path, deadline=60)
    assert facts["mem.bytes"] == 252 * GIB
    assert facts.get("mem.limit") == limit


# --- references: how wide -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "leaf, refused",
    [
        ([100, -0.9, None, "MiB/s"], ""),
        ([100, -0.91, None, "MiB/s"], " (lower bound)"),
        ([100, -1, 1, "us"], ""),
        ([100, -1, 9.1, "us"], " (upper bound)"),
        ([144, -0.9862, 0, "1"], ""),
        ([1, -0.99, None, "1"], ":"),
        (
            ["$xfail", "a, until 2030-01-01", [100, -0.99, None, "MiB/s"]],
            " (lower bound)",
        ),
    ],
)
def test_wide_bounds(tmp_path, monkeypatch, leaf, refused):
    monkeypatch.setenv("IOGAUGE_CONFIGURATION", str(tmp_path))
    (tmp_path / "here").mkdir()
    data = {"$sources": {"Ior": "x"}, "Ior": {"disk": {"m": leaf}}}
    (tmp_path / "here" / "references.yaml").write_text(yaml.safe_dump(data))
    found = References.of_site("here").mistakes
    assert len(found) == bool(refused), found
    for mistake in found:
        assert mistake.key == f"Ior.disk.m{refused.strip(':')}"
        assert "times worse than the value does not meet" in mistake.allowed


# --- references: beside the ceiling ---------------------------------------------------------------


def test_the_job_is_told_how_many_storage_targets_there_are_and_how_long_to_wait_for_its_lock():
    servers = {"count": 1, "nic": "100 GB/s"}
    topology = {"source": "x", "servers": servers, "targets": 4}
    job = SimpleNamespace(
        time_limit=600, launcher=SimpleNamespace(registered_name="srun")
    )
    for site, told in ((extras(topology=topology), 4), (extras(), None)):
        order = job_files.JobFiles(job, healthy.plan(), site, 1, ()).order(
            "session", "case"
        )
        assert order.targets == told
        # Half of the job's time at most.
        assert order.lock_wait_s == 300
