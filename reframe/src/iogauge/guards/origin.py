"""Whether an output is of the execution that it is judged for: its words, its token, its dates. Guards of a phase within an
execution that runs several: its bytes (G8) and its seconds (G4).

IO500 runs twelve phases in one execution, and writes down when each began and ended. The agent on the first node writes
down the counters under the target's mount five times a second (job/opening.py). Together they say what the kernel moved
while a phase ran.

IO500 cuts its dates to whole seconds, but tells the length of a phase in full. So begin and end are known within a
second. Bytes of a neighbour may lie in that second: they can hide that bytes are missing, and they can make none missing.
"""

from __future__ import annotations

import configparser
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import zip_longest
from pathlib import PurePath
from typing import Any, Final

from iogauge.core.measurement import Moment, Phase, ToolOutput
from iogauge.core.units import format_bytes, format_seconds
from iogauge.evidence.model import ClockSeen
from iogauge.evidence.witness import counted_between, seconds_of_activity
from iogauge.guards.finding import Finding, Rule
from iogauge.guards.seen import CaseSeen, PhaseSeen
from iogauge.guards.witness import SLACK_BYTES, TOLERANCE
from iogauge.plan.case import DIR, REP, TOKEN, PhasePlan
from iogauge.plan.stage import PhaseRun

#: Seconds by which a tool's date may lie outside its execution. Tools cut theirs to whole seconds.
#: Between two looks at a clock, time servers slow it down or speed it up by 0.5 ms a second at most.
SLACK_S: Final = 2.0

#: Zones lie whole quarters of an hour from UTC, 14 hours at most (tzdata).
_ZONES_S: Final = 900
_FARTHEST_S: Final = 14 * 3600

#: Characters of an option's value that fio's servers report (``struct cmd_job_option``, server.h).
_FIO_CUTS_AT: Final = 127


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of a phase, and what the tool printed. Repetition 0: preparation or warm-up."""

    case: CaseSeen
    phase: PhasePlan
    repetition: int
    output: ToolOutput

    @classmethod
    def all_of(cls, case: CaseSeen) -> Iterator[Execution]:
        """Yield every execution of a case that left an output, the warm-up included."""
        plan, evidence = case.plan, case.evidence
        for phase in plan.phases:
            first = 0 if phase in plan.prepare else 1
            for repetition, output in enumerate(evidence.outputs.get(phase.name, ()), first):
                yield cls(case, phase, repetition, output)
            for output in evidence.cold.get(phase.name, ()):
                yield cls(case, phase, 0, output)

    @property
    def objection(self) -> str:
        """Return why the output is not of this execution; empty if it is."""
        run, differs = self._origin
        if run is None:
            return f"{self}: phases.tsv has no time of this execution"
        if differs:
            return f"{self}: it says {differs}"
        late = _out_of_time(self.output.moments, run, self.case.evidence.clocks)
        return f"{self}: {late}" if late else ""

    def __str__(self) -> str:
        number = f"repetition {self.repetition}" if self.repetition else "before the repetitions"
        return f"{self.phase.name}, {number}"

    @property
    def _origin(self) -> tuple[PhaseRun | None, str]:
        """Return the execution whose words the output repeats, and how they differ.

        Darshan's log repeats the words of the tool that it watched, an earlier phase.
        """
        command = self.output.command.split()
        said = PurePath(command[0]).name if command else self.output.tool
        candidates = [self._executed(self.phase)]
        if self.output.tool == "darshan":
            repeated = self.case.plan.repeat
            candidates = [p for p in repeated if said in _names(p)] or candidates
        for phase in candidates:
            run = self._run(phase)
            differs = self._differs(phase, run, said) if run else ""
            if not differs:
                break
        return run, differs

    def _executed(self, phase: PhasePlan) -> PhasePlan:
        """Return the phase whose execution includes a phase: itself, as a rule."""
        return next((p for p in self.case.plan.phases if p.name == phase.within), phase)

    def _run(self, phase: PhasePlan) -> PhaseRun | None:
        runs = self.case.evidence.runs
        own = (run for run in runs if (run.repetition, run.name) == (self.repetition, phase.name))
        return next(own, None)

    def _differs(self, phase: PhasePlan, run: PhaseRun, said: str) -> str:
        """Return the first difference between the words of a phase and those of the output."""

        def filled(text: str) -> str:
            for name, value in (
                (DIR, self.case.evidence.directory),
                (REP, str(self.repetition)),
                (TOKEN, run.token),
            ):
                text = text.replace(name, value).replace(f"${{{name[1:]}}}", value)
            return re.sub("//+", "/", text)

        if self.output.tool in ("fio", "io500"):
            jobs: Any = self.output.parameters["jobs"]
            planned = "".join(self.case.plan.inputs.get(word, "") for word in phase.command)
            return _other_options(_sections(filled(planned)), jobs)
        if said not in _names(phase):
            return ""
        more = phase.verifies.words if phase.verifies and self.repetition == 0 else ()
        asked = [*phase.command[_names(phase).index(said) + 1 :], *more]
        words = [filled(word) for word in asked]
        # mdtest quotes its words
        reported = [word.strip("'") for word in self.output.command.split()[1:]]
        for want, got in zip_longest(words, reported, fillvalue="nothing"):
            if want != re.sub("//+", "/", got):
                return f"{got!r} instead of {want!r}"
        return ""


def _names(phase: PhasePlan) -> list[str]:
    return [PurePath(word).name for word in phase.command]


def _sections(job_file: str) -> dict[str, dict[str, str]]:
    """Return the options of fio's jobs by their names; words without a value are left out."""
    parser = configparser.ConfigParser(delimiters="=", allow_no_value=True, interpolation=None)
    parser.read_string(job_file)
    return {
        name: {option: value for option, value in parser[name].items() if value is not None}
        for name in parser.sections()
    }


