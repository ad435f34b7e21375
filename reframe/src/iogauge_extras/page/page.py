"""Sessions, or a span of time, as one page of HTML that opens everywhere.

Nothing leaves the file: its policy forbids requests and scripts. Its form is page.html and page.css.
"""

import contextlib
import getpass
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from iogauge.core.groups import grouped
from iogauge.core.text import count, visible
from iogauge.core.units import with_unit
from iogauge.evidence.fingerprint import is_of_node
from iogauge.records.record import MetricRecord, Record, microseconds
from iogauge.report import outcome
from iogauge.report.layout import LOOKS
from iogauge.report.ranking import ranked
from iogauge.session.current import suite
from iogauge_extras.page.charts import Timeline, by_second, short
from iogauge_extras.page.past import probed, utc_minute
from iogauge_extras.page.sheets import Sheet
from iogauge_extras.page.trouble import DRIFT, Alarm, Trouble

_FOLDER: Final = Path(__file__).parent

#: Most figures of metrics without trouble, so that the page stays small.
_FIGURES: Final = 500


def _shown(value: object) -> object:
    """Make text visible before it is escaped; our own markup stays as it is."""
    if type(value) is str:
        return visible(value)
    return value


def _written_by() -> str:
    """Return who wrote the page when, with which commit of the suite."""
    now = utc_minute(datetime.now(timezone.utc))
    return f"{now} by {getpass.getuser()} on {socket.gethostname()}, iogauge {suite()}"


def _file(name: str) -> Markup:
    return Markup((_FOLDER / name).read_text(encoding="utf-8"))


TEMPLATES: Final = Environment(
    loader=FileSystemLoader(_FOLDER),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_shown,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
TEMPLATES.globals |= {
    "count": count,
    "short": short,
    # The sign of each verdict tells them apart without colours.
    "signs": {DRIFT: "↓"}
    | {verdict.value: look.sign for verdict, look in LOOKS.items()},
    "style": _file("page.css") + _file("figure.css"),
    "with_unit": with_unit,
    "written_by": _written_by,
}


def page(
    alarm: Alarm,
    records: Sequence[Record],
) -> str:
    """Return the page of some sessions: what is wrong, every metric, and the runs of each."""
    drawn = [trouble.curve.points for trouble in alarm.troubles if trouble.curve]
    others = []
    if alarm.history:
        for curve in alarm.history.curves:
            if len(curve.points) > 1 and curve.points not in drawn:
                others.append(curve)
    return TEMPLATES.get_template("page.html").render(
        alarm=alarm,
        cards=_cards(alarm.troubles),
        span=_span_of(records),
        places_known=places_of(records),
        results=outcome.table(ranked(records)),
        timelines=list(_timelines(outcome.newest(records))),
        others=others[:_FIGURES],
        left_out=max(len(others) - _FIGURES, 0),
        suites={record.suite: None for record in records if record.suite},
    )


def sheet(shown: Sheet) -> str:
    """Return a sheet as a page of its own, to be printed."""
    return TEMPLATES.get_template("sheet.html").render(sheet=shown)


#: Troubles of a case, each with its facts by name.
Card = list[tuple[Trouble, dict[str, str]]]


def _cards(troubles: Sequence[Trouble]) -> list[Card]:
    """Return the troubles by case, each with its facts; what a card has said is not said again."""
    cards = []
    alike = grouped(
        troubles, lambda trouble: (trouble.kind, trouble.where, trouble.case)
    )
    for mine in alike.values():
        said: set[str] = set()
        card: Card = []
        for trouble in mine:
            facts = {}
            for name, text in trouble.facts.items():
                if text not in said:
                    facts[name] = text
            card.append((trouble, facts))
            said.update(facts.values())
        cards.append(card)
    return cards


def _timelines(records: Sequence[Record]) -> Iterator[tuple[Timeline, Record]]:
    """Yield the rates over the seconds of each run that has them: Failover, Endurance."""
    for record in records:
        marks: dict[str, float] = {}
        lines: list[tuple[MetricRecord, Sequence[Mapping[str, float]]]] = []
        for metric in record.metrics:
            rounds: Sequence[Mapping[str, float]] = ()
            if metric.rounds and not metric.probes:
                rounds = metric.rounds
            if metric.unit == "s":
                marks |= next(iter(rounds), {})
            elif any(rounds):
                lines.append((metric, rounds))
        for metric, rounds in lines:
            name = metric.name.removeprefix("before_")
            title = f"{record.short_name} on {record.where}: {name} over time"
            with contextlib.suppress(ValueError):
                rates = list(map(by_second, rounds))
                yield Timeline(title, metric.unit, rates, marks), record


def _span_of(records: Sequence[Record]) -> str:
    """Return the first and the last time of records, to the minute."""
    times = sorted(record.minute for record in records)
    if not times:
        return ""
    return f"{' to '.join(dict.fromkeys([times[0], times[-1]]))} UTC"


def places_of(records: Sequence[Record]) -> list[tuple[str, dict[str, str]]]:
    """Return what is known of each partition: its target, tools and load, and the fingerprint of its newest record."""
    places = []
    for where, mine in sorted(grouped(records, lambda record: record.where).items()):
        tools: dict[str, None] = {}
        loads = []
        for record in mine:
            tools |= dict.fromkeys(record.tools)
            if record.load is not None:
                loads.append(record.load)
        facts = {"target": mine[-1].target_path, "tools": ", ".join(tools)}
        if loads:
            most = f"{max(loads):g} x the cores of the busiest node"
            facts["load before the runs"] = most
        first = min(mine, key=lambda record: record.time)
        begin = microseconds(first.time) // 1_000_000
        facts["probes"] = probed(first.system, first.partition, begin, int(time.time()))
        facts["records"] = f"{len(mine)}, {_span_of(mine)}"
        last = max(mine, key=lambda r: (is_of_node(r.fingerprint), r.time))
        for key, value in last.fingerprint.items():
            if not key.startswith(("command", "settings")):
                facts[key] = str(value)
        places.append((where, {name: text for name, text in facts.items() if text}))
    return places
