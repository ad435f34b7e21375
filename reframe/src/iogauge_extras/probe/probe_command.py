"""The command ``iogauge probe``, and what others ask of its lines: is a target slow, was it while a case ran?"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from iogauge.cli.screen import say, slip
from iogauge.core import processes
from iogauge.core.paths import replace_file
from iogauge.core.text import some, visible
from iogauge.core.units import format_bytes
from iogauge.guards import preflight
from iogauge.guards.finding import Outcome
from iogauge.node import view
from iogauge.node.kinds import Kind, kind_of
from iogauge.report.export import plugin_line
from iogauge.site import folders, settings
from iogauge.site.extras import PartitionExtras, Target
from iogauge.workspace import directory, lock
from iogauge_extras.probe import probe_lines, slowdown, small_load
from iogauge_extras.probe.slowdown import IN_A_ROW, NEEDED, Line, shown

#: Seconds after which another node's newest probe says nothing of now.
_FRESH_S = 3600

#: The factor from which monitoring is told of something critical.
_CRITICAL = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What is known of a partition's target after a probe of this node, or without one."""

    place: str
    #: That of a monitoring plugin: 0 as usual or not probed, 1 slow, 2 very slow or no answer, 3 not known.
    status: int
    text: str
    factors: Mapping[str, float]

    @property
    def is_slow(self) -> bool:
        """Return whether the target is slow now."""
        return self.status in (1, 2)

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


def _node() -> str:
    return os.uname().nodename


def clock(moment: int) -> str:
    """Return a time of day in UTC, with the day if it is not today's."""
    form = "%H:%M UTC"
    if moment // 86400 != int(time.time()) // 86400:
        form = "%Y-%m-%d %H:%M UTC"
    return time.strftime(form, time.gmtime(moment))


def _kind_of(target: Target) -> Kind:
    """Return what is known of the target's client; raises OSError if something else is mounted there, or memory."""
    seen = view.look(target.path)
    finding = preflight.identity(target, [seen])
    if finding.outcome is Outcome.INVALID:
        raise OSError(str(finding))
    known = kind_of(target.type, target.cache, target.honours_o_direct).over(seen.below)
    if known.cache == "memory":
        raise OSError(f"{target.path} lies in memory: {known.why or target.type}")
    return known


class Held(OSError):
    """A case holds the target; the message says which."""


def _require_free(places: Sequence[str]) -> None:
    """Raise :class:`Held` if a case of this suite uses the target with these locks."""
    for place in places:
        holder = lock.standing(place)
        if holder is not None and not holder.gone:
            raise Held(f"a case holds the target: {holder}")


def _load(
    extras: PartitionExtras, places: Sequence[str], now: int, report: processes.Report
) -> Line:
    """Measure in a directory of its own below the target, and remove it; raises :class:`Held`.

    A case takes the lock before it looks for directories of probes, and waits for them. So one of both sees the other.
    """
    _require_free(places)
    name = f"{lock.PROBE}{_node()}-{os.getpid()}"
    place = directory.create(extras.target.path, name, "probe", time_limit_s=_FRESH_S)
    try:
        _require_free(places)
        known = _kind_of(extras.target)
        os.nice(extras.probe.niceness)
        return small_load.measure(place, known, now, lambda: report(1))
    finally:
        directory.remove(os.path.dirname(place))


def _others(place: str, now: int) -> str:
    """Return what other nodes that probed just now say of a target that is slow here, and what to look at."""
    slow = []
    as_usual = []
    for node in probe_lines.nodes(*place.split(":")):
        lines = probe_lines.recent(node, now)
        is_old = not lines or lines[-1].time < now - _FRESH_S
        if is_old or node.name == _node():
            continue
        if slowdown.current(lines):
            slow.append(node.name)
        elif lines[-1].factors:
            as_usual.append(node.name)
    if as_usual:
        return f". {some(as_usual)}: as usual; look at {_node()} first"
    if slow:
        return f". Slow on {some(slow)} too: look at the target"
    return ""


def _state(place: str, now: int, skipped: str = "") -> State:
    """Return the state of this node's target from its lines."""
    own = _node()
    node = probe_lines.folder(*place.split(":")) / own
    lines = probe_lines.recent(node, now) or [Line(time=now)]
    newest, slow = lines[-1], slowdown.current(lines)
    compared = len(slowdown.baseline(lines, now + 1))
    status = 0
    if slow:
        status = 1
        if slow.problem or max(slow.factors.values()) >= _CRITICAL:
            status = 2
        text = f"slow since {clock(slow.start)} on {own}: {slow}{_others(place, now)}"
    elif skipped:
        text = f"not probed: {skipped}"
    elif newest.factors:
        how, outlook = "as usual", ""
        if newest.slow:
            how, outlook = "slower", f". {IN_A_ROW} in a row make it slow"
        text = f"{how} on {own}: {shown(newest.factors)} the usual time ({compared} probes){outlook}"
    else:
        status = 3
        text = f"{compared} of {NEEDED} probes on {own}: too few to compare with"
    if newest.unproven and not skipped:
        text += f". Reads do not count: {newest.unproven}"
    return State(place=place, status=status, text=text, factors=newest.factors)