def _other_options(
    planned: Mapping[str, Mapping[str, str]], jobs: Mapping[str, Mapping[str, str]]
) -> str:
    for name, options in planned.items():
        for option, want in options.items():
            got = jobs.get(name, {}).get(option, "nothing")
            said = re.sub("//+", "/", got)
            if said != want and not (len(got) == _FIO_CUTS_AT and want.startswith(said)):
                of_job = f" in job {name}" if len(planned) > 1 else ""
                return f"{option}={got}{of_job} instead of {option}={want}"
    return ""


def _out_of_time(moments: Sequence[Moment], run: PhaseRun, clocks: Sequence[ClockSeen]) -> str:
    """Return which of a tool's dates lies outside an execution; empty if none does.

    The nodes' clocks may differ, and may be set during the job. So a date is believed if it lies
    within the execution by any look at a clock, or between two looks. The tool's zone may be another than the job
    script's, as in a container: a local date is believed in any zone.
    """
    if not clocks:
        return "the dates of the execution are unknown: the record of the clocks is missing"
    first = run.started + min(clock.least for clock in clocks) - SLACK_S
    last = run.ended + max(clock.most for clock in clocks) + SLACK_S
    for moment in moments:
        shift = _ZONES_S * math.ceil((moment.seconds - last) / _ZONES_S) if moment.local else 0
        if not (first <= moment.seconds - shift <= last and abs(shift) <= _FARTHEST_S):
            zone = clocks[0].utc_offset
            printed = moment.seconds - (zone if moment.local else 0)
            return (
                f"{moment.name!r} is {_date(printed, zone)}, and the execution lasted from "
                f"{_date(run.started + clocks[0].most, zone)} to {_date(run.ended + clocks[0].least, zone)}"
            )
    return ""


def _date(seconds: float, utc_offset: int) -> str:
    """Return a date with seconds, and the zone's distance from UTC."""
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    try:
        zone = timezone(timedelta(seconds=utc_offset))
        return (epoch + timedelta(seconds=seconds)).astimezone(zone).isoformat(" ", "seconds")
    except (OverflowError, ValueError):
        return f"{seconds:.0f} s since the epoch"


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasePart:
    """A phase of one execution, on the first node: claims of its tool, and what was counted meanwhile.

    ``claimed_bytes`` are those of the node's tasks. ``counted_bytes`` is None if nobody counted while the phase ran.
    ``moving_s`` lies between the first and the last of the bytes, at least; None if unknown.
    """

    claimed_bytes: int
    claimed_s: float
    counted_bytes: int | None
    moving_s: float | None = None


def phase_witnessed(
    *, direction: str, parts: Sequence[PhasePart | None], copies: float = 1.0
) -> Finding:
    """G8: while a phase of IO500's IOR ran, the first node counted 95 % of the bytes that its tasks
    report. If nothing was counted meanwhile, you get a remark. The dates that IO500 prints give the
    time of the phase, to a second.

    ``parts`` holds None for an execution that does not say when its phase ran. A file system writes ``copies`` bytes for
    each byte, at least.
    """
    rule = Rule(
        "G8",
        f"the first node counts what the phase reports, within {TOLERANCE:.0%}, while it ran",
        "The data did not travel between the tool and the storage. Look for a cache, or another program of the "
        "tool's name",
    )
    counts = [
        (part.counted_bytes, part.claimed_bytes)
        for part in parts
        if part is not None and part.counted_bytes is not None
    ]
    least = copies if direction == "write" else 1.0
    for counted, claimed in counts:
        if counted < (1 - TOLERANCE) * least * claimed:
            done = "read" if direction == "read" else "wrote"
            return rule.invalid(
                f"the tasks of the first node {done} {format_bytes(claimed)}, as the tool says; while the phase ran "
                f"its counters moved {format_bytes(counted)}"
            )
    if len(counts) < len(parts):
        return Rule(
            "G8",
            "counters of the first node for each phase",
            "The bytes are proven for the whole run only. Block devices, NFS and, for root, a Lustre client "
            "count them over time",
        ).warn(f"nobody counted {len(parts) - len(counts)} of {len(parts)} execution(s) by phase")
    return rule.ok(f"{format_bytes(min(counted for counted, _ in counts))} or more while it ran")


