"""A plan becomes the lines of a job script, and its cost is added up."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iogauge.measurement import ToolOutput
from iogauge.plan import (
    DIR,
    REP,
    Access,
    CasePlan,
    PhasePlan,
    Printed,
    job_functions,
    per_node_launcher,
    shell_command,
    shell_word,
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
TEXT = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=8)
WORDS = st.lists(SNIPPETS | TEXT, max_size=6).map("".join)


def expanded(word: str) -> str:
    return word.replace(DIR, VALUES["IOG_DIR"]).replace(REP, VALUES["IOG_REP"])


def bash(script: str) -> bytes:
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


@settings(max_examples=40, deadline=None)
@given(st.lists(WORDS, min_size=1, max_size=20))
def test_only_our_two_variables_expand_in_a_word(words: list[str]) -> None:
    script = f"printf '%s\\0' {shell_command(words)}"
    wanted = [expanded(word).encode() for word in words]
    assert bash(script).split(b"\0")[:-1] == wanted


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("ior", "ior"),
        ("-o", "-o"),
        ("", "''"),
        ("a b", "'a b'"),
        (f"{DIR}/data", '"$IOG_DIR/data"'),
        (f"out.{REP}.json", '"out.$IOG_REP.json"'),
        (f"{DIR}ectory", '"${IOG_DIR}ectory"'),
        (f"{REP}0", '"${IOG_REP}0"'),
        ("$HOME", "'$HOME'"),
        (f"{DIR}/$HOME`id`", '"$IOG_DIR/\\$HOME\\`id\\`"'),
    ],
)
def test_a_word(word: str, text: str) -> None:
    assert shell_word(word) == text
    assert bash(f"printf %s {text}") == expanded(word).encode()


@pytest.mark.parametrize(
    ("launcher", "nodes", "words"),
    [
        ("local", 1, ""),
        ("srun", 1, ""),
        ("mpirun", 1, ""),
        ("srun", 4, "srun --nodes=4 --ntasks=4 --ntasks-per-node=1"),
        ("mpirun", 4, "mpirun -np 4 --map-by ppr:1:node"),
        ("mpirun-openmpi", 4, "mpirun -np 4 --map-by ppr:1:node"),
        ("mpiexec", 4, "mpiexec -n 4 -ppn 1"),
        ("mpirun-intelmpi", 4, "mpirun -n 4 -ppn 1"),
        ("alps", 1, "aprun -n 1 -N 1"),
        ("alps", 4, "aprun -n 4 -N 1"),
    ],
)
def test_one_process_a_node(launcher: str, nodes: int, words: str) -> None:
    assert " ".join(per_node_launcher(launcher, nodes)) == words


@pytest.mark.parametrize("launcher", ["local", "ssh", "ibrun"])
def test_a_launcher_of_unknown_dialect_is_refused_on_several_nodes(launcher: str) -> None:
    with pytest.raises(
        ValueError, match=f"'{launcher}' cannot start one process a node on 2 nodes"
    ):
        per_node_launcher(launcher, 2)


def no_parser(printed: Printed) -> ToolOutput:
    raise AssertionError(printed)


def phase(
    name: str,
    direction: Literal["read", "write", "metadata"] = "write",
    launch: Literal["tasks", "once"] = "tasks",
    evict: bool = False,
    data: int | None = 100,
) -> PhasePlan:
    return PhasePlan(
        name=name,
        command=["tool", f"{DIR}/{name}"],
        launch=launch,
        parse=no_parser,
        rates={},
        access=Access(direction=direction, evict=evict),
        data_bytes=data,
    )


WRITE, READ = phase("write"), phase("read", "read", evict=True)


def case(**change: Any) -> CasePlan:
    plan = CasePlan(
        tool="ior", repetitions=3, tasks=2, nodes=1, repeat=[WRITE, READ], held_bytes=100, files=2
    )
    return dataclasses.replace(plan, **change)


def test_a_case_of_one_node() -> None:
    assert job_functions(case(), "mpirun -np 2", ["agent", "x y"], "/account.sh", "mpirun") == [
        "iog_case() {",
        "    iog_reset",
        '    iog_phase write mpirun -np 2 tool "$IOG_DIR/write"',
        '    iog_phase evict-read agent \'x y\' evict "$IOG_DIR" "evict-read.$IOG_REP"',
        '    iog_phase read mpirun -np 2 sh /account.sh "fetched-read.$IOG_REP" tool "$IOG_DIR/read"',
        "}",
    ]


def test_a_case_of_two_nodes_looks_at_the_target_from_each() -> None:
    each = "srun --nodes=2 --ntasks=2 --ntasks-per-node=1 agent"
    assert job_functions(case(nodes=2), "srun", ["agent"], "/account.sh", "srun") == [
        "iog_prepare() {",
        f'    iog_phase view {each} view "$IOG_DIR" view',
        "}",
        "iog_case() {",
        "    iog_reset",
        '    iog_phase write srun tool "$IOG_DIR/write"',
        f'    iog_phase evict-read {each} evict "$IOG_DIR" "evict-read.$IOG_REP"',
        '    iog_phase read srun sh /account.sh "fetched-read.$IOG_REP" tool "$IOG_DIR/read"',
        "}",
    ]


def test_what_was_prepared_is_not_emptied_between_repetitions() -> None:
    plan = case(prepare=[phase("layout", launch="once")], repeat=[READ])
    assert job_functions(plan, "run", ["agent"], "/account.sh", "local") == [
        "iog_prepare() {",
        '    iog_phase layout tool "$IOG_DIR/layout"',
        "}",
        "iog_case() {",
        '    iog_phase evict-read agent evict "$IOG_DIR" "evict-read.$IOG_REP"',
        '    iog_phase read run sh /account.sh "fetched-read.$IOG_REP" tool "$IOG_DIR/read"',
        "}",
    ]


@pytest.mark.parametrize(
    ("change", "written", "read", "seconds"),
    [
        ({}, 400, 400, 8),
        ({"warm_up": False}, 300, 300, 6),
        ({"prepare": [WRITE], "repeat": [READ], "warm_up": False}, 100, 300, 4),
        ({"repeat": [phase("timed", "read", data=None)]}, 0, 0, 40),
        ({"repeat": [phase("meta", "metadata", data=None)] * 2, "repetitions": 1}, 0, 0, 40),
    ],
)
def test_footprint(change: dict[str, Any], written: int, read: int, seconds: float) -> None:
    cost = case(nodes=2, **change).footprint(assumed_bytes_s=100, phase_seconds=10)
    assert (cost.written_bytes, cost.read_bytes, cost.seconds) == (written, read, seconds)
    assert cost.node_minutes == pytest.approx(2 * seconds / 60)
    assert (cost.held_bytes, cost.files) == (100, 2)
