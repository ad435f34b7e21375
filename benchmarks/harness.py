"""What the harness itself costs: seconds to list cases, and CPU seconds for each case that is run.

    python benchmarks/harness.py [--cases 40]

The cases run a stand-in for fio that prints a recorded result at once, so that what remains is the suite
and ReFrame. The comparison is ReFrame's own trivial test (``true``) under the same configuration, in the
same process shape. CPU time is that of the ReFrame process alone (RUSAGE_SELF), without its jobs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

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
    executable = "true"
    sourcesdir = None

    @sanity_function
    def fine(self):
        return sn.assert_eq(self.job.exitcode, 0)
"""

_CASE = """
import reframe as rfm
from iogauge.check import FioMetadataCheck


@rfm.simple_test
class Replay(FioMetadataCheck):
    pass
"""

_FIO = """#!/bin/sh
# Prints what fio 3.33 recorded for the job that the last argument names.
for last; do :; done
case $1 in --version) echo fio-3.33; exit ;; esac
for word; do case $word in --output=*) out=${word#--output=} ;; esac; done
sed "s/@JOB@/${last%.fio}/" "$(dirname "$0")/${last%.fio}.json" >"$out"
"""


def reframe(
    folder: Path, arguments: list[str], environment: dict[str, str]
) -> tuple[float, float, str]:
    """Wall-clock and CPU seconds of a ReFrame process, and what it printed."""
    cpu_file = folder / "cpu"
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", _MAIN, *arguments],
        env=os.environ | environment | {"CPU_FILE": str(cpu_file)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return time.perf_counter() - start, float(cpu_file.read_text()), done.stdout + done.stderr


def record_fio(folder: Path) -> None:
    """Record real results of the three metadata jobs, for the stand-in to print."""
    from iogauge.node.cores import usable_cores
    from iogauge.tools.fio.options import metadata_job

    jobs = folder / "jobs"
    jobs.mkdir()
    processes = min(usable_cores(), 8)  # as the site local
    files = 20_000 // processes
    for engine in ("filecreate", "filestat", "filedelete"):
        loops = 5 if engine == "filestat" else 1
        job = metadata_job(  # type: ignore[arg-type]
            engine, directory=str(jobs), files=files, numjobs=processes, loops=loops
        )
        path = folder / f"{job.name}.fio"
        path.write_text(job.job_file())
        output = folder / f"{job.name}.json"
        subprocess.run(["fio", "--output-format=json", f"--output={output}", str(path)], check=True)
    (folder / "fio").write_text(_FIO)
    (folder / "fio").chmod(0o755)


def prepare(folder: Path) -> dict[str, str]:
    """Checks, the stand-in for fio and a target below a folder; returns the variables that select them."""
    for part in ("plain", "ours", "bin", "target"):
        (folder / part).mkdir()
    (folder / "plain" / "trivial.py").write_text(textwrap.dedent(_TRIVIAL))
    (folder / "ours" / "__init__.py").write_text(
        (ROOT / "checks" / "__init__.py")
        .read_text()
        .replace("Path(__file__).resolve().parents[1]", f"Path({str(ROOT)!r})")
    )
    (folder / "ours" / "replay.py").write_text(textwrap.dedent(_CASE))
    record_fio(folder / "bin")
    return {
        "RFM_CONFIG_PATH": str(ROOT / "site-configs"),
        "IOGAUGE_HOME": str(folder / "home"),
        "IOGAUGE_TARGET": str(folder / "target"),
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "IOGAUGE_ROOT": str(ROOT),
    }


def check_records(history: Path, cases: int) -> None:
    """The newest session must have measured every case: else this times a failure."""
    newest = max(history.rglob("*.jsonl"), key=lambda file: file.stat().st_mtime)
    records = [json.loads(line) for line in newest.read_text().splitlines()]
    odd = [r for r in records if r["verdict"] not in ("UNREFERENCED", "UNSTABLE")]
    if len(records) != cases or odd:
        sys.exit(f"{len(records)} records, {len(odd)} of them odd: {odd[:1]}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--cases", type=int, default=40, help="cases to run for the CPU time of one"
    )
    cases = parser.parse_args().cases
    sys.path.insert(0, str(ROOT / "reframe" / "src"))
    with tempfile.TemporaryDirectory(prefix="iogauge-harness-") as name:
        folder = Path(name)
        environment = prepare(folder)
        plain, ours = str(folder / "plain"), str(folder / "ours")

        print("seconds to list cases (ReFrame -l, start included)")
        for count in (10, 100, 1000):
            line = f"{count:6} cases:"
            for label, path in (("plain ReFrame", plain), ("this suite", ours)):
                wall, _, text = reframe(
                    folder, ["-c", path, f"--repeat={count}", "-l"], environment
                )
                assert f"Found {count} check(s)" in text, text[-2000:]
                line += f"  {label} {wall:6.2f} s"
            print(line)

        print(f"CPU seconds of the harness a case ({cases} cases less 1, serial)")
        per_case = {}
        for label, path in (("plain ReFrame", plain), ("this suite", ours)):
            few = min(
                reframe(folder, ["-c", path, "-r", "--exec-policy=serial"], environment)[1]
                for _ in range(3)
            )
            options = ["-c", path, f"--repeat={cases}", "-r", "--exec-policy=serial"]
            many, text = 1e9, ""
            for _ in range(3):
                _, used, text = reframe(folder, options, environment)
                many = min(many, used)
            assert f"/{cases} test case(s)" in text, text[-2000:]
            if path == ours:
                check_records(folder / "home" / "history", cases)
            per_case[label] = (many - few) / (cases - 1)
            print(f"  {label:14} {per_case[label]:.4f} s")
        ratio = per_case["this suite"] / per_case["plain ReFrame"]
        print(f"  ratio          {ratio:.2f} (goal: 2 at most)")


if __name__ == "__main__":
    main()