def phase_seconds_witnessed(*, parts: Sequence[PhasePart]) -> Finding | None:
    """G4: no phase of IO500's IOR reports fewer seconds than its bytes took on the devices of the first node.

    Returns None if that is unknown.
    """
    known = [(part.claimed_s, part.moving_s) for part in parts if part.moving_s is not None]
    rule = Rule(
        "G4",
        "seconds of the phase that the counters of the first node confirm",
        "The tool's clock is wrong. Look for a preloaded library, or another tool of this name",
    )
    for claimed, moving in known:
        if claimed < (1 - TOLERANCE) * moving:
            return rule.invalid(
                f"the tool reports {format_seconds(claimed)}; its bytes moved for {format_seconds(moving)}"
            )
    return rule.ok(f"{len(known)} of {len(parts)} execution(s) confirmed") if known else None


def _span_of(
    output: ToolOutput, phase: Phase, clock: tuple[float, float], utc_offset: int
) -> tuple[float, float] | None:
    """Return the earliest begin and the latest end of a phase, in seconds since the first node's boot; None if the
    output does not say when it ran.

    ``clock`` holds the least and the most of the seconds since the epoch at boot.
    """
    dates = {moment.name: moment.seconds - utc_offset for moment in output.moments if moment.local}
    begun, ended = dates.get(f"{phase.name} t_start"), dates.get(f"{phase.name} t_end")
    lengths = output.parameters.get("lengths")
    length = lengths.get(phase.name) if isinstance(lengths, dict) else None
    if begun is None or ended is None or length is None:
        return None
    least, most = clock
    return max(begun, ended - length) - most, min(ended + 1, begun + 1 + length) - least


def _parts(seen: PhaseSeen) -> list[PhasePart | None]:
    """Return the phase in each execution, or None if the execution does not say when it ran."""
    case, way = seen.case, seen.access.direction
    first, name = case.evidence.first, seen.phase.within or seen.phase.name
    if first is None:
        return [None] * len(seen.reported)
    hosts = {view.host for view in case.evidence.views if view.cache_id == first.cache_id}
    counts = not case.silent(first).intersection(first.counters)
    share, instants = len(hosts) / case.plan.nodes, case.evidence.activity if counts else ()
    runs = [run for run in case.evidence.runs if run.name == name and run.repetition > 0]
    found: list[PhasePart | None] = []
    for (output, phase), run in zip(seen.reported, runs, strict=False):
        span = _span_in(output, phase, run, case.evidence.clocks)
        if span is None or phase.bytes_moved is None:
            found.append(None)
            continue
        own = round(share * phase.bytes_moved)
        counted = counted_between(instants, span, way)
        # Clients of a network count what programs ask for, or in the background.
        least = max(round((1 - TOLERANCE) * own), SLACK_BYTES)
        timed = not case.on_network and counted is not None and counted >= least
        copied = round(own * case.copies[1]) if way == "write" else own
        found.append(
            PhasePart(
                claimed_bytes=own,
                claimed_s=phase.seconds,
                counted_bytes=counted,
                moving_s=seconds_of_activity(instants, span, copied) if timed else None,
            )
        )
    return found + [None] * (len(seen.reported) - len(found))


def _span_in(
    output: ToolOutput, phase: Phase, run: PhaseRun, clocks: Sequence[ClockSeen]
) -> tuple[float, float] | None:
    """Return the span of a phase that lies within an execution by a look at a clock; None if none does.

    The tool's local time may be another than the node's.
    """
    for clock in clocks:
        span = _span_of(output, phase, (clock.least, clock.most), clock.utc_offset)
        if span and run.started - SLACK_S <= span[0] and span[1] <= run.ended + SLACK_S:
            return span
    return None


def phase_witnessed_of(seen: PhaseSeen) -> Iterator[Finding]:
    """Yield G8 for phases of IOR within an execution of several phases."""
    if seen.moves_data and _of_several(seen):
        yield phase_witnessed(
            direction=seen.access.direction, parts=_parts(seen), copies=seen.case.copies[0]
        )


def phase_seconds_witnessed_of(seen: PhaseSeen) -> Iterator[Finding]:
    """Yield G4 for phases of IOR within an execution of several phases, if their bytes were counted."""
    if seen.moves_data and _of_several(seen):
        parts = [part for part in _parts(seen) if part is not None]
        finding = phase_seconds_witnessed(parts=parts)
        if finding is not None:
            yield finding


def _of_several(seen: PhaseSeen) -> bool:
    """Return whether the phase is one of several, and of IOR, whose writes end with fsync."""
    several = any("lengths" in output.parameters for output in seen.outputs)
    return several and all("bw" in phase.rates for phase in seen.tool_phases)
