"""The state of the newest session as a plugin of Nagios says it: one line, and its exit status."""

from collections import Counter
from datetime import datetime, timedelta
from typing import Final

from iogauge.judge.verdict import Verdict
from iogauge.records import query
from iogauge.records.record import microseconds
from iogauge.report.endings import SessionRecords, Word
from iogauge.report.export import plugin_line
from iogauge.report.ranking import Rank
from iogauge_extras.page.trouble import Alarm

#: What somebody must look at now.
_CRITICAL: Final = (Rank.WRONG_DATA, Rank.FAIL, Rank.DEAD_TARGET)


#: Records that are older say nothing of today.
_OLDEST: Final = timedelta(hours=48)


def plugin(alarm: Alarm, records: SessionRecords, now: datetime) -> tuple[int, str]:
    """Return the exit status and the line.

    What is acknowledged is a warning at most. Records of two days ago say nothing of today.
    """
    status = 0
    for trouble in alarm.troubles:
        level = 1
        if trouble.rank in _CRITICAL and not trouble.acknowledged:
            level = 2
        status = max(status, level)
    text = alarm.gist
    if not status and alarm.ending.word is not Word.OK:
        status = 1
    if not alarm.troubles and alarm.ending.word is Word.NOTHING_PROVEN:
        status = 3
    times = [query.moment(microseconds(record.time)) for record in records]
    age = now - max(times, default=now - _OLDEST * 2)
    if age > _OLDEST:
        status = 3
        text = f"nothing was measured in the last 48 hours: {text}"
    counts = Counter(record.verdict for record in records if records.counts(record))
    figures = []
    for verdict in Verdict:
        figures.append(f"{verdict.value.lower()}={counts[verdict]};;;0")
    figures.append(f"age={age.total_seconds():.0f}s;{_OLDEST.total_seconds():.0f};;0")
    return status, plugin_line(status, text, " ".join(figures))
