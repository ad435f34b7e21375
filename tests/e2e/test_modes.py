"""Modes: what each selects, in which tier, and the order of an acceptance."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from e2e.rig import Rig, Run

TOOLS = ("fio", "ior", "ior-mpiio", "mdtest")
MODES = ("quick", "daily", "weekly", "acceptance")
#: Of the acceptance only: hours long, or with settings of the client changed.
ACCEPTANCE_ONLY = {"Steady", "Endurance", "ChecksumOverhead"}
SEQUENTIAL = ("-n", "IorPosix%files=per-process%order=sequential")


def phases(run: Run, pattern: str) -> list[str]:
    """Phases of a case in the order in which they ran, as ``write.1``."""
    (stage,) = [path.parent for path in run.stage.rglob(f"{pattern}/phases.tsv")]
    lines = [line.split("\t") for line in (stage / "phases.tsv").read_text().splitlines()]
    begun = [float(line[3]) for line in lines]
    assert begun == sorted(begun)
    return [f"{name}.{rep}" for rep, name, *_ in lines if not name.startswith("facts-")]


def with_sweeps(rig: Rig, **extras: Any) -> None:
    """A site that has points for every sweep."""
    data = rig.settings()
    (partition,) = data["systems"][0]["partitions"]
    partition["extras"]["target"] |= {"type": "lustre", "striping": "lustre"}
    partition["extras"] |= {
        "topology": {
            "source": "made up",
            "servers": {"count": 2, "nic": "1 GB/s"},
            "targets": 4,
        },
        "sweeps": {
            "tasks_per_node": [1, 2],
            "servers": [1, 2],
            "stripe_counts": [1, 4],
            "stripe_sizes": ["1 MiB"],
            "aggregators": [2],
            "tasks_per_client": [2],
        },
        "rights": ["lustre-checksums"],
        **extras,
    }
    data["environments"][0]["features"] += ["ior-hdf5", "ior-ncmpi", "darshan"]
    data["environments"][0]["extras"] = {"mpi": "ompio4", "darshan": "/opt/libdarshan.so"}
    rig.write_settings(data)


def test_each_mode_holds_the_one_before(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(tools=TOOLS)
    with_sweeps(rig)
    everything = rig.reframe("-c", "checks/", "-l")
    found = {"all": set(re.findall(r"^- (.*) /", everything.out, re.MULTILINE))}
    for mode in MODES:
        run = rig.reframe("-c", "checks/", "-l", f"--mode={mode}")
        assert run.rc == 0, run.out
        found[mode] = set(re.findall(r"^- (.*) /", run.out, re.MULTILINE))
    assert found["quick"] < found["daily"] < found["weekly"] < found["acceptance"]
    assert found["acceptance"] == found["all"]
    left = {case.split()[0] for case in found["acceptance"] - found["weekly"]}
    assert left == ACCEPTANCE_ONLY
    sweeps = {"TaskScaling", "ServerScaling", "StripeCount", "StripeSize", "Aggregators"}
    assert sweeps <= {case.split()[0] for case in found["weekly"] - found["daily"]}


@pytest.mark.needs_ior
class TestAcceptance:
    @pytest.fixture
    def rig(self, make_rig: Callable[..., Rig]) -> Rig:
        rig = make_rig(tools=("ior",), limits={"repetitions": 2, "case_bytes": "24 MiB"})
        data = rig.settings()
        (partition,) = data["systems"][0]["partitions"]
        partition["extras"]["tiers"] = {"quick": {"case_bytes": "192 MiB", "writes_first": True}}
        rig.write_settings(data)
        return rig

    def test_all_writes_come_before_the_first_read(self, rig: Rig) -> None:
        run = rig.run(*SEQUENTIAL, "-S", "repetitions=2")
        direct, buffered = sorted(run.records, key=lambda r: "buffered" in r["case"])
        for record in (direct, buffered):
            # Two repetitions may spread by more than 100 % if the machine is busy.
            assert record["verdict"] in ("UNREFERENCED", "UNSTABLE"), record["reason"]
            assert record["overridden"] == {}
            (order,) = {f["saw"]: f for f in record["findings"] if f["guard"] == "G21"}.values()
            assert order["demands"].startswith("all writes of this run")
            assert all(m["cold"] for m in record["metrics"])
        writes = ["write.0", "write.1", "write.2"]
        assert phases(run, f"IorPosix_{direct['hash']}") == [
            *writes,
            *("read.0", "read.1", "read.2"),
        ]
        assert phases(run, f"IorPosix_{buffered['hash']}") == [
            *writes,
            *("evict-read.0", "read.0", "evict-read.1", "read.1", "evict-read.2", "read.2"),
        ]
        # Three sets of files, of what the limits allow together.
        assert " -b 32m " in direct["commands"][0]
        rig.assert_clean()
