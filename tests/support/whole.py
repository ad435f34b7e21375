"""Whole cases of built evidence: what a healthy job leaves on each kind of file system, to be altered by tests.

Two tasks on one node of four cores. A case of data writes a GiB and reads it, twice, in 10 s each, with IOR. A case of metadata
makes and removes 20,000 files with mdtest. What the kernel counts follows from what the tool says, as on the real thing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from iogauge.core.measurement import (
    Metric,
    Phase,
    Quantity,
    Reference,
    ToolOutput,
)
from iogauge.evidence.model import Evidence, Striping, rates_of
from iogauge.evidence.task_counters import NodeActivity, TaskCounters
from iogauge.guards.views import CaseView
from iogauge.judge.decide import judge
from iogauge.node.activity import Load
from iogauge.node.counters import Reading
from iogauge.node.files import Block, Eviction, Held, Sample
from iogauge.node.kinds import Below
from iogauge.node.lustre.file_layout import FileLayout, Layouts, Part
from iogauge.node.lustre.targets import StorageTarget
from iogauge.node.mounts import Mount, Space
from iogauge.node.view import View
from iogauge.plan.case import DIR, Access, CasePlan, PhasePlan
from iogauge.plan.observations import Instant, TaskLine
from iogauge.plan.stage import PhaseRun
from iogauge.site.extras import PartitionExtras
from support.extras import extras

GIB = 1 << 30
MIB = 1 << 20
FILES = 20_000
#: Seconds that a phase takes, and that it waits before and after.
LASTS = 10.0
HOME = "/s/iogauge/case"
ROOM = Space(10**13, 9 * 10**12, 10**8, 9 * 10**7)


@dataclass(frozen=True)
class System:
    """A kind of file system as a node sees it: its type, what lies below, who counts, and how many copies are written."""

    type: str
    source: str = "/dev/sdb1"
    below: Below = field(default_factory=Below)
    options: str = "rw"
    mount: bool = False  # the mount itself counts (NFS)
    targets: int = 0  # storage targets of Lustre

    @property
    def devices(self):
        return self.below.devices


def disk(*devices, disks=(), **more):
    names = {
        number: f"sd{letter}" for number, letter in zip(devices, "bcde", strict=False)
    }
    return Below(devices=devices, disks=disks or devices, names=names, **more)


SYSTEMS = {
    "ext4": System("ext4", below=disk("8:16")),
    "xfs": System("xfs", below=disk("8:16")),
    "btrfs": System("btrfs", below=disk("8:16")),
    "btrfs raid1": System("btrfs", below=disk("8:16", "8:32", copies=(2.0, 2.0))),
    "overlay": System("overlay", "overlay", below=disk("8:16")),
    "ext4 on a loop device": System(
        "ext4", "/dev/loop7", below=disk("7:7", disks=("8:16",))
    ),
    "ext4 on a partition": System(
        "ext4",
        below=Below(
            devices=("8:17",), disks=("8:16",), names={"8:17": "sdb1", "8:16": "sdb"}
        ),
    ),
    "nfs4": System("nfs4", "10.0.0.1:/export", mount=True),
    "lustre": System("lustre", "10.0.0.1@tcp:/scratch", targets=4),
    "fuse.bindfs": System(
        "fuse.bindfs", "/srv", below=Below(ways=("8:16",), names={"8:16": "sdb"})
    ),
}


@dataclass(frozen=True)
class Whole:
    """A case and the site that it is judged for."""

    plan: CasePlan
    evidence: Evidence
    site: PartitionExtras
    metrics: tuple[Metric, ...]

    def alter(self, **changes):
        """The case with other evidence."""
        return replace(self, evidence=replace(self.evidence, **changes))

    def output(self, phase, at=1, **changes):
        """The case if the tool said something else in a repetition; keys of a tool's phase alter that."""
        outputs = dict(self.evidence.outputs)
        several = list(outputs[phase])
        of_phase = {k: v for k, v in changes.items() if k in Phase.__dataclass_fields__}
        rest = {k: v for k, v in changes.items() if k not in of_phase}
        first, *others = several[at].phases
        several[at] = replace(
            several[at], phases=(replace(first, **of_phase), *others), **rest
        )
        return self.alter(outputs={**outputs, phase: tuple(several)})

    def witness(self, phase, at=1, of=None, **changes):
        """The case if the kernel had counted otherwise for the tasks of a repetition, or for one of them."""
        told = dict(self.evidence.task_counters)
        several = list(told[phase])
        heard = [
            replace(
                one, **{k: v(one) if callable(v) else v for k, v in changes.items()}
            )
            if of in (None, number)
            else one
            for number, one in enumerate(several[at].witnesses)
        ]
        several[at] = replace(several[at], witnesses=tuple(heard))
        return self.alter(task_counters={**told, phase: tuple(several)})

    def planned(self, phase, **changes):
        """The case if a phase had been planned otherwise; keys of its access alter that."""
        access = {k: v for k, v in changes.items() if k in Access.__dataclass_fields__}
        rest = {k: v for k, v in changes.items() if k not in access}
        repeat = [
            replace(one, access=replace(one.access, **access), **rest)
            if one.name == phase
            else one
            for one in self.plan.repeat
        ]
        return replace(self, plan=replace(self.plan, repeat=repeat))

    def declared(self, **parts):
        """The case of a site that declares something else."""
        merged = {"target": _target(self.site), **parts}
        merged["target"] = {**_target(self.site), **parts.get("target", {})}
        return replace(self, site=extras(**merged))

    def below(self, **changes):
        """The case on a stack that is otherwise."""
        views = tuple(
            replace(view, below=replace(view.below, **changes))
            for view in self.evidence.views
        )
        return self.alter(views=views, opened=views[0])

    def slow_clock(self, phase, factor):
        """The case of a tool whose clock runs slowly in all repetitions: fewer seconds, higher rates."""
        whole = self
        for at, output in enumerate(self.evidence.outputs[phase]):
            (one,) = output.phases
            rates = {
                n: replace(q, value=q.value * factor) for n, q in one.rates.items()
            }
            whole = whole.output(phase, at, seconds=one.seconds / factor, rates=rates)
        return whole

    def seen(self, tier="quick", **values):
        """The case as guards see it; ``values`` are other samples of metrics."""
        rates = rates_of(self.plan, self.evidence.outputs)
        samples = {name: tuple(q.value for q in rates[name]) for name in rates}
        site, evidence = self.site, self.evidence
        return CaseView(
            self.plan, evidence, site, tier, self.metrics, {**samples, **values}
        )

    def phase(self, name, tier="quick", **values):
        """A phase of the case as guards see it."""
        seen = self.seen(tier, **values)
        return next(phase for phase in seen.phases if phase.plan.name == name)

    def judged(self, worth=1.0, gate=False):
        """The verdict, against references that the healthy case meets, or ``worth`` so many times as much."""
        references = {
            metric.name: Reference(
                worth * (100.0 if metric.unit == "MiB/s" else 2000.0),
                -0.1,
                None,
                metric.unit,
                "run 1",
            )
            for metric in self.metrics
        }
        return judge(
            self.plan,
            self.evidence,
            self.metrics,
            references,
            self.site,
            "quick",
            gate=gate,
        )


