"""Is a real slowdown found in real noise, and none where there is none? Runs the suite again and again.

    sudo python benchmarks/real_series.py --directory /mnt/iogauge-series [--healthy 72 --slow 18 --again 10]

Each run is `reframe -c checks/ -r` with one case of IOR and one of fio, on a small file system that moves
--cap MiB/s (benchmarks/capped-fs). After --healthy runs it moves --reduced MiB/s for --slow runs, then as
before for --again. Printed are, for every run, when it began, the load of the machine and what was
measured, and after each of the three parts the noise of every metric and what `iogauge trend` says of the
history so far. Exit status 1 if the trend raises an alarm after the healthy runs, or none after the slow ones. With --keep FILE the records are kept in a gzipped file, as tests/data/history has one.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "reframe" / "src"
CASES = r"IorPosix%files=per-process%order=sequential%cache=direct$|FioRandomRead%block=128KiB$"
SYSTEM = "capped"
#: Exit status of `iogauge trend` after a part.
ALARM = {"healthy": 0, "slow": 1}
VALID = ("PASS", "FAIL", "UNREFERENCED")
IOGAUGE = (sys.executable, "-c", "from iogauge.cli.app import app; app(prog_name='iogauge')")
#: The target is what $IOGAUGE_TARGET says; short phases, so that a history takes minutes.
SETTINGS = """
systems:
  - name: capped
    descr: A file system on a loop device, limited by the kernel
    hostnames: [".*"]
    partitions:
      - name: disk
        scheduler: local
        launcher: local
        environs: [tools]
        max_jobs: 1
        time_limit: 5m
        extras:
          detect: true
          limits: {case_bytes: 24 MiB, phase_seconds: 1 s, repetitions: 3, tier: quick}
environments:
  - name: tools
    target_systems: [capped]
"""
LOAD_SITES = "from pathlib import Path\nfrom iogauge.check.configuration import load\nsite_configuration = load(Path(__file__).parent)\n"


def capped(*words: str) -> None:
    """benchmarks/capped-fs; raises CalledProcessError."""
    subprocess.run([str(ROOT / "benchmarks" / "capped-fs"), *words], check=True)


@contextmanager
def file_system(directory: Path, cap: int) -> Iterator[Path]:
    """A limited file system, gone afterwards; yields where it is mounted."""
    existed = directory.exists()
    capped("up", str(directory), "3G", str(cap))
    try:
        yield directory / "mnt"
    finally:
        capped("down", str(directory))
        if not existed:
            directory.rmdir()


def write_site(folder: Path) -> None:
    """The site of these runs, beside what all sites share."""
    (folder / SYSTEM).mkdir(parents=True)
    (folder / SYSTEM / "settings.yaml").write_text(SETTINGS)
    (folder / "settings.py").write_text(LOAD_SITES)
    shutil.copytree(ROOT / "site-configs" / "common", folder / "common")


def records(home: Path) -> list[dict[str, Any]]:
    """All records so far, oldest first."""
    files = sorted((home / "history" / SYSTEM).glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def measure(environment: dict[str, str], home: Path) -> list[dict[str, Any]]:
    """One run of the suite; returns its records."""
    before = len(records(home))
    words = ["reframe", "-c", str(ROOT / "checks"), "-n", CASES, "-r", f"--system={SYSTEM}"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    found = records(home)[before:]
    if len(found) != 2:
        sys.exit(f"{len(found)} record(s), 2 expected\n{done.stdout}{done.stderr}")
    return found


def show_noise(found: Sequence[dict[str, Any]]) -> None:
    """Verdicts of a part's records, and median and coefficient of variation of every metric that is valid."""
    series: dict[tuple[str, str], list[float]] = {}
    for record in found:
        for metric in record["metrics"]:
            if metric["verdict"] in VALID:
                series.setdefault((record["check"], metric["name"]), []).append(metric["median"])
    counts = Counter(record["verdict"] for record in found)
    print("  verdicts:", ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    for (check, metric), values in sorted(series.items()):
        spread = statistics.stdev(values) / statistics.mean(values) if len(values) > 1 else 0.0
        print(
            f"  {check:14} {metric:10} {len(values):3} runs  median {statistics.median(values):7.1f}"
            f"  CV {spread:5.1%}  {min(values):7.1f} to {max(values):7.1f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--directory", type=Path, required=True, help="where to mount")
    parser.add_argument("--healthy", type=int, default=72, help="runs before the slowdown")
    parser.add_argument("--slow", type=int, default=18, help="runs during it")
    parser.add_argument("--again", type=int, default=10, help="runs after it")
    parser.add_argument("--cap", type=int, default=40, help="MiB/s of the healthy file system")
    parser.add_argument("--reduced", type=int, default=34, help="MiB/s of the slow one")
    parser.add_argument("--keep", type=Path, help="gzipped JSON Lines file for the records")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    with (
        tempfile.TemporaryDirectory(prefix="iogauge-series-") as name,
        file_system(options.directory, options.cap) as target,
    ):
        home, sites = Path(name, "home"), Path(name, "sites")
        write_site(sites)
        environment = os.environ | {
            "PYTHONPATH": str(SOURCE),
            "RFM_CONFIG_PATH": str(sites),
            "IOGAUGE_HOME": str(home),
            "IOGAUGE_TARGET": str(target),
        }
        run, wrong = 0, []
        for part, runs, rate in (
            ("healthy", options.healthy, options.cap),
            ("slow", options.slow, options.reduced),
            ("healthy again", options.again, options.cap),
        ):
            print(f"{part}: {runs} runs at {rate} MiB/s", flush=True)
            capped("cap", str(options.directory), str(rate))
            before = len(records(home))
            for _ in range(runs):
                run += 1
                begun, load = time.strftime("%H:%M:%S", time.gmtime()), os.getloadavg()[0]
                found = measure(environment, home)
                values = "  ".join(
                    f"{metric['name']} {metric['median']:.1f}"
                    for r in found
                    for metric in r["metrics"]
                )
                verdicts = "/".join(record["verdict"] for record in found)
                print(f"{run:4} {begun} load {load:5.2f}  {values}  {verdicts}", flush=True)
            show_noise(records(home)[before:])
            done = subprocess.run([*IOGAUGE, "trend"], env=environment, check=False)
            print(f"  iogauge trend: exit status {done.returncode}", flush=True)
            # How soon the alarm ends when all is well again is not promised.
            if part in ALARM and done.returncode != ALARM[part]:
                wrong.append(f"{part}: exit status {done.returncode}, expected {ALARM[part]}")
        if options.keep:
            files = sorted((home / "history" / SYSTEM).glob("*.jsonl"))
            lines = b"".join(file.read_bytes() for file in files)
            options.keep.write_bytes(gzip.compress(lines, mtime=0))
    sys.exit("; ".join(wrong))


if __name__ == "__main__":
    main()
