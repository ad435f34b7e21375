"""What a job on very many nodes leaves, made of recorded output: rows of ranks, clients, answers of nodes."""

import json

from iogauge.node import activity, inventory
from iogauge.plan.stage import FACTS
from support import stage as healthy
from support.stage import SAMPLES

#: Tasks on each node.
TASKS = 64


def ior_ranks(ranks):
    """Times of so many ranks, as IOR writes them."""
    header, row, *_ = (SAMPLES / "ior_stone.ranks.csv").read_text().splitlines()
    operation, _, rest = row.split(",", 2)
    return "".join(
        [f"{header}\n", *(f"{operation},{rank},{rest}\n" for rank in range(ranks))]
    )


def _task_lines(tasks):
    """What the agent of a node notes of the tasks of each writing execution, as witness.sh tells it."""
    lines = []
    for repetition in range(healthy.REPETITIONS + 1):
        began = 3 * repetition + 3
        for number in range(tasks):
            asked = f"1048576 {healthy.WRITTEN} 300 {healthy.WRITTEN >> 18}"
            lines.append(
                f"write.{repetition} {number} {began}.51 {began + 1}.49 - {asked} 0 {healthy.WRITTEN} 0 end\n"
            )
    return "".join(lines)


def _counter_lines(node, osts):
    """What the agent of a node notes of its counters before and after each of these executions."""
    lines = []
    names = [f"scratch-OST{index:04x}" for index in range(osts)]
    for repetition in range(healthy.REPETITIONS + 1):
        began = 3 * repetition + 3
        for when, at in (("before", 0.5), ("after", 1.5)):
            moved = node * 4096 + (began + (when == "after")) * (1 << 20)
            counts = {"8:16": [moved, moved, 77]}
            counts["net"] = [moved, moved, None]
            counts |= {name: [moved, 2 * moved, 256] for name in names}
            value = [f"write.{repetition}", when, counts]
            lines.append(json.dumps([began + at, "counters", value]) + "\n")
    return "".join(lines)


def build(stage, nodes, tasks=TASKS, osts=0):
    """Stage directory of a healthy job on so many nodes, every one of which is a bit different.

    Each has ``tasks`` tasks, and counts what it moves with each of ``osts`` storage targets.
    """
    per_node, tasks = tasks, nodes * tasks
    healthy.build(stage, nodes)
    sizes = {
        '"nodes": 1,': f'"nodes": {nodes},',
        '"tasksPerNode": 2,': f'"tasksPerNode": {per_node},',
        '"tasks": 2,': f'"tasks": {tasks},',
        '"clients per node": 2,': f'"clients per node": {per_node},',
        '"numTasks": 2,': f'"numTasks": {tasks},',
    }
    for rep in range(healthy.REPETITIONS + 1):
        file = stage / f"ior.{rep}.json"
        text = file.read_text()
        for old, new in sizes.items():
            text = text.replace(old, new)
        file.write_text(text)
        (stage / f"ior.{rep}.csv").write_text(ior_ranks(tasks))
    seen, prints = activity.look(str(stage)).to_json(), inventory.collect(str(stage))
    with open(stage / "phases.tsv", "a") as phases:
        phases.writelines(f"0\t{out}\t0\t0.5\t0.6\tt\n" for out in FACTS)
    lines = _task_lines(per_node)
    for number in range(1, nodes + 1):
        # Memory and routing differ from node to node, firmware on some.
        own = prints | {
            "mem.bytes": 2**39 - 4096 * number,
            "nic.eth0.firmware": f"1.{number % 3}",
        }
        answer = {
            "load": seen | {"host": f"n{number}"},
            "fingerprint": own,
        }
        answer["versions"] = {}
        own_file = stage / f"seen.n{number}.jsonl"
        kept = [
            line
            for line in own_file.read_text().splitlines(keepends=True)
            if '"counters", ["write.' not in line
        ]
        with open(own_file, "w") as file:
            file.writelines(kept)
            file.writelines(json.dumps([0.5, out, answer]) + "\n" for out in FACTS)
            file.write(_counter_lines(number, osts))
        (stage / f"tasks.n{number}").write_text(lines)
    with open(stage / "tasks.n1", "a") as file:
        for repetition in range(healthy.REPETITIONS + 1):
            file.write(healthy.task_line(f"read.{repetition}", 0, healthy.READ, 0))
    return stage
