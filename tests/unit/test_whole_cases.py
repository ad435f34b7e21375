"""The judge on whole cases: true ones pass without a remark, untrue ones never pass, and a guard names why.

The evidence is built (support/whole.py). Each row alters one thing that a real machine, a broken tool or a liar alters.
"""

import zlib
from dataclasses import replace
from itertools import accumulate, pairwise

import pytest

from iogauge.core.measurement import Quantity
from iogauge.guards.finding import Outcome
from iogauge.job.looking import preflight
from iogauge.judge.verdict import Verdict
from iogauge.node.counters import Reading, Ticks
from iogauge.node.files import GONE, Block, Eviction, Held
from iogauge.node.mounts import Mount
from iogauge.plan.case import DIR
from support import whole
from support.orders import job_order
from support.whole import FILES, GIB, HOME, LASTS, MIB, Whole, begins, data, metadata

COUNTED = [name for name in whole.SYSTEMS if name != "fuse.bindfs"]


def by(method):
    """What alters a case by a method of it, with the words that are given."""
    return lambda *words, **changes: lambda case: method(case, *words, **changes)


def same(case):
    return case


def moved(factor, of=""):
    """Counters of a witness that grew by another factor; of one device, or of all."""

    def altered(one):
        return {
            name: Reading(round(n.read * factor), round(n.written * factor))
            if of in ("", name)
            else n
            for name, n in one.counters.items()
        }

    return altered


@by
def others(case, bytes_read, requests=0):
    """Others read so much on the same device in both repetitions."""

    for at in (0, 1):
        case = case.witness(
            "read",
            at,
            counters=lambda one: {
                n: m + Reading(bytes_read, 0, requests) for n, m in one.counters.items()
            },
        )
    return case


def unlooked(case):
    """The node's looks at its counters before and after each execution are lost."""
    for phase in case.evidence.task_counters:
        case = case.witness(phase, 0, counters={}).witness(phase, 1, counters={})
    return case


@by
def unseen(case, phase, seconds):
    """The agent was stopped while bytes of a phase moved: it looked again after so many seconds."""

    (number,) = [n for n, one in enumerate(case.plan.repeat) if one.name == phase]
    stopped = begins(1, number) + 3.0
    looks = [
        look
        for look in case.evidence.moved
        if not stopped < look.time < stopped + seconds
    ]
    return case.alter(moved=tuple(looks))


def busy(case):
    """Twenty programs of others on four cores, and what they do to the times of a healthy tool."""
    idle = tuple(replace(look, load1=20.0) for look in case.evidence.idle)
    changes = tuple(replace(one, load1=22.0) for one in case.evidence.activity)
    return case.alter(idle=idle, activity=changes)


def _written(case, phase, each):
    """The devices wrote so many bytes for each file in both repetitions."""
    for at in (0, 1):
        counters = {"8:16": Reading(0, each * FILES)}
        case = case.witness(phase, at, counters=counters)
    return case


