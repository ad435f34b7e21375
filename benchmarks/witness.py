"""CPU time that witness.sh takes for a task, in each shell that may be /bin/sh.

    python benchmarks/witness.py [--runs 500] [--tasks 48]

Runs `true` alone and under witness.sh, in turn. The difference of the medians is what the witness takes. The first task of
a node also looks at the counters. A shell that only starts a program and waits for it is the least that a script can take.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
from pathlib import Path

JOB = Path(__file__).resolve().parents[1] / "reframe" / "src" / "iogauge" / "job"
ROUNDS = 10
BARE = '"$@" & wait "$!"; exit "$?"'


def cpu_ms(words: list[str], rank: str) -> float:
    """CPU milliseconds of a command and its children."""
    silent = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)]
    environment = {"PATH": os.environ["PATH"], "SLURM_LOCALID": rank}
    child = os.posix_spawn(words[0], words, environment, file_actions=silent)
    _, status, used = os.wait4(child, 0)
    if status:
        raise SystemExit(f"{' '.join(words)}: status {status}")
    return 1e3 * (used.ru_utime + used.ru_stime)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--tasks", type=int, default=48)
    options = parser.parse_args()
    tool = shutil.which("true") or "true"
    shells = {name: path for name in ("dash", "bash") if (path := shutil.which(name))}
    forms = {"alone": ([tool], "1")}
    for name, path in shells.items():
        forms[f"{name} bare"] = ([path, "-c", BARE, path, tool], "1")
        for kind, rank in (("first", "0"), ("other", "1")):
            forms[f"{name} {kind}"] = ([path, str(JOB / "witness.sh"), "/tmp/iogauge-witness", "write.1", tool], rank)
    times: dict[str, list[float]] = {form: [] for form in forms}
    for _ in range(ROUNDS):
        for form, (words, rank) in forms.items():
            times[form] += [cpu_ms(words, rank) for _ in range(options.runs // ROUNDS)]
    medians = {form: statistics.median(of_form) for form, of_form in times.items()}
    print(f"{tool} alone takes {medians['alone']:.2f} ms of CPU; beside it, for each task:")
    for name in shells:
        bare, first, other = (
            medians[f"{name} {kind}"] - medians["alone"] for kind in ("bare", "first", "other")
        )
        node = first + (options.tasks - 1) * other
        print(
            f"{name}: a bare shell {bare:.2f} ms, witness.sh {other:.2f} ms, on a node's first task {first:.2f} ms; "
            f"{options.tasks} tasks {node:.0f} ms"
        )


if __name__ == "__main__":
    main()
