"""Make the library importable for every check, and end the process without a usable site.

ReFrame imports this package before each check in it.
"""

import sys
from pathlib import Path

_SOURCE = str(Path(__file__).resolve().parents[1] / "reframe" / "src")
if _SOURCE not in sys.path:
    sys.path.insert(0, _SOURCE)

from reframe.core.runtime import runtime  # noqa: E402

from iogauge.cases.configuration import require_ready  # noqa: E402

require_ready(runtime().system)
