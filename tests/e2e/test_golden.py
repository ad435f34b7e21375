"""The command lines of all cases on made-up sites, word for word.

``reframe --dry-run`` writes the job scripts; they are compared with tests/data/golden/<site>.txt. When a
change is meant, write the files anew and read the difference::

    IOGAUGE_GOLDEN=update python -m pytest tests/e2e/test_golden.py; git diff tests/data/golden
"""

from __future__ import annotations

import copy
import os
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from e2e.rig import ROOT, Rig

GOLDEN = ROOT / "tests" / "data" / "golden"
TOOLS = ("fio", "ior", "ior-mpiio", "mdtest")
#: Checks whose points may meet another scenario, or have a scale of their own.
SWEEPS = ("TaskScaling", "ServerScaling", "RandomRead", "NodeNeedle")
#: Scheduler, launcher, nodes, tasks on each, type of the target.
SITES = {
    "workstation": ("local", "mpirun", 1, 2, "ext4"),
    "cluster-srun": ("squeue", "srun", 4, 8, "lustre"),
    "cluster-mpirun": ("squeue", "mpirun", 4, 8, "lustre"),
}


@dataclass(frozen=True)
class Case:
    """A case's job script and fio job files, without what is this machine's."""

    partition: str
    name: str
    script: str
    inputs: dict[str, str]

    @property
    def check(self) -> str:
        """Name of the check's class."""
        return self.name.split("_")[0]

    @property
    def phases(self) -> list[list[str]]:
        """Words of every phase, its name first."""
        lines = [line.strip() for line in self.script.splitlines()]
        return [shlex.split(line)[1:] for line in lines if line.startswith("iog_phase ")]

    @property
    def text(self) -> str:
        parts = [f"==> {self.partition} {self.name}\n{self.script}"]
        parts += [f"--> {name}\n{text}" for name, text in sorted(self.inputs.items())]
        return "\n".join(part.rstrip() + "\n" for part in parts)

    @property
    def does(self) -> str:
        """What the tool is told to do, without the names of directories and results."""
        words = [word for phase in self.phases for word in phase]
        return " ".join(words) + "".join(self.inputs.values())


def settings(rig: Rig, site: str) -> dict[str, Any]:
    scheduler, launcher, nodes, tasks, fstype = SITES[site]
    data = rig.settings()
    (partition,) = data["systems"][0]["partitions"]
    partition |= {"scheduler": scheduler, "launcher": launcher, "env_vars": [], "time_limit": "1h"}
    if scheduler != "local":
        partition["access"] = ["--partition=compute"]
    partition["extras"] = {
        "target": {"path": "/scratch", "type": fstype},
        "node": {"cores": tasks, "memory": "64 GiB"},
        "scale": {"nodes": nodes, "tasks_per_node": tasks},
        "limits": {
            "case_bytes": "64 GiB",
            "case_files": 320_000,
            "phase_seconds": "30 s",
            "repetitions": 3,
            "tier": "daily",
        },
        "topology": {
            "source": "made up",
            "servers": {"count": 4, "nic": "100 Gbit/s"},
            "targets": 8,
        },
        "sweeps": {
            "tasks_per_node": [1, tasks],
            "servers": [1, 4],
            "stripe_counts": [1, 8],
            "stripe_sizes": ["1 MiB", "4 MiB"],
            "aggregators": [2, 4],
            "tasks_per_client": [tasks],
        },
        "rights": ["lustre-checksums"],
        "baseline": {"partition": "other", "checks": ["TaskScaling"]},
    }
    data["systems"][0]["partitions"].append({**copy.deepcopy(partition), "name": "other"})
    del data["systems"][0]["partitions"][1]["extras"]["baseline"]
    library = {"darshan": "/opt/darshan/lib/libdarshan.so", "mpi": "ompio4"}
    data["environments"][0] |= {"extras": library, "features": [*TOOLS, "ior-hdf5", "ior-ncmpi"]}
    return data


def normalised(text: str, rig: Rig) -> str:
    text = (
        text.replace(str(rig.home), "@HOME@")
        .replace(str(ROOT), "@ROOT@")
        .replace(str(rig.base / "reframe"), "@ROOT@/reframe")
    )
    text = re.sub(r"PYTHONPATH=\S+ \S+ -m iogauge", "PYTHONPATH=@SOURCE@ @PYTHON@ -m iogauge", text)
    return re.sub(r"/iogauge/[^/\s]+/[^/\s]+/(?=[A-Z])", "/iogauge/@USER@/@SESSION@/", text)


@pytest.fixture(scope="module")
def all_cases(make_module_rig: Callable[..., Rig]) -> dict[str, list[Case]]:
    """Cases of all sites, dry-run."""
    found = {}
    for site in SITES:
        rig = make_module_rig(tools=TOOLS)
        rig.write_settings(settings(rig, site))
        run = rig.reframe("-c", "checks/", "--dry-run", "--system=rig:default")
        assert run.rc == 0, run.out
        found[site] = cases_of(rig)
        assert len(found[site]) == len(run.cases), "a case wrote no job script"
    return found


