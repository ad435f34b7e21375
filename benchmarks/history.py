"""What a long history costs: CPU seconds and memory of what reads it, cold, warm, and after one more record.

    python benchmarks/history.py [--records 100000] [--folder DIR]

The records are made up, of the form and size (about 2.7 kB) that measuring cases leave: a hundred records a case, from
nights of fifty cases that follow each other, each with a fingerprint and eight findings. Every figure is that of a new
process, the start of Python and the imports included; memory is the largest resident size. The history is removed
afterwards, unless DIR is given. Exit status 1 if a goal is missed: for each 100,000 records the index in 8 CPU seconds;
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
sys.path.insert(0, str(SOURCE))

from iogauge.records import journal  # noqa: E402
from iogauge.records.record import SCHEMA, line_of, series_of  # noqa: E402

_BEGIN = datetime(2024, 1, 1, tzinfo=timezone.utc)

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
    ("history", "--damaged"),
    ("status", "--since", "2020-01-01"),
    ("status", "--trend"),
    ("report", "--since", "2020-01-01"),
    ("compare", "system=system0", "system=system1"),
)

#: Cases of a night, and systems with nights of their own.
_CASES, _SYSTEMS = 50, 10


def fingerprint(system: int, month: int) -> dict[str, Any]:
    """Facts of a machine that changes every other year."""
    tunables = {
        f"tunable.{one}": str(64 * (system + 1))
        for one in (
            "llite.max_cached_mb",
            "llite.max_read_ahead_mb",
            "llite.max_read_ahead_per_file_mb",
            "llite.checksums",
            "llite.statahead_max",
            "osc.max_rpcs_in_flight",
            "osc.max_pages_per_rpc",
            "osc.max_dirty_mb",
            "mdc.max_rpcs_in_flight",
            "mdc.max_mod_rpcs_in_flight",
        )
    }
    return {
        "kernel": f"5.14.0-{300 + month // 24}.el9.x86_64",
        "lustre.client": "2.15.4",
        "mount.options": "rw,checksum,flock,nouser_xattr,lruresize,lazystatfs",
        "cpu.model": "AMD EPYC 7763 64-Core Processor",
        "cpu.governor": "performance",
        "mem.bytes": 512 * 2**30,
        "nic.ib0.speed_mbps": 200_000,
        "stack": f"{system:012x}",
        "tool.ior": "4.0.0",
        "nodes": f"n[{system + 1}-{system + 4}]",
        **tunables,
    }


def record(system: int, night: int, case: int, noise: random.Random) -> dict[str, Any]:
    """The record of a case of a system's night, two minutes after the case before it."""
    when = _BEGIN + timedelta(days=night, minutes=2 * case, seconds=system)
    name = f"IorPosix %files={'shared' if case % 2 else 'per-process'} %order=sequential %size={case}"
    findings = [
        {
            "guard": f"G{guard}",
            "outcome": "ok",
            "metric": "write_bw",
            "saw": f"coefficient of variation {noise.random():.1%} over 3 repetitions",
            "demands": "at most 20% over at least 2 repetitions",
            "remedy": "",
        }
        for guard in range(1, 9)
    ]
    median = noise.lognormvariate(7, 0.05)
    made: dict[str, Any] = {
        "schema": SCHEMA,
        "session": "",
        "time": when.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "gate": False,
        "system": f"system{system}",
        "partition": "scratch",
        "environment": "tools",
        "check": "IorPosix",
        "case": name,
        "hash": f"{case:08x}",
        "verdict": "PASS",
        "reason": "",
        "expected": False,
        "tier": "daily",
        "variant": "sound",
        "nodes": 4,
        "tasks_per_node": 16,
        "repetitions": 3,
        "parameters": {"order": "sequential", "size": case},
        "overridden": {},
        "fingerprint": fingerprint(system, night // 30),
        "metrics": [
            {
                "name": "write_bw",
                "unit": "MiB/s",
                "better": "more",
                "samples": [median, median * 1.01, median * 0.99],
                "median": median,
                "spread": 0.01,
                "verdict": "PASS",
                "reason": "",
                "cold": None,
                "ceiling": 2000.0,
                "ceiling_from": "clients",
                "reference": {
                    "value": 1096.0,
                    "lower": -0.2,
                    "upper": None,
                    "unit": "MiB/s",
                    "source": "acceptance",
                    "xfail": None,
                },
            }
        ],
        "findings": findings,
    }
    made["line"] = line_of(made)
    made["series"] = series_of(
        made["line"],
        {
            "kernel": made["fingerprint"]["kernel"],
            "stack": made["fingerprint"]["stack"],
        },
    )
    return made


def make(folder: Path, records: int) -> None:
    """Write a history, without the flush to disk that each record has in a run."""
    noise = random.Random(1)
    for number in range(records // _CASES):
        night, system = divmod(number, _SYSTEMS)
        begin = _BEGIN + timedelta(days=night, seconds=system)
        name = f"{begin:%Y%m%dT%H%M%S}-login-{system}"
        file = folder / f"system{system}" / f"{name}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(file, "w", encoding="utf-8") as lines:
            for case in range(_CASES):
                made = record(system, night, case, noise) | {"session": name}
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
    options.add_argument(
        "--folder", type=Path, help="where a history is made once, and kept"
    )
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="iogauge-history-") as scratch:
        folder = (given.folder or Path(scratch)).resolve() / "history"
        if not folder.exists():
            make(folder, given.records)
        cache = folder.parent / "cache" / "history.sqlite"
        cache.unlink(missing_ok=True)
        files = sorted(folder.rglob("*.jsonl"))
        size = sum(file.stat().st_size for file in files)
        print(f"{len(files)} sessions, {size / 1e9:.2f} GB, {os.cpu_count()} cores")
        index = ("-c", _INDEX, str(folder))
        hundreds = given.records / 100_000
        seconds = 1 + 4 * max(0.0, hundreds - 1) / 9
        kept = [is_kept("the index, cold", cost(folder, *index), 8 * hundreds, 300)]
        print(f"{'size of the index':36} {cache.stat().st_size / 1e6:7.1f} MB")
        last = files[-1].read_bytes().splitlines()[-1]
        again = json.loads(last) | {"time": "2030-01-01T00:00:00Z"}
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
