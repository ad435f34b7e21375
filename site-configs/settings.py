"""ReFrame configuration: the site folders beside this file, merged. See iogauge.cases.configuration."""

import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(_HERE.parent / "reframe" / "src"))

from iogauge.cases.configuration import load  # noqa: E402

site_configuration = load(_HERE)
