"""What a report over a long history costs, and how fast many systems are asked through Parquet.

    python benchmarks/report.py [--rows 10000000] [--folder DIR] [--memory 12]

The report is `iogauge report --since … --html` over 10,000 records of 500 series, made up as in
benchmarks/history.py: seconds of the whole command, of them those of
processors, and bytes of the page. Then ten sites of --rows rows
together are written as Parquet with `iogauge.report.export`, merged, and asked through polars' lazy scan: seconds of
each question, with the start of a new process left out.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "reframe" / "src"
sys.path[:0] = [str(SOURCE), str(ROOT / "benchmarks")]

import polars as pl  # noqa: E402
from history import record  # noqa: E402

from iogauge.records import query  # noqa: E402
from iogauge.report import export  # noqa: E402

_SITES = 10


def make(folder: Path) -> None:
    """Write 10,000 records: 20 runs of 500 cases."""
    noise = random.Random(1)
    for number in range(20_000):
        if number // 100 % 10 < 5:
            system, session = f"system{number % 10}", f"20240101T{number // 1000:06}-login-1"
            file = folder / system / f"{session}.jsonl"
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("a", encoding="utf-8") as lines:
                one = record(number, 1, noise) | {"session": session}
                lines.write(json.dumps(one, separators=(",", ":")) + "\n")


def processors(who: int) -> float:
    """Return the seconds of processors that were used so far."""
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def report(home: Path) -> None:
    """Print what a report costs, without a cache of the history and with it."""
    page = home / "page.html"
    words = ["report", "--since", "2024-01-01", "--html", str(page)]
    for cache in ("no cache", "cache"):
        start, spent = time.perf_counter(), processors(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-c", "from iogauge.cli.app import app; app()", *words],
            env=os.environ | {"PYTHONPATH": str(SOURCE), "IOGAUGE_HOME": str(home)},
            stdout=subprocess.DEVNULL,
            check=False,
        )
        seconds, size = time.perf_counter() - start, page.stat().st_size / 2**20
        spent = processors(resource.RUSAGE_CHILDREN) - spent
        print(f"report of 10,000 records, {cache}: {seconds:.1f} s ({spent:.1f} s), {size:.1f} MiB")


def many(home: Path, rows: int) -> None:
    """Print how long questions to the Parquet of several sites take."""
    frame = query.load(home / "history")
    times = max(1, rows // _SITES // frame.height)
    for site in range(_SITES):
        parts = [
            frame.with_columns(
                time=pl.col("time") + pl.duration(days=part),
                median=pl.col("median") * (1 + part % 7 / 100),
            )
            for part in range(times)
        ]
        export.parquet(pl.concat(parts), home / f"site{site}.parquet", f"site{site}")
        print(f"site {site + 1} of {_SITES}: {frame.height * times:,} rows", flush=True)
    start, spent = time.perf_counter(), processors(resource.RUSAGE_SELF)
    export.merge(sorted(home.glob("site*.parquet")), home / "all.parquet")
    seconds, spent = time.perf_counter() - start, processors(resource.RUSAGE_SELF) - spent
    print(f"{rows:,} rows: merge of {_SITES} sites: {seconds:.2f} s ({spent:.2f} s)", flush=True)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{rows:,} rows: making, sorting and merging took {most:.1f} GiB of memory", flush=True)
    lazy = pl.scan_parquet(home / "all.parquet")
    size = sum(file.stat().st_size for file in home.glob("site*.parquet")) / 2**20
    valid = pl.col("metric_verdict").is_in(["PASS", "FAIL", "UNREFERENCED"])
    questions = {
        "rows": lazy.select(pl.len()),
        "median by site and metric": lazy.filter(valid)
        .group_by("site", "metric")
        .agg(pl.col("median").median()),
        "runs of a case on a system": lazy.filter(
            pl.col("system") == "system3", pl.col("partition") == "partition4"
        ).select("time", "median"),
        "share of PASS by system and month": lazy.group_by(
            "system", pl.col("time").dt.truncate("1mo")
        ).agg((pl.col("verdict") == "PASS").mean()),
    }
    for name, question in questions.items():
        start, spent = time.perf_counter(), processors(resource.RUSAGE_SELF)
        found = question.collect(engine="streaming")
        seconds = time.perf_counter() - start
        spent = processors(resource.RUSAGE_SELF) - spent
        print(
            f"{rows:,} rows, {size:.0f} MiB: {name}: {seconds:.2f} s ({spent:.2f} s), {found.height} row(s)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--memory", type=int, default=12, help="GiB that a process may take")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (options.memory * 2**30, options.memory * 2**30))
    with tempfile.TemporaryDirectory() as temporary:
        home = options.folder or Path(temporary)
        make(home / "history")
        report(home)
        many(home, options.rows)


if __name__ == "__main__":
    main()
