"""What somebody must be told, in words that need no context: troubles, and the alarm that holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import date
from typing import Any, Final

from iogauge.core.text import visible
from iogauge.judge.verdict import Verdict
from iogauge.report.endings import Ending, Word
from iogauge_extras.page.charts import Curve, bars

#: Kind of trouble for a series that has become worse although its newest run met its reference.
DRIFT: Final = "DRIFT"

#: Runs in a line of bars.
BARS: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One problem that somebody must look at; all text becomes safe for a terminal.

    ``kind`` is a verdict, or :data:`DRIFT`. A text is empty if there is nothing to say. ``curve``
    is None if the metric has no valid run.
    """

    kind: str
    where: str
    case: str
    metric: str = ""
    measured: str = ""
    expected: str = ""
    reason: str = ""
    guilty: str = ""
    since: str = ""
    trend: str = ""
    cause: str = ""
    remedy: str = ""
    curve: Curve | None = None

    def __post_init__(self) -> None:
        """Make the texts safe."""
        for name in _TEXTS:
            object.__setattr__(self, name, visible(getattr(self, name)))

    @property
    def headline(self) -> str:
        """Return one line: ``FAIL mysite:scratch IorPosix shared direct write_bw: 24.9 MiB/s``."""
        name = " ".join(word for word in (self.kind, self.where, self.case, self.metric) if word)
        value = self.measured or self.reason
        return f"{name}: {value}" if value else name

    @property
    def brief(self) -> str:
        """Return a few words: ``write_bw 29.8 % below its reference``, ``DRIFT read_bw 12 % worse``."""
        if self.kind == DRIFT:
            if self.reason:
                return f"{DRIFT} {self.metric}: {self.reason}"
            return f"{DRIFT} {self.metric} {self.trend.partition(' (')[0]} since {self.since[:10]}"
        if self.kind == Verdict.FAIL.value and self.metric:
            return (
                self.guilty.partition(";")[0]
                or f"{self.metric} {self.measured.rpartition(', ')[2]}"
            )
        return ""

    @property
    def facts(self) -> dict[str, str]:
        """Return what is known beside the headline, by name; a remedy that the reason has is left out."""
        told = all(
            (one.partition(": ")[2] or one) in self.reason for one in self.remedy.split("; ")
        )
        facts = {
            "expected": self.expected,
            "reason": self.reason if self.measured else "",
            "guilty": self.guilty,
            "since": self.since,
            "trend": self.trend,
            "cause": self.cause,
            "remedy": "" if told else self.remedy,
        }
        return {name: text for name, text in facts.items() if text}

    @property
    def paragraph(self) -> str:
        """Return the headline, and a line for each known fact."""
        facts = self.facts | ({"runs": bars(self.curve, BARS)} if self.curve else {})
        return "\n".join([self.headline, *(f"  {n + ':':<10}{text}" for n, text in facts.items())])

    def to_json(self) -> dict[str, Any]:
        """Return the same facts as JSON values."""
        unit, runs = (self.curve.unit, self.curve.points[-BARS:]) if self.curve else ("", ())
        facts = {name: getattr(self, name) for name in _TEXTS}
        return facts | {"unit": unit, "runs": [run.value for run in runs]}


_TEXTS: Final = tuple(one.name for one in fields(Trouble) if one.name != "curve")

#: The worst verdict of a case, by partition and name, on each day with a run.
Days = Mapping[tuple[str, str], Mapping[date, Verdict]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """The state of some sessions; the ending may be FAILED without any trouble.

    ``missing`` counts what was asked for and has no record.
    """

    sessions: tuple[str, ...]
    systems: tuple[str, ...]
    ending: Ending
    troubles: tuple[Trouble, ...]
    curves: tuple[Curve, ...]
    days: Days = field(default_factory=dict)
    missing: int = 0

    @property
    def failed(self) -> bool:
        """Return whether somebody must be told."""
        return bool(self.ending.status)

    @property
    def title(self) -> str:
        """Return one line that sums up the sessions."""
        return f"iogauge {', '.join(self.systems) or '-'}: {self.ending}"

    @property
    def text(self) -> str:
        """Return the title, what was not run, and a paragraph for each trouble."""
        title = "\n".join([self.title, *self.ending.remarks])
        return "\n\n".join([title, *(trouble.paragraph for trouble in self.troubles)])


#: What ``iogauge alarm --test`` sends.
TEST: Final = Alarm(
    sessions=(),
    systems=("test",),
    ending=Ending(Word.OK, "a test of the alarm's way, nothing has happened"),
    troubles=(),
    curves=(),
)
