"""A partition's ``extras``: the target, the nodes that use it, the limits of a case. Declarations under which a PASS means
little, or nothing.

All that a site declares beyond ReFrame's own keys is modelled here and nowhere else. Checks never
hold a size or a path of a site; sites never hold a line of Python.

A declaration that leaves nothing to fail is a mistake: the settings or references that hold it are
refused. One that leaves little is a doubt, and the site may have its reasons: ``iogauge check`` and
every case that rests on it name it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from iogauge.core import vocabulary
from iogauge.core.paths import ODD, VARIABLE
from iogauge.core.units import format_bytes
from iogauge.core.vocabulary import Tier
from iogauge.node.kinds import Cache, kind_of
from iogauge.site.topology import (
    ByteSize,
    Count,
    Fraction,
    PositiveSeconds,
    SiteModel,
    Topology,
)

#: The software that lays files out over storage targets.
StripedBy = Literal["lustre", "none"]

#: Changes that a case may make on the client beyond its own directory, if an administrator allows
#: them. ``lustre-checksums``: switch the checksums of bulk data off and on again (``lctl
#: set_param``, root).
Right = Literal["lustre-checksums"]

#: Facts that a site may expect: keys of a fingerprint (docs/guards.md), and the default layout.
Expected = Annotated[
    str,
    Field(
        pattern=r"^(tunable\.(llite|osc|mdc)\.[a-z_]+|lustre\.(client|servers|osts|mdts)"
        r"|mount\.(options|type|source)|cpu\.(governor|smt|cores|sockets|numa_nodes|model)|mem\.thp"
        r"|kernel|node\.model|mpi|nic\.\w+\.(mtu|speed_mbps|driver|firmware)|ib\.[\w:]+\.rate"
        r"|layout\.(stripe_count|stripe_bytes))$"
    ),
]

_Host = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]*$")]


class Target(SiteModel):
    """A file system under test as the partition sees it."""

    #: Directory in which ``iogauge/<user>/<session>`` is made: an absolute path, or one variable of
    #: the job's environment (``$DW_JOB_STRIPED``) if a resource manager makes the space for each
    #: job.
    path: str
    #: File-system type as in mountinfo (``lustre``, ``ext4``, ``fuse.glusterfs``).
    type: str = Field(min_length=1)
    #: The mounted device or export (``10.0.0.1@tcp:/scratch``, ``/dev/sdb1``); not compared if left
    #: out.
    source: str | None = None
    #: The UUID or other name of the file system that every node must see, as ``iogauge check``
    #: prints it; see :mod:`iogauge.node.identity`.
    uuid: str | None = Field(default=None, min_length=1)
    #: Overrides the default of the type: whether the file system really bypasses caches under
    #: O_DIRECT.
    honours_o_direct: bool | None = None
    #: Overrides the default of the type: where a client keeps data that it has read or written.
    cache: Cache | None = None
    #: Overrides what the nodes see: whether the target compresses data, or stores equal data once
    #: (G18).
    compresses: bool | None = None
    #: Overrides the default of the type: the software that stripes files (``lustre`` on a Lustre
    #: file system).
    striping: StripedBy | None = None

    #: Directory whose lock guards the target. By default partitions on one file system, by its uuid
    #: or by an export's source, share the lock of the first of them that a node sees.
    lock: str | None = None

    @property
    def striped_by(self) -> StripedBy:
        """Return the software that lays files out: as declared, else by type."""
        if self.striping:
            return self.striping
        return "lustre" if self.type == "lustre" else "none"

    @property
    def of_job(self) -> bool:
        """Return whether only the job knows the path: a resource manager makes the space."""
        return self.path.startswith("$")

    @property
    def lock_place(self) -> str | None:
        """Return the directory with the lock, or None if the space is made for one job."""
        if self.of_job:
            return self.lock or None
        return self.lock or self.path

    def locks(self, declared: Sequence[Target]) -> tuple[str, ...]:
        """Return the directories that may have the lock, of the targets of all partitions; the first that a node sees has it."""
        own = self.lock_place
        if own is None:
            return ()
        if self.lock:
            return (own,)
        sharing = [*filter(self._on_one_file_system, declared)]
        with_lock = [target for target in sharing if target.lock]
        first, *_ = [*with_lock, *sharing, self]
        return tuple(dict.fromkeys([first.lock_place or own, own]))

    def _on_one_file_system(self, other: Target) -> bool:
        """Return whether another target is on the same file system, as far as the site says."""
        if self.uuid or other.uuid:
            return self.uuid == other.uuid
        # A device of the same name may be another one on another node.
        return ":" in (self.source or "") and self.source == other.source

    @model_validator(mode="after")
    def _lasts(self) -> Target:
        if self.uuid and self.of_job:
            raise ValueError(
                f"uuid: {self.path} is another file system in every job: leave it out"
            )
        return self

    @field_validator("path", "lock")
    @classmethod
    def _absolute(cls, path: str | None, info: ValidationInfo) -> str | None:
        if path is None or (info.field_name == "path" and VARIABLE.fullmatch(path)):
            return path
        pure = PurePosixPath(path)
        if not pure.is_absolute() or ".." in pure.parts:
            raise ValueError(
                f"{path!r} must be an absolute path without '..', or one variable"
            )
        # IOR and mdtest split a path at '@', fio at ':'. The others end up in job scripts and job
        # files.
        odd = sorted(set(ODD.findall(path)))
        if odd:
            raise ValueError(
                f"{path!r} holds {' '.join(map(repr, odd))}: letters, digits and _ . / + , = % ~ - "
                "are safe with every tool"
            )
        return f"/{path.lstrip('/')}"


class Node(SiteModel):
    """A client node of the partition."""

    cores: Count
    memory: Annotated[ByteSize, Field(gt=0)]


class Scale(SiteModel):
    """Nodes and tasks of a case, unless the case says otherwise."""

    nodes: Count = 1
    tasks_per_node: Count


class Limits(SiteModel):
    """Limits of a case's cost, and the demands that a measurement must meet to be believed."""

    #: Bytes that one case may hold on the target at a time.
    case_bytes: ByteSize
    #: Files that one case may hold on the target at a time.
    case_files: Count
    #: Seconds that a time-based phase runs (fio's runtime, mdtest's stonewall).
    phase_seconds: PositiveSeconds
    #: Repetitions of each case; their median is judged.
    repetitions: Count = 3
    tier: Tier
    #: Fill of the target after the case, at most (G13).
    max_fill: Fraction = 0.85
    #: Share of the free space that one case may take (G13).
    max_of_free: Fraction = 0.01
    #: Coefficient of variation over the repetitions, at most (G17).
    max_spread: Fraction = 0.10
    #: Share of the bytes moved meanwhile that others may have moved, at most (G19).
    max_foreign: Fraction = 0.10
    #: Whether a figure that only the tool reports is INVALID (``required``), or has a remark (``wanted``). Without it a type
    #: that counts requires it (G8).
    witness: Literal["wanted", "required"] | None = None
    #: Seconds that a job waits for the lock of the target, at most.
    lock_wait: PositiveSeconds = 600.0
    #: Seconds that a job waits in the scheduler's queue, at most; then it is cancelled.
    queue_wait: PositiveSeconds = 86400.0
    #: Seconds without a sign of life after which a holder of the lock counts as dead, if it cannot
    #: be asked.
    lock_lease: PositiveSeconds = 120.0
    #: How far a single storage target or node may be below the median of all, as a share.
    max_deviation: Annotated[Fraction, Field(gt=0, le=0.9)] = 0.2

    @model_validator(mode="after")
    def _sizes_make_sense(self) -> Limits:
        if self.case_bytes < 1 << 20:
            raise ValueError(
                f"case_bytes is {format_bytes(self.case_bytes)}: needs at least 1 MiB"
            )
        return self


