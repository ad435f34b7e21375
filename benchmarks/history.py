"""What a long history costs: seconds and memory to load it, cold, warm and after one more record.

    python benchmarks/history.py [--records 1000000] [--sessions 5000] [--metrics 1] [--folder DIR]

The records are made up, of the form and size (about 2.7 kB with one metric) that measuring cases leave: ten
cases on each of ten partitions of ten systems, each with a fingerprint and eight findings. Every figure is
that of a new process, the start of Python and the imports included; memory is the largest resident size of
the process and, where it starts others, theirs added. The history is removed afterwards, unless DIR is given.
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

_MEASURE = """
import json, resource, sys, time
from pathlib import Path
from iogauge.records import query
frame = query.load(Path(sys.argv[1]), columns=json.loads(sys.argv[2]))
seconds = time.perf_counter() - float(sys.argv[3])
uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(json.dumps({
    "rows": frame.height,
    "seconds": seconds,
    "cpu": sum(use.ru_utime + use.ru_stime for use in uses),
    "own": uses[0].ru_maxrss,
    "largest other": uses[1].ru_maxrss,
}))
"""


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
    name = (
        f"IorPosix %files={'shared' if case % 2 else 'per-process'} %order=sequential %size={case}"
    )
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
        {"kernel": made["fingerprint"]["kernel"], "stack": made["fingerprint"]["stack"]},
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


def load(folder: Path, columns: list[str] | None = None) -> dict[str, float]:
    """Load in a new process; returns rows, seconds and KiB."""
    start = str(time.perf_counter())
    words = [sys.executable, "-c", _MEASURE, str(folder), json.dumps(columns), start]
    done = subprocess.run(
        words,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def command(folder: Path, *arguments: str) -> float:
    """Seconds of ``iogauge history`` with arguments."""
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", "from iogauge.cli.app import app; app()", "history", *arguments],
        env=os.environ | {"PYTHONPATH": str(SOURCE), "IOGAUGE_HOME": str(folder.parent)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - start


def show(what: str, found: dict[str, float]) -> None:
    """One line of the result."""
    other = (
        f" + {found['largest other'] / 1024:.0f} in each process" if found["largest other"] else ""
    )
    memory = f"{found['own'] / 1024:.0f} MiB{other}"
    seconds = f"{found['seconds']:7.2f} s (CPU {found['cpu']:5.2f} s)"
    print(f"{what:34} {seconds}   {memory:34} {found['rows']:.0f} rows", flush=True)


def main() -> None:
    """Make a history, measure, print."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--records", type=int, default=1_000_000)
    options.add_argument("--sessions", type=int, default=5_000)
    options.add_argument("--metrics", type=int, default=1, choices=(1, 2))
    options.add_argument("--folder", type=Path, help="where a history is made once, and kept")
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
        show("cold", load(folder))
        kept = sum(file.stat().st_size for file in cache.iterdir())
        print(f"{'cache':34} {kept / 1e6:7.1f} MB")
        for _ in range(3):
            show("warm", load(folder))
        some = ["time", "line", "series", "metric", "better", "median", "metric_verdict"]
        show("warm, seven columns", load(folder, some))
        newest = max(files, key=lambda file: file.name)
        last = next(r for r in journal.read(newest) if isinstance(r, dict))
        journal.append(newest, json.dumps(last, separators=(",", ":")).encode())
        show("after one more record", load(folder))
        show("warm again", load(folder))
        for arguments in ((), ("--verdict", "FAIL"), ("--json", "--limit", "1000")):
            words = " ".join(["iogauge history", *arguments])
            print(f"{words:34} {command(folder, *arguments):7.2f} s")


if __name__ == "__main__":
    main()
