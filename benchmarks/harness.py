"""What the suite costs beside plain ReFrame, in CPU seconds of the ReFrame process: to start, to list and to run a case.

    python benchmarks/harness.py

Plain ReFrame has its built-in configuration and a trivial test, which sleeps as long as a case of the suite lasts. The best of
some tries counts. Exit status 1 if a ratio is above its goal, or if a case was not measured.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "reframe" / "src")]

from e2e.rig import Rig  # noqa: E402
from iogauge.workspace import permission  # noqa: E402

#: The suite may take so many times the CPU seconds of plain ReFrame.
GOALS = {"start": 1.3, "list a case": 1.05, "run a case": 1.5}
#: Cases that are listed, cases that are run, and runs of each command.
MANY, CASES, TRIES = 1000, 20, 3
#: On storage.
PLACE = Path("/var/tmp")
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


@dataclass(frozen=True)
class Side:
    """One of the two: the options that select a case, and its environment."""

    words: tuple[str, ...]
    environment: Mapping[str, str]

    def cost(self, count: int, expected: str, *options: str) -> tuple[float, float]:
        """Least wall-clock and CPU seconds of ReFrame over so many cases; it must print what is expected."""
        command = [sys.executable, "-c", _MAIN, *self.words, f"--repeat={count}"]
        walls, cpus = [], []
        for _ in range(TRIES):
            start = time.perf_counter()
            done = subprocess.run(
                [*command, *options],
                env=dict(self.environment),
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
            )
            walls.append(time.perf_counter() - start)
            cpus.append(float(Path(self.environment["CPU_FILE"]).read_text()))
            if expected not in done.stdout:
                raise SystemExit(
                    f"harness: expected {expected!r}\n{done.stdout[-2000:]}{done.stderr}"
                )
        return min(walls), min(cpus)

    def listing(self) -> dict[str, float]:
        """CPU seconds to start, with one case, and to list one more."""
        first = self.cost(1, "Found 1 check(s)", "-l")[1]
        many = self.cost(MANY, f"Found {MANY} check(s)", "-l")[1]
        return {"start": first, "list a case": (many - first) / (MANY - 1)}

    def running(self) -> tuple[float, float]:
        """Wall-clock and CPU seconds to run one more case."""
        words = ("-r", "--exec-policy=serial", "--nocolor")
        wall, cpu = self.cost(1, "/1 test case(s)", *words)
        walls, cpus = self.cost(CASES, f"/{CASES} test case(s)", *words)
        return (walls - wall) / (CASES - 1), (cpus - cpu) / (CASES - 1)


def check_records(rig: Rig, expected: int) -> None:
    """Every case must have been measured: else this times a failure."""
    records = rig.records()
    odd = [r["reason"] for r in records if r["verdict"] not in VALID]
    if len(records) != expected or odd:
        raise SystemExit(
            f"harness: {len(records)} records, expected {expected}; not measured: {odd[:1]}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="iogauge-harness-", dir=PLACE) as name:
        base = Path(name)
        limits = {"case_bytes": "64 MiB", "max_foreign": "100 %", "max_spread": "100 %"}
        rig = Rig(base=base / "rig", target=base / "target", limits=limits)
        (rig.target / permission.MARKER).touch()
        cpu_file = str(base / "cpu")
        suite = Side(OURS, rig.environment(CPU_FILE=cpu_file))
        own = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("RFM_", "IOGAUGE_"))
        }
        trivial = base / "trivial.py"
        plain = Side(
            ("-c", str(trivial), "--prefix", str(base / "plain")),
            {**own, "CPU_FILE": cpu_file},
        )

        ours = suite.listing()
        wall, ours["run a case"] = suite.running()
        check_records(rig, (1 + CASES) * TRIES)
        trivial.write_text(_TRIVIAL.format(seconds=wall))
        theirs = plain.listing()
        theirs["run a case"] = plain.running()[1]
    print(
        "| CPU seconds | plain ReFrame | this suite | ratio | goal |\n|---|---|---|---|---|"
    )
    missed = []
    for what, goal in GOALS.items():
        ratio = ours[what] / theirs[what]
        print(
            f"| {what} | {theirs[what]:.4f} | {ours[what]:.4f} | {ratio:.2f} | {goal:g} |"
        )
        # Less than nothing is noise: then nothing was measured.
        if not 0 < ratio <= goal:
            missed.append(what)
    print(f"\nA case lasted {wall:.1f} s.")
    if missed:
        print(
            f"harness: the goal is missed, or nothing was measured: {', '.join(missed)}"
        )
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
