"""What somebody must know after a run: all troubles, the gravest first, and which of them nobody was told of.

:mod:`iogauge_extras.page.receivers` sends it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from iogauge.cli.reporting import Asked
from iogauge.core.groups import grouped
from iogauge.core.text import count, some, visible
from iogauge.judge.verdict import Verdict
from iogauge.records import query
from iogauge.records.record import Record
from iogauge.report import endings
from iogauge.report.outcome import notes_of
from iogauge.report.ranking import Rank
from iogauge_extras.page import drifts, failures
from iogauge_extras.page.notices import Incident, Notice, Notices, stamp
from iogauge_extras.page.past import ALWAYS, History
from iogauge_extras.page.trouble import DRIFT, Alarm, Trouble


def collect(
    folder: Path,
    asked: Asked,
    *,
    gate: bool,
    expected: Iterable[str] = (),
    span: query.Choice = ALWAYS,
    notices: Notices | None = None,
) -> Alarm:
    """Return what the records of some sessions, and the trend of what they measured, have to say.

    ``folder`` is the history, ``span`` the part of it that counts. ``expected`` are partitions (``system:partition``) that
    must have been measured. A damaged line is a trouble, since it may have been a record. ``notices`` say what is
    acknowledged.

    In a gate everything but PASS is a trouble. Failures that a second run refuted are not, nor are those that a reference
    says to expect.
    """
    records, damaged = asked.records, asked.damaged
    history = History(folder, records, span)
    found = failures.of_records(records, history)
    failing = {(t.curve.key, t.metric) for t in found if t.curve}
    worse = [*drifts.of_trend(history, failing), *drifts.of_falls(records, history)]
    absent = list(failures.of_absent(records, expected))
    found += [*worse, *absent, *map(failures.of_damage, damaged)]
    if not gate:
        found = [trouble for trouble in found if not trouble.rank.is_noise]
    troubles = _gravest_first(found)
    problems = []
    back = sum(trouble.rank is Rank.BACK for trouble in worse)
    if back < len(worse):
        problems.append(f"{len(worse) - back} metric(s) have become worse ({DRIFT})")
    if back:
        problems.append(f"{back} metric(s) had become worse, and are back ({DRIFT})")
    problems += [f"nothing was measured on {trouble.where}" for trouble in absent]
    problems += endings.of_damage(damaged)
    ending = records.ending(gate, asked.unmeasured, problems)
    if troubles and not ending.status:  # a record that contradicts itself
        problems = [f"{len(troubles)} trouble(s)"]
        ending = records.ending(gate, asked.unmeasured, problems)
    systems = tuple(sorted({visible(record.system) for record in records}))
    if ending.status and not troubles:
        whole = Trouble(
            kind=Verdict.ERROR.value,
            where=", ".join(systems) or "-",
            reason=ending.sentence,
        )
        troubles = [whole]
    known = notices or Notices((), datetime.now(timezone.utc))
    for n, trouble in enumerate(troubles):
        notice = known.acknowledgement(trouble.incidents)
        if notice:
            troubles[n] = replace(trouble, acknowledged=str(notice))
    return Alarm(
        sessions=tuple(dict.fromkeys(record.session for record in records)),
        systems=systems,
        ending=ending,
        troubles=tuple(troubles),
        history=history,
    )


def news_of(alarm: Alarm, records: Iterable[Record], notices: Notices) -> Alarm:
    """Return the part of an alarm that nobody was told of, and what is over in the ``records`` that it is of."""
    troubles = []
    standing: set[Incident] = set()
    for trouble in alarm.troubles:
        standing.update(trouble.incidents)
        if any(map(notices.is_news, trouble.incidents)) and not trouble.acknowledged:
            troubles.append(trouble)
    measured: set[tuple[str, str]] = set()
    for record in records:
        for case in ("", visible(record.short_name)):
            measured.add((record.where, case))
    over = notices.over(standing, measured)
    return replace(alarm, troubles=tuple(troubles), over=tuple(over))


def sent_notices(news: Alarm, now: datetime) -> Iterator[Notice]:
    """Yield what is to be kept of news that were sent."""
    incidents: list[Incident] = []
    for trouble in news.troubles:
        incidents += trouble.incidents
    if incidents:
        yield Notice(what="sent", time=stamp(now), incidents=tuple(incidents))
    if news.over:
        yield Notice(what="over", time=stamp(now), incidents=news.over)


def _gravest_first(troubles: Sequence[Trouble]) -> list[Trouble]:
    """Return troubles by rank and loss; all noise of a partition is one, and so are errors that say the same."""

    def same(trouble: Trouble) -> tuple[object, ...]:
        if trouble.rank is Rank.UNREFERENCED:
            return trouble.kind, trouble.where.partition(":")[0]
        if trouble.rank.is_noise:
            return trouble.kind, trouble.where
        if trouble.rank in (Rank.ERROR, Rank.DEAD_TARGET, Rank.INVALID):
            return trouble.kind, trouble.where, trouble.reason
        return (id(trouble),)

    joined = [_joined(found) for found in grouped(troubles, same).values()]
    return sorted(joined, key=lambda trouble: (trouble.rank, -trouble.loss))


def _joined(troubles: Sequence[Trouble]) -> Trouble:
    """Return one trouble for several: each sentence once."""
    first = troubles[0]
    if len(troubles) == 1 and not first.rank.is_noise:
        return first
    cases = list(dict.fromkeys(trouble.case for trouble in troubles))
    name, listed = first.case, ""
    if len(cases) > 1:
        name, listed = count(len(cases), "case"), ", ".join(cases)
    if first.rank is Rank.DEAD_TARGET:
        name = f"all {name}"
    incidents: dict[Incident, None] = {}
    for trouble in troubles:
        incidents |= dict.fromkeys(trouble.incidents)
    places = list(dict.fromkeys(trouble.where for trouble in troubles))
    joined = Trouble(
        kind=first.kind,
        rank=first.rank,
        where=some(places, 3),
        case=name,
        parts=tuple(incidents),
    )
    if first.rank is Rank.UNREFERENCED:
        metrics = count(len(troubles), "valid metric")
        reason = f"{metrics} without a reference; iogauge calibrate proposes references"
        return replace(joined, reason=reason)
    notes = notes_of(trouble.reason for trouble in troubles)
    causes = notes_of(trouble.cause for trouble in troubles if trouble.cause)
    remedies = dict.fromkeys(trouble.remedy for trouble in troubles if trouble.remedy)
    return replace(
        joined,
        reason="; ".join(dict.fromkeys(notes.values())),
        cases=listed,
        cause="; ".join(dict.fromkeys(causes.values())),
        remedy="; ".join(remedies),
    )
