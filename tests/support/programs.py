"""Programs of benchmarks/ and of ci/ as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "benchmarks"


def load(name: str, folder: Path = FOLDER) -> Any:
    """Return the module of a program."""
    full = f"{folder.name}_{name}"
    spec = importlib.util.spec_from_file_location(full, folder / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[full] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module
