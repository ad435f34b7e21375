"""The job scripts of all cases, word for word, and what must hold of them.

:mod:`e2e.dry_runs` says which; the files in tests/data/golden say what, in the form of :mod:`support.golden`. When a
change is meant, write the files anew and read the difference::

    IOGAUGE_GOLDEN=update python -m pytest tests/e2e/test_golden.py; git diff tests/data/golden
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from difflib import unified_diff
from operator import attrgetter
from pathlib import Path

import pytest

from e2e.dry_runs import DRY_RUNS, MADE_UP
from e2e.rig import ROOT
from support.golden import Case, Files, dry_runs, expand, read, write
from support.golden_form import fold

#: Checks whose points may meet another scenario, or have a scale of their own.
SWEEPS = ("TaskScaling", "ServerScaling", "RandomRead", "NodeNeedle", "NetworkCeiling")


_MEANT = "meant? IOGAUGE_GOLDEN=update writes the files anew"
_key = attrgetter("key")


@pytest.fixture(scope="module")
def files(dry_run: Callable[[str], list[Case]]) -> Files:
    """The golden files, written anew if that is asked for."""
    if os.environ.get("IOGAUGE_GOLDEN") == "update":
        write(fold({name: dry_run(name) for name in DRY_RUNS}))
    return read()


@pytest.mark.parametrize("name", DRY_RUNS)
def test_scripts_are_as_recorded(
    dry_run: Callable[[str], list[Case]], files: Files, name: str
) -> None:
    recorded, found = (sorted(cases, key=_key) for cases in (expand(files, name), dry_run(name)))
    assert list(map(_key, found)) == list(map(_key, recorded)), _MEANT
    assert len(set(map(_key, found))) == len(found)
    for old, new in zip(recorded, found, strict=True):
        lines = (case.text.splitlines() for case in (old, new))
        difference = "\n".join(unified_diff(*lines, "recorded", "found", n=0, lineterm=""))
        assert new == old, f"{name}: {new.key}\n{difference}\n{_MEANT}"


def test_every_dry_run_is_recorded(files: Files) -> None:
    assert sorted(dry_runs(files)) == sorted(DRY_RUNS)


@pytest.mark.parametrize("site", ["workstation", "cluster-srun"])
def test_an_acceptance_writes_first(dry_run: Callable[[str], list[Case]], site: str) -> None:
    for case in dry_run(f"acceptance-{site}"):
        names = [phase[0] for phase in case.phases]
        assert names.index("read") > max(n for n, name in enumerate(names) if name == "write")
        assert case.script.index("iog_repeat 0 3 iog_write") < case.script.index(
            "iog_repeat 0 3 iog_case"
        )


@pytest.fixture(params=MADE_UP)
def site(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def cases(dry_run: Callable[[str], list[Case]], site: str) -> list[Case]:
    """Cases of a made-up site."""
    return dry_run(site)


def test_every_check_is_there(cases: list[Case], site: str) -> None:
    """All check files, and all values of all parameters."""
    classes = {
        name
        for file in (ROOT / "checks").glob("*.py")
        for name in re.findall(r"simple_test.*\nclass (\w+)", file.read_text())
    }
    striped = {"ServerScaling", "StripeCount", "StripeSize", "TargetNeedle", "MdtNeedle"}
    striped |= {"StripeHints", "ServerScalingCurve", "StripeSpeedup", "MdtestOnMdts", "MdtestDom"}
    several = {
        "NodeNeedle",
        "NetworkCeiling",
        "Io500",
        "Io500Short",
        "MdLatency",
        "InterferenceApart",
    }
    # Their sites are published ones, whose scripts are kept as well (commands/site-*.txt).
    classes -= {"BoxScaling", "BoxScalingCurve", "DefaultWriters", "SizeScaling"}
    # Of a sweep that has one point here: e2e/test_queue_depth.py computes it.
    classes -= {"ReadScalingCurve"}
    missing = classes - {case.check for case in cases}
    assert missing == (striped | several if site == "workstation" else set())
    assert len(cases) >= 30


def test_no_two_scenarios_do_the_same(cases: list[Case]) -> None:
    seen: dict[str, str] = {}
    # What is derived does nothing.
    for case in cases:
        if case.check in SWEEPS or not case.phases:
            continue
        assert case.does not in seen, f"{case.name} does what {seen[case.does]} does"
        seen[case.does] = case.name


def tool_words(phase: list[str], tool: str) -> list[str]:
    """Arguments of a phase's tool; empty where the phase runs another."""
    return phase[phase.index(tool) + 1 :] if tool in phase else []