class Sweeps(SiteModel):
    """Points of the scenarios that vary a parameter; without points a scenario has no cases."""

    #: Tasks on each node (TaskScaling).
    tasks_per_node: tuple[Count, ...] = ()
    #: Object storage servers that hold the files (ServerScaling).
    servers: tuple[Count, ...] = ()
    #: Stripe counts of a shared file (StripeCount); the others are compared with the first.
    stripe_counts: tuple[Count, ...] = ()
    #: Stripe sizes of a shared file (StripeSize).
    stripe_sizes: tuple[Annotated[ByteSize, Field(gt=0, multiple_of=65536)], ...] = ()
    #: Stripe sizes that the MPI library is asked for by hints (StripeHints).
    striping_hints: tuple[
        Annotated[ByteSize, Field(gt=0, lt=2**32, multiple_of=65536)], ...
    ] = ()
    #: Processes that write on behalf of all (Aggregators).
    aggregators: tuple[Count, ...] = ()
    #: Stripe counts for which the MPI library's own number of writers is counted (DefaultWriters).
    default_writers: tuple[Count, ...] = ()
    #: Tasks on each client (RandomRead).
    tasks_per_client: tuple[Count, ...] = ()
    #: Sizes of an application's output (OutputFile), each over all ``stripe_counts``.
    file_sizes: tuple[Annotated[ByteSize, Field(gt=0)], ...] = ()
    #: Shares of reads among reads and writes at once, in percent (Mixed).
    read_shares: tuple[Annotated[int, Field(ge=1, le=99, strict=True)], ...] = (70,)

    @model_validator(mode="after")
    def _each_once(self) -> Sweeps:
        for name, points in self:
            if len(set(points)) != len(points):
                raise ValueError(f"{name} names a point twice: {list(points)}")
        return self