def probe_once(place: str, extras: PartitionExtras, now: int) -> State:
    """Probe a partition's target on this node, keep the line, and return the state.

    Nothing is measured while a case holds the target, or when the bytes of the day are used up. A target that does not
    answer, or has wrong data, is a line too. Raises OSError if the target cannot be used, or the line not be written.
    """
    system, _, partition = place.partition(":")
    node = probe_lines.folder(system, partition) / _node()
    lines = probe_lines.recent(node, now)
    # Of today (UTC).
    moved = sum(line.moved for line in lines if line.time >= now - now % 86400)
    most = extras.probe.bytes_a_day
    if moved >= most:
        skipped = f"today's probes moved {format_bytes(moved)} (probe.bytes_a_day: {format_bytes(most)})"
        return _state(place, now, skipped)
    # Partitions on one file system share a lock.
    known = settings.partitions(folders.site_dir(system))
    places = extras.target.locks([other.target for other in known.values()])
    try:
        line = processes.watch(
            extras.target.path,
            lambda report: _load(extras, places, now, report),
            lambda _: None,
        )
    except Held as held:
        return _state(place, now, str(held))
    except (processes.NoAnswer, small_load.WrongData) as error:
        line = Line(time=now, problem=visible(str(error)))
    probe_lines.append(node, slowdown.compare(line, lines))
    probe_lines.fold(node, now)
    return _state(place, now)


def while_it_ran(system: str, partition: str, start: int, end: int) -> str:
    """Return what the probes say of a time (seconds since the epoch): when the target was slow; empty if it was not."""
    said = []
    for node in probe_lines.nodes(system, partition):
        lines = probe_lines.recent(node, end)
        for stretch in slowdown.stretches(lines):
            if stretch.start <= end and stretch.end >= start:
                until = clock(stretch.end)
                said.append(
                    f"slow between {clock(stretch.start)} and {until} ({stretch}; probe on {node.name})"
                )
    return "; ".join(said)


def _places(names: Sequence[str]) -> dict[str, PartitionExtras]:
    """Return the partitions that are named, as SYSTEM or SYSTEM:PARTITION; each target of a system once."""
    found: dict[str, PartitionExtras] = {}
    for name in names:
        system, _, wanted = name.partition(":")
        known = settings.partitions(folders.site_dir(system))
        targets = set()
        for partition, extras in known.items():
            path = extras.target.path
            if wanted in ("", partition) and path not in targets:
                targets.add(path)
                found[f"{system}:{partition}"] = extras
        if not targets:
            names_known = ", ".join(known) or f"none, see iogauge check {system}"
            raise slip(f"{name}: no such partition; known: {names_known}")
    return found


def openmetrics(states: Sequence[State]) -> str:
    """Return the states for the textfile collector of node_exporter: how many times slower than usual, and 1 for a slow target."""
    rows = []
    for state in states:
        labels = f'node="{_node()}",place="{state.place}"'
        rows.append(f"iogauge_probe_slow{{{labels}}} {int(state.is_slow)}\n")
        for group, factor in state.factors.items():
            rows.append(
                f'iogauge_probe_slowdown{{group="{group}",{labels}}} {factor}\n'
            )
    return "".join(rows)


def _nagios(states: Sequence[State]) -> int:
    """Print one line as a monitoring plugin does, and return its status."""
    # 3, not known, is worse than 0 alone.
    worst = max(states, key=lambda state: [0, 3, 1, 2].index(state.status))
    figures = []
    for state in states:
        for group, factor in state.factors.items():
            figures.append(f"'{state.place} {group}'={factor:g}")
    typer.echo(visible(plugin_line(worst.status, str(worst), " ".join(figures))))
    return worst.status


def probe(
    names: Annotated[list[str], typer.Argument(help="SYSTEM or SYSTEM:PARTITION.")],
    nagios: Annotated[
        bool,
        typer.Option(
            "--nagios", help="One line and a status as monitoring plugins have them."
        ),
    ] = False,
    metrics: Annotated[
        Path | None,
        typer.Option(
            "--openmetrics", help="File for node_exporter's textfile collector."
        ),
    ] = None,
) -> None:
    """Measure for seconds whether a target is slow now.

    One node, 32 MiB and 100 files at most, never while a case holds the target. Exit status 0: as usual, or not known;
    1: slow; 2: a slip, or a target that cannot be used.
    """
    states = []
    now = int(time.time())
    for place, extras in _places(names).items():
        try:
            states.append(probe_once(place, extras, now))
        except OSError as error:
            raise slip(f"{place} was not probed: {error}") from error
    if metrics:
        metrics.parent.mkdir(parents=True, exist_ok=True)
        replace_file(metrics, openmetrics(states).encode())
    if nagios:
        raise typer.Exit(_nagios(states))
    for state in states:
        style = ""
        if state.is_slow:
            style = "red"
        say(str(state), style)
    raise typer.Exit(int(any(state.is_slow for state in states)))