def cases_of(rig: Rig) -> list[Case]:
    """Cases of the rig's last session, from their stage directories."""
    found = []
    for script in sorted(rig.stage.rglob("rfm_job.sh")):
        stage = script.parent
        files = [*stage.glob("*.fio"), *stage.glob("hosts.txt")]
        inputs = {file.name: file.read_text() for file in files}
        partition = stage.parent.parent.name
        found.append(Case(partition, stage.name, normalised(script.read_text(), rig), inputs))
    return found


@pytest.fixture(params=SITES)
def site(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_scripts_are_as_recorded(all_cases: dict[str, list[Case]], site: str) -> None:
    file = GOLDEN / f"{site}.txt"
    text = "\n".join(case.text for case in all_cases[site])
    if os.environ.get("IOGAUGE_GOLDEN") == "update":
        file.write_text(text)
    assert text == file.read_text(), "meant? IOGAUGE_GOLDEN=update writes the file anew"


def test_scripts_of_an_acceptance_are_as_recorded(make_rig: Callable[..., Rig]) -> None:
    """All writes first, in the sizes of the tier: shared and pinned files, on a cluster and on one node."""
    found = []
    for site in ("workstation", "cluster-srun"):
        rig = make_rig(tools=TOOLS)
        data = settings(rig, site)
        data["systems"][0]["partitions"][0]["extras"]["tiers"] = {
            "acceptance": {"case_bytes": "1 TiB", "repetitions": 3, "writes_first": True}
        }
        rig.write_settings(data)
        names = "IorPosix%files=shared%order=sequential|TaskScaling%"
        run = rig.reframe(
            *("-c", "checks/", "--dry-run", "--system=rig:default", "--mode=acceptance"),
            *("-n", names, "-T", "derived"),
        )
        assert run.rc == 0, run.out
        found += cases_of(rig)
    file = GOLDEN / "acceptance.txt"
    text = "\n".join(case.text for case in found)
    if os.environ.get("IOGAUGE_GOLDEN") == "update":
        file.write_text(text)
    assert text == file.read_text(), "meant? IOGAUGE_GOLDEN=update writes the file anew"
    for case in found:
        names = [phase[0] for phase in case.phases]
        assert names.index("read") > max(n for n, name in enumerate(names) if name == "write")
        assert case.script.index("iog_repeat 0 3 iog_write") < case.script.index(
            "iog_repeat 0 3 iog_case"
        )


def test_every_check_is_there(all_cases: dict[str, list[Case]], site: str) -> None:
    """All check files, and all values of all parameters."""
    classes = {
        name
        for file in (ROOT / "checks").glob("*.py")
        for name in re.findall(r"simple_test.*\nclass (\w+)", file.read_text())
    }
    striped = {"ServerScaling", "StripeCount", "StripeSize", "TargetNeedle"}
    striped |= {"ServerScalingCurve", "StripeSpeedup"}
    several = {"NodeNeedle"}
    missing = classes - {case.check for case in all_cases[site]}
    assert missing == (striped | several if site == "workstation" else set())
    assert len(all_cases[site]) >= 30


def test_no_two_scenarios_do_the_same(all_cases: dict[str, list[Case]], site: str) -> None:
    seen: dict[str, str] = {}
    # What is derived does nothing.
    for case in all_cases[site]:
        if case.check in SWEEPS or not case.phases:
            continue
        assert case.does not in seen, f"{case.name} does what {seen[case.does]} does"
        seen[case.does] = case.name


def tool_words(phase: list[str], tool: str) -> list[str]:
    """Arguments of a phase's tool; empty where the phase runs another."""
    return phase[phase.index(tool) + 1 :] if tool in phase else []


def test_writes_end_on_storage(all_cases: dict[str, list[Case]], site: str) -> None:
    writes = 0
    for case in all_cases[site]:
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


def test_reads_meet_no_cache(all_cases: dict[str, list[Case]], site: str) -> None:
    """On one node a buffered read follows an emptied cache; on several the readers are shifted."""
    nodes, reads = SITES[site][2], 0
    for case in all_cases[site]:
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


def test_ior_is_never_verbose(all_cases: dict[str, list[Case]], site: str) -> None:
    for case in all_cases[site]:
        for phase in case.phases:
            assert not any(re.fullmatch("-v+", word) for word in tool_words(phase, "ior"))


def test_scale_reaches_the_scheduler(all_cases: dict[str, list[Case]], site: str) -> None:
    scheduler, launcher, nodes, tasks, _ = SITES[site]
    for case in all_cases[site]:
        if case.check in SWEEPS or not case.phases:
            continue
        mpi = any(tool_words(phase, "ior") or tool_words(phase, "mdtest") for phase in case.phases)
        if mpi and launcher == "mpirun":
            assert f"mpirun -np {nodes * tasks} " in case.script
        if mpi and scheduler == "squeue":
            assert f"#SBATCH --ntasks={nodes * tasks}\n" in case.script
            assert f"#SBATCH --ntasks-per-node={tasks}\n" in case.script
        if not mpi and scheduler == "squeue":
            assert "#SBATCH --ntasks=1\n" in case.script


def test_paths_are_the_sites(all_cases: dict[str, list[Case]], site: str) -> None:
    for case in all_cases[site]:
        assert not case.phases or "IOG_DIR=/scratch/iogauge/@USER@/@SESSION@/" in case.script
        assert str(Path.home()) not in case.text
