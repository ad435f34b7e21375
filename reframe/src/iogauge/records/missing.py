"""Which cases a gate should have measured: a check that is gone fails nothing by itself.

Tools that a site has lost, a feature that is misspelt, a pattern that no longer fits: ReFrame then selects less and
passes. So a gate compares itself with the earlier gates of the same selection, the words on its command line.
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

#: Earlier sessions of a selection that are looked at; a run with derived checks has two.
_SESSIONS: Final = 30

Case = tuple[str, str, str]


def selection(arguments: Sequence[str]) -> str:
    """What names a selection: the words that were typed, as a shell would take them."""
    return shlex.join(arguments)


def seen_before(folder: Path, chosen: str, mine: Collection[str] = ()) -> dict[Case, str]:
    """Cases that gates of a selection have recorded on a system, and the newest session of each.

    ``mine`` are the sessions that are to be compared with them.

    A record that is damaged elsewhere counts: what it names was measured.

    Of the newest sessions, back to the last in which somebody accepted that cases are gone. Cases that were
    pinned to a node are left out: nodes come and go.
    """
    found: dict[Case, str] = {}
    sessions, accepted = 0, False
    for file in sorted(folder.glob("*.jsonl"), key=lambda path: path.name, reverse=True):
        if file.stem in mine:
            continue
        try:
            records = (record for record in journal.read(file) if isinstance(record, dict))
            first = next(records, None)
        except OSError:  # history names what cannot be read
            continue
        if first is None or first.get("selection") != chosen:
            continue
        if sessions == _SESSIONS or (accepted and not first.get("accepts")):
            break
        sessions, accepted = sessions + 1, bool(first.get("accepts"))
        for record in (first, *records):
            if not record.get("pinned"):
                with contextlib.suppress(KeyError):  # history names it
                    case = (record["partition"], record["environment"], record["case"])
                    found.setdefault((str(case[0]), str(case[1]), str(case[2])), file.stem)
    return found


def gone(before: Mapping[Case, str], records: Iterable[Record], system: str) -> list[str]:
    """A line for each case that was recorded before and is not now."""
    now = {(r.partition, r.environment, r.case) for r in records if r.system == system}
    return [
        f"{name} ({system}:{partition}, {environment}) was recorded in {session}, and is gone"
        for (partition, environment, name), session in sorted(before.items())
        if (partition, environment, name) not in now
    ]


def without_match(arguments: Sequence[str], names: Iterable[str]) -> list[str]:
    """Values of ``-n`` that fit no listed case; ``names`` are ReFrame's, each followed by its hash.

    Several ``-n`` are alternatives, so that ReFrame does not miss one of them.
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
