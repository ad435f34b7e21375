"""A plan becomes the lines of a job script, and its cost is added up."""

import dataclasses
import os
import subprocess
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iogauge.evidence import collect
from iogauge.node.lustre.request import Layout
from iogauge.plan.case import DIR, REP, Access, CasePlan, PhasePlan
from iogauge.plan.observations import NodeObservations
from iogauge.plan.script import (
    Launch,
    host_options,
    job_functions,
    job_options,
    per_node_launcher,
    placing_options,
    shell_command,
)

VALUES = {"IOG_DIR": "/t/a b'\"$x`*", "IOG_REP": "3"}
SNIPPETS = st.sampled_from(
    [
        DIR,
        REP,
        "$HOME",
        "$IOG_DIRECTORY",
        "${IOG_DIR}",
        "`id`",
        "$(id)",
        "\\",
        '"',
        "'",
        "!",
        "~",
        "*",
        "\n",
        " ",
    ]
)
# A NUL cannot be in an argument, a lone surrogate not in a file.
TEXT = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=8
)
WORDS = st.lists(SNIPPETS | TEXT, max_size=6).map("".join)


def expanded(word):
    return word.replace(DIR, VALUES["IOG_DIR"]).replace(REP, VALUES["IOG_REP"])


def bash(script):
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/nowhere",
        "IOG_DIRECTORY": "wrong",
        **VALUES,
    }
    done = subprocess.run(
        ["bash", "-c", script],
        env=environment,
        capture_output=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.stderr == b""
    return done.stdout


@given(st.lists(WORDS, min_size=1, max_size=20))
def test_only_our_two_variables_expand_in_a_word(words):
    script = f"printf '%s\\0' {shell_command(words)}"
    wanted = [expanded(word).encode() for word in words]
    assert bash(script).split(b"\0")[:-1] == wanted


@pytest.mark.parametrize(
    "launcher, nodes, words",
    [
        ("local", 1, ""),
        ("srun", 1, ""),
        ("srun", 4, "srun --nodes=4 --ntasks=4 --ntasks-per-node=1 --cpu-bind=none"),
        ("mpirun-openmpi", 4, "mpirun -np 4 --map-by ppr:1:node --bind-to none"),
        ("mpirun-intelmpi", 4, "mpirun -n 4 -ppn 1"),
    ],
)
def test_one_process_a_node(launcher, nodes, words):
    assert " ".join(per_node_launcher(launcher, nodes)) == words


@pytest.mark.parametrize("launcher", ["local", "ssh", "ibrun", "alps"])
def test_a_launcher_of_unknown_dialect_is_refused_on_several_nodes(launcher):
    with pytest.raises(
        ValueError, match=f"'{launcher}' cannot start one process a node on 2 nodes"
    ):
        per_node_launcher(launcher, 2)


def no_parser(printed):
    raise AssertionError(printed)


def phase(name, direction="write", evict=False, data=100, **change):
    plan = PhasePlan(
        name=name,
        command=["tool", f"{DIR}/{name}"],
        launch="tasks",
        parse=no_parser,
        rates={name: (name, "bw")},
        access=Access(direction=direction, evict=evict),
        data_bytes=data,
    )
    return dataclasses.replace(plan, **change)


WRITE, READ = phase("write"), phase("read", "read", evict=True)


def case(**change):
    plan = CasePlan(
        tool="ior",
        repetitions=3,
        tasks=2,
        nodes=1,
        repeat=[WRITE, READ],
        held_bytes=100,
        files=2,
    )
    return dataclasses.replace(plan, **change)


def launch(run_tasks, launcher):
    each = per_node_launcher(launcher, 1)
    return Launch(
        run_tasks=run_tasks, each_node=each, agent=("agent",), witness="/witness.sh"
    )


@pytest.mark.parametrize(
    "change, written, read, seconds",
    [
        # Two seconds for the case and four for what it starts on all nodes, a second for each start of a phase, a
        # second for each 100 bytes.
        ({}, 400, 400, 6 + 4 * 2 + 8),
        ({"warm_up": False}, 300, 300, 6 + 3 * 2 + 6),
        (
            {"prepare": [WRITE], "repeat": [READ], "warm_up": False},
            100,
            300,
            6 + 1 + 3 + 4,
        ),
        ({"repeat": [phase("timed", "read", data=None)]}, 0, 0, 6 + 4 + 40),
        (
            {"repeat": [phase("meta", "metadata", data=None)] * 2, "repetitions": 1},
            0,
            0,
            6 + 4 + 40,
        ),
        # One execution that reads, too, and does each twice.
        (
            {
                "repeat": [
                    phase("write", samples=2),
                    phase("read", "read", samples=2, within="write"),
                ],
                "repetitions": 1,
                "warm_up": False,
            },
            200,
            200,
            6 + 1 + 4,
        ),
    ],
)
def test_footprint(change, written, read, seconds):
    cost = case(nodes=2, **change).footprint(lambda phase: 100.0, phase_seconds=10)
    assert (cost.written_bytes, cost.read_bytes, cost.seconds) == (
        written,
        read,
        seconds,
    )
    assert cost.node_minutes == pytest.approx(2 * seconds / 60)


# --- hosts, servers, layouts ----------------------------------------------------------------------


def test_hosts_of_a_site_without_a_scheduler_stand_in_a_file():
    assert per_node_launcher("mpirun", 2, ["a", "b"]) == [
        "mpirun",
        "-np",
        "2",
        "--hostfile",
        "hosts.txt",
        "--map-by",
        "ppr:1:node",
        "--bind-to",
        "none",
    ]
    with pytest.raises(ValueError, match="'srun' with extras"):
        host_options("srun", ["a"])
    assert host_options("srun", []) == []


@pytest.mark.parametrize(
    "launcher, cyclic, words",
    [
        ("srun", False, ["--distribution=block"]),
        ("srun", True, ["--distribution=cyclic"]),
        ("mpirun", False, ["--map-by", "ppr:8:node"]),
        ("mpirun-openmpi", True, ["--map-by", "node"]),
        ("local", True, []),
    ],
)
def test_placing_speaks_the_launchers_dialect(launcher, cyclic, words):
    assert placing_options(launcher, 8, cyclic) == words


@pytest.mark.parametrize(
    "given, left",
    [
        (["--signal=B:TERM@300"], ["--no-requeue"]),
        (["--signal B:TERM@300"], ["--no-requeue"]),
        (["--requeue"], ["--signal=B:USR1@30"]),
        (["--no-requeue", " --signal=USR2"], []),
        (["-p signal", "--comment=--signal"], ["--signal=B:USR1@30", "--no-requeue"]),
    ],
)
def test_what_the_site_asks_for_is_left_to_it(given, left):
    assert job_options("slurm", 1, 3600, given) == left


def test_no_layouts_are_demanded_of_a_case_that_leaves_no_files():
    empty = PhasePlan(
        name="create", command=["mdtest"], access=Access(direction="metadata")
    )
    for phase, left in (
        (empty, 0),
        (dataclasses.replace(empty, lays_out=True), 3),
        (WRITE, 3),
    ):
        plan = case(repeat=[phase], layout=Layout(stripe_count=1))
        script = "\n".join(
            job_functions(plan, launch("run", "local"), notes_layouts=True)
        )
        assert "iog_phase setstripe lfs setstripe -c 1" in script
        # What the judge demands is what the job notes.
        assert ("iog_layouts" in script) == bool(left)
        job = SimpleNamespace(plan=plan, noted=NodeObservations())
        assert len(collect._striping(job)) == left
