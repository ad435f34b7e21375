"""Does the suite measure what the tool measures by hand? Paired runs of the same IOR command.

    python benchmarks/fidelity.py --target DIR [--pairs 10]

Each pair runs a case through ReFrame, and its command lines by hand in a session of their own, as ReFrame's jobs are; which
comes first alternates. Reported is the ratio of bandwidths, suite over hand: its median, and an interval that holds the true
median with 95 % confidence (sign test). Exit status 1 unless the whole interval lies within 2 % around 1: a wide
one shows nothing. On a file system whose rate is capped (benchmarks/capped-fs) noise is below 1 %.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from math import comb
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "reframe" / "src"))

from iogauge.site.programs import mpi_environment  # noqa: E402

CASE = r"IorPosix%files=per-process%order=sequential%cache=direct$"
METRICS = ("write_bw", "read_bw")
#: The ratio may be off 1 by so much.
TOLERANCE = 0.02
#: Seconds until a file system has finished with what was deleted: a journal commits, and discards.
SETTLE_S = 6.0
#: With fewer pairs no interval holds the median with 95 % confidence: of 5, all lie on one side in 1 of 16 tries.
LEAST_PAIRS = 6


def by_suite(environment: dict[str, str]) -> dict[str, Any]:
    """Record of one case, run through ReFrame with one repetition."""
    home = Path(environment["IOGAUGE_HOME"])
    shutil.rmtree(home, ignore_errors=True)
    words = ["reframe", "-c", str(ROOT / "checks"), "-n", CASE, "-r"]
    words += ["-S", "repetitions=1", "--system=local"]
    done = subprocess.run(
        words, env=environment, capture_output=True, text=True, check=False
    )
    files = list((home / "history").rglob("*.jsonl"))
    if len(files) != 1:
        sys.exit(done.stdout + done.stderr)
    record: dict[str, Any] = json.loads(files[0].read_text().splitlines()[0])
    if not record["metrics"]:
        sys.exit(f"{record['verdict']}: {record['reason']}")
    return record


def by_hand(
    record: dict[str, Any], target: Path, environment: dict[str, str]
) -> dict[str, float]:
    """Bandwidths of the record's command lines (MiB/s), each preceded by an unjudged first time."""
    tasks = record["nodes"] * record["tasks_per_node"]
    with (
        tempfile.TemporaryDirectory(dir=target, prefix="by-hand-") as data,
        tempfile.TemporaryDirectory(prefix="by-hand-") as scratch,
    ):
        for number in ("0", "1"):
            for path in Path(data).iterdir():
                path.unlink()
            for command in record["commands"]:
                subprocess.run(
                    ["bash", "-c", f"mpirun -np {tasks} --bind-to core {command}"],
                    env=environment | {"IOG_DIR": data, "IOG_REP": number},
                    cwd=scratch,
                    check=True,
                    capture_output=True,
                    start_new_session=True,
                )
        found = {}
        for metric in METRICS:
            name = f"ior-{metric.removesuffix('_bw')}.1.json"
            results = json.loads(Path(scratch, name).read_text())["tests"][0]["Results"]
            found[metric] = float(results[0]["bwMiB"])
        return found


def interval(values: list[float]) -> tuple[float, float]:
    """Values between which the true median lies with 95 % confidence (order statistics, distribution-free)."""
    ordered, count = sorted(values), len(values)
    if count < LEAST_PAIRS:
        raise ValueError(f"{count} pairs, expected {LEAST_PAIRS} or more")
    below, outside = 0, 1 / 2**count
    while True:
        outside += comb(count, below + 1) / 2**count
        if 2 * outside > 0.05:
            return ordered[below], ordered[-1 - below]
        below += 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=10, help=f"{LEAST_PAIRS} or more")
    options = parser.parse_args()
    if options.pairs < LEAST_PAIRS:
        parser.error(f"--pairs is {options.pairs}: expected {LEAST_PAIRS} or more")
    with tempfile.TemporaryDirectory(prefix="iogauge-fidelity-") as name:
        environment = os.environ | mpi_environment()
        environment |= {
            "RFM_CONFIG_PATH": str(ROOT / "site-configs"),
            "IOGAUGE_HOME": f"{name}/home",
            "IOGAUGE_TARGET": str(options.target),
            "IOGAUGE_CASE_BYTES": "256 MiB",
        }
        # It gives the command lines, and warms everything up.
        record = by_suite(environment)
        ratios: dict[str, list[float]] = {metric: [] for metric in METRICS}
        for pair in range(options.pairs):
            found = {}
            for side in ("suite", "hand") if pair % 2 else ("hand", "suite"):
                os.sync()
                time.sleep(SETTLE_S)
                if side == "hand":
                    found[side] = by_hand(record, options.target, environment)
                else:
                    metrics = by_suite(environment)["metrics"]
                    found[side] = {m["name"]: m["median"] for m in metrics}
            for metric, values in ratios.items():
                values.append(found["suite"][metric] / found["hand"][metric])
            shown = "  ".join(
                f"{name} {values[-1]:.4f}" for name, values in ratios.items()
            )
            print(f"pair {pair + 1}: {shown}", flush=True)
    failed = False
    for metric, values in ratios.items():
        low, high = interval(values)
        fits = low >= 1 - TOLERANCE and high <= 1 + TOLERANCE
        failed |= not fits
        text = f"{metric}: median ratio {statistics.median(values):.4f}, 95 % interval {low:.4f} to {high:.4f}"
        print(text if fits else f"{text}: not within {TOLERANCE:g} of 1")
    return failed


if __name__ == "__main__":
    sys.exit(main())
