"""Whether an output is of the execution that it is judged for: its words, its token, its dates."""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import zip_longest
from pathlib import PurePath
from typing import Any, Final

from iogauge.core.measurement import Moment, ToolOutput
from iogauge.evidence.model import ClockSeen
from iogauge.guards.seen import CaseSeen
from iogauge.plan.case import DIR, REP, TOKEN, PhasePlan
from iogauge.plan.stage import PhaseRun

#: Seconds by which a tool's date may lie outside its execution. Tools cut theirs to whole seconds.
#: Between two looks at a clock, time servers slow it down or speed it up by 0.5 ms a second at most.
SLACK_S: Final = 2.0

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
    within the execution by any look at a clock, or between two looks.
    """
    if not clocks:
        return "the dates of the execution are unknown: the record of the clocks is missing"
    first = run.started + min(clock.least for clock in clocks) - SLACK_S
    last = run.ended + max(clock.most for clock in clocks) + SLACK_S
    offsets = dict.fromkeys(clock.utc_offset for clock in clocks)
    for moment in moments:
        shifts = offsets if moment.local else [0]
        if not any(first <= moment.seconds - shift <= last for shift in shifts):
            zone = next(iter(offsets))
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
