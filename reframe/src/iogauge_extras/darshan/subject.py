"""A Darshan log as one side of a comparison."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from iogauge_extras.compare.logs import Figures
from iogauge_extras.darshan.figures import of_log
from iogauge_extras.darshan.log import read_log
from iogauge_extras.darshan.profile import told


def read_subject(text: str) -> Figures:
    """Return what a log tells, by its path, and what stands out in it as its first notes; raises ``CompareError``."""
    log = read_log(Path(text))
    figures = of_log(text, log)
    return replace(figures, notes=(*told(log, figures), *figures.notes))
