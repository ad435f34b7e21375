"""A thousand nodes of 64 tasks (a quarter of them by default): what is written stays small, and all of it is read."""

import json

import pytest

from iogauge.evidence import collect, fingerprint
from iogauge.judge import decide
from iogauge.plan.script import Launch, job_functions, per_node_launcher
from support import scale
from support import stage as healthy
from support.depth import FULL
from support.extras import extras

NODES = 1000 if FULL else 250

SITE = extras(
    node={"cores": 64, "memory": "512 GiB"},
    scale={"nodes": NODES, "tasks_per_node": scale.TASKS},
    limits={"case_bytes": "1 TiB", "case_files": 10**6},
)


@pytest.mark.parametrize("launcher", ["srun", "mpirun"])
def test_a_job_script_does_not_grow_with_the_nodes(launcher):
    def script(nodes):
        hosts = (
            [f"node{number:04d}" for number in range(nodes)]
            if launcher == "mpirun"
            else []
        )
        launch = Launch(
            run_tasks=launcher,
            each_node=per_node_launcher(launcher, nodes, hosts),
            agent=["agent"],
            witness="witness.sh",
        )
        return "\n".join(job_functions(healthy.plan(nodes), launch))

    assert len(script(NODES)) <= len(script(4)) + 200


def test_a_record_of_a_thousand_nodes_is_small(tmp_path):
    plan = healthy.plan(NODES, tasks=NODES * scale.TASKS)
    stage = scale.build(tmp_path, NODES, osts=100)
    found = collect.collect(stage, plan, 0)
    assert (len(found.views), len(found.nodes), len(found.idle)) == (
        NODES,
        NODES,
        NODES,
    )
    assert len(found.outputs["write"][0].phases[0].rank_seconds) == NODES * scale.TASKS
    judged = decide.judge(plan, found, healthy.METRICS, {}, SITE, "quick")
    counts = found.task_counters["write"][0]
    first, others = (line for line in counts.witnesses if line.host == "n1")
    assert (first.tasks, others.tasks) == (1, scale.TASKS - 1)
    assert others.asked.written == others.tasks * healthy.WRITTEN
    assert first.counters["scratch-OST0063"] == (1 << 20, 1 << 21, 0)
    prints = fingerprint.merge([*found.nodes.values()])
    prints |= fingerprint.of_case(
        hosts=[v.host for v in found.views], tools=[], commands=[]
    )
    assert prints["nodes"] == f"n[1-{NODES}]"
    assert prints["nic.eth0.firmware"] == "1.0 | 1.1 | 1.2"
    assert str(prints["mem.bytes"]).count(" | ") == 8
    assert f" | and {NODES - 8} more (" in str(prints["mem.bytes"])
    told = [str(finding) for finding in judged.findings] + [
        m.reason for m in judged.metrics
    ]
    assert len(json.dumps([prints, told, judged.reason])) < 20_000


def test_the_values_of_a_few_nodes_are_all_kept():
    few = [{"x": number} for number in range(8)]
    assert fingerprint.merge(few) == {"x": "0 | 1 | 2 | 3 | 4 | 5 | 6 | 7"}
    # Whatever their order, and another digest where another node differs.
    many = [{"x": number} for number in range(20)]
    assert fingerprint.merge(many) == fingerprint.merge(many[::-1])
    assert fingerprint.merge(many) != fingerprint.merge([*many[:-1], {"x": 99}])
