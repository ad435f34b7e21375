"""Tables of cases and what is expected of them: tests/data/tables, a file for each module of tests."""

import contextlib
import json
import re
from pathlib import Path

import pytest

from support.project import DATA


def _value(cell):
    """A cell: JSON, a size, or words."""
    if size := re.fullmatch(r"(\d+) ([KMG])iB", cell):
        return int(size[1]) << {"K": 10, "M": 20, "G": 30}[size[2]]
    with contextlib.suppress(ValueError):
        return json.loads(cell)
    return cell


def table(test):
    """Run a test for each line of the table that has its name; the first line names its arguments."""
    module = Path(test.__code__.co_filename).stem.removeprefix("test_")
    text = (DATA / "tables" / f"{module}.txt").read_text()
    _, _, found = text.partition(f"\n\n{test.__name__}\n")
    lines = found.partition("\n\n")[0].splitlines()
    names, *rows = (line.split(" | ") for line in lines if not line.startswith("#"))
    values = [[_value(cell) for cell in row] for row in rows]
    return pytest.mark.parametrize(names, values)(test)
