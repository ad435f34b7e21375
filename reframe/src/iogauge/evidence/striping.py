"""Layouts that a job noted on Lustre: read from the stage, and in short for the record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from iogauge.core import untrusted
from iogauge.core.measurement import ToolOutputError
from iogauge.evidence.model import Striping
from iogauge.node.layouts import FileLayout, Layouts
from iogauge.plan.case import CasePlan
from iogauge.plan.stage import LAYOUTS


def of_repetitions(
    plan: CasePlan, text: str, placed: Callable[[int], Mapping[str, int]]
) -> tuple[Striping, ...]:
    """Return the layouts of each judged repetition, or of the preparing one if it writes.

    They are missing if the target is not on Lustre, or the case writes no data. ``text`` is what
    the job noted, ``placed`` gives the pins of a repetition. Raises :class:`ToolOutputError`.
    """
    noted = parse_layouts(text)
    found = []
    for repetition in [0] if plan.prepare else range(1, plan.repetitions + 1):
        if repetition in noted or plan.striped:
            silent = "the agent that keeps the lock did not answer in time"
            layouts = noted.get(repetition, Layouts(repetition=repetition, problem=silent))
            found.append(Striping(placed(repetition) if plan.pins else {}, layouts))
    return tuple(found)


def parse_layouts(text: str) -> dict[int, Layouts]:
    """Return the layouts that were noted, by repetition; raises :class:`ToolOutputError`."""
    noted: dict[int, Layouts] = {}
    for line in text.splitlines():
        try:
            layouts = Layouts.from_json(untrusted.parse_json(line))
        except (TypeError, ValueError) as error:
            raise ToolOutputError(f"{LAYOUTS}: not the layouts of the files: {error}") from error
        if layouts.repetition in noted:
            raise ToolOutputError(f"{LAYOUTS}: repetition {layouts.repetition}: there twice")
        noted[layouts.repetition] = layouts
    return noted


#: The most targets and kinds of layouts that a record names; all are counted.
_MOST_NAMED: Final = 64


def layout_of_record(striping: Sequence[Striping]) -> dict[str, Any] | None:
    """Return the layouts of all repetitions in short, for the record; None if none were noted."""
    noted = [one.noted for one in striping if one.noted.files]
    files = [file for layouts in noted for file in layouts.files]
    if not files:
        return None
    kinds = Counter(_kind(file) for file in files)
    hit = sorted({ost for file in files for ost in file.osts})
    held: Counter[str] = Counter()
    for file in files:
        for part, size in file.held:
            held[str(part)] += size
    return {
        "kinds": [dict(kind) | {"files": count} for kind, count in kinds.most_common(_MOST_NAMED)],
        "files": sum(layouts.total for layouts in noted),
        "looked_at": len(files),
        "targets_hit": len(hit),
        "targets": hit[:_MOST_NAMED],
        **({"bytes_in_components": dict(held)} if held else {}),
        **({"seeds": seeds} if (seeds := [one.seed for one in noted if one.seed]) else {}),
    }


def _kind(file: FileLayout) -> tuple[tuple[str, Any], ...]:
    """Return what files of one kind have in common, as keys and values of the record."""
    last = file.last
    return (
        ("stripe_count", last.stripe_count),
        ("stripe_bytes", last.stripe_bytes),
        ("pattern", last.pattern),
        *((("pool", last.pool),) if last.pool else ()),
        *((("components", str(file)),) if file.composite else ()),
        *((("instantiated", len(file.instantiated)),) if file.composite else ()),
    )