def test_writes_end_on_storage(cases: list[Case]) -> None:
    writes = 0
    for case in cases:
        for phase in case.phases:
            words = tool_words(phase, "ior")
            if "-w" in words:
                writes += 1
                assert "-e" in words, case.name
            words = tool_words(phase, "mdtest")
            if "-C" in words:
                writes += 1
                assert "-Y" in words, case.name
        for name, text in case.inputs.items():
            if re.search(r"^rw=(rand)?write$", text, re.MULTILINE) and "ioengine=file" not in text:
                writes += 1
                assert "end_fsync=1" in text, f"{case.name}: {name}"
    assert writes >= 12


def test_reads_meet_no_cache(cases: list[Case], site: str) -> None:
    """On one node a buffered read follows an emptied cache; on several the readers are shifted."""
    nodes, reads = MADE_UP[site][2], 0
    for case in cases:
        names = [phase[0] for phase in case.phases]
        for at, phase in enumerate(case.phases):
            ior, mdtest = tool_words(phase, "ior"), tool_words(phase, "mdtest")
            if not ("-r" in ior or "-E" in mdtest) or "--posix.odirect" in ior:
                continue
            reads += 1
            evicted = names[at - 1] == f"evict-{phase[0]}"
            if nodes == 1:
                assert evicted, case.name
            elif mdtest:
                assert mdtest[mdtest.index("-N") + 1] == "1"
            else:
                # IOR refuses to shift readers of a shuffled shared file: there the cache is emptied.
                shifted = "-C" in ior and ior[ior.index("-Q") + 1] == "1"
                shuffled = "-z" in ior and "-F" not in ior
                assert evicted if shuffled else shifted, case.name
        for name, text in case.inputs.items():
            if "rw=randread" in text:
                reads += 1
                assert "direct=1" in text, f"{case.name}: {name}"
    assert reads >= 8


def test_ior_is_never_verbose(cases: list[Case]) -> None:
    for case in cases:
        for phase in case.phases:
            assert not any(re.fullmatch("-v+", word) for word in tool_words(phase, "ior"))


def test_scale_reaches_the_scheduler(cases: list[Case], site: str) -> None:
    scheduler, launcher, nodes, tasks, _ = MADE_UP[site]
    for case in cases:
        if case.check in SWEEPS or not case.phases:
            continue
        tools = ("ior", "io500", "md-workbench", "mdtest")
        mpi = any(tool_words(phase, tool) for phase in case.phases for tool in tools)
        if mpi and launcher == "mpirun":
            assert f"mpirun -np {nodes * tasks} " in case.script
        if mpi and scheduler == "squeue":
            assert f"#SBATCH --ntasks={nodes * tasks}\n" in case.script
            assert f"#SBATCH --ntasks-per-node={tasks}\n" in case.script
        if not mpi and scheduler == "squeue":
            servers = "iog_servers " in case.script
            assert f"#SBATCH --ntasks={nodes if servers else 1}\n" in case.script


def test_paths_are_the_sites(cases: list[Case]) -> None:
    for case in cases:
        assert not case.phases or "IOG_DIR=/scratch/iogauge/@USER@/@SESSION@/" in case.script
        assert str(Path.home()) not in case.text