class Sizes(SiteModel):
    """Scale and limits that differ from the partition's."""

    nodes: Count | None = None
    tasks_per_node: Count | None = None
    case_bytes: ByteSize | None = None
    case_files: Count | None = None
    phase_seconds: PositiveSeconds | None = None
    repetitions: Count | None = None
    max_of_free: Fraction | None = None
    max_spread: Fraction | None = None


class CaseSize(Sizes):
    """Sizes of one check."""

    tier: Tier | None = None


class Receivers(SiteModel):
    """Who is told of an alarm, beside those that the environment names."""

    #: Addresses that the host's sendmail takes.
    mail: tuple[Annotated[str, Field(pattern=r"^[^\s@]+@[^\s@]+$")], ...] = ()
    #: Program and arguments, started without a shell, with the text on standard input.
    command: str = ""
    #: Files that hold an address each, which is a secret: Slack, Mattermost, or a program of yours.
    webhook_files: tuple[Annotated[str, Field(pattern=r"^/")], ...] = ()


class Probes(SiteModel):
    """What ``iogauge probe`` may take between the sessions."""

    #: Niceness of its process (nice(2)).
    niceness: Annotated[int, Field(ge=0, le=19, strict=True)] = 10
    #: Bytes that the probes of a node may move in a day (UTC).
    bytes_a_day: Annotated[ByteSize, Field(gt=0)] = 16 << 30


class Criterion(SiteModel):
    """A case that must meet its reference so that a delivery is accepted."""

    #: Name of the case in the tables.
    case: str = Field(min_length=1)
    metric: str = Field(min_length=1)
    #: Valid runs that must be there; all valid runs must meet it.
    runs: Count = 3
    #: Where it is demanded: a clause of the contract.
    source: str = Field(min_length=1)


class ComparedPartition(SiteModel):
    """A partition of the same system to compare this one with, and the checks that are compared."""

    partition: str = Field(min_length=1)
    checks: tuple[str, ...] = Field(min_length=1)


