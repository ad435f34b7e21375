"""CPU seconds of one start of the agent, for each command that a plain case starts.

    python benchmarks/agent.py [--starts 15]

Each command runs in a directory of its own on this machine, its children included. Python's own start, with no program,
is the least that a command can take. docs/design.md has the figures; tests/e2e/test_agent_starts.py counts the starts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "reframe" / "src")]

from iogauge.node.mounts import find_mount  # noqa: E402
from iogauge.workspace.directory import session_dir  # noqa: E402
from support.orders import job_order  # noqa: E402


def cpu_s(words: list[str]) -> float:
    """Return the CPU seconds of a Python that runs some words; stop with its message if it fails."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "reframe" / "src")}
    silent = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    child = os.posix_spawn(
        sys.executable, [sys.executable, *words], environment, file_actions=silent
    )
    _, status, used = os.wait4(child, 0)
    if status:
        raise SystemExit(f"agent: {' '.join(words)}: status {os.waitstatus_to_exitcode(status)}")
    return used.ru_utime + used.ru_stime


def one_case(folder: Path) -> dict[str, float]:
    """Return the CPU seconds of each command of a case, by name."""
    target = folder / "target"
    target.mkdir()
    mount = find_mount(str(target))
    assert mount is not None
    order = job_order(str(target), type=mount.type, source=mount.source)
    os.chdir(folder)
    Path("case.json").write_text(json.dumps(order.to_json()))
    directory = f"{session_dir(str(target), 'session')}/case"
    start = ["-m", "iogauge.job.agent"]
    found = {"(Python alone)": cpu_s(["-c", ""])}
    for name, words in (
        ("open", ["case.json"]),
        ("facts", [directory, "facts.json"]),
        ("view", [str(target), "view.json"]),
        ("evict", [directory, "evict.json"]),
        ("empty", [directory]),
        ("remove", [directory, "60"]),
    ):
        found[name] = cpu_s([*start, name, *words])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--starts", type=int, default=15, help="starts of each command")
    starts = parser.parse_args().starts
    found: dict[str, list[float]] = {}
    for _ in range(starts):
        with tempfile.TemporaryDirectory(prefix="iogauge-agent-") as folder:
            for name, seconds in one_case(Path(folder)).items():
                found.setdefault(name, []).append(seconds)
            os.chdir(ROOT)
    print("| command | CPU seconds |\n|---|---|")
    for name, times in found.items():
        print(f"| `{name}` | {statistics.median(times):.3f} |")


if __name__ == "__main__":
    main()
