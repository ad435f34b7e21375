"""What a long history costs: CPU seconds and memory of what reads it, cold, warm, and after one more record.

    python benchmarks/history.py [--records 100000]

The records are made up, of the form and size (about 2.7 kB) that measuring cases leave: a hundred records a case, from
nights of fifty cases until today, each with a fingerprint and eight findings. Every figure is that of a new
process, the start of Python and the imports included; memory is the largest resident size. Exit status 1 if a goal is missed: for each 100,000 records the index in 8 CPU seconds;
a command in 1 CPU second at 100,000 records, in 5 at a million, and in 300 MiB.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "reframe" / "src"
sys.path[:0] = [str(ROOT / "tests"), str(SOURCE)]

from iogauge.records import journal  # noqa: E402
from iogauge.records.record import line_of, series_of  # noqa: E402
from support import records  # noqa: E402

_TODAY = datetime.now(timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0)

_INDEX = """
import sys
from pathlib import Path
from iogauge.records import query
query.connect(Path(sys.argv[1]))
"""
#: What users call.
_COMMANDS = (
    (),
    ("history",),
    ("history", "--verdict", "FAIL"),
    ("history", "--json", "--limit", "1000"),
    ("status", "--since", "2020-01-01"),
    ("report", "--since", "2020-01-01"),
    ("compare", "system=system0", "system=system1"),
)

#: Cases of a night, and systems with nights of their own.
_CASES, _SYSTEMS = 50, 10


def fingerprint(system: int, month: int) -> dict[str, Any]:
    """Facts of a machine that changes every other year: twenty tunables and what else divides a series."""
    facts = {f"tunable.osc.number_{n}": str(64 * (system + 1)) for n in range(20)}
    kernel = f"5.14.0-{300 + month // 24}.el9.x86_64"
    return {**facts, "kernel": kernel, "stack": f"{system:012x}"}


def record(
    system: int, begin: datetime, case: int, noise: random.Random
) -> dict[str, Any]:
    """The record of a case of a system's night, two minutes after the case before it."""
    when = begin + timedelta(minutes=2 * case)
    saw = f"coefficient of variation {noise.random():.1%} over 3 repetitions"
    finding = records.FINDING | {"outcome": "ok", "saw": saw}
    facts = fingerprint(system, begin.toordinal() // 30)
    median = noise.lognormvariate(7, 0.05)
    measured = records.METRIC | {"median": median, "samples": [median] * 3}
    made: dict[str, Any] = records.RECORD | {
        "time": when.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "system": f"system{system}",
        "case": f"IorPosix %files=shared %order=sequential %size={case}",
        "parameters": {"files": "shared", "order": "sequential", "size": case},
        "fingerprint": facts,
        "metrics": [measured],
        "findings": [finding] * 8,
    }
    made["line"] = line_of(made)
    divide = {key: facts[key] for key in ("kernel", "stack")}
    return made | {"series": series_of(made["line"], divide)}


def make(folder: Path, count: int) -> None:
    """Write a history, without the flush to disk that each record has in a run."""
    noise = random.Random(1)
    for number in range(count // _CASES):
        night, system = divmod(number, _SYSTEMS)
        begin = _TODAY - timedelta(days=night + 1, seconds=system)
        name = f"{begin:%Y%m%dT%H%M%S}-login-{system}"
        file = folder / f"system{system}" / f"{name}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(file, "w", encoding="utf-8") as lines:
            for case in range(_CASES):
                made = record(system, begin, case, noise) | {"session": name}
                lines.write(json.dumps(made, separators=(",", ":")) + "\n")


def cost(folder: Path, *words: str) -> tuple[float, float]:
    """CPU seconds and MiB of a new Python process with these arguments."""
    process = subprocess.Popen(
        [sys.executable, *words],
        env=os.environ
        | {"PYTHONPATH": str(SOURCE), "IOGAUGE_HOME": str(folder.parent)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    # `status` ends with 1 if a case is not PASS.
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        raise SystemExit(f"history: {' '.join(words)} failed")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 2**10


def is_kept(
    what: str, found: tuple[float, float], seconds: float, memory: float
) -> bool:
    """Print a line of the result, and return whether its goal is kept."""
    kept = found[0] <= seconds and found[1] <= memory
    end = "" if kept else ": MISSED"
    print(
        f"{what:36} {found[0]:7.2f} s of {seconds:5.2f} {found[1]:7.0f} MiB of {memory:4.0f}{end}",
        flush=True,
    )
    return kept


def main() -> int:
    """Make a history, measure, print."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--records", type=int, default=100_000)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="iogauge-history-") as scratch:
        folder = Path(scratch) / "history"
        make(folder, given.records)
        files = sorted(folder.rglob("*.jsonl"))
        size = sum(file.stat().st_size for file in files)
        print(f"{len(files)} sessions, {size / 1e9:.2f} GB, {os.cpu_count()} cores")
        index = ("-c", _INDEX, str(folder))
        hundreds = given.records / 100_000
        seconds = 1 + 4 * max(0.0, hundreds - 1) / 9
        kept = [is_kept("the index, cold", cost(folder, *index), 8 * hundreds, 300)]
        last = files[-1].read_bytes().splitlines()[-1]
        again = json.loads(last) | {"time": f"{_TODAY:%Y-%m-%dT%H:%M:%SZ}"}
        journal.append(files[-1], json.dumps(again, separators=(",", ":")).encode())
        more = cost(folder, *index)
        kept.append(is_kept("the index, one more record", more, seconds, 300))
        for words in _COMMANDS:
            call = ("-c", "from iogauge.cli.app import app; app()", *words)
            name = " ".join(["iogauge", *words])
            kept.append(is_kept(name, cost(folder, *call), seconds, 300))
    return not all(kept)


if __name__ == "__main__":
    sys.exit(main())
