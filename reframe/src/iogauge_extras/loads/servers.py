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
from operator import add, sub
from typing import Final, NamedTuple

from iogauge.core.units import format_value
from iogauge.node.lustre.programs import ask_lctl
from iogauge.plan.observations import (
    SERVERS,
    NodeObservations,
    append,
    boot_seconds,
    line_of,
)
from iogauge.plan.stage import PhaseRun

#: Seconds between two questions, at least: to lctl, and to an exporter. One that answers slowly is asked less often.
_STEP_OF_LCTL_S, _STEP_S = 1.0, 5.0
_TIMEOUT_S: Final = 10.0
_LARGEST: Final = 64 << 20

#: A device; or a histogram of times that its disks took; or name, samples, unit and sum of a line.
_LCTL: Final = re.compile(
    r"^(?:obdfilter|mdt|osd-\w+)\.(\S+)\.(?:md_|brw_)?stats=$"
    r"|^I/O time \(1/1000s\).*\n((?:\d+K?:.*\n)*)"
    r"|^(\w+) +(\d+) samples \[(\w+)\](?: \d+ \d+ (\d+))?",
    re.M,
)
_TIMES: Final = re.compile(r"^(\d+)(K?):\s+(\d+) .*\|\s+(\d+) ", re.M)
_EXPORTED: Final = re.compile(
    r"^lustre_(stats|read_bytes|write_bytes|io_time_milliseconds)_total\{(.*)\} ([0-9.e+]+)",
    re.M,
)
#: The label is ``target``, in old exporters ``ost`` or ``mdt``. A name of a file system has eight characters at most.
_TARGET: Final = re.compile(r'="([\w-]{1,8}-(?:OST|MDT)[0-9a-f]{4})"')
_LABEL: Final = re.compile(r'\b(?:operation|size)="(\w+)"')
#: Counted once more as what they are a part of.
_PARTS: Final = re.compile(r"(?:same|cross)dir_rename|parallel_rename")


class ServerCounts(NamedTuple):
    """What a target has counted: bytes both ways, I/Os of its disks (of a metadata target: operations), and their milliseconds.

    The milliseconds are rounded up to powers of two.
    """

    bytes: int = 0
    operations: int = 0
    ms: int = 0


def _of_lctl(text: str) -> Iterator[tuple[str, ServerCounts]]:
    """Yield what lctl counts for each target."""
    target = ""
    for name, times, what, samples, unit, total in _LCTL.findall(text):
        target, of_data = name or target, "-OST" in (name or target)
        if unit == "bytes":
            yield target, ServerCounts(int(total or 0))
        elif what and not of_data and not _PARTS.match(what):
            yield target, ServerCounts(0, int(samples))
        for size, kilo, reads, writes in _TIMES.findall(times) if of_data else ():
            count = int(reads) + int(writes)
            yield (
                target,
                ServerCounts(0, count, count * int(size) * (1024 if kilo else 1)),
            )


def _of_exporter(text: str) -> Iterator[tuple[str, ServerCounts]]:
    """Yield what an exporter counts for each target."""
    for what, labels, value in _EXPORTED.findall(text):
        count, found = int(float(value)), _TARGET.search(labels)
        label = _LABEL.findall(labels)[-1:]
        if not found:
            continue
        of_data = "-OST" in found[1]
        if what.endswith("_bytes"):
            yield found[1], ServerCounts(count)
        elif what == "stats" and not of_data and not (label and _PARTS.match(label[0])):
            yield found[1], ServerCounts(0, count)
        elif what != "stats" and of_data and label and label[0].isdigit():
            yield found[1], ServerCounts(0, count, count * int(label[0]))


def parse(text: str) -> dict[str, ServerCounts]:
    """Return what targets have counted, by name; raises ValueError without any."""
    sums: dict[str, ServerCounts] = {}
    for target, count in (*_of_lctl(text), *_of_exporter(text)):
        sums[target] = ServerCounts(*map(add, sums.get(target, ServerCounts()), count))
    if not sums:
        raise ValueError("no counters of a Lustre server in the answer")
    return sums


def ask(source: str) -> dict[str, ServerCounts]:
    """Return what a source counts now; raises OSError or ValueError."""
    if source == "lctl":
        if os.geteuid():
            raise ValueError("lctl tells the counters of a server to root alone")
        return parse(
            ask_lctl("obdfilter.*.stats", "mdt.*.md_stats", "osd-*.*-OST*.brw_stats")
        )
    from http.client import HTTPException
    from urllib.request import urlopen

    try:
        with urlopen(source, timeout=_TIMEOUT_S) as answer:
            return parse(answer.read(_LARGEST).decode(errors="replace"))
    except HTTPException as error:
        raise OSError(f"no answer of HTTP: {error!r}") from error


def watch(words: Sequence[str]) -> int:
    """Observation what sources count, until the agent ends: the command ``servers FSNAME SOURCE...``."""
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
            counts = {
                name: count
                for name, count in told.items()
                if name.startswith(f"{fsname}-")
            }
        except (OSError, ValueError) as error:
            problem = str(error)
        took = boot_seconds() - began
        if counts or problem != said:
            append(line_of(SERVERS, [source, problem, counts], began + took / 2))
        said = problem
        time.sleep(max(_STEP_OF_LCTL_S if source == "lctl" else _STEP_S, took))


