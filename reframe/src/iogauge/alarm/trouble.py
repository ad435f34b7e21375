"""One problem that somebody must look at, in words that need no context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from iogauge.alarm.figure import Curve, bars

#: Kind of trouble for a series that has become worse although its newest run met its reference.
DRIFT: Final = "DRIFT"

#: Runs in a line of bars.
BARS: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One problem that somebody must look at; all text is safe for a terminal.

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
    since: str = ""
    trend: str = ""
    cause: str = ""
    remedy: str = ""
    curve: Curve | None = None

    @property
    def headline(self) -> str:
        """Return one line: ``FAIL mysite:scratch IorPosix shared direct write_bw: 24.9 MiB/s``."""
        name = " ".join(word for word in (self.kind, self.where, self.case, self.metric) if word)
        value = self.measured or self.reason
        return f"{name}: {value}" if value else name

    @property
    def sentence(self) -> str:
        """Return one sentence: what is wrong where, since when, and what changed just before."""
        name = " ".join(word for word in (self.case, self.metric, "on", self.where) if word)
        since = self.since.partition(", session")[0]
        if self.kind == DRIFT:
            text = (
                f"{name} has become worse: {self.trend.partition(', session')[0] or self.measured}"
            )
        else:
            text = f"{name} is {self.kind}: {self.reason or self.measured}"
            text += f", since {since}" if since else ""
        return text + (f"; {self.cause}" if self.cause else "") + "."

    @property
    def paragraph(self) -> str:
        """Return the headline, and a line for each known fact."""
        facts = {
            "expected": self.expected,
            "reason": self.reason if self.measured else "",
            "since": self.since,
            "trend": self.trend,
            "cause": self.cause,
            "remedy": self.remedy,
            "runs": bars(self.curve, BARS) if self.curve else "",
        }
        lines = [f"  {name + ':':<10}{text}" for name, text in facts.items() if text]
        return "\n".join([self.headline, *lines])

    def to_json(self) -> dict[str, Any]:
        """Return the same facts as JSON values."""
        names = ("kind", "where", "case", "metric", "measured", "expected", "reason", "since")
        facts = {name: getattr(self, name) for name in (*names, "trend", "cause", "remedy")}
        runs = self.curve.points[-BARS:] if self.curve else ()
        return facts | {
            "unit": self.curve.unit if self.curve else "",
            "runs": [p.value for p in runs],
        }
