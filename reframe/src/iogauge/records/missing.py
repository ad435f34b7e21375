"""Find cases that a gate should have measured: a check that is gone fails nothing by itself.

If a site has lost a tool, or a feature or pattern is misspelt, ReFrame selects fewer cases and
passes. So a gate compares itself with earlier gates of the same selection, which is the words on
its command line.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from iogauge.records import journal
from iogauge.records.record import Record

#: Most sessions of a selection to look back at; a run with derived checks has two.
_SESSIONS: Final = 30

CaseKey = tuple[str, str, str]


def selection(arguments: Sequence[str]) -> str:
    """Return the name of a selection: the words that were typed, quoted for a shell."""
    return shlex.join(arguments)


def seen_before(folder: Path, chosen: str, mine: Collection[str] = ()) -> dict[CaseKey, str]:
    """Return the cases that gates of a selection recorded on a system, with the newest session of
    each.

    ``mine`` are the sessions to compare with them. A damaged record counts if its case can be read.
    The search goes back to the last session in which somebody accepted that cases are gone. Cases
    pinned to a node are left out, since nodes come and go.
    """
    sessions_of: dict[CaseKey, str] = {}
    sessions, accepted = 0, False
    for file in sorted(folder.glob("*.jsonl"), key=lambda path: path.name, reverse=True):
        if file.stem in mine:
            continue
        try:
            records = (record for record in journal.read(file) if isinstance(record, dict))
            first = next(records, None)
        except OSError:  # ``iogauge history`` reports files that cannot be read
            continue
        if first is None or first.get("selection") != chosen:
            continue
        if sessions == _SESSIONS or (accepted and not first.get("accepts")):
            break
        sessions, accepted = sessions + 1, bool(first.get("accepts"))
        for record in (first, *records):
            if not record.get("pinned"):
                with contextlib.suppress(KeyError):  # ``iogauge history`` reports it
                    case = (record["partition"], record["environment"], record["case"])
                    sessions_of.setdefault((str(case[0]), str(case[1]), str(case[2])), file.stem)
    return sessions_of


def gone(before: Mapping[CaseKey, str], records: Iterable[Record], system: str) -> list[str]:
    """Return a line for each case that was recorded before and is not now."""
    now = {(r.partition, r.environment, r.case) for r in records if r.system == system}
    return [
        f"{name} ({system}:{partition}, {environment}) was recorded in {session}, and is gone"
        for (partition, environment, name), session in sorted(before.items())
        if (partition, environment, name) not in now
    ]


def without_match(arguments: Sequence[str], names: Iterable[str]) -> list[str]:
    """Return the values of ``-n`` that fit no listed case.

    ``names`` are ReFrame's, each followed by its hash. Several ``-n`` are alternatives, so ReFrame
    does not report a value without a match.
    """
    patterns = [
        after if word in ("-n", "--name") else word.partition("=")[2]
        for word, after in zip(arguments, [*arguments, ""][1:], strict=True)
        if word in ("-n", "--name") or word.startswith("--name=")
    ]
    cases = [name.rpartition(" /") for name in names]

    def fits(pattern: str) -> bool:
        if pattern.startswith("/"):
            return any(pattern[1:] == case[2] for case in cases)
        test = pattern.rpartition("@")[0]
        return any(re.search(test or pattern, case[0].replace(" ", "")) for case in cases)

    return [pattern for pattern in patterns if not fits(pattern)]
