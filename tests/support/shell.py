"""A program that is run to its end, for what it says."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def completed(words: Sequence[str | Path], **more: Any) -> subprocess.CompletedProcess[str]:
    """Run words; ``more`` is subprocess.run's. A failure is the caller's to look at, unless it says ``check``."""
    given: dict[str, Any] = {"capture_output": True, "text": True, "check": False, "timeout": 600}
    return subprocess.run(words, **given | more)
