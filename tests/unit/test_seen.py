"""When each guard speaks, and what it reads of a case."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from iogauge.evidence import collect, model, witness
from iogauge.evidence.model import Evidence
from iogauge.evidence.witness import Moved, Witness
from iogauge.guards import cache, contents, figures, preflight
from iogauge.guards.catalogue import OF_PHASE
from iogauge.guards.finding import Finding, Outcome
from iogauge.guards.seen import CaseSeen, LayoutSeen, PhaseSeen
from iogauge.guards.witness import targets_witnessed_of
from iogauge.judge.case import findings_of
from iogauge.node.layouts import FileLayout, Layout, Layouts, Part
from iogauge.node.mounts import Below, Traits
from iogauge.plan.case import CasePlan
from iogauge.site.extras import PartitionExtras
from support import stage
from support.extras import extras

VALUES = {"write_bw": (500.0, 510.0), "read_iops": (20000.0, 20100.0)}


@pytest.fixture
def left(tmp_path: Path) -> Evidence:
    return collect.collect(stage.build(tmp_path / "stage"), stage.plan(), 0)


def case(left: Evidence, plan: CasePlan | None = None, site: PartitionExtras | None = None) -> Any:
    return CaseSeen(
        plan or stage.plan(), left, site or extras(), "quick", stage.METRICS, dict(VALUES)
    )


def phase(left: Evidence, index: int, **access: Any) -> PhaseSeen:
    """The phase that writes (0) or reads (1), whose access differs."""
    seen: PhaseSeen = case(left).phases[index]
    altered = dataclasses.replace(seen.access, **access)
    return dataclasses.replace(seen, phase=dataclasses.replace(seen.phase, access=altered))


@pytest.mark.parametrize(
    ("api", "facts", "words"),
    [
        ("MPIIO", {"ior.uncounted": True}, ["does not ask MPI-IO"]),
        ("MPIIO", {}, []),
        ("POSIX", {"ior.uncounted": True}, []),
    ],
)
def test_an_ior_that_does_not_count_matters_to_mpi_io(
    left: Evidence, api: str, facts: dict[str, bool], words: list[str]
) -> None:
    plan = stage.plan()
    repeat = [dataclasses.replace(one, command=["ior", "-a", api]) for one in plan.repeat]
    seen = case(dataclasses.replace(left, nodes=(facts,)), dataclasses.replace(plan, repeat=repeat))
    found = list(contents.counted_of(seen))
    assert [finding.outcome for finding in found] == [Outcome.WARN] * len(words)
    assert all(word in str(finding) for word, finding in zip(words, found, strict=True))


ALWAYS = {"G22", "G6", "G7"}
TIMED = ALWAYS | {"G4", "G5"}
DATA = TIMED | {"G8", "G18", "G24"}


@pytest.mark.parametrize(
    ("access", "guards"),
    [
        ({"direction": "write"}, DATA | {"G2"}),
        ({"direction": "read"}, DATA | {"G1", "G3", "G21"}),
        ({"direction": "metadata"}, TIMED | {"G9"}),
        ({"direction": "metadata", "task_offset": 1}, TIMED | {"G9", "G1"}),
        ({"direction": "none"}, ALWAYS),
    ],
)
def test_which_guards_speak_of_a_phase(
    left: Evidence, access: dict[str, Any], guards: set[str]
) -> None:
    seen = phase(left, 0, **access)
    assert {finding.guard for guard in OF_PHASE for finding in guard.speak(seen)} == guards


def test_metadata_with_a_warning_is_asked_for_its_bytes(left: Evidence) -> None:
    *rest, last = left.outputs["write"]
    warned = (*rest, dataclasses.replace(last, warnings=("odd",)))
    left = dataclasses.replace(left, outputs={**left.outputs, "write": warned})
    (finding,) = figures.bytes_moved_of(phase(left, 0, direction="metadata"))
    assert "odd" in finding.saw


def over(left: Evidence, **reasons: str) -> Evidence:
    """The evidence of nodes of which the last sees something below the target."""
    *others, last = left.views
    views = (*others, dataclasses.replace(last, below=Below(**reasons)))  # type: ignore[arg-type]
    return dataclasses.replace(left, views=views)


def test_a_stack_that_a_node_sees_outweighs_the_type_and_the_site(left: Evidence) -> None:
    assert case(left).traits.cache == "page-cache"
    left = dataclasses.replace(left, views=left.views * 2)
    site = extras(target={"cache": "page-cache", "honours_o_direct": True})
    seen = case(over(left, cached="loop0, whose file is cached"), site=site)
    assert seen.traits == Traits("opaque", False, True, why="loop0, whose file is cached")


DIRECT_READ = {"direction": "read", "o_direct": True, "evict": False, "task_offset": None}


@pytest.mark.parametrize(
    ("reasons", "access", "rule", "saw"),
    [
        ({"memory": "zram0"}, DIRECT_READ, cache.client_cache_of, "memory, not storage (zram0)"),
        ({"cached": "loop0"}, DIRECT_READ, cache.client_cache_of, "known to honour (loop0)"),
        ({"o_direct": "fscrypt"}, DIRECT_READ, cache.client_cache_of, "honour (fscrypt)"),
        (
            {"memory": "zram0"},
            {"direction": "write", "fsync": True},
            cache.write_back_of,
            "memory, not storage (zram0)",
        ),
        (
            {"fsync": "volatile"},
            {"direction": "write", "fsync": True},
            cache.write_back_of,
            "fsync in the timed region, buffered, V = 788 MiB per node, but fsync proves nothing "
            "here (volatile)",
        ),
        (
            {"o_direct": "fscrypt"},
            {"direction": "write", "fsync": False, "o_direct": True},
            cache.write_back_of,
            "no fsync, O_DIRECT, V = 788 MiB per node (fscrypt)",
        ),
        ({"memory": "zram0"}, {"direction": "metadata"}, preflight.storage_of, "storage (zram0)"),
        ({"fsync": "fuse"}, {"direction": "metadata"}, preflight.storage_of, "nothing here (fuse)"),
    ],
)
def test_a_guard_names_what_lies_below(
    left: Evidence, reasons: dict[str, str], access: dict[str, Any], rule: Any, saw: str
) -> None:
    (before,) = rule(phase(left, 0, **access))
    assert before.outcome is Outcome.OK, before
    (finding,) = rule(phase(over(left, **reasons), 0, **access))
    assert finding.outcome is Outcome.INVALID
    assert saw in finding.saw


def test_fsync_reaches_a_disk_through_the_page_cache_of_a_loop_device(left: Evidence) -> None:
    seen = phase(over(left, cached="loop0"), 0, direction="write", fsync=True)
    assert [finding.outcome for finding in cache.write_back_of(seen)] == [Outcome.OK]


@pytest.mark.parametrize(
    ("declared", "seen", "saw"),
    [
        (None, "", "nothing that compresses"),
        (False, "", "nothing that compresses"),
        (True, "", "a target that compresses, as its site declares"),
        (True, "btrfs compress=zstd", "on btrfs compress=zstd"),
        (None, "dm-vdo", "on dm-vdo"),
        (False, "zfs", "on zfs, though the site declares target.compresses: false"),
    ],
)
def test_compression_that_a_node_sees_outweighs_the_site(
    left: Evidence, declared: bool | None, seen: str, saw: str
) -> None:
    site = extras(target={} if declared is None else {"compresses": declared})
    seen_case = case(over(left, compresses=seen), site=site)
    (finding,) = cache.data_entropy_of(seen_case.phases[0])
    assert finding.saw.endswith(saw) or finding.saw.startswith(saw)


def test_a_read_within_an_execution_that_writes_begins_when_that_has_ended(left: Evidence) -> None:
    seen = phase(left, 1)
    within = dataclasses.replace(seen, phase=dataclasses.replace(seen.phase, within="write"))
    (finding,) = figures.read_after_write_of(within)
    assert (finding.outcome, finding.saw) == (Outcome.OK, "2 read(s), each after a write")


@pytest.mark.parametrize(("servers", "memory"), [(None, "8 GiB"), (2, "4 GiB")])
def test_memory_of_the_servers_that_hold_the_files(
    left: Evidence, servers: int | None, memory: str
) -> None:
    declared = {"count": 4, "nic": "10 GB/s", "memory": "2 GiB"}
    site = extras(topology={"source": "x", "servers": declared})
    seen = case(left, stage.plan(servers=servers), site).phases[1]
    (finding,) = cache.server_cache_of(seen)
    assert f"{memory} of memory in the servers" in finding.saw


FILE = FileLayout(
    path="data",
    parts=(Part(stripe_count=4, stripe_bytes=1 << 20, objects=(0, 1, 2, 3), instantiated=True),),
)
NOTED = model.Striping({}, Layouts(repetition=1, files=(FILE,), total=1))


@pytest.mark.parametrize("writes_first", [False, True])
@pytest.mark.parametrize(("less", "outcome"), [(0, Outcome.OK), (4, Outcome.INVALID)])
def test_stripes_of_the_file_of_one_execution(
    left: Evidence, writes_first: bool, less: int, outcome: Outcome
) -> None:
    executions = stage.plan().executions if writes_first else 1
    plan = stage.plan(
        layout=Layout(stripe_count=4),
        shared_file=True,
        writes_first=writes_first,
        held_bytes=32 * (1 << 20) * executions - less,
    )
    seen = LayoutSeen(case(left, plan), NOTED)
    (finding,) = preflight.stripes_against_size_of(seen)
    assert finding.outcome is outcome


@pytest.mark.parametrize("silent", [(), (3,), (0, 3)])
def test_bytes_with_each_target_are_those_of_all_repetitions(
    left: Evidence, silent: tuple[int, ...]
) -> None:
    """A target that is silent in one repetition has bytes; a target that is silent in all has none."""
    (view,) = left.views
    mount = dataclasses.replace(view.mount, type="lustre", source="10.0.0.1@tcp:/lustre")
    views = (dataclasses.replace(view, mount=mount),)
    testimony = []
    for repetition in (1, 2):
        heard = {i for i in range(4) if i not in silent and (i != 1 or repetition == 2)}
        targets = {f"lustre-OST{i:04x}": Moved(5 << 20, (i + 1) << 20) for i in sorted(heard)}
        told = Witness(
            host=view.host,
            started=1.0,
            ended=2.0,
            synced=None,
            asked=Moved(),
            moved=Moved(),
            targets=targets,
        )
        testimony.append(witness.Testimony(witnesses=(told,), expected=1))
    changed = dataclasses.replace(
        left, views=views, testimony={"write": tuple(testimony)}, striping=(NOTED,)
    )
    seen = case(changed).phases[0]
    plan = dataclasses.replace(seen.phase, data_bytes=1 << 30)
    (finding,) = targets_witnessed_of(dataclasses.replace(seen, phase=plan))
    assert finding.outcome is (Outcome.INVALID if silent else Outcome.OK), finding
    if not silent:
        assert "4 of 4" in finding.saw
        assert ", 2 MiB (ost0000) to 8 MiB (ost0003)" in finding.saw
    # Files that are shorter than a stripe on each target prove nothing.
    (finding,) = targets_witnessed_of(
        dataclasses.replace(seen, phase=dataclasses.replace(plan, data_bytes=1 << 20))
    )
    assert finding.outcome is Outcome.OK


def test_files_of_their_own_are_not_asked_for_stripes(left: Evidence) -> None:
    seen = LayoutSeen(case(left), NOTED)
    assert not list(preflight.stripes_against_size_of(seen))


def test_a_finding_of_one_metric_holds_for_that_alone(left: Evidence) -> None:
    """The ceiling is another one for each metric of a phase."""
    write, read = stage.plan().repeat
    rates = {**write.rates, **read.rates}
    both = dataclasses.replace(write, rates=rates)
    left = dataclasses.replace(left, outputs={"write": (), "read": ()})
    ceilings: list[Finding] = [
        finding
        for finding in findings_of(case(left, stage.plan(repeat=[both])))
        if finding.guard == "G6"
    ]
    assert [finding.metric for finding in ceilings] == list(rates)


@pytest.mark.parametrize(
    ("below", "disk"),
    [
        (Below(devices=("8:1",), disks=("8:0",), names={"8:0": "sda", "8:1": "sda1"}), "8:0"),
        (
            Below(
                devices=("259:2",),
                disks=("259:0",),
                names={"259:0": "nvme0n1", "259:2": "nvme0n1p2"},
            ),
            "259:0",
        ),
        # A whole disk, a mapped device, a loop device on a disk, two disks.
        (Below(devices=("8:0",), disks=("8:0",), names={"8:0": "sda"}), None),
        (Below(devices=("253:0",), disks=("8:0",), names={"8:0": "sda", "253:0": "dm-0"}), None),
        (Below(devices=("7:0",), disks=("8:0",), names={"8:0": "sda", "7:0": "loop0"}), None),
        (Below(devices=("8:1",), disks=("8:0", "8:16"), names={"8:0": "sda", "8:1": "sda1"}), None),
    ],
)
def test_others_on_a_partitions_disk_are_load(
    left: Evidence, below: Below, disk: str | None
) -> None:
    views = tuple(dataclasses.replace(view, below=below) for view in left.views)
    seen = case(dataclasses.replace(left, views=views))
    assert seen.shared_counters == {"n1": (disk,) if disk else below.devices}
    assert seen.counters == {"n1": below.devices}
