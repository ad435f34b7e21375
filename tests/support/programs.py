"""The programs of benchmarks/ as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "benchmarks"


def load(name: str) -> Any:
    """Return the module of a program."""
    full = f"benchmarks_{name}"
    spec = importlib.util.spec_from_file_location(full, FOLDER / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[full] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module
