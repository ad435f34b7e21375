"""Stand-in for ``darshan-parser``: its recorded text, scaled to the ranks that wrote (see ior.py)."""

import json
import sys
from pathlib import Path

import figures


def text(log):
    """The recorded text: a rank that wrote for each writer, then one that did not; or all in one record."""
    reduced, writers = log["reduced"], log["writers"]
    name = "reduced-1m" if reduced else "romio-3-aggregators"
    recorded = figures.text_of(f"{figures.DARSHAN}/{name}.txt")
    lines = []
    blocks = {}
    place = 0
    for line in recorded.splitlines():
        if line.startswith("POSIX\t"):
            place = place or len(lines)
            blocks.setdefault(line.split("\t")[1], []).append(line)
        else:
            lines.append(line)
    ranks = (
        ["-1"]
        if reduced
        else [str(rank) for rank in range(min(log["tasks"], writers + 1))]
    )
    posix = []
    for number, rank in enumerate(ranks):
        wrote = log["bytes"] // max(1, writers) if number < writers else 0
        for line in blocks["-1" if reduced else "0"]:
            columns = line.split("\t")
            columns[1] = rank
            if columns[3] == "POSIX_BYTES_WRITTEN":
                columns[4] = str(wrote)
            posix.append("\t".join(columns))
    body = "\n".join([*lines[:place], *posix, *lines[place:]]) + "\n"
    for name, value in (
        ("exe", log["command"]),
        ("start_time", log["ended"]),
        ("end_time", log["ended"]),
        ("nprocs", log["tasks"]),
        ("run time", f"{log['seconds']:.4f}"),
    ):
        start = body.index(f"# {name}: ")
        body = f"{body[:start]}# {name}: {value}{body[body.index(chr(10), start) :]}"
    return body.replace("/scratch/iogauge/data", log["file"])


def main(argv):
    """Print what is in a log."""
    if len(argv) != 1:
        figures.refuse(f"darshan-parser {' '.join(argv)}")
    if not Path(argv[0]).exists():
        print(f"darshan_log_open: unable to open log file {argv[0]}", file=sys.stderr)
        return 255
    print(text(json.loads(Path(argv[0]).read_text())), end="")
    return 0