def left_early(case):
    """The tool read 15/16 of its files until its time was over; the client had read them to their ends."""
    timed = [
        replace(one, data_bytes=None if one.name == "read" else GIB)
        for one in case.plan.repeat
    ]
    case = replace(case, plan=replace(case.plan, repeat=timed))
    rate = {"bw": Quantity(GIB / MIB / LASTS * 15 / 16, "MiB/s")}
    for at in (0, 1):
        case = case.output(
            "read", at, bytes_moved=GIB * 15 // 16, operations=960, rates=rate
        )
        case = case.witness("read", at, asked=Reading(GIB * 15 // 32, 0))
    return case.declared(limits={"max_foreign": 0.01})


@by
def samples(case, **changes):
    """The samples after the write of each repetition, altered."""

    return case.alter(
        samples=tuple(
            replace(one, **changes) if one.after == "write" else one
            for one in case.evidence.samples
        )
    )


@by
def in_memory(case, after):
    """After the write or read of each repetition its blocks are in the page cache."""

    held = [
        replace(
            one, blocks=tuple(replace(block, kind="cached") for block in one.blocks)
        )
        for one in case.evidence.samples
    ]
    pairs = zip(case.evidence.samples, held, strict=True)
    return case.alter(samples=tuple(b if a.after == after else a for a, b in pairs))


def _kept(case):
    """The inodes in use never fall."""
    looks = case.evidence.moved
    rises = [max(0, (b.files or 0) - (a.files or 0)) for a, b in pairwise(looks)]
    counts = accumulate([looks[0].files or 0, *rises])
    return case.alter(
        moved=tuple(
            replace(look, files=count)
            for look, count in zip(looks, counts, strict=True)
        )
    )


@by
def read_back(case, *blocks):
    """The last read of the case found other blocks."""

    *first, last = case.evidence.samples
    return case.alter(samples=(*first, replace(last, blocks=blocks)))


@by
def views(case, **changes):
    (view,) = case.evidence.views
    return case.alter(
        views=(replace(view, **changes),), opened=replace(view, **changes)
    )


@by
def facts(case, **told):
    node = case.evidence.nodes["n1"]
    return case.alter(nodes={"n1": {**node, **told}})


def _switched_off(case):
    first, *others = case.evidence.opened.targets
    targets = (replace(first, active=False), *others)
    return case.alter(opened=replace(case.evidence.opened, targets=targets))


def evictions(*several):
    return left(evictions={"read": several})


@by
def all_outputs(case, **changes):
    """Every execution of every phase says something else."""

    for phase, outputs in case.evidence.outputs.items():
        for at in range(len(outputs)):
            case = case.output(phase, at, **changes)
    return case


heard, said, planned = by(Whole.witness), by(Whole.output), by(Whole.planned)
below, declared, slowed = by(Whole.below), by(Whole.declared), by(Whole.slow_clock)
left = by(Whole.alter)
EMPTIED = Eviction("n1", 1, GIB, 0)
ZERO = Block("data", 4096, f"{zlib.crc32(bytes(4096)):08x}")
MOUNT = Mount(1, "/s", "/dev/sdb1", "ext4", "rw")


def contained(case):
    """The tasks' processes were waited for by nobody: the agent saw what the kernel added to no sum."""
    lost = {"asked": Reading(33_000, 0), "moved": Reading(), "calls": Reading(60, 0)}
    return case.witness("read", 0, **lost).witness("read", 1, **lost)


@by
def cut(case, text):
    """mdtest was told more words than it prints, and says so many characters of this text as it can."""

    planned = ["mdtest", "-F", "-C", "-d", f"{DIR}/tree", f"--long={'x' * 1000}"]
    command = f"mdtest '-F' '-C' '-d' '{HOME}/tree' '--long={text}"[:1004]
    case = case.planned("create", command=planned)
    return case.output("create", 0, command=command).output(
        "create", 1, command=command
    )


# --- healthy --------------------------------------------------------------------------------------

HEALTHY = {
    "XFS counts removed files later": (metadata("xfs"), _kept),
    "btrfs writes through the page cache": (data("btrfs"), in_memory("write")),
    **{
        f"{name}, from an emptied cache": (data(name, o_direct=False), same)
        for name in COUNTED
    },
    **{f"{name}, direct, load 20": (data(name), busy) for name in COUNTED},
    **{
        f"{name}, files, load 20": (metadata(name), busy)
        for name in COUNTED
        if name not in ("nfs4", "lustre")
    },
    "random data on a compressing target": (data("btrfs"), below(compresses="zstd")),
    "a target that is declared to compress": declared(target={"compresses": True}),
    "looks that were late on a node at rest": unseen("write", 0.7),
    "looks that were late on a busy node": lambda c: busy(unseen("write", 4.0)(c)),
    "others read 5 %": others(50 * MIB),
    "Lustre read ahead to the ends of files": (
        data("lustre", o_direct=False),
        left_early,
    ),
    "others read hundreds of small blocks beside a gigabyte": others(MIB, 300),
    "half of the last block in an inode": samples(
        files=(Held("data", GIB, GIB), Held("small", 100, 0))
    ),
    "read ahead fetched a fifth more": (
        data(o_direct=False),
        heard("read", moved=lambda one: Reading(round(1.2 * one.moved.read), 0)),
    ),
    "one of two executions was delayed": (
        metadata(),
        lambda case: case.alter(
            printed=(
                (1100.9, 700),
                (1125.0, 700),
                (1126.0, 1500),
                *(look for look in case.evidence.printed if look[0] > 1200),
            )
        ),
    ),
    "inodes of 1,024 bytes, which cost 2.1 KiB a file": (
        metadata(),
        lambda case: _written(_written(case, "create", 2182), "remove", 2105),
    ),
    "more words than mdtest prints": (metadata(), cut("x" * 1000)),
    "a container that waits for no child": contained,
    "other cases of files before": (
        metadata(),
        lambda case: case.alter(
            moved=tuple(
                replace(look, files=(look.files or 0) + 70_000)
                for look in case.evidence.moved
            )
        ),
    ),
    "tasks that read their programs too, again and again": (
        data("ext4 on a partition"),
        heard("read", moved=Reading(3 * GIB // 2, 0)),
    ),
    "a disk that moved journals too": heard(
        "write",
        counters=lambda one: {
            n: m + Reading(0, 4 * MIB) for n, m in one.counters.items()
        },
    ),
}


def judged(row):
    case, alter = row if isinstance(row, tuple) else (data(), row)
    return alter(case).judged()


# --- untrue ---------------------------------------------------------------------------------------

INVALID, CONTAMINATED = Verdict.INVALID, Verdict.CONTAMINATED
SHORT = {"seconds": 0.01, "rates": {"bw": Quantity(102_400.0, "MiB/s")}}

UNTRUE = {
    "the disk moved half": heard("read", counters=moved(0.5)),
    "the disk moved nothing": heard("write", counters=moved(0.0)),
    "looks before and after that are lost": unlooked,
    "a container that waits for no child, and the disk moved half": lambda case: (
        contained(case.witness("read", counters=moved(0.5)))
    ),
    "a device is in no list": heard("read", counters={"8:99": Reading()}),
    "the tasks asked for half": heard("read", asked=Reading(GIB // 4, 0)),
    "the kernel moved half for the tasks": (
        data("xfs"),
        heard("write", moved=Reading(0, GIB // 4)),
    ),
    "small transfers were gathered in large ones": heard(
        "write", calls=Reading(60, 40)
    ),
    "all was read twice, the second time from a cache": heard(
        "read", asked=Reading(GIB, 0)
    ),
    "twice as much reached storage": heard("write", moved=Reading(0, GIB)),
    "a file with holes under a loop device": (
        data("ext4 on a loop device"),
        heard("read", counters=moved(0.0, "8:16")),
    ),
    "the second copy was not written": (
        data("btrfs raid1"),
        heard("write", counters=moved(0.0, "8:32")),
    ),
    "the client of NFS moved half": (
        data("nfs4"),
        heard("read", counters=moved(0.5)),
    ),
    "the client of Lustre moved nothing": (
        data("lustre"),
        heard("read", counters=lambda one: dict.fromkeys(one.counters, Reading())),
    ),
    "a task left no count": lambda c: _with_tasks(c, 1),
    "more counts of the kernel than tasks": lambda c: _with_tasks(c, 3),
    "no task left a count": (data("nfs4"), lambda c: _with_tasks(c, 0)),
    "no pipe in the stage directory": (
        data("lustre"),
        lambda c: required(unlooked(c)).alter(uncounted="n1: no named pipe"),
    ),
    "nothing under the mount counts": (data("fuse.bindfs"), lambda c: required(c)),
    "the tool moved fewer bytes than planned": said("read", bytes_moved=GIB // 2),
    "the tool warned": said("read", warnings=("incorrect data",)),
    "the tool tells no bytes": said("read", bytes_moved=None),
    "an agent that was stopped while bytes moved": unseen("write", 4.0),
    "a clock at half speed, direct": slowed("write", 2.0),
    "a clock at half speed, buffered": (data(o_direct=False), slowed("read", 2.0)),
    "a clock at half speed on btrfs": (data("btrfs"), slowed("read", 2.0)),
    "a clock at half speed on NFS": (data("nfs4"), slowed("write", 2.0)),
    "a clock at half speed on Lustre": (data("lustre"), slowed("read", 2.0)),
    "a clock at a third of its speed makes files": (
        metadata(),
        slowed("create", 3.0),
    ),
    "a clock at three quarters of its speed makes files": (
        metadata(),
        slowed("create", 1.34),
    ),
    "a clock at three quarters of its speed makes files on XFS": (
        metadata("xfs"),
        slowed("create", 1.34),
    ),
    "a clock at three quarters of its speed removes files": (
        metadata(),
        slowed("remove", 1.34),
    ),
    "a clock at a third of its speed removes files": (
        metadata("btrfs"),
        slowed("remove", 3.0),
    ),
    "a tool that reports more than it ran": lambda c: busy(c.slow_clock("write", 0.5)),
    "a clock at half speed on a busy node": lambda c: busy(c.slow_clock("write", 2.0)),
    "a phase of ten milliseconds": all_outputs(**SHORT),
    "another directory": said("read", command="ior -a POSIX -r -o /dev/shm/data"),
    "other words": said("read", command=f"ior -a MPIIO -r -o {HOME}/data"),
    "another word, beyond which mdtest prints none": (metadata(), cut("y" * 1000)),
    "fewer tasks": said("write", tasks=1),
    "more nodes": said("write", nodes=2),
    "a second version": said("write", version="3.3.0"),
    "another version than the stack's": lambda c: replace(
        c, plan=replace(c.plan, stack_versions={"ior": "4.0.1"})
    ),
    "another version on a node": left(
        versions={"n1": {"ior": "4.0.0"}, "n2": {"ior": "3.3.0"}}
    ),
    "a buffered read of what was just written": planned("read", o_direct=False),
    "one eviction is missing": (data(o_direct=False), evictions(EMPTIED)),
    "pages were left": (
        data(o_direct=False),
        evictions(EMPTIED, replace(EMPTIED, resident=4096)),
    ),
    "half of the file was evicted": (
        data(o_direct=False),
        evictions(EMPTIED, replace(EMPTIED, bytes=GIB // 2)),
    ),
    "a program read the file after the eviction": (
        data(o_direct=False),
        heard("read", moved=Reading(GIB // 4, 0)),
    ),
    "the image lies in a page cache": below(cached="loop7, whose file is cached"),
    "O_DIRECT through the page cache": below(o_direct="data=journal"),
    "a direct read that leaves pages": in_memory("read"),
    "O_DIRECT of a FUSE program": (data("fuse.bindfs"), same),
    "a cache that is declared opaque": (
        data(o_direct=False),
        declared(target={"cache": "opaque"}),
    ),
    "a disk in memory": below(memory="zram0"),
    "a target that is declared memory": declared(target={"cache": "memory"}),
    "fsync that ends in a daemon": (
        data(o_direct=False),
        below(fsync="nbd0, which is unknown"),
    ),
    "a write without fsync": (data(o_direct=False), planned("write", fsync=False)),
    "a direct write that leaves pages": in_memory("write"),
    "a disk in memory holds files": (metadata(), below(memory="zram0")),
    "files that lay elsewhere": (
        metadata("btrfs"),
        lambda c: c.alter(found=tuple(((at, 0) for at, _ in c.evidence.found))),
    ),
    "files that no device wrote": (
        metadata("xfs"),
        heard("create", counters=moved(0.0)),
    ),
    "files in a FUSE program": (metadata("fuse.bindfs"), lambda c: required(c)),
    "files in a FUSE program that names no storage": (
        metadata("fuse.bindfs"),
        below(names={}),
    ),
    "a block changed between write and read": read_back(Block("data", 0, "ffff")),
    "the file is gone": read_back(Block("data", 0, GONE)),
    "no block was read back": read_back(),
    "a hole": samples(blocks=(Block("data", 0, "0a1b", kind="hole"),)),
    "preallocated": samples(blocks=(Block("data", 0, "0a1b", kind="unwritten"),)),
    "a sparse file": samples(files=(Held("data", GIB, GIB // 2),)),
    "zeros": samples(blocks=(ZERO,)),
    "a block was stored compressed": (
        data("btrfs"),
        lambda c: all_outputs(parameters={"api": "POSIX", "data_type": "timestamp"})(
            samples(blocks=(Block("data", 0, "0a1b", kind="compressed"),))(c)
        ),
    ),
    "one block again and again on zstd": (
        data("btrfs"),
        lambda c: all_outputs(parameters={"api": "POSIX"})(c.below(compresses="zstd")),
    ),
    "others read as much": others(GIB),
    "others read little of all, and much of what the read moved": others(130 * MIB),
    "others read on Lustre beside direct reads of a part": (
        data("lustre"),
        left_early,
    ),
    "others wrote to the whole disk of a partition": (
        data("ext4 on a partition"),
        lambda c: c.witness("read", counters=moved(3.0, "8:16")).witness(
            "write", counters=moved(3.0, "8:16")
        ),
    ),
    "others wrote 4 KiB beside each new file": (
        metadata(),
        lambda c: _written(c, "create", 6144),
    ),
    "others made as many files": (
        metadata(),
        lambda c: c.alter(
            moved=tuple(
                replace(look, files=2 * (look.files or 0)) for look in c.evidence.moved
            )
        ),
    ),
    "files that are renamed, not removed": (metadata(), _kept),
    "another case on the target": left(neighbours=("/s/iogauge/other",)),
    "the lock was lost": left(lost="it was taken away"),
    "another type": views(mount=replace(MOUNT, type="xfs")),
    "another device": views(mount=replace(MOUNT, source="/dev/sdc1")),
    "another file system of the same type and source": views(uuid="U-2"),
    "mounted over during the run": lambda c: c.alter(
        activity=tuple(replace(one, uuid="U-2") for one in c.evidence.activity)
    ),
    "tasks on another node": heard("write", host="n7"),
    "files that the inodes do not show": (
        metadata(),
        lambda c: c.alter(
            moved=tuple(replace(look, files=50) for look in c.evidence.moved)
        ),
    ),
    "eatmydata": facts(**{"preload.LD_PRELOAD": "libeatmydata.so"}),
    "faketime, loaded by a wrapper": left(
        loaded=({"preload.LD_PRELOAD": "libfaketime.so.1"},)
    ),
    "more than the network carries": declared(
        topology={"source": "x", "clients": {"nic": "50 MB/s"}}
    ),
    "a storage target that is switched off": (data("lustre"), _switched_off),
    "a client that was evicted": (
        data("lustre"),
        lambda c: c.alter(
            activity=tuple(
                replace(one, troubles=("scratch-OST0001 evicted by scratch-OST0001",))
                for one in c.evidence.activity
            )
        ),
    ),
}


def required(case):
    return case.declared(limits={"witness": "required"})


def _with_tasks(case, tasks):
    """As many counts of the kernel as there were so many tasks."""
    told = {
        name: tuple(
            replace(one, witnesses=(one.witnesses * 2)[:tasks]) for one in several
        )
        for name, several in case.evidence.task_counters.items()
    }
    return case.alter(task_counters=told)


def test_why_an_agent_counted_nothing_is_the_reason():
    decided = judged(UNTRUE["no pipe in the stage directory"])
    assert "could not be read (n1: no named pipe)" in decided.reason


def test_a_site_that_does_not_say_which_file_system_it_is_has_a_remark():
    """Another one of the same type at the same place would pass; what tells them apart was seen."""
    decided = data().declared(target={"uuid": None, "source": None}).judged()
    (said,) = (one for one in decided.findings if one.name == "G9 identity")
    assert (decided.verdict, said.outcome) == (Verdict.PASS, Outcome.WARN)
    assert said.remedy == "Declare target.uuid: U-1 in the settings of your site"
    (view,) = data().evidence.views
    order = replace(job_order("/s"), type="ext4", source="/dev/sdb1", uuid=None)
    for gate in (False, True):
        order = replace(order, gate=gate, held_bytes=0)
        refused = [
            finding.name
            for finding in preflight(view, None, order)
            if finding.outcome is Outcome.INVALID
        ]
        assert refused == (["G9 identity"] if gate else [])


@by
def load(case, before, after):
    """The one-minute load of four cores before the run and at its end."""

    (look,), (change,) = case.evidence.idle, case.evidence.activity
    idle, changes = replace(look, load1=before), replace(change, load1=after)
    return case.alter(idle=(idle,), activity=(changes,))


@by
def processors(case, own, others, idle, *phases, then=same):
    """What four processors did in ten seconds, of 4,000 ticks, in all repetitions of the phases."""

    ticks = Ticks(own + others, idle)
    for phase in phases or ("write", "read"):
        for at in (0, 1):
            case = case.witness(phase, at, ticks=own // 2, processors=ticks)
    return then(case)


@pytest.mark.parametrize(
    "alter, write, read",
    [
        (same, "FAIL", "FAIL"),
        # Two tasks were at work in the minute before, and in the run.
        (load(5.9, 5.9), "FAIL", "FAIL"),
        (load(6.1, 0.1), "CONTAMINATED", "CONTAMINATED"),
        (load(0.1, 6.1), "CONTAMINATED", "CONTAMINATED"),
        (processors(100, 3800, 100), "CONTAMINATED", "CONTAMINATED"),
        (processors(100, 3800, 100, "write"), "CONTAMINATED", "FAIL"),
        # Another program ended just before.
        (processors(100, 50, 3850, then=load(20.0, 20.0)), "FAIL", "FAIL"),
        (processors(3800, 100, 100), "FAIL", "FAIL"),  # tasks that wait in a loop
        (processors(100, 3400, 500), "FAIL", "FAIL"),  # half a processor was free
    ],
)
def test_a_figure_that_misses_its_reference_beside_the_work_of_others(
    alter, write, read
):
    decided = alter(data()).judged(worth=1.5)
    verdicts = [metric.verdict.name for metric in decided.metrics]
    assert verdicts == [write, read]
    assert bool(decided.busy) is ("CONTAMINATED" in verdicts)
    assert decided.verdict.name == max(verdicts)
    if write == read == "CONTAMINATED":
        assert decided.busy in decided.reason


def test_what_a_client_of_nfs_reads_again_after_locks_is_a_remark():
    """MPI-IO locks around each read, and the client drops its pages: half of the bytes were fetched once more."""
    case = data("nfs4").witness("read", 0, counters=moved(1.5))
    case = case.witness("read", 1, counters=moved(1.5))
    assert case.judged().verdict is CONTAMINATED
    for phase in ("write", "read"):
        for at in (0, 1):
            parameters = {**case.evidence.outputs[phase][at].parameters, "api": "MPIIO"}
            case = case.output(phase, at, parameters=parameters)
    decided = case.judged()
    assert decided.verdict is Verdict.PASS, decided.reason
    (load,) = (one for one in decided.findings if one.name == "G19 foreign load")
    assert load.outcome is Outcome.WARN


def test_a_cache_on_the_nodes_own_disk_is_named():
    case = data("nfs4", o_direct=False).witness("read", 1, counters=moved(0.0))
    options = replace(MOUNT, type="nfs4", source="10.0.0.1:/export", options="rw,fsc")
    decided = views(mount=options)(case).judged()
    assert decided.verdict is INVALID and "mount option fsc" in decided.reason


IN_GATE = [
    ("a name of a device", data().declared(target={"uuid": None}), INVALID),
    ("no name", data().declared(target={"uuid": None, "source": None}), INVALID),
    ("a UUID", data(), Verdict.PASS),
    ("a server", data("nfs4").declared(target={"uuid": None}), Verdict.PASS),
    (
        "a file system of the job",
        data().declared(target={"uuid": None, "source": None, "path": "$TMP"}),
        Verdict.PASS,
    ),
]


@pytest.mark.parametrize("name, case, verdict", IN_GATE)
def test_a_gate_passes_only_what_has_an_identity(name, case, verdict):
    assert case.judged(gate=True).verdict is verdict, name
    assert case.judged().verdict is Verdict.PASS
