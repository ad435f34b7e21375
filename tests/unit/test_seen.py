"""When each guard speaks, and what it reads of a case."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iogauge.core.measurement import Disturber
from iogauge.evidence import collect, witness
from iogauge.evidence.model import Evidence
from iogauge.guards import clock, contents, figures, origin, others
from iogauge.guards import witness as guards_witness
from iogauge.guards.finding import Outcome
from iogauge.guards.seen import CaseSeen, Execution, PhaseSeen
from iogauge.guards.witness import bytes_witnessed
from iogauge.node.counters import Reading
from iogauge.node.kinds import Below
from iogauge.node.mounts import Mount
from iogauge.plan.case import CasePlan
from iogauge.plan.seen import Instant, Witness
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
    altered = replace(seen.access, **access)
    return replace(seen, phase=replace(seen.phase, access=altered))


def on(seen: PhaseSeen, kind: str) -> PhaseSeen:
    """The same on a file system of a type."""
    site = extras(target={"path": "/scratch", "type": kind})
    return replace(seen, case=replace(seen.case, extras=site))


def heard_in(left: Evidence, testimony: witness.Testimony) -> Execution:
    """The first execution that writes, of which the kernels say this."""
    return replace(phase(left, 0).executions[0], testimony=testimony)


def below(left: Evidence, stack: Below) -> tuple[Any, ...]:
    """The views of nodes that see this below the target."""
    return tuple(replace(view, below=stack) for view in left.views)


def task_of(left: Evidence, **says: Any) -> Witness:
    """A task of the first node, which ran for a second."""
    plain = {"host": left.views[0].host, "started": 1.0, "ended": 2.0, "synced": None}
    return Witness(**{**plain, "asked": Reading(), "moved": Reading(), **says})


def alone(one: Witness) -> witness.Testimony:
    return witness.Testimony(witnesses=(one,), expected=1)


def output_of(left: Evidence, of: str = "write", /, **change: Any) -> Any:
    """The first output of a phase, whose only part differs."""
    (one, *_) = left.outputs[of]
    return replace(one, phases=(replace(one.phases[0], **change),))


SIZES = (
    "WARNING: inconsistent file size by different tasks",
    "WARNING: Expected aggregate file size       = 75497472",
    "WARNING: Stat() of aggregate file size      = 37748736",
    "WARNING: Using actual aggregate bytes moved = 75497472",
)


@pytest.mark.parametrize(
    ("warnings", "read", "outcome"),
    [
        (SIZES, 1, Outcome.WARN),
        # All tasks agree on a wrong size; not all was read; another warning.
        (SIZES[1:], 1, Outcome.INVALID),
        (SIZES, 0, Outcome.INVALID),
        ((*SIZES, "WARNING: odd"), 1, Outcome.INVALID),
    ],
)
def test_sizes_that_clients_do_not_see_alike_yet(left, warnings, read, outcome):
    *rest, last = left.outputs["write"]
    wrote = stage.plan().repeat[0].data_bytes or 0
    moved = {"bytes_moved": wrote - 1 + read}
    outputs = {
        "write": (*rest, replace(last, warnings=warnings)),
        "read": [
            replace(one, phases=tuple(replace(part, **moved) for part in one.phases))
            for one in left.outputs["read"]
        ],
    }
    plan = stage.plan()
    whole = [replace(one, data_bytes=wrote) for one in plan.repeat]
    seen = case(replace(left, outputs={**left.outputs, **outputs}), replace(plan, repeat=whole))
    finding = figures.bytes_moved(seen.phases[0])
    assert finding.outcome == outcome, finding.saw


def over(left: Evidence, **reasons: str) -> Evidence:
    """The evidence of nodes of which the last sees something below the target."""
    *others, last = left.views
    views = (*others, replace(last, below=Below(**reasons)))  # type: ignore[arg-type]
    return replace(left, views=views)


@pytest.mark.parametrize(
    ("declared", "seen", "saw"),
    [
        (None, "", "nothing that compresses"),
        (True, "", "a target that compresses, as its site declares"),
        (True, "btrfs compress=zstd", "on btrfs compress=zstd"),
        (False, "zfs", "on zfs, though the site declares target.compresses: false"),
    ],
)
def test_compression_that_a_node_sees_outweighs_the_site(left, declared, seen, saw):
    site = extras(target={} if declared is None else {"compresses": declared})
    seen_case = case(over(left, compresses=seen), site=site)
    finding = contents.data_entropy(seen_case.phases[0])
    assert finding.saw.endswith(saw) or finding.saw.startswith(saw)


@pytest.mark.parametrize(
    ("o_direct", "share", "outcome"),
    [
        (False, 1.29, Outcome.OK),
        (False, 1.31, Outcome.INVALID),
        (True, 1.04, Outcome.OK),
        (True, 1.10, Outcome.INVALID),
    ],
)
def test_g8_lets_a_buffered_read_fetch_a_quarter_again(left, o_direct, share, outcome):
    """Memory was short: pages that were read ahead were dropped. A direct read drops none."""
    views = below(left, Below(devices=("8:0",), disks=("8:0",)))
    claimed = 8 << 30
    fetched = Reading(round(share * claimed), 0)
    heard = task_of(left, asked=Reading(claimed, 0), moved=fetched, counters={"8:0": fetched})
    testimony = alone(heard)
    outputs = [
        replace(output, phases=(replace(output.phases[0], bytes_moved=claimed, operations=1024),))
        for output in left.outputs["read"]
    ]
    evidence = replace(
        left,
        views=views,
        outputs={**left.outputs, "read": outputs},
        testimony={"read": (testimony,) * len(outputs)},
    )
    (finding,) = bytes_witnessed(phase(evidence, 1, o_direct=o_direct))
    assert finding.outcome is outcome, finding


def writes_heard(left: Evidence, outputs: list[Any], **says: Any) -> Evidence:
    """The evidence if one task spoke of each execution that writes, and these are their outputs."""
    testimony = (alone(task_of(left, **says)),) * len(outputs)
    outputs_of = {**left.outputs, "write": outputs}
    return replace(left, outputs=outputs_of, testimony={"write": testimony})


@pytest.mark.parametrize(("operations", "refused"), [(None, True), (500, True), (5000, False)])
def test_g8_knows_the_metadata_of_a_disturber(left, operations, refused):
    """btrfs: its files cost 16 KiB each, also beside a stream that is direct."""
    claimed = 376 << 20
    outputs = []
    for output in left.outputs["write"]:
        wrote = replace(output.phases[0], bytes_moved=claimed, operations=376)
        made = replace(wrote, name="create", bytes_moved=None, operations=operations)
        beside = None if operations is None else Disturber(made, 1.0, 1.0)
        totals = {"write": claimed}
        outputs.append(replace(output, phases=(wrote,), totals=totals, disturber=beside))
    says = {"asked": Reading(1 << 20, claimed), "moved": Reading(0, claimed + (50 << 20))}
    evidence = writes_heard(left, outputs, **says)
    seen = phase(evidence, 0, o_direct=True)
    (finding,) = bytes_witnessed(on(seen, "btrfs"))
    assert (finding.outcome is Outcome.INVALID) is refused, finding


NET, DISK, OTHER = "net", "254:0", "7:9"
WAYS = (DISK, OTHER, "8:0", "8:16", "8:32", "8:48")
GIB = 1 << 30


@pytest.mark.parametrize(
    ("wrote", "read", "outcome"),
    [
        ({NET: 1.0}, {NET: 1.0}, Outcome.WARN),
        ({NET: 1.0}, {NET: 0.5}, Outcome.INVALID),
        ({NET: 1.0}, {}, Outcome.INVALID),
        # Bytes that were written did not pass here: nobody knows where those that are read would pass.
        ({NET: 0.5}, {NET: 0.5}, Outcome.WARN),
        ({NET: 0.5}, {NET: 1.0}, Outcome.WARN),
        ({}, {}, Outcome.WARN),
        # GPFS writes a copy to a disk of its own node, and one through the network. It reads the nearer one.
        ({NET: 1.0, DISK: 1.0}, {DISK: 1.0}, Outcome.WARN),
        ({NET: 1.0, DISK: 1.0}, {NET: 0.4, DISK: 0.4}, Outcome.INVALID),
        # A mirror reads a half from each disk.
        ({"8:0": 1.0, "8:16": 1.0}, {"8:0": 0.5, "8:16": 0.5}, Outcome.WARN),
        # A partition counts the bytes of its disk once more.
        ({"8:0": 1.0, "8:1": 1.0}, {"8:0": 0.5, "8:1": 0.5}, Outcome.INVALID),
        # Others used a disk: what passes there is theirs as well, if another way carried the tool's bytes alone.
        ({NET: 1.01, OTHER: 1.06}, {OTHER: 5.0}, Outcome.INVALID),
        # Copies on two servers; a file system over four disks of the node.
        ({NET: 2.0}, {NET: 1.0}, Outcome.WARN),
        (
            {"8:0": 0.25, "8:16": 0.25, "8:32": 0.25, "8:48": 0.25},
            {"8:0": 0.5, "8:16": 0.5},
            Outcome.WARN,
        ),
        ({"8:0": 0.5, "8:16": 0.5}, {"8:0": 0.2, "8:16": 0.2}, Outcome.INVALID),
    ],
)
def test_what_carried_the_writes_may_contradict_reads_and_confirms_none(left, wrote, read, outcome):
    """A client that serves its file system itself (FUSE), whose servers are reached through the network."""
    claimed = 8 << 30
    outputs: dict[str, list[Any]] = {}
    testimony: dict[str, list[witness.Testimony]] = {}
    for name, shares in (("write", wrote), ("read", read)):
        counters = {way: Reading(*(round(x * claimed),) * 2) for way, x in shares.items()}
        # Some executions are as they should be.
        fine = {way: Reading(claimed, claimed) for way in wrote if name == "read"}
        outputs[name], testimony[name] = [], []
        for number, output in enumerate(left.outputs[name]):
            phases = (replace(output.phases[0], bytes_moved=claimed, operations=None),)
            outputs[name].append(replace(output, phases=phases))
            one = task_of(
                left,
                asked=Reading(claimed, claimed),
                moved=Reading(claimed, claimed),
                counters=counters if number < 2 or not fine else fine,
            )
            testimony[name].append(alone(one))
    views = below(left, Below(ways=WAYS))
    evidence = replace(left, outputs={**left.outputs, **outputs}, testimony=testimony, views=views)
    seen = phase(evidence, 1)
    assert not seen.case.counters
    (finding,) = bytes_witnessed(seen)
    assert finding.outcome is outcome, finding


@pytest.mark.parametrize(
    ("moved", "outcome"),
    [
        # Device-mapper before Linux 6.5 counts, though the kernel says that it does not.
        ([GIB, GIB], Outcome.OK),
        ([GIB, GIB // 2], Outcome.INVALID),
        ([GIB, 0], Outcome.INVALID),
        # Later kernels tell the truth.
        ([0, 0], Outcome.WARN),
    ],
)
def test_a_device_that_the_kernel_says_it_does_not_count(left, moved, outcome):
    views = below(left, Below(devices=("252:0",), unsure=("252:0",)))
    outputs, testimony = {}, {}
    for name in ("write", "read"):
        outputs[name] = [output_of(left, name, bytes_moved=GIB, operations=None)] * len(moved)
        counters = [{"252:0": Reading(count, count)} for count in moved]
        asked = {"asked": Reading(GIB, GIB), "moved": Reading(GIB, GIB)}
        testimony[name] = tuple(alone(task_of(left, **asked, counters=c)) for c in counters)
    seen = phase(replace(left, views=views, outputs=outputs, testimony=testimony), 0)
    assert bool(seen.case.counters) == any(moved)
    (finding,) = bytes_witnessed(seen)
    assert finding.outcome is outcome, finding


def test_the_first_node_is_the_node_of_the_job_script(left):
    """Whatever the order of names: seconds since boot are those of one node."""
    (view,) = {one.host: one for one in left.views[:1]}.values()
    views = tuple(replace(view, host=host) for host in ("node10", "node9"))
    heard = [
        Witness(host=host, started=at, ended=at + 1, synced=None, asked=Reading(), moved=Reading())
        for host, at in (("node10", 9000.0), ("node9", 100.0))
    ]
    testimony = witness.Testimony(witnesses=tuple(heard), expected=2)
    evidence = replace(
        left, views=views, opened=views[1], found=((99.0, 0), (101.5, 7), (9002.0, 0))
    )
    seen = heard_in(evidence, testimony)
    assert seen.span == (100.0, 101.0)
    assert seen.found_after == 7
    # Tasks in a time namespace have a clock of their own: the job script knows when it waited for them.
    other_clock = replace(testimony, asked_for=(50099.0, 50102.0))
    assert heard_in(evidence, other_clock).span == (50099.0, 50102.0)
    asked_for = replace(testimony, asked_for=(99.9, 101.2))
    assert heard_in(evidence, asked_for).span == (100.0, 101.0)
    # A job script on a node of its own says nothing of theirs.
    alone = replace(evidence, opened=replace(view, host="login"))
    assert heard_in(alone, testimony).span is None
    # Old records do not say where the script ran.
    unknown = replace(evidence, opened=None)
    assert heard_in(unknown, testimony).span == (9000.0, 9001.0)


def test_g19_gives_no_credit_for_what_only_reads(left):
    """A journal has bytes of what makes, removes or writes; others wrote what was written beside a read or a stat."""
    for index, name in enumerate(("write", "read")):
        (output, *_) = left.outputs[name]
        phases = (replace(output.phases[0], operations=1000),)
        seen = phase(left, index)
        of_local = on(seen, "ext4")
        assert of_local.case.traits.accounts
        of_this = of_local.executions[0]
        credit = others._beside(replace(of_this, output=replace(output, phases=phases)))
        assert (credit.written > 0) == (name == "write"), name
        stats = (replace(phases[0], name="stat"),)
        stat = replace(of_this, output=replace(output, phases=stats))
        assert others._beside(stat) == Reading()


def told(left: Evidence, *written: int) -> Evidence:
    """The evidence of nodes whose only device wrote so many bytes in each execution that writes."""
    views = below(left, Below(devices=("8:0",), disks=("8:0",)))
    testimony = []
    for count in written:
        heard = task_of(left, counters={"8:0": Reading(0, count)})
        testimony.append(alone(heard))
    return replace(left, views=views, testimony={"write": tuple(testimony)})


def longer(looks: Evidence, **says: Any) -> witness.Testimony:
    """The only task of the only execution says something else."""
    (one,) = looks.testimony["write"]
    return replace(one, witnesses=(replace(one.witnesses[0], **says),))


@pytest.mark.parametrize(
    ("sharing", "of_tasks", "outcome"),
    [(1, False, Outcome.INVALID), (3, False, Outcome.WARN), (3, True, Outcome.INVALID)],
)
def test_servers_of_several_hosts_start_their_clocks_apart(left, sharing, of_tasks, outcome):
    """The tool reports 2 s. The device that one host or three share moved bytes for 3 s."""
    size = 512 << 20
    output = output_of(left, seconds=2.0, bytes_moved=size)
    looks = replace(
        told(left, size),
        outputs={**left.outputs, "write": [output]},
        activity=tuple(Instant(1 + n / 10, 0, size * min(n, 30) // 30) for n in range(51)),
    )
    views = tuple(
        replace(looks.views[0], host=f"{looks.views[0].host}{n or ''}", cache_id="one")
        for n in range(sharing)
    )
    (one,) = looks.testimony["write"]
    moved = replace(one.witnesses[0], ended=6.0, asked=Reading(1, size), moved=Reading(0, size))
    ran = witness.Testimony(
        witnesses=tuple(replace(moved, host=view.host) for view in views),
        expected=sharing,
        of_tasks=of_tasks,
    )
    seen = phase(replace(looks, views=views, testimony={"write": (ran,)}), 0)
    of_nodes = on(seen, "ext4")
    finding = clock.seconds_witnessed(of_nodes)
    assert finding.outcome is outcome, finding


@pytest.mark.parametrize(("processes", "refused"), [(3, False), (4, True), (10, True)])
def test_g22_counts_the_jobs_of_fio(left, processes, refused, monkeypatch):
    """Its options say two jobs: two processes, and fio before them. A script may start other programs."""
    (output, *_) = left.outputs["write"]
    made = replace(output, tool="fio", tasks=2)
    looks = replace(
        told(left, 0),
        outputs={**left.outputs, "write": [made]},
        processes=((1.1, 1), (1.2, processes), (1.8, processes), (1.9, 1)),
    )
    monkeypatch.setattr(origin, "objection", lambda execution: "")
    finding = origin.tool_integrity(phase(looks, 0))
    assert (f"had {processes - 1} processes for its 2 job(s)" in finding.saw) is refused, finding
    assert not refused or finding.outcome is Outcome.INVALID
    script = replace(looks, nodes=({"script.fio": "#!/bin/sh"},))
    finding = origin.tool_integrity(phase(script, 0))
    assert "processes for its" not in finding.saw


@pytest.mark.parametrize(
    ("tool", "told_of", "outcome"),
    [
        ("mdtest", {"begins_at": 700, "iterations": 1}, Outcome.INVALID),
        ("mdtest", {"begins_at": 700, "iterations": 3}, Outcome.OK),  # each took so long
        ("mdtest", {"begins_at": 701, "iterations": 1}, Outcome.OK),
        ("fio", {}, Outcome.INVALID),
        ("fio", {"ramp_time": "5s"}, Outcome.WARN),  # nobody tells
    ],
)
def test_how_long_a_tool_worked(left, tool, told_of, outcome):
    """It reports 2 s; 6 s lie between its lines, and for 6 s it had four processes."""
    output = output_of(left, name="create", seconds=2.0)
    made = replace(output, tool=tool, parameters=told_of)
    looks = replace(
        told(left, 0),
        outputs={**left.outputs, "write": [made]},
        printed=((1.2, 700), (7.2, 700), (7.4, 1500)),
        processes=((1.1, 1), (1.2, 4), (7.2, 4), (7.4, 1)),
    )
    ran = longer(looks, ended=8.0)
    seen = phase(replace(looks, testimony={"write": (ran,)}), 0, direction="metadata")
    finding = clock.seconds_witnessed(seen)
    assert finding.outcome is outcome, finding


@pytest.mark.parametrize(
    ("nodes", "ended", "outcome"),
    [
        (1, 9.4, Outcome.OK),
        (1, 9.6, Outcome.INVALID),
        (2, 24.6, Outcome.OK),
        (2, 24.8, Outcome.INVALID),
        (1000, 124.4, Outcome.OK),
        (1000, 124.6, Outcome.INVALID),
    ],
)
def test_a_tool_whose_lines_were_kept_back_has_its_run_time_and_a_start(
    left, nodes, ended, outcome
):
    output = output_of(left, name="create", seconds=2.0)
    made = replace(output, tool="mdtest", parameters={})
    looks = replace(told(left, 0), outputs={**left.outputs, "write": [made]})
    ran = longer(looks, ended=ended)
    seen = phase(replace(looks, testimony={"write": (ran,)}), 0, direction="metadata")
    plan = replace(seen.case.plan, nodes=nodes)
    case_of = replace(seen.case, plan=plan)
    of_nodes = replace(seen, case=case_of)
    finding = clock.seconds_witnessed(of_nodes)
    assert finding.outcome is outcome, finding
    # mdtest -i reports the mean.
    worked, third = (
        clock._working(Execution(of_nodes, 1, replace(made, parameters=told_by), ran))[0]
        for told_by in ({}, {"iterations": 3})
    )
    assert worked is not None and third == pytest.approx(worked / 3)


@pytest.mark.parametrize(
    ("written", "unlink", "syncs", "outcome"),
    [
        ((640_000, 640_000), "0", True, Outcome.OK),
        ((640_000, 639_999), "0", True, Outcome.INVALID),
        ((639_999, 640_000), "0", True, Outcome.INVALID),
        # fio removed them itself, perhaps before they were written.
        ((640_000, 0), "1", True, Outcome.OK),
        # They wait in memory, as nobody asked for a sync.
        ((640_000, 0), "0", False, Outcome.OK),
    ],
)
def test_files_of_each_execution_are_held_against_its_devices(
    left, written, unlink, syncs, outcome
):
    outputs = [
        replace(
            output,
            parameters={**output.parameters, "unlink": unlink},
            phases=(replace(output.phases[0], name="create", operations=10_000),),
        )
        for output in left.outputs["write"]
    ]
    made = replace(told(left, *written), outputs={**left.outputs, "write": outputs})
    seen = phase(made, 0, direction="metadata")
    synced = replace(seen, phase=replace(seen.phase, syncs=syncs))
    finding = guards_witness.storage(synced)
    assert finding.outcome is outcome, finding


@pytest.mark.parametrize(
    ("kind", "options", "name", "size", "credit"),
    [
        ("ext4", "rw", "write", 4096, 204),  # a twentieth of the data
        ("ext4", "rw", "write", 1 << 20, 2304),
        ("xfs", "rw", "write", 1 << 20, 1024),
        ("overlay", "rw", "write", 4096, 2048),  # its upper directory may lie on btrfs
        ("btrfs", "rw", "write", 4096, 2048),  # half of the data
        ("btrfs", "rw", "create", None, 16384),
        ("ext4", "rw,dirsync", "create", None, 160 << 10),
        ("xfs", "rw,wsync", "write", 4096, 160 << 10),
    ],
)
def test_how_much_a_file_system_may_write_beside_an_operation(
    left, kind, options, name, size, credit
):
    number = 1000
    output = output_of(
        left, name=name, operations=number, bytes_moved=None if size is None else number * size
    )
    views = tuple(
        replace(view, mount=Mount(1, "/scratch", "/dev/x", kind, options)) for view in left.views
    )
    seen = phase(replace(left, views=views), 0)
    local = replace(seen.case, extras=extras(target={"path": "/scratch", "type": kind}))
    (made, *_) = replace(seen, case=local).executions
    found = others._beside(replace(made, output=output))
    assert found.written // number == credit


@pytest.mark.parametrize(("read", "outcome"), [(973, Outcome.OK), (900, Outcome.INVALID)])
def test_g8_asks_the_disks_below_devices_that_are_read(left, read, outcome):
    """A loop device over a file with holes answers, and its file's disk moves nothing."""
    output = output_of(left, name="devices", bytes_moved=1 << 30)
    (one, *_) = told(left, 0).testimony["write"]
    heard = replace(
        one.witnesses[0],
        asked=Reading(1 << 30, 0),
        moved=Reading(1 << 30, 0),
        counters={"7:0": Reading(1 << 30, 0), "8:0": Reading(read << 20, 0)},
    )
    looks = replace(
        left,
        disks=("8:0",),
        outputs={**left.outputs, "write": [output]},
        testimony={"write": (replace(one, witnesses=(heard,)),)},
    )
    seen = phase(looks, 0, direction="elsewhere")
    of_devices = replace(seen.phase, of_devices=True, launch="once")
    found = list(bytes_witnessed(replace(seen, phase=of_devices)))
    assert found[0].outcome is outcome, found
