"""For how long bytes moved, files changed and processes ran, as looks at counters over time show it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby, pairwise
from typing import Final

from iogauge.evidence.task_counters import STARTING_BYTES
from iogauge.plan.observations import Instant

#: Share of the bytes at each end of an execution that may move outside of the tool's timing, and the
#: most that does not count with the bytes of others.
_ENDS: Final = 0.02
_MOST_TRIMMED: Final = 0.25
#: Share of the mean rate of an execution below which it rests, if that lasts so long.
_HARDLY: Final = 0.1
_REST_S: Final = 0.1
#: Processes of fio before it starts its jobs.
_WITHOUT_JOBS: Final = 1


def counted_between(
    instants: Sequence[Instant], span: tuple[float, float], direction: str
) -> int | None:
    """Return the bytes of a direction between two times, at most; None if nobody counted then.

    A look before the begin and one after the end bound them. Looks without a change are not written down, so that none
    after the end means that nothing moved after the last.
    """
    begin, end = span
    before = [i for i in instants if i.time <= begin][-1:]
    after = ([i for i in instants if i.time >= end] or instants[-1:])[:1]
    if not before or not after:
        return None
    reads = direction == "read"
    first, last = (i.read if reads else i.written for i in (before[0], after[0]))
    return max(0, last - first)


def seconds_of_activity(
    instants: Sequence[Instant], span: tuple[float, float], own_bytes: int
) -> float | None:
    """Return the seconds in which the tasks' bytes moved, at least; None if unknown.

    ``span`` holds the times of first start and last end. Nothing is known of the time between two
    instants: bytes may have begun late in it, and ended early. At each end a fiftieth does not
    count, and as many bytes as others moved. If they moved a quarter, nothing is known.
    """
    return _seconds_of([(i.time, i.bytes_moved) for i in instants], span, own_bytes)


def seconds_of_files(
    instants: Sequence[Instant], span: tuple[float, float], own_files: int
) -> float | None:
    """Return the seconds in which the tasks made so many files, or removed them if negative, at least; None if unknown.

    The number of files in use is that of the whole file system. If others make or remove files meanwhile, nothing is
    known: theirs may hide those of the tasks.
    """
    sign = 1 if own_files > 0 else -1
    counts = [(i.time, sign * i.files) for i in instants if i.files is not None]
    own = abs(own_files)
    if abs(_changed(counts, span) - own) > _ENDS * own:
        return None
    return _seconds_of(counts, span, own)


def seconds_of_asking(
    instants: Sequence[Instant],
    span: tuple[float, float],
    ways: Collection[str],
    *,
    phases: int = 1,
) -> float | None:
    """Return the seconds in which the first task passed its bytes to the kernel, at least; None if they are few.

    A task reads programs and settings first: a MiB of them may come at either end. Between two ``phases`` it may rest.
    The time from the last bytes before a pause to the first bytes after it does not count. A short time is taken off
    for each pause that is too short to be seen.
    """
    counts = [
        (i.time, i.read * ("read" in ways) + i.written * ("write" in ways))
        for i in instants
    ]
    mine = _of_execution(counts, span)
    seconds = _seconds_of(mine, span, mine[-1][1] - STARTING_BYTES, rests=phases - 1)
    return None if seconds is None else max(0.0, seconds - _REST_S * (phases - 1))


def _of_execution(
    counts: Sequence[tuple[float, int]], span: tuple[float, float]
) -> list[tuple[float, int]]:
    """Return the looks at a count of one execution, from zero at its start to the first look after its end.

    The count of each execution begins anew. So if it falls, another execution has begun.
    """
    started, ended = span
    mine = [(started, 0)]
    for time, count in counts:
        if time <= started:
            continue
        if count < mine[-1][1]:
            if time > ended:
                break
            mine = [(started, 0)]
        mine.append((time, count))
        if time > ended:
            break
    return mine


def _rests(looks: Sequence[tuple[float, int]], most: int) -> float:
    """Return the seconds in which a count hardly grew for some time, at most: those of the ``most`` longest times.

    Nothing is known of the intervals beside them: the count may have grown at their far ends alone. A count may also
    stand still while a call of the kernel lasts.
    """
    rate = (looks[-1][1] - looks[0][1]) / (looks[-1][0] - looks[0][0])
    steps = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(looks)]
    rests, at = list[float](), 0
    for idle, of_kind in groupby(
        steps, lambda step: step[1] < _HARDLY * rate * step[0]
    ):
        length = len(list(of_kind))
        if idle and sum(seconds for seconds, _ in steps[at : at + length]) >= _REST_S:
            rests.append(
                sum(seconds for seconds, _ in steps[max(0, at - 1) : at + length + 1])
            )
        at += length
    return sum(sorted(rests)[-most:])


def longest_silence(
    counts: Sequence[tuple[float, int]], span: tuple[float, float], printed: int
) -> float | None:
    """Return the longest time, at least, between two lines of a tool that has ``printed`` so much or more; None without two.

    ``counts`` are the bytes that it had printed at a time, in seconds since boot. If they fall, another execution has begun.
    """
    mine = [(span[0], 0), *((time, count) for time, count in counts if time > span[0])]
    ends = next(
        (n for n, (a, b) in enumerate(pairwise(mine), 1) if b[1] < a[1]), len(mine)
    )
    silences = [list(looks) for _, looks in groupby(mine[:ends], lambda look: look[1])][
        1:-1
    ]
    return max(
        (looks[-1][0] - looks[0][0] for looks in silences if looks[0][1] >= printed),
        default=None,
    )


def seconds_of_jobs(
    counts: Sequence[tuple[float, int]], span: tuple[float, float]
) -> float | None:
    """Return the seconds, at least, in which fio had all of its jobs at once; None if it made no process for them.

    ``counts`` are the processes of fio: itself, and one for each job. A number counts only if two looks in succession
    found it.
    """
    jobs = jobs_at_once(counts, span)
    times = [
        time
        for time, count in counts
        if span[0] <= time <= span[1] and count == _WITHOUT_JOBS + jobs
    ]
    return times[-1] - times[0] if jobs else None


def jobs_at_once(counts: Sequence[tuple[float, int]], span: tuple[float, float]) -> int:
    """Return how many jobs fio had at once, as :func:`seconds_of_jobs`; 0 if it made no process for them."""
    within = [count for time, count in counts if span[0] <= time <= span[1]]
    return max(
        0, max((a for a, b in pairwise(within) if a == b), default=0) - _WITHOUT_JOBS
    )


def files_changed(instants: Sequence[Instant], span: tuple[float, float]) -> int | None:
    """Return how many files all programs made and removed in a span, at least; None if nobody counted them."""
    counts = [(i.time, i.files) for i in instants if i.files is not None]
    return _changed(counts, span) if counts else None


def _changed(counts: Sequence[tuple[float, int]], span: tuple[float, float]) -> int:
    within = _within(counts, span)
    return sum(abs(after - before) for (_, before), (_, after) in pairwise(within))


def _within(
    counts: Sequence[tuple[float, int]], span: tuple[float, float]
) -> list[tuple[float, int]]:
    """Return the looks of a span, with the last one before it and the first one after it."""
    started, ended = span
    before = [look for look in counts if look[0] <= started][-1:]
    after = [look for look in counts if look[0] > ended][:1]
    return before + [look for look in counts if started < look[0] <= ended] + after


def _seconds_of(
    counts: Sequence[tuple[float, int]],
    span: tuple[float, float],
    own: int,
    rests: int = 0,
) -> float | None:
    """Return the seconds in which a count grew by ``own``, at least, without so many ``rests``; None if unknown."""
    within = _within(counts, span)
    if len(within) < 3:
        return None
    first, total = within[0][1], within[-1][1] - within[0][1]
    trim = _ENDS + max(0, total - own) / total if total > 0 else 1.0
    if trim > _MOST_TRIMMED:
        return None
    begun = next(time for time, count in within if count >= first + trim * total)
    going = [time for time, count in within if count < first + (1 - trim) * total]
    busy = [look for look in within if begun <= look[0] <= going[-1]]
    return max(
        0.0,
        going[-1]
        - begun
        - (_rests(busy, rests) if rests and going[-1] > begun else 0.0),
    )
