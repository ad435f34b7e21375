"""What a session should have measured and did not: a check that is gone fails nothing by itself.

If a site has lost a tool, or a feature or pattern is misspelt, ReFrame selects fewer cases and
passes. So a run keeps beside its records what it did not measure (:class:`Unmeasured`). A gate also
compares itself with earlier gates of the same selection, which is the words on its command line.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from iogauge.core import untrusted
from iogauge.core.paths import replace_file
from iogauge.records import journal
from iogauge.records.record import Record
from iogauge.records.selected import UnrunCase

#: Most sessions of a selection to look back at; a run with derived checks has two.
_SESSIONS: Final = 30

CaseKey = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmeasured:
    """What a session was asked for and did not measure; the default says that nothing is known.

    ``unmatched`` and ``gone`` are sentences: of each ``-n`` that selects no case, and of each case
    that earlier gates recorded. ``accepted`` says that somebody accepts them. ``nothing`` holds the
    words on the command line if they select no case at all.
    """

    gate: bool = False
    accepted: bool = False
    left_out: tuple[UnrunCase, ...] = ()
    unfit: tuple[str, ...] = ()
    unmatched: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    nothing: str = ""


def joined(lacks: Sequence[Unmeasured]) -> Unmeasured:
    """Return what several sessions did not measure, as if they were one session."""
    return Unmeasured(
        gate=any(one.gate for one in lacks),
        accepted=any(one.accepted for one in lacks),
        left_out=tuple(case for one in lacks for case in one.left_out),
        unfit=tuple(check for one in lacks for check in one.unfit),
        unmatched=tuple(line for one in lacks for line in one.unmatched),
        gone=tuple(line for one in lacks for line in one.gone),
        nothing=next((one.nothing for one in lacks if one.nothing), ""),
    )


def save(file: Path, unmeasured: Unmeasured) -> None:
    """Write what a session did not measure; raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, json.dumps(asdict(unmeasured)).encode())


def load(file: Path) -> Unmeasured:
    """Read what :func:`save` wrote; raises OSError, TypeError or ValueError."""
    found: Unmeasured = untrusted.build(Unmeasured, untrusted.read_json(file))
    return found


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


def without_match(
    arguments: Sequence[str],
    runnable: Iterable[str],
    listed: Iterable[str] = (),
    checks: Collection[str] = (),
) -> list[str]:
    """Return a sentence for each value of ``-n`` that fits no case which can run.

    ``runnable`` and ``listed`` are ReFrame's names, each followed by its hash; ``listed`` holds
    those that cannot run, too. ``checks`` are the names of all checks. Several ``-n`` are
    alternatives, so ReFrame does not report a value without a match.
    """
    patterns = [
        after if word in ("-n", "--name") else word.partition("=")[2]
        for word, after in zip(arguments, [*arguments, ""][1:], strict=True)
        if word in ("-n", "--name") or word.startswith("--name=")
    ]

    def fits(pattern: str, names: Iterable[str]) -> bool:
        cases = [name.rpartition(" /") for name in names]
        if pattern.startswith("/"):
            return any(pattern[1:] == case[2] for case in cases)
        test = pattern.rpartition("@")[0]
        return any(re.search(test or pattern, case[0].replace(" ", "")) for case in cases)

    return [
        f"-n {pattern} selects no case"
        + (" that can run here" if fits(pattern, listed) else _hint(pattern, checks))
        for pattern in patterns
        if not fits(pattern, runnable)
    ]


def _hint(pattern: str, checks: Collection[str]) -> str:
    """Return what may have been meant by a value of ``-n`` that fits no case."""
    if " " in pattern:
        return f" (names have no blanks here: -n '{pattern.replace(' ', '')}')"
    check = re.split(r"[^\w]", pattern.lstrip("^"))[0]
    similar = [] if check in checks else difflib.get_close_matches(check, checks, 1)
    return f" (did you mean {similar[0]}?)" if similar else ""
