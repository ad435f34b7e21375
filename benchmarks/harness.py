"""What the harness itself costs: seconds to list cases, and CPU seconds for each case that is run.

    python benchmarks/harness.py [--cases 20]

Each case runs fio on 2,000 files: the guards refuse a program that only prints a recorded result. The
comparison is a trivial test of ReFrame under the same configuration, in the same process shape, that sleeps as long.
CPU time is that of the ReFrame process alone (RUSAGE_SELF), without its jobs. It includes ReFrame's polls of a job.
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
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "reframe" / "src"))

from iogauge.node.host import usable_cores  # noqa: E402
from iogauge.node.mounts import find_mount  # noqa: E402

SITE = "benchmark"

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
    executable_opts = ["SECONDS"]
    sourcesdir = None

    @sanity_function
    def fine(self):
        return sn.assert_eq(self.job.exitcode, 0)
"""

_CASE = """
import reframe as rfm
from iogauge.check import FioMetadataCheck


@rfm.simple_test
class Many(FioMetadataCheck):
    pass
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


def settings(target: Path) -> dict[str, Any]:
    """Return a site whose cases end soon; nothing is detected, and others may use the disk."""
    mount = find_mount(str(target))
    assert mount is not None, f"{target} is on no mount"
    limits = {
        "case_bytes": "64 MiB",
        "case_files": 2_000,
        "phase_seconds": "1 s",
        "tier": "quick",
        "repetitions": 3,
        "max_spread": "100 %",
        "max_foreign": "100 %",
    }
    extras = {
        "target": {"path": str(target), "type": mount.type, "source": mount.source},
        "node": {"cores": usable_cores(), "memory": "4 GiB"},
        "scale": {"nodes": 1, "tasks_per_node": min(usable_cores(), 2)},
        "limits": limits,
    }
    partition = {
        "name": "default",
        "scheduler": "local",
        "launcher": "local",
        "environs": ["tools"],
        "max_jobs": 1,
        "time_limit": "10m",
        "extras": extras,
    }
    tools = {"name": "tools", "target_systems": [SITE], "features": ["fio"]}
    return {
        "systems": [{"name": SITE, "hostnames": [".*"], "partitions": [partition]}],
        "environments": [tools],
    }


def prepare(folder: Path) -> dict[str, str]:
    """Make checks, a site and a target below a folder; return the variables that select them."""
    for part in ("plain", "ours", "target", f"sites/{SITE}"):
        (folder / part).mkdir(parents=True)
    (folder / "plain" / "trivial.py").write_text(textwrap.dedent(_TRIVIAL))
    (folder / "ours" / "__init__.py").write_text(
        (ROOT / "checks" / "__init__.py")
        .read_text()
        .replace("Path(__file__).resolve().parents[1]", f"Path({str(ROOT)!r})")
    )
    (folder / "ours" / "many.py").write_text(textwrap.dedent(_CASE))
    # JSON is YAML.
    text = json.dumps(settings(folder / "target"))
    (folder / "sites" / SITE / "settings.yaml").write_text(text)
    return {
        "RFM_CONFIG_PATH": str(ROOT / "site-configs"),
        "RFM_SYSTEM": SITE,
        "IOGAUGE_SITES": str(folder / "sites"),
        "IOGAUGE_HOME": str(folder / "home"),
        "IOGAUGE_ROOT": str(ROOT),
    }


def check_records(history: Path, cases: int) -> None:
    """The newest session must have measured every case: else this times a failure."""
    newest = max(history.rglob("*.jsonl"), key=lambda file: file.stat().st_mtime)
    records = [json.loads(line) for line in newest.read_text().splitlines()]
    odd = [r for r in records if r["verdict"] not in ("UNREFERENCED", "UNSTABLE")]
    if len(records) != cases or odd:
        sys.exit(
            f"harness: {len(records)} records, expected {cases}; {len(odd)} with another verdict than "
            f"UNREFERENCED or UNSTABLE. The first: {[r['reason'] for r in odd[:1]]}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--cases", type=int, default=20, help="cases to run for the CPU time of one"
    )
    parser.add_argument(
        "--tries", type=int, default=3, help="runs of each, of which the best counts"
    )
    options = parser.parse_args()
    cases = options.cases
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

        per_case(folder, environment, cases, options.tries)


def per_case(folder: Path, environment: dict[str, str], cases: int, tries: int) -> None:
    """Print the CPU seconds of a case. A plain test lasts as long as one of ours, so that it is polled as often."""
    print(f"CPU seconds of the harness a case ({cases} cases less 1, serial)")
    found, seconds = {}, 0.0
    for label, part in (("this suite", "ours"), ("plain ReFrame", "plain")):
        path = str(folder / part)
        if part == "plain":
            (folder / part / "trivial.py").write_text(_TRIVIAL.replace("SECONDS", f"{seconds:.1f}"))
        ends = []
        for count in (1, cases):
            options = ["-c", path, f"--repeat={count}", "-r", "--exec-policy=serial"]
            tried = [reframe(folder, options, environment) for _ in range(tries)]
            assert f"/{count} test case(s)" in tried[-1][2], tried[-1][2][-2000:]
            ends.append([min(column) for column in zip(*[one[:2] for one in tried], strict=True)])
        (short, least), (long, most) = ends
        if part == "ours":
            check_records(folder / "home" / "history", cases)
            seconds = (long - short) / (cases - 1)
        found[label] = (most - least) / (cases - 1)
        print(f"  {label:14} {found[label]:.4f} s", flush=True)
    ratio = found["this suite"] / found["plain ReFrame"]
    print(f"  ratio          {ratio:.2f} (goal: 2 at most); a case lasted {seconds:.1f} s")


if __name__ == "__main__":
    main()
