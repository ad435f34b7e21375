"""A maintenance window: the same cases before and after it, and what the work did. A layer over run and compare."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from iogauge.cli.reporting import write_file
from iogauge.cli.screen import say, show, slip
from iogauge.core import paths, untrusted
from iogauge.core.text import count
from iogauge_extras.compare.compare_command import contrast
from iogauge_extras.compare.logs import CompareError
from iogauge_extras.compare.sides import FEWEST_RUNS, Ratio

#: What follows the start, until the end.
_FILE: Final = "window.json"

#: Marks of a ratio that decide, in the order in which they are said.
_DECIDED: Final = ("worse", "better", "alike")


def maintain(
    context: typer.Context,
    step: Annotated[
        Literal["start", "end"], typer.Argument(help="Before or after the work.")
    ],
    runs: Annotated[
        int, typer.Option(min=1, help="Runs of each side; fewer than 3 decide nothing.")
    ] = 3,
    html: Annotated[Path | None, typer.Option(help="With end: write the page.")] = None,
) -> None:
    """Measure before and after maintenance: what the work did.

    All other options of start are those of ``iogauge run``; end measures the same cases once more.
    """
    note = paths.state_dir() / _FILE
    try:
        if step == "start":
            if note.exists():
                raise CompareError(
                    f"a window is open already: iogauge window end, or rm {note}"
                )
            before = _measured(context.args, runs)
            write_file(
                note,
                json.dumps({"options": context.args, "runs": runs, "before": before}),
            )
            say(f"before: {', '.join(before)}. Do the work, then: iogauge window end")
            return
        if context.args:
            raise CompareError(
                f"{context.args[0]}: end runs what start ran, without options"
            )
        begun = untrusted.read_json(note)
        after = _measured(list(begun["options"]), int(begun["runs"]))
        _show(begun["before"], after, html)
    except FileNotFoundError:
        raise slip("no window is open: iogauge window start -t quick") from None
    except (CompareError, OSError, ValueError, LookupError) as error:
        raise slip(str(error)) from error
    note.unlink()


def _measured(options: Sequence[str], runs: int) -> list[str]:
    """Run cases so many times; return the sessions. Raises :class:`CompareError` if there is none."""
    with tempfile.TemporaryDirectory(prefix="iogauge-window-") as scratch:
        file = Path(scratch, "sessions")
        environment = os.environ | {"IOGAUGE_SESSIONS": str(file)}
        for _ in range(runs):
            command = [
                sys.executable,
                "-c",
                "from iogauge.cli.app import app; app()",
                "run",
            ]
            status = subprocess.run(
                [*command, *options], env=environment, check=False
            ).returncode
            if status not in (0, 1):  # what fails is measured all the same
                raise CompareError(
                    f"iogauge run {' '.join(options)}: exit status {status}"
                )
        sessions = file.read_text(encoding="utf-8").split() if file.exists() else []
    if not sessions:
        raise CompareError("no session was made: see above")
    return sessions


def _show(before: Sequence[str], after: Sequence[str], html: Path | None) -> None:
    """Print what the work did, and write its page."""
    titled = (
        ("+".join(before), "before the work"),
        ("+".join(after), "after the work"),
    )
    found = contrast(titled, html)
    show(found.render())
    say(f"iogauge: {effect(found.ratios)}")


def effect(ratios: Sequence[Ratio]) -> str:
    """Return what the work did: how many metrics became worse or better, and how many cannot be decided."""
    counts = Counter(ratio.mark for ratio in ratios)
    undecided = counts["differs"] + counts["?"]
    few = [ratio for ratio in ratios if min(ratio.runs) < FEWEST_RUNS]
    parts = [f"{counts[mark]} {mark}" for mark in _DECIDED if counts[mark]]
    if undecided:
        parts.append(f"{undecided} not decided")
    text = f"of {count(len(ratios), 'metric')}: {', '.join(parts)}"
    if not few:
        return text
    far = max(few, key=lambda ratio: abs(math.log(ratio.ratio)))
    return (
        f"{text}. {min(far.runs)} run(s) of a side decide nothing, {FEWEST_RUNS} are needed: window start --runs "
        f"{FEWEST_RUNS}. The largest difference: {far.case} {far.metric} x {far.ratio:.3f}"
    )
