"""Base class of the scenarios that run IO500: twelve scored phases in one execution, one score.

Directories, times and counts of the ini file follow from the case: the bytes and files of its limits,
divided among the tasks. IO500 removes its files itself.

On one node IO500 would read and stat what the client keeps, so two nodes are the least. On two its
small reads come back to who wrote: G1 refuses them. Phases that
write have a time limit, the stonewall; the others take as long as these left work for them.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain, islice
from typing import Any, Final

from iogauge.cases.storage import StorageCheck
from iogauge.core import vocabulary
from iogauge.core.measurement import Metric, Quantity
from iogauge.plan.case import DIR, REP, Access, CasePlan, Computed, PhasePlan, Printed
from iogauge_extras.suites import io500

_RESULTS: Final = "io500"
_DATA: Final = f"{DIR}/data"

#: Put the directory into the ini file, and remove the results of an earlier job of this stage.
_FILL: Final = 'rm -rf "io500/$2" && sed "s|[$]IOG_DIR|$1|g" "$3" >filled.ini && mv filled.ini "$3"'


def _metric(phase: str) -> Metric:
    """Return the metric of a scored phase."""
    name = phase.replace("-", "_")
    if phase in io500.BANDWIDTHS:
        return Metric(f"{name}_bw", "GiB/s")
    return Metric(f"{name}_rate", "kops/s")


#: Metric of each scored phase, in IO500's order.
METRICS: Final[Mapping[str, Metric]] = {name: _metric(name) for name in io500.PHASES}
BW = Metric("bw", "GiB/s")
MD = Metric("md", "kops/s")
SCORE = Metric("score", "points")


def _mean(unit: str, *means: tuple[str, ...]) -> Computed:
    """Return the geometric mean of the means of phases."""

    def compute(*values: Quantity) -> Quantity:
        left = iter([value.value for value in values])
        found = [io500.geometric_mean(list(islice(left, len(n)))) for n in means]
        return Quantity(io500.geometric_mean(found), unit)

    names = tuple(METRICS[name].name for name in chain(*means))
    return Computed(sources=names, compute=compute)


def _access(name: str) -> Access:
    """Return how a phase touches data. Readers and stats are shifted by a node against the writers."""
    match name:
        case "ior-easy-write":
            return Access(direction="write", fsync=True, saturates="bandwidth")
        case "ior-hard-write":
            return Access(direction="write", fsync=True)
        case "ior-easy-read":
            return Access(direction="read", task_offset=1, saturates="bandwidth")
        case "ior-hard-read":
            return Access(direction="read", task_offset=1)
        case "mdtest-hard-read":
            return Access(direction="read", task_offset=1, shifts=2)
        case "mdtest-easy-stat" | "mdtest-hard-stat":
            return Access(direction="metadata", task_offset=1)
    return Access(direction="metadata")


def _parse(printed: Printed) -> Any:
    return io500.parse(printed.result, printed.stdout, printed.files)


class Io500Check(StorageCheck):
    """IO500; a subclass says how long its phases write."""

    needs = vocabulary.IO500
    keep_files = ["io500-*.tgz"]
    #: Whether the result is to be one that the list takes: 300 s, and no objection of IO500.
    official: bool = True

    def promise(self) -> tuple[Metric, ...]:
        """Return the scored phases, the two means, and the score."""
        return (*METRICS.values(), BW, MD, SCORE)

    def declared(self) -> dict[str, Any]:
        """Return the defaults of every check, but one repetition: a run takes long."""
        return {**super().declared(), "repetitions": 1}

    @property
    def stonewall_s(self) -> int:
        """Return the seconds in which each writing phase writes."""
        if self.official:
            return io500.OFFICIAL_S
        return max(1, round(self.site.limits.phase_seconds))

    def _sizes(self) -> tuple[int, int, int]:
        """Return a task's bytes of ior-easy, segments of ior-hard, and files; raises ValueError if the limits are too small."""
        limits, tasks = self.site.limits, self.total_tasks
        files = limits.case_files // 2 // tasks
        # Files of mdtest-hard take a block each.
        room = (limits.case_bytes - 4096 * files * tasks) // 2 // tasks
        easy, hard = room >> 21 << 21, room // io500.IOR_HARD_BYTES
        if min(files, easy, hard) < 1:
            raise ValueError(
                f"limits.case_bytes is {limits.case_bytes} and limits.case_files {limits.case_files}: expected "
                f"4 MiB and two files at least for each of {tasks} tasks, and 4096 bytes for each second file"
            )
        return easy, hard, files

    def plan(self) -> CasePlan:
        """Fill in the ini file, then run IO500: twelve phases in one execution."""
        self.need_nodes("IO500 on one node reads and stats what its own client keeps")
        easy, hard, each = self._sizes()
        ini = f"io500-{self.stonewall_s}s.ini"
        # What a submission to the list needs of a run: its results, its ini file, its job script.
        results = f"{_RESULTS}/{REP}"
        archive = ["tar", "-czf", f"io500-{REP}.tgz", results, ini, "rfm_job.sh"]
        expected = None
        if not self.official:
            expected = io500.TOO_SHORT
        phases = []
        for name, metric in METRICS.items():
            rate = metric.name.rpartition("_")[2]
            phase = PhasePlan(
                name=name,
                command=[],
                launch="tasks",
                parse=_parse,
                rates={metric.name: (name, rate)},
                access=_access(name),
                output=f"{results}/result.txt",
                folder=results,
                within="io500",
                expected=expected,
                follows=not name.endswith("-write"),
                lasts_s=self.stonewall_s,
            )
            phases.append(phase)
        # One execution, in which the first phase runs and the others lie.
        run = ["io500", ini, f"--timestamp={REP}"]
        phases[0] = replace(phases[0], name="io500", command=run, within=None)
        options: dict[str, dict[str, str | int]] = {
            "global": {
                "datadir": _DATA,
                "resultdir": _RESULTS,
                "timestamp-datadir": "FALSE",
                "timestamp-resultdir": "TRUE",
            },
            "debug": {"stonewall-time": self.stonewall_s},
            "ior-easy": {"blockSize": easy},
            "ior-hard": {"segmentCount": hard},
            "mdtest-easy": {"n": each},
            "mdtest-hard": {"n": each},
        }
        if self.site.target.compresses:
            options["global"]["dataPacketType"] = "random"
        held = easy + io500.IOR_HARD_BYTES * hard + 4096 * each
        case = self.case(
            "io500",
            [
                PhasePlan(name="ini", command=["sh", "-c", _FILL, "sh", DIR, REP, ini]),
                *phases,
                PhasePlan(name="archive", command=archive),
            ],
            held_bytes=held * self.total_tasks,
            files=(2 * each + 3) * self.total_tasks + 8,
        )
        return replace(
            case,
            warm_up=False,
            inputs={ini: io500.ini(options)},
            computed={
                BW.name: _mean(BW.unit, io500.BANDWIDTHS),
                MD.name: _mean(MD.unit, io500.RATES),
                SCORE.name: _mean(SCORE.unit, io500.BANDWIDTHS, io500.RATES),
            },
        )
