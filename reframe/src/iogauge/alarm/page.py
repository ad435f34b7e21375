"""A session as one page of HTML that opens everywhere: no network, no script. Its form is page.html."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from iogauge.alarm import figure
from iogauge.alarm.collect import Alarm
from iogauge.core.text import visible
from iogauge.records.record import Record
from iogauge.report import table

#: Most figures of metrics without trouble, so that the page stays small.
_FIGURES: Final = 200


def page(alarm: Alarm, records: Sequence[Record]) -> str:
    """Return the page of some sessions: what is wrong, every metric, and the runs of each."""
    times = sorted(record.time for record in records)
    drawn = [trouble.curve.points for trouble in alarm.troubles if trouble.curve]
    others = [curve for curve in alarm.curves if curve.points and curve.points not in drawn]
    return _TEMPLATES.get_template("page.html").render(
        alarm=alarm,
        systems=", ".join(alarm.systems),
        span=" to ".join(dict.fromkeys(times[:1] + times[-1:])),
        rows=table.rows(records),
        others=others[:_FIGURES],
        svg=lambda curve: Markup(figure.svg(curve)),
        figure_style=Markup(figure.STYLE),
    )


def _shown(value: object) -> object:
    """Make text visible before it is escaped; our own markup stays as it is."""
    return visible(value) if type(value) is str else value


_TEMPLATES: Final = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_shown,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
