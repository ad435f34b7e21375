"""What ``lfs`` and ``lctl`` of Lustre 2.17.0 printed (tests/data/lustre), command by command.

The files are terminal sessions: a command after ``$``, its output, lines of its standard error marked
``[stderr]``, its exit status. A remark after ``#`` tells the state of the file system.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).parents[2] / "data" / "lustre"


@dataclass(frozen=True)
class Answer:
    """What a command printed, and its exit status."""

    stdout: str
    stderr: str
    status: int


def sessions(file):
    """Answers of a file by command, in its order; one that was cut off is left out."""
    found = {}
    for block in re.split(r"^\$ ", (DATA / file).read_text(), flags=re.MULTILINE)[1:]:
        whole = re.fullmatch(r"([^\n]*)\n(.*)\[exit (\d+)\]\s*", block, re.DOTALL)
        if not whole:
            continue
        lines = whole[2].splitlines(keepends=True)
        errors = "".join(line[9:] for line in lines if line.startswith("[stderr] "))
        out = "".join(line for line in lines if not line.startswith("[stderr] "))
        found[whole[1]] = Answer(out, errors, int(whole[3]))
    return found


def answer(file, command):
    """The answer to a command; that of another user's is found by the end of its line."""
    known = sessions(file)
    if command in known:
        return known[command]
    (found,) = [known[other] for other in known if other.endswith(f" {command}")]
    return found


def parse_parameters(text):
    """Return values by name from ``lctl get_param``; a value may have many lines after its name."""
    values = {}
    lines = []
    for line in text.splitlines():
        match = re.match(r"([A-Za-z_]+\.[^\s=]+|version|jobid_var)=(.*)", line)
        if match:
            lines = values.setdefault(match[1], [])
            lines.append(match[2])
        else:
            lines.append(line)
    return {name: "\n".join(lines).strip("\n") for name, lines in values.items()}
