"""Does the suite measure what the tool measures by hand? Paired runs of the same IOR command.

    python benchmarks/fidelity.py --target DIR [--effect suite] [--pairs 10] [--bytes '256 MiB']

Each pair runs the command lines of a case's record by hand, in a session of their own as ReFrame's jobs are. After that, or
before (alternating), it runs what `--effect` names:

    suite      the case through ReFrame
    witness    the same commands by hand, under witness.sh
    sample     the same commands by hand, and a sample of the contents after the write

Reported is the ratio of bandwidths, effect over hand: median, and a 95 % confidence interval of the median by the sign test
(order statistics). Exit status 1 if an interval lies outside of 1 by more than --tolerance. On a file system whose rate is capped (benchmarks/capped-fs) noise is below 1 %. On a disk as fast as
memory, give the tools huge pages first: docs/design.md says why.
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
from collections.abc import Callable
from math import comb
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "reframe" / "src"
sys.path.insert(0, str(SOURCE))

from iogauge.node import files  # noqa: E402
from iogauge.site.programs import mpi_environment  # noqa: E402

WITNESS = SOURCE / "iogauge" / "job" / "witness.sh"
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
    done = subprocess.run(
        words, env=environment, capture_output=True, text=True, check=False
    )
    files = list((home / "history").rglob("*.jsonl"))
    if len(files) != 1:
        sys.exit(done.stdout + done.stderr)
    record: dict[str, object] = json.loads(files[0].read_text().splitlines()[0])
    if not record["metrics"]:
        sys.exit(f"{record['verdict']}: {record['reason']}")
    return record


def by_hand(
    record: dict[str, object],
    target: Path,
    environment: dict[str, str],
    wrapper: str = "",
    between: Callable[[str], object] = str,
) -> dict[str, float]:
    """Bandwidths of the record's command lines (MiB/s), each preceded by an unjudged first time.

    ``wrapper`` are words before each tool. ``between`` is called with the directory after each command.
    """
    folder = Path(tempfile.mkdtemp(dir=target, prefix="by-hand-"))
    scratch = Path(tempfile.mkdtemp(prefix="by-hand-"))
    tasks = int(record["nodes"]) * int(record["tasks_per_node"])  # type: ignore[call-overload]
    try:
        for number in (0, 1):
            for path in folder.iterdir():
                path.unlink()
            for command in record["commands"]:  # type: ignore[attr-defined]
                subprocess.run(
                    [
                        "bash",
                        "-c",
                        f"mpirun -np {tasks} --bind-to core {wrapper} {command}",
                    ],
                    env=environment | {"IOG_DIR": str(folder), "IOG_REP": str(number)},
                    cwd=scratch,
                    check=True,
                    capture_output=True,
                    start_new_session=True,
                )
                between(str(folder))
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
    parser.add_argument(
        "--effect", choices=("suite", "witness", "sample"), default="suite"
    )
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--bytes", default="256 MiB")
    parser.add_argument(
        "--tolerance",
        type=float,
        default=0.02,
        help="share by which an interval may miss 1",
    )
    parser.add_argument(
        "--settle", type=float, default=6.0, help="seconds of rest before each run"
    )
    options = parser.parse_args()

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
        record = by_suite(
            environment, home
        )  # gives the command lines, and warms everything up

        def hand(**more: object) -> dict[str, float]:
            return by_hand(record, options.target, environment, **more)  # type: ignore[arg-type]

        def suite() -> dict[str, float]:
            metrics = by_suite(environment, home)["metrics"]
            return {m["name"]: m["median"] for m in metrics}  # type: ignore[attr-defined]

        effect: Callable[[], dict[str, float]] = {
            "suite": suite,
            "witness": lambda: hand(
                wrapper=f"sh {WITNESS} /tmp/iogauge-witness write.1"
            ),
            "sample": lambda: hand(between=files.take_sample),
        }[options.effect]
        ratios: dict[str, list[float]] = {"write_bw": [], "read_bw": []}
        print(
            "pair       "
            + "".join(f"{metric:>30}" for metric in ratios)
            + f"   ({options.effect}, hand, ratio)"
        )
        for pair in range(options.pairs):
            found: dict[bool, dict[str, float]] = {}
            for with_effect in (pair % 2 == 0, pair % 2 == 1):
                settle(options.settle)
                found[with_effect] = effect() if with_effect else hand()
            line = f"{pair + 1:4}       "
            for metric, values in ratios.items():
                values.append(found[True][metric] / found[False][metric])
                line += f"{found[True][metric]:11.1f}{found[False][metric]:11.1f}{values[-1]:8.4f}"
            print(line, flush=True)
        missed = False
        for metric, values in ratios.items():
            low, high = interval(values)
            fits = low <= 1 + options.tolerance and high >= 1 - options.tolerance
            missed |= not fits
            print(
                f"{metric}: median ratio {statistics.median(values):.4f}, 95 % interval {low:.4f} to {high:.4f}"
                + (
                    ""
                    if fits
                    else f": another figure than by hand (tolerance {options.tolerance:g})"
                )
            )
    sys.exit(missed)


if __name__ == "__main__":
    main()
