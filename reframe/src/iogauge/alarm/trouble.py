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
    def paragraph(self) -> str:
        """Return the headline, and a line for each known fact."""
        facts = {
            "expected": self.expected,
            "reason": self.reason if self.measured else "",
            "since": self.since,
            "trend": self.trend,
            "cause": self.cause,
            "remedy": self.remedy,
            "runs": bars([p.value for p in self.curve.points[-BARS:]]) if self.curve else "",
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