def _target(site):
    return {k: v for k, v in site.target.model_dump().items() if v is not None}


def begins(repetition, phase):
    """Seconds since boot at which an execution begins."""
    return 1000.0 + 100.0 * repetition + 20.0 * phase


def _view(system):
    mount = Mount(1, "/s", system.source, system.type, system.options)
    targets = tuple(
        StorageTarget(
            index=n,
            uuid=f"scratch-OST{n:04x}_UUID",
            active=True,
            bytes_total=ROOM.bytes_total // 4,
            bytes_free=ROOM.bytes_free // 4,
        )
        for n in range(system.targets)
    )
    return View(
        "n1",
        "/s",
        mount,
        ROOM,
        cache_id="k:1",
        below=system.below,
        uuid="U-1",
        targets=targets,
    )


def _counted(system, moved):
    """What a node counts if its tasks moved so many bytes."""
    if system.mount:
        return {"counters": {"/s": moved}}
    if system.targets:
        each = Reading(
            moved.read // system.targets, moved.written // system.targets, 256
        )
        names = [f"scratch-OST{n:04x}" for n in range(system.targets)]
        return {"counters": dict.fromkeys(names, each)}
    least, _ = system.below.copies
    share = len(system.devices) or 1
    each = Reading(moved.read // share, round(moved.written * least) // share, 1024)
    names = system.devices or system.below.ways
    return {"counters": dict.fromkeys((*names, *system.below.disks), each)}


def _testimony(system, begin, moved, calls, synced):
    half = Reading(moved.read // 2, moved.written // 2)
    heard = TaskLine(
        host="n1",
        started=begin + 0.5,
        ended=begin + 1.0 + LASTS,
        synced=begin + 1.05 + LASTS if synced else None,
        asked=half + Reading(MIB // 4, 0),
        calls=Reading(calls // 2 + 50, calls // 2),
        moved=half,
        **_counted(system, moved),
    )
    return TaskCounters(witnesses=(heard, heard), expected=2)


def _looks(begin, moved, files, total):
    """The counters five times a second, from half a second before to half a second after a phase."""
    steps = round(5 * LASTS)
    rows = [(-2, 0.0), *((n, n / steps) for n in range(steps + 1)), (steps + 2, 1.0)]
    return [
        Instant(
            begin + 0.8 + n / 5,
            total.read + round(share * moved.read),
            total.written + round(share * moved.written),
            (total.files or 0) + round(share * files),
        )
        for n, share in rows
    ]


def _site(system):
    target = {
        "path": "/s",
        "type": system.type,
        "source": system.source,
    }
    target["uuid"] = "U-1"
    parts = {"target": target}
    if system.targets:
        servers = {"count": 2, "nic": "10 GB/s"}
        parts["topology"] = {
            "source": "x",
            "targets": system.targets,
            "servers": servers,
        }
    return extras(**parts)


def _whole(system, plan, moved, told, timed):
    """Both repetitions of a plan's phases, each of which moves so many bytes and says the same."""
    on, of_files = SYSTEMS[system], plan.tool == "mdtest"
    outputs = {}
    task_counters = {}
    runs, activity, asked, printed, found = [], list[Instant](), list[Instant](), [], []
    total = Instant(0.0, 0, 0, 50)
    for repetition in (1, 2):
        for number, phase in enumerate(plan.repeat):
            name, begin, bytes_of = (
                phase.name,
                begins(repetition, number),
                moved[phase.name],
            )
            first, *words = (word.replace(DIR, HOME) for word in phase.command)
            output = replace(
                told,
                phases=(replace(timed, name=name),),
                command=" ".join(
                    [first, *(f"'{word}'" if of_files else word for word in words)]
                ),
            )
            outputs[name] = (*outputs.get(name, ()), output)
            heard = _testimony(
                on, begin, bytes_of, 0 if of_files else 1024, synced=of_files
            )
            task_counters[name] = (*task_counters.get(name, ()), heard)
            runs.append(PhaseRun(repetition, name, 0, begin, begin + 2 + LASTS, "t"))
            files = {"create": FILES, "remove": -FILES}.get(name, 0)
            copied = Reading(
                bytes_of.read, round(bytes_of.written * on.below.copies[0])
            )
            looks = _looks(begin, copied, files, total)
            total = looks[-1]
            exact = not of_files or on.type in ("ext4", "xfs", "overlay")
            activity += (
                looks if exact else [replace(look, files=None) for look in looks]
            )
            if of_files:
                printed += [(begin + 0.9, 700), (begin + 0.9 + LASTS, 700)]
                printed.append((begin + 1 + LASTS, 1500))
                found.append((begin + 1.5 + LASTS, 100 if files > 0 else 0))
            else:
                half = Reading(bytes_of.read // 2, bytes_of.written // 2)
                asked += _looks(begin, half, 0, Instant(0.0, MIB // 4, 0))
    counts = on.devices or (not of_files and (on.mount or on.targets))
    view = _view(on)
    evidence = Evidence(
        views=(view,),
        opened=view,
        directory=HOME,
        nodes={"n1": {"cpu.cores": 4, "mem.bytes": 16 * GIB}},
        idle=(Load(host="n1", load1=0.1),),
        activity=(NodeActivity(host="n1", uuid="U-1", load1=2.0),),
        outputs=outputs,
        task_counters=task_counters,
        runs={(run.repetition, run.name): run for run in runs},
        moved=tuple(activity) if counts else (),
        asked=tuple(asked),
        printed=tuple(printed),
        found=tuple(found),
        versions={"n1": {plan.tool: "4.0.0"}},
    )
    unit = "ops/s" if of_files else "MiB/s"
    metrics = [Metric(name, unit) for phase in plan.repeat for name in phase.rates]
    return Whole(plan, evidence, _site(on), tuple(metrics))


def data(system="ext4", *, o_direct=True):
    """A case that writes and reads a GiB with IOR, through the page cache unless ``o_direct``."""
    ways = ("write", "read")
    phases = [
        PhasePlan(
            name=way,
            command=["ior", "-a", "POSIX", f"-{way[0]}", "-o", f"{DIR}/data"],
            launch="tasks",
            rates={f"{way}_bw": (way, "bw")},
            access=Access(
                direction=way,
                o_direct=o_direct,
                fsync=way == "write",
                evict=way == "read" and not o_direct,
            ),
            data_bytes=GIB,
        )
        for way in ways
    ]
    timed = Phase(
        name="",
        rates={"bw": Quantity(GIB / MIB / LASTS, "MiB/s")},
        seconds=LASTS,
        bytes_moved=GIB,
        operations=1024,
        transfer_bytes=MIB,
        rank_seconds=(LASTS, LASTS),
    )
    parameters = {"api": "POSIX", "data_type": "random"}
    told = ToolOutput("ior", "4.0.0", (), 2, 1, parameters=parameters)
    plan = CasePlan(
        tool="ior",
        repetitions=2,
        tasks=2,
        nodes=1,
        repeat=phases,
        warm_up=False,
        held_bytes=GIB,
        files=1,
        shared_file=True,
    )
    whole = _whole(
        system, plan, {"write": Reading(0, GIB), "read": Reading(GIB, 0)}, told, timed
    )
    samples = tuple(
        Sample(
            repetition=repetition,
            after=way,
            blocks=(Block("data", 0, "0a1b"), Block("data", 4096, "4d3c")),
            files=(Held("data", GIB, GIB),) if way == "write" else (),
        )
        for repetition in (1, 2)
        for way in ways
    )
    parts = (
        Part(stripe_count=4, stripe_bytes=MIB, objects=(0, 1, 2, 3), instantiated=True),
    )
    layouts = tuple(
        Striping(
            {},
            Layouts(
                repetition=n, files=(FileLayout(path="data", parts=parts),), total=1
            ),
        )
        for n in (1, 2)
    )
    return whole.alter(
        evictions={} if o_direct else {"read": (Eviction("n1", 1, GIB, 0),) * 2},
        samples=samples,
        striping=layouts if SYSTEMS[system].targets else (),
    )


def metadata(system="ext4"):
    """A case that makes and removes 20,000 empty files with mdtest; syncs belong to the time."""
    phases = [
        PhasePlan(
            name=name,
            command=["mdtest", "-F", f"-{letter}", "-d", f"{DIR}/tree"],
            launch="tasks",
            rates={f"{name}_rate": (name, "rate")},
            access=Access(direction="metadata"),
            syncs=True,
        )
        for name, letter in (("create", "C"), ("remove", "r"))
    ]
    timed = Phase(
        name="",
        rates={"rate": Quantity(FILES / LASTS, "ops/s")},
        seconds=LASTS,
        operations=FILES,
    )
    parameters = {"begins_at": 700}
    told = ToolOutput("mdtest", "4.0.0", (), 2, 1, parameters=parameters)
    plan = CasePlan(
        tool="mdtest",
        repetitions=2,
        tasks=2,
        nodes=1,
        repeat=phases,
        warm_up=False,
        held_bytes=FILES * 4096,
        files=FILES,
    )
    journal = Reading(0, FILES * 512)
    return _whole(
        system, plan, dict.fromkeys(("create", "remove"), journal), told, timed
    )
