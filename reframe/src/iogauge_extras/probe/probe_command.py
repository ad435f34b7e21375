"""The command ``iogauge probe``, and what others ask of its lines: is a target slow, was it while a case ran?"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final

import typer
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.exposition import generate_latest

from iogauge.cli.screen import say, slip
from iogauge.core import processes
from iogauge.core.paths import replace_file
from iogauge.core.text import some, visible
from iogauge.core.units import format_bytes
from iogauge.node import view
from iogauge.node.identity import differ
from iogauge.node.kinds import Traits, traits
from iogauge.report.export import plugin_line
from iogauge.site import folders, settings
from iogauge.site.extras import PartitionExtras, Target
from iogauge.workspace import directory, lock
from iogauge_extras.probe import probe_lines, slowdown, small_load
from iogauge_extras.probe.slowdown import IN_A_ROW, NEEDED, Line, Stretch, shown

#: Seconds after which another node's newest probe says nothing of now.
_FRESH_S: Final = 3600

#: The factor from which monitoring is told of something critical.
_CRITICAL: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What is known of a partition's target after a probe, or without one."""

    place: str
    node: str
    #: Seconds since the epoch.
    time: int
    #: Why nothing was measured now; empty if it was.
    skipped: str
    #: Probes that the newest was compared with, and its factors.
    compared: int
    factors: dict[str, float]
    #: Whether the newest probe was slow.
    newest_is_slow: bool
    #: The time in which it is slow; None if it is not.
    slow: Stretch | None
    #: Other nodes that probed it just now: slow for them too, and as usual.
    also_slow: tuple[str, ...]
    as_usual: tuple[str, ...]
    #: Why its reads prove nothing; empty if they do.
    unproven: str

    @property
    def status(self) -> int:
        """Return the status of a monitoring plugin: 0 as usual, 1 slow, 2 very slow or no answer, 3 not known."""
        if self.slow:
            worst = max(self.slow.factors.values(), default=0.0)
            return 2 if self.slow.problem or worst >= _CRITICAL else 1
        return 0 if self.factors or self.skipped else 3

    def __str__(self) -> str:
        if self.slow:
            what = self.slow.problem or f"{self.slow} the usual time"
            text = f"slow since {clock(self.slow.start)} on {self.node}: {what}"
            if self.as_usual:
                text += f". {some(self.as_usual)}: as usual; look at {self.node} first"
            elif self.also_slow:
                text += f". Slow on {some(self.also_slow)} too: look at the target"
            return f"{self.place}: {text}"
        if self.skipped:
            return f"{self.place}: not probed: {self.skipped}"
        text = f"{self.compared} of {NEEDED} probes on {self.node}: too few to compare with"
        if self.factors:
            how = "slower" if self.newest_is_slow else "as usual"
            text = f"{how} on {self.node}: {shown(self.factors)} the usual time ({self.compared} probes)"
        if self.newest_is_slow:
            text += f". {IN_A_ROW} in a row make it slow"
        if self.unproven:
            text += f". Reads do not count: {self.unproven}"
        return f"{self.place}: {text}"


def clock(moment: int) -> str:
    """Return a time of day in UTC, with the day if it is not today's."""
    form = "%H:%M UTC"
    if moment // 86400 != int(time.time()) // 86400:
        form = "%Y-%m-%d %H:%M UTC"
    return time.strftime(form, time.gmtime(moment))


def _traits_of(path: str, target: Target) -> Traits:
    """Return what is known of the target's client; raises OSError if something else is mounted there, or memory."""
    seen = view.look(path)
    kind = seen.mount.type
    if kind != target.type or differ(target.uuid or "", seen.uuid):
        declared = f"{target.type} {target.uuid or ''}".strip()
        raise OSError(
            f"{path} is {kind} {seen.uuid}; the site declares {declared}: mount it, or correct the site"
        )
    known = traits(target.type, target.cache, target.honours_o_direct).over(seen.below)
    if known.cache == "memory":
        raise OSError(f"{path} lies in memory: {known.why or kind}")
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
    path = extras.target.path
    name = f"{lock.PROBE}{os.uname().nodename}-{os.getpid()}"
    place = directory.create(path, name, "probe", time_limit_s=_FRESH_S)
    try:
        _require_free(places)
        known = _traits_of(path, extras.target)
        os.nice(extras.probe.niceness)
        return small_load.measure(place, known, now, lambda: report(1))
    finally:
        directory.remove(os.path.dirname(place))


def _state(place: str, now: int, skipped: str = "") -> State:
    """Return the state of this node's target from its lines, beside that of the other nodes."""
    own = os.uname().nodename
    lines = [Line(time=now)]
    also_slow = []
    as_usual = []
    for node in probe_lines.nodes(*place.split(":")):
        known = probe_lines.recent(node, now)
        if node.name == own:
            lines = known
        elif not known or known[-1].time < now - _FRESH_S:
            continue
        elif slowdown.current(known):
            also_slow.append(node.name)
        elif known[-1].factors:
            as_usual.append(node.name)
    newest = lines[-1]
    return State(
        place=place,
        node=own,
        time=now,
        skipped=skipped,
        compared=len(slowdown.baseline(lines, now + 1)),
        factors=newest.factors,
        newest_is_slow=bool(newest.slow),
        slow=slowdown.current(lines),
        also_slow=tuple(also_slow),
        as_usual=tuple(as_usual),
        unproven=newest.unproven,
    )


def probe_once(place: str, extras: PartitionExtras, now: int) -> State:
    """Probe a partition's target on this node, keep the line, and return the state.

    Nothing is measured while a case holds the target, or when the bytes of the day are used up. A target that does not
    answer, or has wrong data, is a line too. Raises OSError if the target cannot be used, or the line not be written.
    """
    system, _, partition = place.partition(":")
    node = probe_lines.folder(system, partition) / os.uname().nodename
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
        chosen = [partition for partition in known if wanted in ("", partition)]
        if not chosen:
            names_known = ", ".join(known) or f"none, see iogauge check {system}"
            raise slip(f"{name}: no such partition; known: {names_known}")
        firsts: dict[str, str] = {}
        for partition in chosen:
            firsts.setdefault(known[partition].target.path, partition)
        for partition in firsts.values():
            found[f"{system}:{partition}"] = known[partition]
    return found


#: Names of the Prometheus metrics, and what they are.
_FACTOR: Final = "iogauge_probe_slowdown", "how many times slower than usual"
_SLOW: Final = "iogauge_probe_slow", "1 if the target is slow now"


def openmetrics(states: Sequence[State]) -> str:
    """Return the states for the textfile collector of node_exporter."""
    registry = CollectorRegistry()
    factor = Gauge(*_FACTOR, ["place", "node", "group"], registry=registry)
    slow = Gauge(*_SLOW, ["place", "node"], registry=registry)
    for state in states:
        slow.labels(state.place, state.node).set(state.slow is not None)
        for group, value in state.factors.items():
            factor.labels(state.place, state.node, group).set(value)
    return generate_latest(registry).decode()


def _nagios(states: Sequence[State]) -> int:
    """Print one line as a monitoring plugin does, and return its status."""
    order = {0: 0, 3: 1, 1: 2, 2: 3}
    worst = max(states, key=lambda state: order[state.status])
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
    as_json: Annotated[
        bool, typer.Option("--json", help="The states as JSON.")
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
    if as_json:
        rows = [asdict(state) | {"status": state.status} for state in states]
        typer.echo(json.dumps(rows, indent=2))
    else:
        for state in states:
            say(str(state), "red" if state.slow else "")
    raise typer.Exit(int(any(state.slow for state in states)))
