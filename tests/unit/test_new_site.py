"""A new site: what sinfo and this host say, what becomes of it, and a repository for it."""

import os
import subprocess
from dataclasses import replace

import pytest
import yaml

from iogauge.cli import queues
from iogauge.cli.queues import Queue
from iogauge.node.lustre.targets import StorageTarget
from iogauge.node.mounts import Mount, Space
from iogauge.node.view import View
from iogauge.site import settings
from iogauge_extras.newsite import found, writing
from iogauge_extras.newsite.found import Slurm, Target
from support.new_site import site
from support.shell import completed, script

TIB = 1 << 40
QUEUE = Queue("batch", 32, 64, 512 << 30, 7200, True)
SLURM = Slurm((QUEUE,), accounting=True, starts_mpi=True)
MOUNT = Mount(
    30, "/scratch", "10.0.0.1@o2ib:/scratch", "lustre", "rw,flock", "/", "0:45"
)


def lustre(**more):
    targets = []
    for number in range(4):
        uuid, server = f"scratch-OST000{number}_UUID", f"10.0.0.{number % 2}@o2ib"
        targets.append(
            StorageTarget(index=number, uuid=uuid, active=True, server=server)
        )
    space = Space(100 * TIB, 50 * TIB, 10**9, 10**9)
    plain = {
        "path": "/scratch/me",
        "partition": "scratch",
        "view": View(
            host="n1",
            path="/scratch/me",
            mount=MOUNT,
            space=space,
            targets=tuple(targets),
            uuid="u-1",
        ),
        "facts": {"lustre.osts": 4, "tunable.osc.checksums": "1"},
        "layout": {"layout.stripe_count": 1},
        "speed_bytes_s": 2.5e9,
    }
    return Target(**plain | more)


def disk(free=3 << 30, **more):
    mount = replace(MOUNT, type="xfs", source="/dev/sdb1")
    space = Space(2 * free, free, 10**9, 10**9)
    view = replace(lustre().view, mount=mount, space=space, targets=())
    facts = {"mount.options": "rw,noatime"}
    return lustre(view=view, facts=facts, layout={}, **more)


def on_slurm(*targets, slurm=SLURM, **more):
    return site(*targets, slurm=slurm, queue=QUEUE, **more)


def written(new):
    """The settings, which must be sound."""
    data = yaml.safe_load(writing.settings_text(new))
    assert settings.find_mistakes("mine", data) == []
    return data


def partition(new):
    """Its only partition."""
    (found_partition,) = written(new)["systems"][0]["partitions"]
    return found_partition


