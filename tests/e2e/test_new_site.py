"""``iogauge site new`` on real machines: one from a wheel, one that sees Lustre, one with a Slurm of four nodes.

What it writes outside the clone is sound, its plan fits, and a real run gives a record that nothing objects to.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.rig import ROOT, Rig
from support import hanging
from support import slurm as slurms
from support.depth import FULL
from support.hosts import Hosts
from support.slurm import Slurm

pytestmark = pytest.mark.slow

STAND_INS = ROOT / "tests" / "support" / "lustre"


def partition(sites: Path) -> dict[str, Any]:
    """The only partition of the site ``mine``."""
    data = yaml.safe_load((sites / "mine" / "settings.yaml").read_text())
    (found,) = data["systems"][0]["partitions"]
    assert isinstance(found, dict)
    return found


def is_valid(records: list[dict[str, Any]]) -> None:
    """A record of the site, valid and without a reference; a busy machine may be unstable."""
    (record,) = records
    assert record["verdict"] in ("UNREFERENCED", "UNSTABLE", "CONTAMINATED"), record["reason"]
    assert record["system"] == "mine"
    assert all(metric["median"] > 0 for metric in record["metrics"])


class Installed:
    """The library as a wheel in an environment of its own, with the packages of this one."""

    def __init__(self, base: Path) -> None:
        clone, self.base = base / "clone", base
        for name in ("reframe", "checks", "site-configs", "environments", "docs", "ci"):
            ignored = shutil.ignore_patterns(".spack-env", "build", "*.egg-info", "__pycache__")
            shutil.copytree(ROOT / name, clone / name, ignore=ignored)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        words = ["wheel", "--no-deps", "--no-index", "--no-build-isolation", "-w", str(base)]
        subprocess.run([*pip, *words, str(clone / "reframe")], check=True, timeout=120)
        shutil.rmtree(clone)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", base / "venv"], check=True)
        (wheel,) = base.glob("*.whl")
        self.bin = base / "venv" / "bin"
        install = ["--python", str(self.bin / "python"), "install", "--no-deps", "--no-index"]
        subprocess.run([*pip, *install, str(wheel)], check=True, timeout=120)
        packages = next((base / "venv" / "lib").glob("python*/site-packages"))
        # A path file is not followed to other path files: the clone stays out of sight.
        (packages / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
        reframe = (Path(sys.executable).parent / "reframe").read_text().split("\n", 1)[1]
        (self.bin / "reframe").write_text(f"#!{self.bin / 'python'}\n{reframe}")
        (self.bin / "reframe").chmod(0o755)

    def run(self, *words: str, status: int = 0, **extra: str) -> str:
        """Run a command away from the clone; return what it printed."""
        own = {
            n: v for n, v in os.environ.items() if not n.startswith(("IOGAUGE", "RFM", "PYTHON"))
        }
        own["PATH"] = f"{self.bin}:{own['PATH']}"
        done = subprocess.run(
            words,
            cwd=self.base,
            env=own | {"XDG_STATE_HOME": str(self.base / "state")} | extra,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=240,
        )
        assert done.returncode == status, done.stdout
        return done.stdout


@pytest.mark.needs_fio
def test_a_wheel_measures_a_site_outside_the_clone(storage: Path) -> None:
    base, target = storage / "wheel", storage / "wheel" / "target"
    target.mkdir(parents=True)
    installed = Installed(base)
    refused = installed.run("iogauge", "site", "new", "mine", status=2)
    assert "no folder of your own for the site" in refused
    words = ("--target", str(target), "--repository", "repository", "--ceiling", "50 GB/s")
    said = installed.run("iogauge", "site", "new", "mine", *words)
    assert "time_limit: " in said
    assert "case(s), one at a time" in said
    sites = {"IOGAUGE_SITES": str(base / "repository" / "sites")}
    if FULL:
        # A dry run of its own site, and of one of the clone.
        names = ("mine", "oist-saion")
        checked = installed.run("iogauge", "validate", *names, **sites)
        assert all(f"{name}: ok" in checked for name in names)
        words = ("sh", "-c", 'eval "$(iogauge site paths)"; reframe -l -t fio')
        assert "FioRandomRead %block=4KiB" in installed.run(*words, **sites)
    case = ("-n", "FioRandomRead%block=128KiB", "--system=mine", "-S", "repetitions=1")
    installed.run("iogauge", "run", *case, **sites)
    history = base / "state" / "iogauge" / "history" / "mine"
    is_valid([json.loads(line) for file in history.glob("*.jsonl") for line in file.open()])


@pytest.mark.nightly(
    "unit/test_new_site.py::test_lustre_below_slurm",
    "e2e/test_new_site.py::test_a_wheel_measures_a_site_outside_the_clone",
    "e2e/test_lustre.py::test_every_byte_is_witnessed_by_target",
)
@pytest.mark.needs_ior
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts file systems, which root may")
def test_a_client_of_lustre_is_described(make_rig: Callable[..., Rig], tmp_path: Path) -> None:
    folder = tmp_path / "client"
    folder.mkdir()
    (tmp_path / "sites").mkdir()
    try:
        with hanging.mounted(folder, log=folder / "io") as mount:
            target = mount.point / "bench"
            target.mkdir(mode=0o1777)
            (folder / "state").mkdir()
            rig = make_rig(target=target, cold=True)
            sources = [STAND_INS / "agent", ROOT / "reframe" / "src"]
            knobs = {
                "PATH": f"{STAND_INS}:{rig.environment()['PATH']}",
                "LFS_STATE": str(folder / "state"),
                "LFS_MOUNT": str(mount.point),
                "LFS_BELOW": str(folder / "back"),
                "LFS_IO": str(folder / "io"),
                "LFS_CLIENT": "1",
                "LCTL_USER": "1",
                "IOGAUGE_SITES": str(tmp_path / "sites"),
            }
            looking = {**knobs, "PYTHONPATH": os.pathsep.join(map(str, sources))}
            words = ("--target", str(target), "--ceiling", "400 Gbit/s", "--queue", "none")
            said = rig.iogauge("site", "new", "mine", *words, **looking).out
            extras = partition(tmp_path / "sites")["extras"]
            assert extras["target"]["type"] == "lustre", said
            assert (extras["topology"]["targets"], extras["topology"]["metadata_targets"]) == (4, 2)
            assert extras["expect"]["layout.stripe_count"] == 1
            assert "longest case" in said
            case = "IorPosix%files=shared%order=sequential%cache=direct"
            sizes = ("-S", "repetitions=1", "-S", "tier=quick")
            run = rig.run("--system=mine", "-n", case, *sizes, **looking)
            assert run.records, run.out
            is_valid(run.records)
    except hanging.Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def slurm(storage: Path) -> Any:
    if reason := slurms.why_not():
        pytest.skip(reason)
    with Hosts(5, storage) as hosts, Slurm(hosts, accounting=False) as started:
        yield started


@pytest.mark.nightly(
    "unit/test_new_site.py::test_a_node_is_asked_through_a_scheduler",
    "unit/test_new_site.py::test_a_slurm_without_accounts_that_starts_no_mpi",
    "unit/test_new_site.py::test_queues_that_are_up_the_default_first",
    "e2e/test_slurm.py::test_what_meets_its_reference_passes",
)
@pytest.mark.needs_slurm
@pytest.mark.needs_ior
def test_a_slurm_of_four_nodes_is_described(
    slurm: Slurm, make_rig: Callable[..., Rig], tmp_path: Path
) -> None:
    rig = make_rig(cold=True)
    sites = rig.base / "outside"
    sites.mkdir()

    def on_head(*words: str, **extra: str) -> subprocess.CompletedProcess[str]:
        own: Mapping[str, str] = rig.environment(IOGAUGE_SITES=str(sites), **extra)
        path = {"PATH": f"{own['PATH']}:/usr/sbin:/sbin"}
        return subprocess.run(
            slurm.hosts.command(slurm.head, words),
            cwd=ROOT,
            env={**own, **slurm.environment, **path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=300,
        )

    iogauge = str(Path(sys.executable).parent / "iogauge")
    done = on_head(iogauge, "site", "new", "mine", "--target", str(rig.target))
    found = partition(sites)
    assert done.returncode == 0, done.stdout
    assert (found["scheduler"], found["launcher"]) == ("squeue", "srun")
    assert found["access"] == ["--partition=compute"]
    assert found["extras"]["scale"]["nodes"] == 4
    # The nodes lie about their memory to Slurm; a job of one node saw what is true.
    assert f"as {slurm.nodes[0]} sees itself" in (sites / "mine" / "settings.yaml").read_text()
    case = ("-n", "IorPosix%files=shared%order=sequential%cache=direct", "-S", "repetitions=1")
    # Slurm 22.05 lets some ranks pass MPI_Init before others with its other fences (docs/cluster.md).
    knobs = {"SLURM_PMIX_FENCE": "ring", "OMPI_MCA_mpi_yield_when_idle": "1"}
    ran = on_head(iogauge, "run", "--system=mine", "-S", "tier=quick", *case, **knobs)
    records = rig.records()
    assert records, ran.stdout
    is_valid(records)
    assert records[0]["nodes"] == 4