#: Looks at a target: seconds since the first node's boot, and what it had counted.
Looks = Mapping[str, Sequence[tuple[float, ServerCounts]]]

#: A target takes part in an execution if it moves so much of what the busiest one does.
_PART: Final = 0.05
#: Its disks are slow if an I/O takes them so many times as long as those of the others.
_SLOW: Final = 4.0
#: Most points of a curve, and most curves, in a record.
_POINTS, _CURVES = 40, 12


def looks_of(noted: NodeObservations) -> tuple[Looks, dict[str, str]]:
    """Return the looks at each target, and what sources objected last."""
    looks: dict[str, list[tuple[float, ServerCounts]]] = defaultdict(list)
    problems = {}
    kind = tuple[str, str, Mapping[str, tuple[int, int, int]]]
    for _, at, (source, problem, counts) in noted.each(SERVERS, kind):
        problems[source] = problem
        for target, count in counts.items():
            looks[target].append((at, ServerCounts(*count)))
    return looks, {source: problem for source, problem in problems.items() if problem}


def _grown(
    looks: Sequence[tuple[float, ServerCounts]],
    began: float,
    ended: float,
    most: int = 1,
) -> list[tuple[float, float, ServerCounts]]:
    """Return what grew between the looks around a time, in so many steps at most; less if the target began anew."""
    times = [at for at, _ in looks]
    mine = looks[max(0, bisect_right(times, began) - 1) : bisect_left(times, ended) + 1]
    return [
        (before, after, ServerCounts(*map(sub, now, then)))
        for (before, then), (after, now) in pairwise(
            mine[:: -(-(len(mine) - 1) // most) or 1]
        )
        if min(map(sub, now, then)) >= 0
    ]


def explain(
    looks: Looks, began: float, ended: float, run: PhaseRun, epoch: float
) -> str:
    """Return what the storage targets counted around a slow time of an execution; empty if nobody knows.

    Times are in seconds since boot, which was at ``epoch``.
    """
    slow, usual, took, times = {}, {}, {}, []
    for target, seen in looks.items():
        both = zip(
            _grown(seen, began, ended),
            _grown(seen, run.started, run.ended),
            strict=False,
        )
        for (first, last, during), (start, end, whole) in (
            both if "-OST" in target else ()
        ):
            rest_s = end - start - (last - first)
            slow[target] = during.bytes / (last - first)
            usual[target] = (whole.bytes - during.bytes) / rest_s if rest_s > 0 else 0.0
            times += [first, last]
            if during.operations:
                took[target] = during.ms / during.operations
    top = max([*usual.values(), 0.0])
    used = [target for target, rate in usual.items() if top and rate >= _PART * top]
    if not used:
        return ""
    low = min(used, key=lambda target: slow[target] / usual[target])
    words = [
        f"{low} moved {_mib_s([slow[low]])}, {_mib_s([usual[low]])} at other times"
    ]
    if others := [target for target in used if target != low]:
        now, else_ = (_mib_s([of[target] for target in others]) for of in (slow, usual))
        words.append(f"the {len(others)} other(s) {now}, {else_} at other times")
    timed = sorted((target for target in used if target in took), key=took.__getitem__)
    rest = (
        statistics.median(took[target] for target in timed[:-1])
        if timed[1:]
        else math.inf
    )
    if timed and took[timed[-1]] >= _SLOW * rest:
        words.append(
            f"an I/O took the disks of {timed[-1]} about {took[timed[-1]]:.0f} ms, the others {rest:.0f} ms"
        )
    dates = (
        datetime.fromtimestamp(epoch + at, timezone.utc)
        for at in (min(times), max(times))
    )
    between = " to ".join(f"{date:%H:%M:%S}" for date in dates)
    return f"the servers counted from {between} UTC: {'; '.join(words)}"


def _mib_s(bytes_s: Sequence[float]) -> str:
    return f"{format_value(statistics.median(bytes_s) / 2**20)} MiB/s"


def for_record(
    noted: NodeObservations, runs: Sequence[PhaseRun]
) -> dict[str, dict[str, object]]:
    """Return the curves of each execution, by target, as seconds and MiB/s (of a metadata target operations/s), and what sources objected."""
    looks, problems = looks_of(noted)
    found: dict[str, dict[str, object]] = {}
    for run in runs:
        curves = {
            target: [
                (
                    round((before + after) / 2 - run.started, 2),
                    round(_what(target, grown) / (after - before), 3),
                )
                for before, after, grown in _grown(
                    seen, run.started, run.ended, _POINTS
                )
            ]
            for target, seen in looks.items()
        }
        moved = {
            target: sum(rate for _, rate in curve) for target, curve in curves.items()
        }
        shown = sorted((t for t, sum_ in moved.items() if sum_), key=moved.__getitem__)[
            :_CURVES
        ]
        if shown:
            found[f"{run.name}.{run.repetition}"] = {
                target: curves[target] for target in sorted(shown)
            }
    return found | ({"unanswered": dict(problems)} if problems else {})


def _what(target: str, grown: ServerCounts) -> float:
    return grown.bytes / 2**20 if "-OST" in target else grown.operations
