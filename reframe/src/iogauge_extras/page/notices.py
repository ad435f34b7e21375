"""What somebody knows of an alarm already: what was sent, is over, was acknowledged, and when all is silent.

It is one file that only grows, ``<state>/alarm.jsonl``. A line that is damaged is left out: then somebody is told twice.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Final, Literal

from iogauge.core import paths, untrusted
from iogauge.core.text import visible
from iogauge.records import journal


@dataclass(frozen=True, slots=True)
class Incident:
    """What is told once, until it is over."""

    #: Name of the rank; one for all ranks of a loss.
    kind: str
    #: System and partition.
    where: str
    #: Empty for all cases.
    case: str = ""
    #: Empty for all metrics.
    metric: str = ""

    def __str__(self) -> str:
        """Return its words: ``FAIL mysite:scratch IorPosix shared write_bw``."""
        words = (self.kind, self.where, self.case, self.metric)
        return " ".join(filter(None, words))


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice(untrusted.Plain):
    """A line of the file; its times are as :func:`stamp` writes them."""

    what: Literal["sent", "over", "acknowledged", "silent"]
    time: str
    incidents: tuple[Incident, ...] = ()
    #: Begin of a silence.
    begin: str = ""
    #: End of a silence or of an acknowledgement.
    until: str = ""
    by: str = ""
    reason: str = ""

    def __str__(self) -> str:
        """Return who said so until when, and why."""
        text = f"{self.what} by {self.by} until {self.until[:16].replace('T', ' ')} UTC"
        return visible(f"{text}: {self.reason}")


def stamp(time: datetime) -> str:
    """Return a time as the file has it; texts of later times are larger."""
    return f"{time.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"


def notices_file() -> Path:
    """Return the file."""
    return paths.state_dir() / "alarm.jsonl"


#: Most bytes of the file that are read.
_LIMIT: Final = 1 << 30


class Notices:
    """What follows from the lines of the file at a time."""

    def __init__(self, lines: Iterable[Notice], now: datetime) -> None:
        """Read the lines in their order: a later one counts."""
        self.now = stamp(now)
        self.sent: dict[Incident, str] = {}
        self.acknowledged: dict[Incident, Notice] = {}
        self.silences: list[Notice] = []
        for line in lines:
            if line.what == "silent":
                self.silences.append(line)
            for incident in line.incidents:
                if line.what == "sent":
                    self.sent[incident] = line.time
                elif line.what == "over":
                    self.sent.pop(incident, None)
                else:
                    self.acknowledged[incident] = line

    @classmethod
    def read(cls, now: datetime) -> Notices:
        """Return what the file says; raises OSError if it cannot be read."""
        lines = []
        text = ""
        with contextlib.suppress(FileNotFoundError):
            text = untrusted.read_text(notices_file(), _LIMIT)
        for line in text.splitlines():
            with contextlib.suppress(TypeError, ValueError):
                lines.append(Notice.from_json(untrusted.parse_json(line)))
        return cls(lines, now)

    def acknowledgement(self, incidents: Sequence[Incident]) -> Notice | None:
        """Return the silence, or the acknowledgement that stands; None unless all incidents have one."""
        standing = self.silence
        if standing:
            return standing
        for incident in incidents:
            standing = self.acknowledged.get(incident)
            if standing is None or standing.until < self.now:
                return None
        return standing

    def is_news(self, incident: Incident) -> bool:
        """Return whether nobody was told, or was told before an acknowledgement that has ended since."""
        if incident not in self.sent:
            return True
        ended = self.acknowledged.get(incident)
        return ended is not None and self.sent[incident] <= ended.until < self.now

    @property
    def silence(self) -> Notice | None:
        """Return the silence of the time, if it is within one."""
        for window in self.silences:
            if window.begin <= self.now <= window.until:
                return window
        return None

    def over(
        self, standing: Collection[Incident], measured: Collection[tuple[str, str]]
    ) -> list[Incident]:
        """Return what was sent, was ``measured`` again (place and case), and does not stand any more."""
        found = []
        for incident in self.sent:
            again = (incident.where, incident.case) in measured
            if again and incident not in standing:
                found.append(incident)
        return found


def append(notice: Notice) -> None:
    """Add a line to the file in one write; raises OSError."""
    journal.append(notices_file(), json.dumps(notice.to_json()).encode())