class Failover(SiteModel):
    """What takes a part of the storage away and brings it back, and when."""

    #: Command of a shell on one of the nodes; empty: somebody does it by hand.
    command: str = ""
    #: Seconds before it, in which the bandwidth is that of a healthy target.
    after: PositiveSeconds = 60.0


class Price(SiteModel):
    """Price of the target: for the report, never for a verdict."""

    source: str = Field(min_length=1)
    currency: str = Field(min_length=1)
    per_gb_month: Annotated[float, Field(gt=0, strict=True)]
    capacity: Annotated[ByteSize, Field(gt=0)]


class PartitionExtras(SiteModel):
    """All keys that a partition may have under ``extras``."""

    target: Target
    node: Node
    scale: Scale
    limits: Limits
    topology: Topology | None = None
    #: Points of the scenarios that vary a parameter.
    sweeps: Sweeps = Sweeps()
    #: By tier: differences from ``scale`` and ``limits`` in a run of that tier.
    tiers: dict[Tier, Sizes] = {}
    #: By name of the check: differences from ``scale`` and ``limits``, and from ``tiers``.
    cases: dict[str, CaseSize] = {}
    #: Who is told of what failed and what has become worse.
    alarm: Receivers = Receivers()
    #: What a delivery must show (``iogauge report --acceptance``).
    acceptance: tuple[Criterion, ...] = ()
    #: What probes between the sessions may take.
    probe: Probes = Probes()
    #: The partition that this one is compared with.
    baseline: ComparedPartition | None = None
    price: Price | None = None
    #: The failure of the check Failover.
    failover: Failover | None = None
    #: Settings that must be so on every node, by their keys in a fingerprint (G25).
    expect: dict[Expected, str | int] = {}
    #: Hosts that run the tasks if no scheduler gives nodes: at least as many as the largest case
    #: uses.
    hosts: tuple[_Host, ...] = ()
    #: Nodes of Slurm, or of ``hosts``, that cases on one node take in turn: each session that which was measured longest
    #: ago.
    in_turn: tuple[_Host, ...] = ()
    #: Network interface on which a benchmark's servers listen (fio); by default that of the host
    #: name.
    interface: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:@-]+$")] | None = None
    rights: tuple[Right, ...] = ()
    #: Names of the partition's ``resources`` that every case requests from the scheduler.
    #: ``{capacity}`` in their options becomes the bytes that the case needs (``#DW jobdw ...
    #: capacity={capacity}``).
    resources: tuple[str, ...] = ()

    def for_check(self, check: str, tier: str = "") -> PartitionExtras:
        """Return these extras with the scale and limits of a check, in its own tier or another."""
        own = self.cases.get(check, CaseSize())
        of_tier = self.tiers.get(tier or own.tier or self.limits.tier, Sizes())  # type: ignore[call-overload]
        scale: dict[str, Any] = {}
        limits: dict[str, Any] = {}
        for declared in (of_tier, own):
            for name, value in declared:
                if value is None:
                    continue
                if name in Scale.model_fields:
                    scale[name] = value
                else:
                    limits[name] = value
        sizes = {
            "scale": self.scale.model_copy(update=scale),
            "limits": self.limits.model_copy(update=limits),
        }
        return self.model_copy(update=sizes)

    @classmethod
    def of_partition(cls, extras: dict[str, Any]) -> PartitionExtras:
        """Read a ReFrame partition's ``extras``, which may have keys of others beside ours.

        Raises pydantic's ValidationError.
        """
        ours = {name: extras[name] for name in cls.model_fields if name in extras}
        return cls.model_validate(ours)

    @property
    def implied_features(self) -> list[str]:
        """Return the features of a partition that follow from its extras."""
        target = self.target
        caching = kind_of(target.type, target.cache, target.honours_o_direct)
        found = [vocabulary.TARGET]
        if caching.honours_o_direct:
            found.append(vocabulary.O_DIRECT)
        if target.striped_by == "lustre":
            found.append(vocabulary.LUSTRE)
        return found + list(self.rights)
