"""What a session of many cases costs: plan, run, report and gate, and whether that grows with their number.

    python benchmarks/session.py [--cases 100,300,1000]

The cases are those of harness.py, jobs included. CPU seconds are those of the command and its jobs. Memory is that
of the command.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import ROOT, check_records, prepare


def run(words: list[str], environment: dict[str, str], folder: Path) -> tuple[float, float, float]:
    """Wall-clock seconds, CPU seconds and MiB of a command, its children's CPU included."""
    start = time.perf_counter()
    process = subprocess.Popen(
        words,
        env=os.environ | environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    text = process.stdout.read()
    _, status, use = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{' '.join(words[-6:])}: exit status {process.returncode}\n{text[-3000:]}")
    return time.perf_counter() - start, use.ru_utime + use.ru_stime, use.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--cases", default="100,300,1000", help="numbers of cases, with commas")
    counts = [int(number) for number in parser.parse_args().cases.split(",")]
    source = str(ROOT / "reframe" / "src")
    iogauge = [str(Path(sys.executable).with_name("iogauge"))]
    for count in counts:
        with tempfile.TemporaryDirectory(prefix="iogauge-session-") as name:
            folder = Path(name)
            environment = prepare(folder) | {"PYTHONPATH": source}
            chosen = ["-c", str(folder / "ours"), "--mode=storage", f"--repeat={count}"]
            reframe = [str(Path(sys.executable).with_name("reframe"))]
            junit = str(folder / "junit.xml")
            print(f"{count} cases")
            for label, words in (
                ("reframe -l", [*reframe, *chosen, "-l"]),
                ("iogauge plan", [*iogauge, "plan", *chosen]),
                ("reframe -r, with its jobs", [*reframe, *chosen, "-r", "--report-junit", junit]),
                ("iogauge report", [*iogauge, "report"]),
            ):
                wall, cpu, memory = run(words, environment, folder)
                print(
                    f"  {label:26} {wall:7.1f} s, CPU {cpu:7.1f} s, {memory:5.0f} MiB", flush=True
                )
            history = folder / "home" / "history"
            check_records(history, count)
            (file,) = history.rglob("*.jsonl")
            stages = list((folder / "home" / "reframe").rglob("rfm_job.sh"))
            script = max((stage.stat().st_size for stage in stages), default=0)
            print(
                f"  a record has {file.stat().st_size / count:.0f} bytes, a job script at most {script}; "
                f"stage directories left: {len(stages)}"
            )


if __name__ == "__main__":
    main()
