"""For how long bytes moved, files changed and processes ran, as looks at counters over time show it."""

from collections.abc import Collection, Sequence
from itertools import pairwise

from iogauge.evidence.task_counters import STARTING_BYTES
from iogauge.node.counters import Reading
from iogauge.plan.observations import Instant

#: Share of the bytes at each end of an execution that may move outside of the tool's timing, and the
#: most that does not count with the bytes of others.
_ENDS = 0.02
_MOST_TRIMMED = 0.25
#: Share of the mean rate of an execution below which it rests, if that lasts so long.
_HARDLY = 0.1
_REST_S = 0.1


def seconds_of_activity(
    instants: Sequence[Instant], span: tuple[float, float], own_bytes: int
) -> float | None:
    """Return the seconds in which the tasks' bytes moved, at least; None if unknown.

    ``span`` holds the times of first start and last end. Nothing is known of the time between two
    instants: bytes may have begun late in it, and ended early. At each end a fiftieth does not
    count, and as many bytes as others moved. If they moved a quarter, nothing is known.
    """
    return _seconds_of([(i.time, i.bytes_moved) for i in instants], span, own_bytes)


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
    mine = _asked(instants, span, ways)
    seconds = _seconds_of(mine, span, mine[-1][1] - STARTING_BYTES, rests=phases - 1)
    if seconds is None:
        return None
    return max(0.0, seconds - _REST_S * (phases - 1))


def longest_unasked(
    instants: Sequence[Instant], span: tuple[float, float], ways: Collection[str]
) -> float:
    """Return the longest time between two looks in which the first task asked for a tenth of its bytes."""
    return longest_unseen(_asked(instants, span, ways), span)


def _asked(
    instants: Sequence[Instant], span: tuple[float, float], ways: Collection[str]
) -> list[tuple[float, int]]:
    """Return the looks at the bytes that the first task asked for in an execution."""
    counts = []
    for instant in instants:
        asked = Reading(instant.read, instant.written)
        counts.append((instant.time, sum(map(asked.way, ways))))
    return _of_execution(counts, span)


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
    last = len(looks) - 1
    hardly = _HARDLY * (looks[last][1] - looks[0][1]) / (looks[last][0] - looks[0][0])
    rests, begin = list[float](), 0
    while begin < last:
        end = begin
        while end < last and _rested(hardly, looks[end], looks[end + 1]):
            end += 1
        if looks[end][0] - looks[begin][0] >= _REST_S:
            rests.append(looks[min(end + 1, last)][0] - looks[max(begin - 1, 0)][0])
        begin = end + 1
    return sum(sorted(rests)[-most:])


def _rested(hardly: float, before: tuple[float, int], after: tuple[float, int]) -> bool:
    """Return whether a count grew by less than ``hardly`` a second between two looks."""
    return after[1] - before[1] < hardly * (after[0] - before[0])


def longest_silence(
    counts: Sequence[tuple[float, int]], began: float, printed: int
) -> float | None:
    """Return the longest time, at least, between two lines of a tool that has ``printed`` so much or more; None without two.

    Its execution ``began`` at a time. ``counts`` are the bytes that it had printed at a time, in seconds since boot. If they fall, another execution has begun.
    """
    longest: float | None = None
    since = last = began
    so_far = 0
    for time, count in counts:
        if time <= began:
            continue
        if count < so_far:
            break
        if count > so_far:
            if so_far >= printed:
                longest = max(longest or 0.0, last - since)
            since, so_far = time, count
        last = time
    return longest


def files_changed(instants: Sequence[Instant], span: tuple[float, float]) -> int | None:
    """Return how many files all programs made and removed in a span, at least; None if nobody counted them."""
    counts = [(i.time, i.files) for i in instants if i.files is not None]
    if not counts:
        return None
    changed = 0
    for (_, before), (_, after) in pairwise(_within(counts, span)):
        changed += abs(after - before)
    return changed


def seconds_of_files(
    instants: Sequence[Instant], span: tuple[float, float], own_files: int
) -> float | None:
    """Return the seconds in which the tasks' files were made, at least, or removed if negative; None if unknown.

    What counts is as for :func:`seconds_of_activity`.
    """
    way = -1 if own_files < 0 else 1
    counts = [(i.time, way * i.files) for i in instants if i.files is not None]
    if not counts:
        return None
    return _seconds_of(counts, span, way * own_files)


def longest_unseen(
    counts: Sequence[tuple[float, int]], span: tuple[float, float]
) -> float:
    """Return the longest time of a span that passed between two looks while a count grew by a tenth of all that it grew; 0 if none did."""
    within, longest = _within(counts, span), 0.0
    if not within:
        return longest
    least = _HARDLY * (within[-1][1] - within[0][1])
    for (before, low), (after, high) in pairwise(within):
        if high - low > max(0.0, least):
            longest = max(longest, min(after, span[1]) - max(before, span[0]))
    return longest


def _within(
    counts: Sequence[tuple[float, int]], span: tuple[float, float]
) -> list[tuple[float, int]]:
    """Return the looks of a span, with the last one before it and the first one after it."""
    started, ended = span
    within: list[tuple[float, int]] = []
    for look in counts:
        if look[0] <= started:
            within.clear()
        within.append(look)
        if look[0] > ended:
            break
    return within


def _seconds_of(
    counts: Sequence[tuple[float, int]],
    span: tuple[float, float],
    own: int,
    rests: int = 0,
) -> float | None:
    """Return the seconds in which a count grew by ``own``, at least, without so many ``rests``; None if unknown.

    They begin at the first look that shows more than the part at the beginning that does not count, and end at the last
    look that does not yet show the part at the end. What was counted beyond ``own`` may be of others, at either end.
    """
    within = _within(counts, span)
    if len(within) < 3:
        return None
    first = within[0][1]
    total = within[-1][1] - first
    if total <= 0:
        return None
    trim = _ENDS + max(0, total - own) / total
    if trim > _MOST_TRIMMED:
        return None
    # What others moved may all lie at one end.
    begun = min(time for time, count in within if count >= first + trim * total)
    ended = max(time for time, count in within if count < first + (1 - trim) * total)
    seconds = ended - begun
    if rests and seconds > 0:
        busy = [look for look in within if begun <= look[0] <= ended]
        seconds -= _rests(busy, rests)
    return max(0.0, seconds)
