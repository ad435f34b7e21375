"""Does the suite measure what the tool measures by hand? Paired runs of the same IOR command.

    python benchmarks/fidelity.py --target DIR [--pairs 10] [--bytes '256 MiB']

Each pair runs one case through ReFrame and then, or before (alternating), the very command lines of its
record by hand. Reported is the ratio of bandwidths, suite over hand: median, and a 95 % confidence
interval of the median by the sign test (order statistics). On a file system whose rate is capped
(benchmarks/capped-fs) noise is below 1 %; on a plain disk the interval says how much it is.
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

ROOT = Path(__file__).resolve().parents[1]
CASE = r"IorPosix%files=per-process%order=sequential%cache=direct$"


def by_suite(environment: dict[str, str], home: Path) -> dict[str, object]:
    """Record of one case, run through ReFrame with one repetition."""
    reframe = shutil.which("reframe") or "reframe"
    shutil.rmtree(home, ignore_errors=True)
    words = [
        reframe,
        "-c",
        str(ROOT / "checks"),
        "-n",
        CASE,
        "-S",
        "repetitions=1",
        "-r",
        "--system=local",
    ]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    files = list((home / "history").rglob("*.jsonl"))
    if len(files) != 1:
        sys.exit(done.stdout + done.stderr)
    record: dict[str, object] = json.loads(files[0].read_text().splitlines()[0])
    if not record["metrics"]:
        sys.exit(f"{record['verdict']}: {record['reason']}")
    return record


def by_hand(
    record: dict[str, object], target: Path, environment: dict[str, str]
) -> dict[str, float]:
    """Bandwidths of the record's command lines (MiB/s), each preceded by an unjudged first time."""
    folder = Path(tempfile.mkdtemp(dir=target, prefix="by-hand-"))
    scratch = Path(tempfile.mkdtemp(prefix="by-hand-"))
    tasks = int(record["nodes"]) * int(record["tasks_per_node"])  # type: ignore[call-overload]
    try:
        for number in (0, 1):
            for path in folder.iterdir():
                path.unlink()
            for command in record["commands"]:  # type: ignore[attr-defined]
                subprocess.run(
                    ["bash", "-c", f"mpirun -np {tasks} {command}"],
                    env=environment | {"IOG_DIR": str(folder), "IOG_REP": str(number)},
                    cwd=scratch,
                    check=True,
                    capture_output=True,
                )
        found = {}
        for name in ("write", "read"):
            data = json.loads((scratch / f"ior-{name}.1.json").read_text())
            found[f"{name}_bw"] = float(data["tests"][0]["Results"][0]["bwMiB"])
        return found
    finally:
        shutil.rmtree(folder)
        shutil.rmtree(scratch)


def settle(seconds: float) -> None:
    """Let the file system finish with what was deleted: a journal commits, and discards, seconds later."""
    os.sync()
    time.sleep(seconds)


def interval(values: list[float]) -> tuple[float, float]:
    """95 % confidence interval of the median from order statistics (binomial, distribution-free)."""
    ordered, count = sorted(values), len(values)
    tail, rank = 0.0, 0
    while rank < count // 2 and (tail := tail + comb(count, rank) / 2**count) <= 0.025:
        rank += 1
    rank = max(rank - 1, 0)
    return ordered[rank], ordered[-1 - rank]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--bytes", default="256 MiB")
    parser.add_argument("--settle", type=float, default=6.0, help="seconds of rest before each run")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT / "reframe" / "src"))
    from iogauge.site.machine import mpi_environment

    with tempfile.TemporaryDirectory(prefix="iogauge-fidelity-") as name:
        home = Path(name, "home")
        environment = (
            os.environ
            | mpi_environment()
            | {
                "RFM_CONFIG_PATH": str(ROOT / "site-configs"),
                "IOGAUGE_HOME": str(home),
                "IOGAUGE_TARGET": str(options.target),
                "IOGAUGE_CASE_BYTES": options.bytes,
            }
        )
        record = by_suite(environment, home)  # gives the command lines, and warms everything up
        ratios: dict[str, list[float]] = {"write_bw": [], "read_bw": []}
        print(
            "pair       "
            + "".join(f"{metric:>30}" for metric in ratios)
            + "   (suite, hand, ratio)"
        )
        for pair in range(options.pairs):
            hand: dict[str, float] = {}
            for ours in (pair % 2 == 0, pair % 2 == 1):
                settle(options.settle)
                if ours:
                    record = by_suite(environment, home)
                else:
                    hand = by_hand(record, options.target, environment)
            line = f"{pair + 1:4}       "
            for metric in record["metrics"]:  # type: ignore[attr-defined]
                ratio = metric["median"] / hand[metric["name"]]
                ratios[metric["name"]].append(ratio)
                line += f"{metric['median']:11.1f}{hand[metric['name']]:11.1f}{ratio:8.4f}"
            print(line, flush=True)
        for metric, values in ratios.items():
            low, high = interval(values)
            print(
                f"{metric}: median ratio {statistics.median(values):.4f}, 95 % interval {low:.4f} to {high:.4f}"
            )


if __name__ == "__main__":
    main()
