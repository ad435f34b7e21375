"""What holds of job scripts for schedulers that are not on this machine; test_golden.py has them word for word."""

from __future__ import annotations

from collections.abc import Callable

from e2e.dry_runs import TOOLS, cases_of, schedule
from e2e.rig import Rig


def test_an_option_of_the_site_is_not_given_a_second_time(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(tools=TOOLS)
    access = ["--partition=x", "--signal=B:TERM@300"]
    for case in cases_of(rig, schedule(rig, "slurm", "srun", 4, access=access)):
        lines = [line for line in case.script.splitlines() if "--signal" in line]
        assert lines == ["#SBATCH --signal=B:TERM@300"]
        assert "#SBATCH --no-requeue" in case.script


def test_flux_gives_no_script_more_than_one_task(make_rig: Callable[..., Rig]) -> None:
    """Whatever a case needs, ReFrame's backend asks Flux for one task; so several nodes are not to be had."""
    rig = make_rig(tools=TOOLS)
    cases = cases_of(rig, schedule(rig, "flux", "mpirun", 4))
    asked = (rig.base / "asked").read_text().splitlines()
    assert len(asked) == len(cases) == 3
    assert {line.partition(" of ")[0] for line in asked} == {"/bin/bash: 1 task(s)"}
    assert not any("--signal" in case.script for case in cases)
