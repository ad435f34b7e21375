"""Programs of benchmarks/ and of ci/ as modules."""

import importlib.util
import sys

from support.project import ROOT

FOLDER = ROOT / "benchmarks"


def load(name, folder=FOLDER):
    """Return the module of a program."""
    full = f"{folder.name}_{name}"
    spec = importlib.util.spec_from_file_location(full, folder / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[full] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module
