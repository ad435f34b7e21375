"""What allocations of many nodes cost the suite: parsing, evidence, records, and starting fio's servers.

    python benchmarks/scale.py [--nodes 1000]

Simulated on one machine: recorded output of IOR, mdtest and fio multiplied, answers of the agent written for
nodes that are not there, and a listening socket for each server. CPU seconds of one process.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / "tests"), str(ROOT / "reframe" / "src")]

from iogauge.evidence import (  # noqa: E402
    collect,
    fingerprint,
)
from iogauge.tools.fio.output import parse_json  # noqa: E402
from iogauge.tools.ior import output  # noqa: E402
from iogauge.tools.mdtest import parse_rank_csv  # noqa: E402
from support import scale  # noqa: E402
from support import stage as healthy  # noqa: E402

_AWAIT = """
. {library}/job.sh; . {library}/servers.sh
IOG_LAUNCHER=$$
iog_servers_await fio {nodes} 60
"""


def cpu(work: Callable[[], object]) -> float:
    """CPU seconds of the fastest of three runs."""
    found = []
    for _ in range(3):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def parsing() -> None:
    """Rows of ranks, and clients of fio."""
    print("| rows | IOR, by rank | mdtest, by rank |\n|---|---|---|")
    for ranks in (1_000, 10_000, 64_000):
        one, two = scale.ior_ranks(ranks), scale.mdtest_ranks(ranks)
        times = (
            cpu(lambda o=one: output.rank_times_csv(o)),
            cpu(lambda t=two: parse_rank_csv(t)),
        )
        print(f"| {ranks:,} | {times[0]:.3f} s | {times[1]:.3f} s |")
    print("\n| clients | fio's JSON | |\n|---|---|---|")
    for number in (10, 100, 1_000):
        text = scale.fio_clients(number)
        print(f"| {number:,} | {cpu(lambda t=text: parse_json(t)):.3f} s | {len(text) >> 10} KiB |")


def answers(nodes: int) -> None:
    """All that a job of two repetitions leaves, read as after a job."""
    print(
        f"\n| nodes, {scale.TASKS} tasks each | files | read | fingerprint in the record |\n|---|---|---|---|"
    )
    for number in (nodes // 100, nodes // 10, nodes):
        with tempfile.TemporaryDirectory() as folder:
            stage = scale.build(Path(folder), number)
            plan = healthy.plan(number, tasks=number * scale.TASKS)
            took = cpu(lambda s=stage, p=plan: collect.collect(s, p, 0))
            merged = fingerprint.merge(collect.collect(stage, plan, 0).nodes)
            size = len(json.dumps(merged))
            print(f"| {number:,} | {len(os.listdir(stage)):,} | {took:.2f} s | {size:,} bytes |")


def servers(nodes: int) -> None:
    """Wait until every server answers; all are sockets of this machine."""
    with tempfile.TemporaryDirectory() as folder:
        sockets = []
        for number in range(nodes):
            address = f"127.9.{number // 250}.{number % 250 + 1}"
            sockets.append(socket.create_server((address, 0), backlog=4))
            port = sockets[-1].getsockname()[1]
            Path(folder, f"server.n{number}").write_text(f"n{number} {address},{port} 1\n")
        Path(folder, "servers.err").touch()
        script = _AWAIT.format(library=ROOT / "reframe/src/iogauge/job", nodes=nodes)
        start = time.perf_counter()
        subprocess.run(["bash", "-c", script], cwd=folder, check=True)
        print(
            f"\n{nodes:,} servers answered within {time.perf_counter() - start:.1f} s (wall-clock)"
        )


def main() -> None:
    """Print all tables."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--nodes", type=int, default=1000)
    nodes = arguments.parse_args().nodes
    parsing()
    answers(nodes)
    servers(nodes)


if __name__ == "__main__":
    main()
