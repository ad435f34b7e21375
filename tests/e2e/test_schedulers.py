"""Job scripts for schedulers that are not on this machine, word for word: PBS and Flux.

``IOGAUGE_GOLDEN=update`` writes tests/data/golden/schedulers.txt anew, as for the other golden scripts.
Of Flux there is a stand-in for its Python bindings, without which ReFrame does not load its backend.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from e2e.rig import ROOT, Rig, Run
from e2e.test_golden import GOLDEN, TOOLS, Case, cases_of

CASES = "^(IorPosix%files=per-process%order=sequential%cache=direct|MdtestEasy|RandomRead%.*4KiB%span=all)"
FLUX = str(ROOT / "tests" / "support" / "flux")
#: Scheduler, launcher, nodes.
SCHEDULERS = {
    "pbspro": ("pbspro", "mpiexec", 4),
    "pbs-openmpi": ("pbs", "mpirun", 4),
    "flux": ("flux", "mpirun", 1),
}


def dry_run(rig: Rig, scheduler: str, launcher: str, nodes: int, **partition: Any) -> Run:
    data = rig.settings()
    (settings,) = data["systems"][0]["partitions"]
    settings |= {"scheduler": scheduler, "launcher": launcher, "env_vars": [], "time_limit": "1h"}
    settings |= partition
    settings["extras"] |= {
        "target": {"path": "/scratch", "type": "lustre", "striping": "none"},
        "node": {"cores": 8, "memory": "64 GiB"},
        "scale": {"nodes": nodes, "tasks_per_node": 8},
        "sweeps": {"tasks_per_client": [8]},
    }
    settings["extras"]["limits"] |= {"case_bytes": "64 GiB", "case_files": 320_000}
    rig.write_settings(data)
    path = os.pathsep.join([FLUX, str(ROOT / "reframe" / "src")])
    words = ("-c", "checks/", "--dry-run", "-n", CASES)
    return rig.reframe(*words, PYTHONPATH=path, FLUX_ASKED=str(rig.base / "asked"))


def test_scripts_are_as_recorded(make_rig: Callable[..., Rig]) -> None:
    parts = []
    for name, (scheduler, launcher, nodes) in SCHEDULERS.items():
        rig = make_rig(tools=TOOLS)
        access = ["-q storage", "-l place=scatter:excl"] if scheduler.startswith("pbs") else []
        run = dry_run(rig, scheduler, launcher, nodes, access=access)
        assert run.rc == 0, run.out
        found: list[Case] = cases_of(rig)
        assert len(found) == len(run.cases) == (3 if nodes > 1 else 2), run.out
        texts = [
            case.text.replace(f"/stage/{rig.stage.name}/", "/stage/@SESSION@/") for case in found
        ]
        parts += [f"==> {name}\n", *texts]
    text = "\n".join(parts)
    file = GOLDEN / "schedulers.txt"
    if os.environ.get("IOGAUGE_GOLDEN") == "update":
        file.write_text(text)
    assert text == file.read_text(), "meant? IOGAUGE_GOLDEN=update writes the file anew"


def test_an_option_of_the_site_is_not_given_a_second_time(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(tools=TOOLS)
    access = ["--partition=x", "--signal=B:TERM@300"]
    assert dry_run(rig, "slurm", "srun", 4, access=access).rc == 0
    for case in cases_of(rig):
        lines = [line for line in case.script.splitlines() if "--signal" in line]
        assert lines == ["#SBATCH --signal=B:TERM@300"]
        assert "#SBATCH --no-requeue" in case.script


def test_flux_gives_no_script_more_than_one_task(make_rig: Callable[..., Rig]) -> None:
    """Whatever a case needs, ReFrame's backend asks Flux for one task; so several nodes are not to be had."""
    rig = make_rig(tools=TOOLS)
    assert dry_run(rig, "flux", "mpirun", 4).rc == 0
    asked = (rig.base / "asked").read_text().splitlines()
    assert len(asked) == len(cases_of(rig)) == 3
    assert {line.partition(" of ")[0] for line in asked} == {"/bin/bash: 1 task(s)"}
    assert not any("--signal" in case.script for case in cases_of(rig))