@pytest.mark.parametrize(
    "variable, value, system",
    [
        ("LMOD_CMD", "/usr/lib/modules", "lmod"),
        ("MODULES_CMD", "/usr/lib/modules", "envmod"),
        # ReFrame knows no modules 3.2.
        ("MODULESHOME", "/opt/cray/pe/modules/3.2.11.6", None),
    ],
)
def test_the_modules_of_the_programs_are_those_of_the_site(
    variable, value, system, monkeypatch
):
    """Without them a job loads no MPI, or another one; without their system ReFrame loads none."""
    for name in ("LMOD_CMD", "MODULES_CMD", "MODULESHOME", "MODULE_VERSION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, value)
    monkeypatch.setenv("LOADEDMODULES", "gcc/12:openmpi/4.1")
    loaded, found_system = found.modules()
    new = site(disk(), modules=loaded, modules_system=found_system)
    data = written(new)
    modules = data["environments"][0].get("modules")
    assert data["systems"][0].get("modules_system") == system
    assert modules == (["gcc/12", "openmpi/4.1"] if system else None)
    named = [text for text in found.unknown(new) if "openmpi/4.1" in text]
    assert bool(named) is (system is None)


@pytest.mark.parametrize(
    "storage, mpi, expected",
    [
        ("(null)", "(null)", (False, False)),
        ("accounting_storage/none", "none", (False, False)),
        ("accounting_storage/slurmdbd", "pmix", (True, True)),
    ],
)
def test_what_slurm_has_not_set_is_nothing(
    storage, mpi, expected, tmp_path, monkeypatch
):
    config = f"AccountingStorageType = {storage}\nMpiDefault              = {mpi}"
    for name, text in (
        ("sbatch", ""),
        ("sinfo", "batch*|4|2|32|257000|infinite|up"),
        ("scontrol", config),
    ):
        script(tmp_path / name, f"#!/bin/sh\ncat <<E\n{text}\nE\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    slurm = found.slurm()
    assert (slurm.accounting, slurm.starts_mpi) == expected
    assert slurm.queues[0].limit_seconds is None


def test_queues_that_are_up_the_default_first():
    text = (
        "debug|2|1|2|1024|30:00|up\n"
        "batch*|30|2|32|515072+|1-12:00:00|up\n"
        "batch*|2|2|16|257536|1-12:00:00|up\n"
        "old|9|2|8|1|infinite|down\n"
    )
    batch, debug = queues.parse_sinfo(text)
    assert batch == Queue("batch", 32, 32, 257536 << 20, 129600, True)
    assert (debug.name, debug.cores, debug.limit_seconds) == ("debug", 2, 1800)


def test_lustre_below_slurm():
    target = lustre(ceiling="200 Gbit/s", source="whoever ran `iogauge site new`")
    new = on_slurm(target)
    assert written(new)["systems"][0]["hostnames"] == ["login[0-9]+$"]
    known = partition(new)
    assert (known["name"], known["scheduler"], known["launcher"]) == (
        "scratch",
        "slurm",
        "srun",
    )
    assert known["access"] == ["--partition=batch"]
    assert known["time_limit"] == "120m"
    extras = known["extras"]
    assert extras["target"] == {
        "path": "/scratch/me",
        "type": "lustre",
        "source": "10.0.0.1@o2ib:/scratch",
        "uuid": "u-1",
    }
    assert extras["scale"] == {"nodes": 4, "tasks_per_node": 16}
    assert extras["node"] == {"cores": 64, "memory": "512 GiB"}
    topology = extras["topology"]
    assert topology.pop("source") == "whoever ran `iogauge site new`, 2026-11-22"
    assert topology == {
        "clients": {"nic": "200 Gbit/s"},
        "targets": 4,
    }
    # What a host has of its own is not expected of nodes.
    assert extras["expect"] == {"lustre.osts": 4, "layout.stripe_count": 1}
    assert extras["limits"]["tier"] == "daily"
    assert extras["tiers"]["quick"]["case_bytes"] == "4 GiB"


@pytest.mark.parametrize(
    "facts, interface, gbit",
    [
        (
            {"nic.eth0.speed_mbps": 10000, "ib.mlx5_0.rate": "200 Gb/sec (4X)"},
            "mlx5_0",
            200,
        ),
        ({"nic.eth0.speed_mbps": 10000, "ib.a.rate": "9 Gb/sec"}, "eth0", 10),
        ({"nic.eth0.mtu": 1500}, "", 0),
    ],
)
def test_the_network_is_the_fastest_interface(facts, interface, gbit):
    assert found.network(facts) == (gbit, interface)


@pytest.mark.parametrize(
    "count, size, least",
    [
        (1, 1 << 20, 16),
        (4, 4 << 20, 32),
        (-1, 4 << 20, 32),
        ("1,4", f"{1 << 20},{8 << 20}", 64),
    ],
)
def test_a_shared_file_has_data_in_every_stripe_of_the_default_layout(
    count, size, least
):
    layout = {"layout.stripe_count": count, "layout.stripe_bytes": size}
    slow = lustre(layout=layout, speed_bytes_s=5e3)
    usual, quick = writing.sizes_of(on_slurm(slow), slow)
    assert (usual.tier, quick.case_bytes >> 20) == ("quick", least)


def test_a_disk_without_a_known_ceiling():
    new = site(disk(speed_bytes_s=500e6))
    known = partition(new)
    extras = known["extras"]
    assert (known["scheduler"], known["launcher"]) == ("local", "mpirun")
    assert "topology" not in extras
    assert "source" not in extras["target"]  # a device may get another name
    # A twentieth of what is free, half of what max_of_free allows.
    limits = extras["limits"]
    assert limits["case_bytes"] == "153 MiB"
    assert (limits["tier"], limits["max_of_free"]) == ("quick", "10%")
    assert "expect" not in extras
    assert "topology.devices" in " ".join(found.unknown(new))


def test_what_this_host_sees_of_a_directory(tmp_path):
    here = found.target(str(tmp_path))
    assert here.view.mount and here.facts["cpu.cores"]
    with pytest.raises(NotADirectoryError):
        found.target(str(tmp_path / "absent"))
    with pytest.raises(OSError, match="proc, which keeps no data"):
        found.target("/proc")


@pytest.mark.parametrize(
    "remote, source, project",
    [
        (
            "https://gitlab.a.b/hpc/iogauge.git",
            "https://gitlab.a.b/hpc/iogauge.git",
            "hpc/iogauge",
        ),
        (
            "https://ci:secret@a.b/hpc/iogauge.git",
            "https://a.b/hpc/iogauge.git",
            "hpc/iogauge",
        ),
        ("git@a.b:hpc/iogauge.git", "git@a.b:hpc/iogauge.git", "hpc/iogauge"),
        ("/srv/hpc/iogauge", "/srv/hpc/iogauge", "srv/hpc/iogauge"),
        ("", "https://gitlab.example/hpc/iogauge.git", "hpc/iogauge"),
    ],
)
def test_a_repository_names_the_project_and_no_password(remote, source, project):
    assert writing.origin(remote) == (source, project)


def test_a_repository_brings_iogauge_in_the_version_of_its_pipeline(tmp_path):
    suite = tmp_path / "suite"
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-C", str(suite)]
    suite.mkdir()
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "1"], ["tag", "v1"],
                  ["commit", "-q", "--allow-empty", "-m", "2"], ["tag", "v2"]):  # fmt: skip
        completed([*git, *words], check=True)
    into = tmp_path / "repository"
    writing.write_repository(into, "mine", "scratch", True)
    files = [file for file in into.rglob("*") if file.is_file()]
    names = {str(file.relative_to(into)) for file in files}
    assert names == {".gitlab-ci.yml", ".gitignore", "README.md", "activate", "setup",
                     "environments/mine/spack.yaml", "nightly", "nightly.crontab",
                     "iogauge-mine.service", "iogauge-mine.timer",
                     "iogauge-probe-mine.service", "iogauge-probe-mine.timer"}  # fmt: skip
    nightly = into / "nightly"
    crontab = (into / "nightly.crontab").read_text()
    assert f" * * * {nightly} >" in crontab
    assert "iogauge probe mine" in crontab
    assert f"ExecStart={nightly}\n" in (into / "iogauge-mine.service").read_text()
    assert "alarm --send --expect=mine:scratch" in nightly.read_text()
    (into / "README.md").write_text("mine")
    writing.write_repository(into, "mine", "scratch", True)
    assert (into / "README.md").read_text() == "mine"
    pipeline = into / ".gitlab-ci.yml"
    (include,) = yaml.safe_load(pipeline.read_text())["include"]
    assert include["inputs"] == {"system": "mine", "targets": ["scratch"]}
    assert "+lustre~hdf5" in (into / "environments" / "mine" / "spack.yaml").read_text()

    def brought(version):
        pipeline.write_text(pipeline.read_text().replace(str(include["ref"]), version))
        include["ref"] = version
        completed(
            [into / "setup", "--fetch"],
            check=True,
            env={**os.environ, "IOGAUGE_SOURCE": str(suite)},
        )
        words = ["git", "-C", str(into / "iogauge"), "describe", "--tags"]
        return subprocess.check_output(words, text=True).strip()

    assert [brought("v1"), brought("v2")] == ["v1", "v2"]
    assert (into / "iogauge" / "iogauge-out").resolve() == into / "iogauge-out"


def test_a_slurm_without_accounts_that_starts_no_mpi():
    slurm = Slurm((QUEUE,), accounting=False, starts_mpi=False)
    known = partition(on_slurm(lustre(), slurm=slurm))
    assert (known["scheduler"], known["launcher"]) == ("squeue", "mpirun")


def test_every_target_has_a_partition():
    home = disk(path="/home/me", partition="home")
    partitions = written(site(disk(), home))["systems"][0]["partitions"]
    assert [known["name"] for known in partitions] == ["scratch", "home"]


def test_a_host_that_another_site_has_is_not_claimed_twice():
    assert written(site(disk(), claimed="old"))["systems"][0]["hostnames"] == ["^$"]
