"""What the servers of a Lustre file system count while a case runs: a series of each target beside the clients'.

A process beside the agent on the first node asks the site's sources again and again: exporters (lustrefs-exporter, lustre_exporter), or
``lctl`` of the node itself, which is a server. All of them count when they are asked, so a rate is that of the time between two answers.
No verdict depends on it.
"""

from __future__ import annotations

import math
import os
import re
import statistics
import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple

from iogauge.core.units import format_value
from iogauge.node.lustre.programs import ask_lctl
from iogauge.plan.seen import SERVERS, Noted, append, boot_seconds, line_of
from iogauge.plan.stage import PhaseRun

#: Seconds between two questions, at least: to lctl, and to an exporter. One that answers slowly is asked less often.
_STEP_S: Final = {"lctl": 1.0}
_STEP_OF_EXPORTER_S: Final = 5.0
_TIMEOUT_S: Final = 10.0
_LARGEST: Final = 64 << 20

_LCTL: Final = re.compile(
    r"^(?:obdfilter|mdt)\.(\S+)\.(?:md_)?stats=$"
    r"|^(\w+) +(\d+) samples \[(\w+)\](?: \d+ \d+ (\d+))?",
    re.M,
)
_EXPORTED: Final = re.compile(
    r"^lustre_(stats|read_bytes|write_bytes)_total\{(.*)\} ([0-9.e+]+)", re.M
)
#: The label is ``target``, in old exporters ``ost`` or ``mdt``. A name of a file system has eight characters at most.
_TARGET: Final = re.compile(r'="([\w-]{1,8}-(?:OST|MDT)[0-9a-f]{4})"')
#: Counted once more as what they are a part of.
_PARTS: Final = re.compile(r"(?:same|cross)dir_rename|parallel_rename")


class Counts(NamedTuple):
    """What a target has counted: bytes both ways, requests (of a metadata target all operations), and their microseconds, if told."""

    bytes: int = 0
    requests: int = 0
    usecs: int = 0


def _counted(text: str) -> Iterator[tuple[str, str, str, int, int]]:
    """Yield target, what, unit, samples and sum of what lctl or an exporter printed."""
    target = ""
    for name, what, samples, unit, total in _LCTL.findall(text):
        if name:
            target = name
        else:
            yield target, what, unit, int(samples), int(total or 0)
    for what, labels, value in _EXPORTED.findall(text):
        count, operation = int(float(value)), re.search(r'\boperation="(\w+)"', labels)
        if not (found := _TARGET.search(labels)):
            continue
        if what != "stats":
            yield found[1], what, "bytes", 0, count
        elif operation:
            yield found[1], operation[1], "reqs", count, 0


