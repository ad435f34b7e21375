"""What the suite costs beside plain ReFrame: CPU seconds to list cases, and for each case that is run.

    python benchmarks/harness.py [--cases 20] [--tries 3] [--place DIR]

Each case reads with fio for half a second. The comparison is a trivial test under the same configuration that
sleeps as long as such a case lasts, so that ReFrame polls both alike. CPU time is that of the ReFrame process, without
its jobs. Exit status 1 if the suite takes more than twice as much as plain ReFrame, or if a case was not measured.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "reframe" / "src")]

from e2e.rig import Rig  # noqa: E402
from iogauge.workspace import permission  # noqa: E402

#: The suite may take so many times the CPU seconds of plain ReFrame.
GOAL = 2.0
OURS = ("-c", "checks/fio_random_read.py", "-n", "FioRandomRead%block=4KiB")
VALID = ("PASS", "UNREFERENCED", "UNSTABLE", "CONTAMINATED")

_MAIN = """
import atexit, os, resource
def report():
    use = resource.getrusage(resource.RUSAGE_SELF)
    open(os.environ["CPU_FILE"], "w").write(str(use.ru_utime + use.ru_stime))
atexit.register(report)
from reframe.frontend.cli import main
main()
"""

_TRIVIAL = """
import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import sanity_function


@rfm.simple_test
class Trivial(rfm.RunOnlyRegressionTest):
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "sleep"
    executable_opts = ["{seconds:.1f}"]
    sourcesdir = None

    @sanity_function
    def fine(self):
        return sn.assert_eq(self.job.exitcode, 0)
"""


def reframe(rig: Rig, *arguments: str) -> tuple[float, float, str]:
    """Wall-clock and CPU seconds of a ReFrame process, and what it printed."""
    file = rig.base / "cpu"
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", _MAIN, *arguments],
        env=rig.environment(CPU_FILE=str(file)),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return (
        time.perf_counter() - start,
        float(file.read_text()),
        done.stdout + done.stderr,
    )


def plain(rig: Rig, seconds: float) -> tuple[str, str]:
    """Options for a trivial test that lasts so long."""
    file = rig.base / "trivial.py"
    file.write_text(_TRIVIAL.format(seconds=seconds))
    return "-c", str(file)


def listed(rig: Rig, words: tuple[str, ...], count: int) -> float:
    """CPU seconds to list so many cases, ReFrame's start included."""
    _, cpu, said = reframe(rig, *words, f"--repeat={count}", "-l")
    if f"Found {count} check(s)" not in said:
        raise SystemExit(f"harness: {count} cases were not listed\n{said[-2000:]}")
    return cpu


def per_case(
    rig: Rig, words: tuple[str, ...], cases: int, tries: int
) -> tuple[float, float]:
    """Wall-clock and CPU seconds of one more case, from runs of one and of so many: the best of some tries each."""
    least = []
    for count in (1, cases):
        found = []
        for _ in range(tries):
            *cost, said = reframe(
                rig,
                *words,
                f"--repeat={count}",
                "-r",
                "--exec-policy=serial",
                "--nocolor",
            )
            if f"/{count} test case(s)" not in said:
                raise SystemExit(f"harness: {count} cases did not run\n{said[-2000:]}")
            found.append(cost)
        least.append([min(column) for column in zip(*found, strict=True)])
    wall, cpu = ((most - one) / (cases - 1) for one, most in zip(*least, strict=True))
    return wall, cpu


def check_records(rig: Rig, expected: int) -> None:
    """Every case must have been measured: else this times a failure."""
    records = rig.records()
    odd = [
        f"{r['verdict']}: {r['reason']}" for r in records if r["verdict"] not in VALID
    ]
    if len(records) != expected or odd:
        raise SystemExit(
            f"harness: {len(records)} records, expected {expected}; not measured: {odd[:1]}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--cases", type=int, default=20, help="cases to run for the cost of one"
    )
    parser.add_argument(
        "--tries", type=int, default=3, help="runs of each; the best counts"
    )
    parser.add_argument(
        "--place",
        type=Path,
        default=Path(tempfile.gettempdir()),
        help="directory on storage",
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(
        prefix="iogauge-harness-", dir=given.place
    ) as name:
        limits = {"case_bytes": "64 MiB", "max_foreign": "100 %", "max_spread": "100 %"}
        rig = Rig(base=Path(name, "rig"), target=Path(name, "target"), limits=limits)
        (rig.target / permission.MARKER).touch()
        ratios = []

        def show(what: str, ours: float, theirs: float) -> None:
            ratios.append(ours / theirs)
            print(
                f"| {what} | {theirs:.3f} | {ours:.3f} | {ratios[-1]:.2f} |", flush=True
            )

        print("| CPU seconds | plain ReFrame | this suite | ratio |\n|---|---|---|---|")
        for count in (10, 100, 1000):
            show(
                f"list {count:,} cases",
                listed(rig, OURS, count),
                listed(rig, plain(rig, 0), count),
            )
        wall, cpu = per_case(rig, OURS, given.cases, given.tries)
        check_records(rig, (1 + given.cases) * given.tries)
        show(
            "run a case",
            cpu,
            per_case(rig, plain(rig, wall), given.cases, given.tries)[1],
        )
        print(f"\nA case lasted {wall:.1f} s.")
    # Less than nothing is noise: then nothing was measured.
    odd = [f"{ratio:.2f}" for ratio in ratios if not 0 < ratio <= GOAL]
    if odd:
        print(
            f"harness: expected ratios above 0 and at most {GOAL:g}, found {', '.join(odd)}"
        )
    return bool(odd)


if __name__ == "__main__":
    sys.exit(main())
