"""What it costs to read and judge what a job on very many nodes left: CPU seconds and memory of a new process.

    python benchmarks/scale.py

Every node has a witness for its tasks, and counters of the storage targets, if there are any, before and after each execution.
Exit status 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PATHS = [str(ROOT / "tests"), str(ROOT / "reframe" / "src")]
sys.path[:0] = PATHS

from support import scale  # noqa: E402

#: Nodes, tasks of a node, storage targets; CPU seconds and MiB that reading and judging may take.
SHAPES = ((1000, 64, 100, 4, 200), (4000, 16, 0, 10, 300), (1000, 64, 1000, 30, 1024))

_JUDGE = """
import sys
from pathlib import Path
from iogauge.evidence import collect
from iogauge.judge import decide
from iogauge.site.extras import PartitionExtras
from support import stage as healthy
nodes, tasks = map(int, sys.argv[2:])
plan = healthy.plan(nodes, tasks=nodes * tasks)
found = collect.collect(Path(sys.argv[1]), plan, 0)
assert len(found.views) == len(found.nodes) == nodes
limits = {"case_bytes": "1 TiB", "case_files": 10**6, "phase_seconds": "1 s", "tier": "quick"}
extras = PartitionExtras.model_validate({
    "target": {"path": "/s", "type": "ext4"}, "node": {"cores": 64, "memory": "512 GiB"},
    "scale": {"nodes": nodes, "tasks_per_node": tasks}, "limits": limits})
assert decide.judge(plan, found, healthy.METRICS, {}, extras, "quick").findings
"""


def cost(nodes: int, tasks: int, osts: int) -> tuple[float, float]:
    """CPU seconds and MiB of a process that reads and judges such a job, its start and imports included."""
    with tempfile.TemporaryDirectory(prefix="iogauge-scale-") as name:
        scale.build(Path(name), nodes, tasks, osts)
        words = [sys.executable, "-c", _JUDGE, name, str(nodes), str(tasks)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(PATHS)}
        process = subprocess.Popen(words, env=environment)
        _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"scale: {nodes} nodes were not judged")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 2**10


def main() -> int:
    """Measure each shape and print it."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.parse_args()
    missed = False
    for nodes, tasks, osts, seconds, memory in SHAPES:
        used, size = cost(nodes, tasks, osts)
        kept = used <= seconds and size <= memory
        missed |= not kept
        end = "" if kept else ": MISSED"
        print(
            f"{nodes} nodes, {tasks} tasks each, {osts} storage targets: {used:.2f} s of {seconds} s, "
            f"{size:.0f} MiB of {memory} MiB{end}",
            flush=True,
        )
    return missed


if __name__ == "__main__":
    sys.exit(main())