def parse(text: str) -> dict[str, Counts]:
    """Return what targets have counted, by name; raises ValueError without any."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for target, what, unit, samples, total in _counted(text):
        of_data, count = what in ("read", "write"), sums[target]
        if unit == "bytes":
            count[0] += total
            count[1] += samples if "-OST" in target else 0
        elif "-OST" in target:
            count[2] += total if of_data else 0
        elif not _PARTS.match(what):
            count[1] += samples
            count[2] += total
    if not sums:
        raise ValueError("no counters of a Lustre server in the answer")
    return {target: Counts(*count) for target, count in sums.items()}


def ask(source: str) -> dict[str, Counts]:
    """Return what a source counts now; raises OSError or ValueError."""
    if source == "lctl":
        if os.geteuid():
            raise ValueError("lctl tells the counters of a server to root alone")
        return parse(ask_lctl("obdfilter.*.stats", "mdt.*.md_stats"))
    from http.client import HTTPException
    from urllib.request import urlopen

    try:
        with urlopen(source, timeout=_TIMEOUT_S) as answer:
            return parse(answer.read(_LARGEST).decode(errors="replace"))
    except HTTPException as error:
        raise OSError(f"no answer of HTTP: {error!r}") from error


def watch(words: Sequence[str]) -> int:
    """Note what sources count, until the agent ends: the command ``servers FSNAME SOURCE...``."""
    fsname, *sources = words
    with ThreadPoolExecutor(len(sources)) as pool:
        list(pool.map(partial(_follow, fsname), sources))
    return 0


def _follow(fsname: str, source: str) -> None:
    said = ""
    while True:
        began, counts, problem = boot_seconds(), {}, ""
        try:
            told = ask(source)
            counts = {name: count for name, count in told.items() if name.startswith(f"{fsname}-")}
        except (OSError, ValueError) as error:
            problem = str(error)
        took = boot_seconds() - began
        if counts or problem != said:
            append(line_of(SERVERS, [source, problem, counts], began + took / 2))
        said = problem
        time.sleep(max(_STEP_S.get(source, _STEP_OF_EXPORTER_S), took))


#: Looks at a target: seconds since the first node's boot, and what it had counted.
Looks = Mapping[str, Sequence[tuple[float, Counts]]]

#: A target takes part in an execution if it moves so much of what the busiest one does.
_PART: Final = 0.05
#: It has fallen if it moves less than this share of what it moves at other times.
_FELL: Final = 0.5
#: Its requests are slow if they take so many times as long as those of the others.
_SLOW: Final = 3.0
_NAMED: Final = 3
#: Most points of a curve, and most curves, in a record.
_POINTS, _CURVES = 60, 24


def looks_of(noted: Noted) -> tuple[Looks, dict[str, str]]:
    """Return the looks at each target, and what sources objected last."""
    looks: dict[str, list[tuple[float, Counts]]] = defaultdict(list)
    problems = {}
    kind = tuple[str, str, Mapping[str, tuple[int, int, int]]]
    for _, at, (source, problem, counts) in noted.each(SERVERS, kind):
        problems[source] = problem
        for target, count in counts.items():
            looks[target].append((at, Counts(*count)))
    return looks, {source: problem for source, problem in problems.items() if problem}


def _between(
    looks: Sequence[tuple[float, Counts]], began: float, ended: float
) -> tuple[float, float, Counts] | None:
    """Return the looks around a time, and what grew between them; None without two, or if the target began anew."""
    times = [at for at, _ in looks]
    first = max(0, bisect_right(times, began) - 1)
    last = min(len(times) - 1, bisect_left(times, ended))
    if last <= first:
        return None
    grown = Counts(
        *(after - before for before, after in zip(looks[first][1], looks[last][1], strict=True))
    )
    return (times[first], times[last], grown) if min(grown) >= 0 else None


def explain(looks: Looks, began: float, ended: float, run: PhaseRun, epoch: float) -> str:
    """Return what the storage targets counted around a slow time of an execution; empty if nobody knows.

    Times are in seconds since boot, which was at ``epoch``.
    """
    slow, usual, took, times = {}, {}, {}, []
    for target, seen in looks.items():
        during, whole = _between(seen, began, ended), _between(seen, run.started, run.ended)
        if "-OST" not in target or during is None or whole is None:
            continue
        seconds, rest_s = during[1] - during[0], whole[1] - whole[0] - (during[1] - during[0])
        slow[target] = during[2].bytes / seconds
        usual[target] = (whole[2].bytes - during[2].bytes) / rest_s if rest_s > 0 else 0.0
        times += [during[:2]]
        if during[2].usecs and during[2].requests:
            took[target] = during[2].usecs / during[2].requests / 1e3
    top = max([*usual.values(), 0.0])
    used = [target for target, rate in usual.items() if top and rate >= _PART * top]
    if not used:
        return ""
    fell = sorted((t for t in used if slow[t] < _FELL * usual[t]), key=lambda t: slow[t] / usual[t])
    others = [target for target in used if target not in fell[:_NAMED]]
    if not fell:
        words = [f"its {len(used)} storage target(s) moved as much as at other times"]
    elif len(fell) == len(used) > 1:
        before, after = (statistics.median(of[t] for t in used) for of in (usual, slow))
        words = [
            f"all of its {len(used)} storage targets fell, from {_mib_s(before)} to {_mib_s(after)}"
        ]
    else:
        words = [
            f"{t} moved {_mib_s(slow[t])}, {_mib_s(usual[t])} at other times" for t in fell[:_NAMED]
        ]
        if others:
            words.append(f"the others {_mib_s(statistics.median(slow[t] for t in others))}")
    worst = max((t for t in used if t in took), key=took.__getitem__, default="")
    rest = [took[t] for t in used if t in took and t != worst]
    if rest and took[worst] >= _SLOW * statistics.median(rest):
        words.append(
            f"a request took {worst} {format_value(took[worst])} ms, the others {format_value(statistics.median(rest))} ms"
        )
    begin, end = (
        datetime.fromtimestamp(epoch + at, timezone.utc)
        for at in (min(times)[0], max(at for _, at in times))
    )
    return f"the servers counted from {begin:%H:%M:%S} to {end:%H:%M:%S} UTC: {', '.join(words)}"


def _mib_s(bytes_s: float) -> str:
    return f"{format_value(bytes_s / 2**20)} MiB/s"


def for_record(noted: Noted, runs: Sequence[PhaseRun]) -> dict[str, dict[str, object]]:
    """Return the curves of each execution, by target, as seconds and MiB/s (of a metadata target operations/s), and what sources objected."""
    looks, problems = looks_of(noted)
    found: dict[str, dict[str, object]] = {}
    for run in runs:
        curves = {target: _curve(target, seen, run) for target, seen in looks.items()}
        moved = {target: sum(rate for _, rate in curve) for target, curve in curves.items()}
        shown = sorted((t for t, sum_ in moved.items() if sum_), key=moved.__getitem__)[:_CURVES]
        if shown:
            found[f"{run.name}.{run.repetition}"] = {
                target: curves[target] for target in sorted(shown)
            }
    return found | ({"unanswered": dict(problems)} if problems else {})


def _curve(
    target: str, looks: Sequence[tuple[float, Counts]], run: PhaseRun
) -> list[tuple[float, float]]:
    """Return the middle of each step of an execution, in seconds after its begin, with the rate."""
    times = [at for at, _ in looks]
    mine = looks[max(0, bisect_right(times, run.started) - 1) : bisect_left(times, run.ended) + 1]
    mine = mine[:: math.ceil(len(mine) / _POINTS)]
    of_data = "-OST" in target
    return [
        (
            round((before + after) / 2 - run.started, 2),
            round(((grown.bytes / 2**20) if of_data else grown.requests) / (after - before), 3),
        )
        for (before, then), (after, now) in pairwise(mine)
        for grown in [Counts(*(b - a for a, b in zip(then, now, strict=True)))]
        if min(grown) >= 0
    ]
