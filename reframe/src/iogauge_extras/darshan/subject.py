"""A Darshan log as one side of a comparison."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from iogauge_extras.compare.logs import Figures
from iogauge_extras.darshan.log import read_log
from iogauge_extras.darshan.profile import Profile, told


def read_subject(text: str) -> Figures:
    """Return what a log tells, by its path, and what stands out in it as its first notes; raises ``CompareError``."""
    profile = Profile.of(text, read_log(Path(text)))
    return replace(profile.figures, notes=(*told(profile), *profile.figures.notes))
