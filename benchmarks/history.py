"""What a long history costs: seconds and memory of what reads it, cold, warm, and after one more record.

    python benchmarks/history.py [--records 1000000] [--sessions 5000] [--metrics 1] [--folder DIR] [--seconds 5] [--memory GIB]

The records are made up, of the form and size (about 2.7 kB with one metric) that measuring cases leave: ten cases on each
of ten partitions of ten systems, each with a fingerprint and eight findings. Every figure is that of a new process, the
start of Python and the imports included; memory is the largest resident size. The history is removed afterwards, unless DIR
is given. Exit status 1 if a trend's columns or a command that reads a warm history take more seconds or memory.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "reframe" / "src"
sys.path.insert(0, str(SOURCE))

from iogauge.records import journal  # noqa: E402
from iogauge.records.record import SCHEMA, line_of, series_of  # noqa: E402

_BEGIN = datetime(2024, 1, 1, tzinfo=timezone.utc)

#: The columns of a trend.
_TREND = ("time", "line", "series", "metric", "better", "median", "metric_verdict")
_LOAD = f"""
import sys
from pathlib import Path
from iogauge.records import query
print(query.load(Path(sys.argv[1]), columns={list(_TREND)}).height)
"""
#: What users call, with what reads most.
_COMMANDS = (
    ("history",),
    ("history", "--verdict", "FAIL"),
    ("history", "--json", "--limit", "1000"),
    ("status",),
    ("status", "--trend"),
)


def fingerprint(system: int, month: int) -> dict[str, Any]:
    """Facts of a machine that changes every half year."""
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
        "kernel": f"5.14.0-{300 + month // 6}.el9.x86_64",
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


def record(number: int, metrics: int, noise: random.Random) -> dict[str, Any]:
    """A record of one of a thousand cases, an hour after the one before on its system."""
    system, partition, case = number % 10, number // 10 % 10, number // 100 % 10
    when = _BEGIN + timedelta(seconds=number * 90)
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
    medians = [noise.lognormvariate(7, 0.05) for _ in range(metrics)]
    made: dict[str, Any] = {
        "schema": SCHEMA,
        "session": "",
        "time": when.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "gate": False,
        "system": f"system{system}",
        "partition": f"partition{partition}",
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
        "fingerprint": fingerprint(system, number * 90 // 2_592_000),
        "metrics": [
            {
                "name": ("write_bw", "read_bw")[place],
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
            for place, median in enumerate(medians)
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


def make(folder: Path, records: int, sessions: int, metrics: int) -> None:
    """Write a history, without the flush to disk that each record has in a run."""
    noise = random.Random(1)
    each = max(1, records // sessions)
    for session in range(sessions):
        numbers = range(session * each, (session + 1) * each)
        # A session belongs to one system; ten follow each other closely.
        ours = [n - n % 10 + session % 10 for n in numbers]
        begin = _BEGIN + timedelta(seconds=numbers[0] * 90)
        name = f"{begin:%Y%m%dT%H%M%S}-login-{session}"
        file = folder / f"system{session % 10}" / f"{name}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(file, "w", encoding="utf-8") as lines:
            for number in ours:
                one = record(number, metrics, noise) | {"session": name}
                lines.write(json.dumps(one, separators=(",", ":")) + "\n")


def cost(folder: Path, *words: str) -> tuple[float, float]:
    """Seconds and GiB of a new Python process with these arguments."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *words],
        env=os.environ
        | {"PYTHONPATH": str(SOURCE), "IOGAUGE_HOME": str(folder.parent)},
        stdout=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    # `status` ends with 1 if a case is not PASS.
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        raise SystemExit(f"history: {' '.join(words)} failed")
    return time.perf_counter() - start, used.ru_maxrss / 2**20


def shown(what: str, found: tuple[float, float]) -> tuple[float, float]:
    """Print a line of the result."""
    print(f"{what:36} {found[0]:7.2f} s {found[1]:7.2f} GiB", flush=True)
    return found


def main() -> int:
    """Make a history, measure, print."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--records", type=int, default=1_000_000)
    options.add_argument("--sessions", type=int, default=5_000)
    options.add_argument("--metrics", type=int, default=1, choices=(1, 2))
    options.add_argument(
        "--folder", type=Path, help="where a history is made once, and kept"
    )
    options.add_argument("--seconds", type=float, default=5.0)
    options.add_argument("--memory", type=float, default=1.0, help="GiB")
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="iogauge-history-") as scratch:
        folder = (given.folder or Path(scratch)).resolve() / "history"
        if not folder.exists():
            make(folder, given.records, given.sessions, given.metrics)
        cache = folder.parent / "cache" / "history"
        for file in cache.glob("*"):
            file.unlink()
        files = list(folder.rglob("*.jsonl"))
        size = sum(file.stat().st_size for file in files)
        print(f"{len(files)} sessions, {size / 1e9:.2f} GB, {os.cpu_count()} cores")
        trend = ("-c", _LOAD, str(folder))
        shown("a trend's columns, cold", cost(folder, *trend))
        print(
            f"{'cache':36} {sum(f.stat().st_size for f in cache.iterdir()) / 1e6:7.1f} MB"
        )
        newest = max(files, key=lambda file: file.name)
        last = next(r for r in journal.read(newest) if isinstance(r, dict))
        journal.append(newest, json.dumps(last, separators=(",", ":")).encode())
        shown("a trend's columns, one more record", cost(folder, *trend))
        warm = [shown("a trend's columns, warm", cost(folder, *trend))]
        for words in _COMMANDS:
            call = ("-c", "from iogauge.cli.app import app; app()", *words)
            warm.append(shown(" ".join(["iogauge", *words]), cost(folder, *call)))
    return any(
        seconds > given.seconds or memory > given.memory for seconds, memory in warm
    )


if __name__ == "__main__":
    sys.exit(main())
