"""A Darshan log as one side of a comparison."""

from pathlib import Path

from iogauge_extras.compare.logs import Figures
from iogauge_extras.darshan.figures import of_log
from iogauge_extras.darshan.log import read_log


def read_subject(text: str) -> Figures:
    """Return what the log at a path says; raises ``CompareError``."""
    return of_log(text, read_log(Path(text)))
