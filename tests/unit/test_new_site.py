"""A new site: what sinfo and a node say, what becomes of it, and a repository for it."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
import yaml

from iogauge.cli import queues
from iogauge.cli.queues import Queue
from iogauge.node.lustre.targets import StorageTarget
from iogauge.node.mounts import Mount, Space
from iogauge.node.view import View
from iogauge.site import settings
from iogauge_extras.newsite import probe as of_node
from iogauge_extras.newsite import scheduler, writing
from iogauge_extras.newsite.probe import NodeProbe
from iogauge_extras.newsite.scheduler import Slurm
from iogauge_extras.newsite.writing import Described

TIB = 1 << 40
QUEUE = Queue("batch", 32, 64, 512 << 30, 7200, True)
MOUNT = Mount(
    30, "/scratch", "10.0.0.1@o2ib:/scratch", "lustre", "rw,flock", "/", "0:45"
)


def seen(fstype="lustre", free=100 * TIB, **facts):
    mount = replace(
        MOUNT, type=fstype, source=MOUNT.source if fstype == "lustre" else "/dev/sdb1"
    )
    targets = tuple(
        StorageTarget(index=i, uuid=f"scratch-OST000{i}_UUID", active=True, server=f"10.0.0.{i % 2}@o2ib")
        for i in range(4 if fstype == "lustre" else 0)
    )  # fmt: skip
    space = Space(
        bytes_total=2 * free, bytes_free=free, inodes_total=10**9, inodes_free=10**9
    )
    return NodeProbe(
        host="n1",
        cores=64,
        memory_bytes=(512 << 30) + 4096,
        facts=facts,
        view=View(
            host="n1",
            path="/scratch/me",
            mount=mount,
            space=space,
            targets=targets,
            uuid="u-1",
        ),
        layout={"layout.stripe_count": 1} if fstype == "lustre" else {},
        mdts=2 if fstype == "lustre" else 0,
    )


def target(node, queue=None, **more):
    plain = {
        "site": "mine",
        "path": "/scratch/me",
        "partition": "scratch",
        "queue": queue,
        "nodes": 4 if queue else 1,
        "account": "storage" if queue else "",
        "ceiling": "",
        "said": False,
        "seen": node,
        "slurm": None,
        "features": ("fio", "ior", "mdtest"),
        "modules": None,
        "mpirun": True,
        "speed_bytes_s": 10e9,
        "login": "login1",
        "day": "2026-11-22",
    }
    return Described(**plain | more)


def written(known):
    """The only partition of the settings, which must be sound."""
    data = yaml.safe_load(writing.settings_text([known], "2h0m"))
    assert settings.find_mistakes("mine", data) == []
    assert data["systems"][0]["hostnames"] == ["login[0-9]+$"]
    return data["systems"][0]["partitions"][0]


@pytest.mark.parametrize(
    ("variable", "value", "system"),
    [
        ("LMOD_CMD", "/usr/lib/modules", "lmod"),
        ("MODULES_CMD", "/usr/lib/modules", "tmod4"),
        ("MODULESHOME", "/opt/cray/pe/modules/3.2.11.6", "tmod32"),
        ("ELSE", "/usr/lib/modules", None),
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
    known = target(seen("xfs"), modules=scheduler.modules())
    data = yaml.safe_load(writing.settings_text([known], "2h0m"))
    assert data["systems"][0].get("modules_system") == system
    assert data["environments"][0].get("modules") == (
        ["gcc/12", "openmpi/4.1"] if system else None
    )
    named = [text for text in writing.unknown(known) if "openmpi/4.1" in text]
    assert bool(named) is (system is None)


@pytest.mark.parametrize(
    ("storage", "mpi", "expected"),
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
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\ncat <<E\n{text}\nE\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = scheduler.slurm()
    assert (found.accounting, found.starts_mpi, found.breaks_mpi) == (*expected, False)
    assert found.queues[0].limit_seconds is None


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
    node = seen(
        **{"lustre.osts": 4, "tunable.osc.checksums": "1", "mount.options": "rw,flock"}
    )
    slurm = Slurm((QUEUE,), accounting=True, starts_mpi=True)
    partition = written(
        target(node, QUEUE, ceiling="200 Gbit/s", said=True, slurm=slurm)
    )
    assert (partition["name"], partition["scheduler"]) == ("scratch", "slurm")
    assert partition["launcher"] == "srun"
    assert partition["access"] == ["--partition=batch", "--account=storage"]
    extras = partition["extras"]
    assert extras["target"] == {
        "path": "/scratch/me",
        "type": "lustre",
        "source": "10.0.0.1@o2ib:/scratch",
        "uuid": "u-1",
    }
    assert extras["scale"] == {"nodes": 4, "tasks_per_node": 16}
    assert extras["node"] == {"cores": 64, "memory": "512 GiB"}
    topology = extras["topology"]
    assert topology.pop("source").startswith("said by whoever ran")
    assert topology == {
        "clients": {"nic": "200 Gbit/s"},
        "targets": 4,
        "metadata_targets": 2,
    }
    assert extras["expect"] == {
        "lustre.osts": 4,
        "tunable.osc.checksums": "1",
        "mount.options": "flock",
        "layout.stripe_count": 1,
    }
    assert extras["limits"]["tier"] == "daily"
    assert extras["tiers"]["quick"]["case_bytes"] == "4 GiB"


@pytest.mark.parametrize(
    ("count", "size", "least"),
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
    slow = target(replace(seen(), layout=layout), speed_bytes_s=2e4)
    usual, quick = writing.sizes_of(slow)
    assert (usual.tier, quick.case_bytes >> 20) == ("quick", least)


def test_a_disk_without_a_known_ceiling():
    known = target(seen("xfs", 3 << 30), speed_bytes_s=500e6)
    partition = written(known)
    extras = partition["extras"]
    assert (partition["scheduler"], partition["launcher"]) == ("local", "mpirun")
    assert "topology" not in extras
    assert "source" not in extras["target"]  # a device may get another name
    # A twentieth of what is free, half of what max_of_free allows.
    assert extras["limits"]["case_bytes"] == "153 MiB"
    assert (extras["limits"]["tier"], extras["limits"]["max_of_free"]) == (
        "quick",
        "10%",
    )
    said = " ".join(writing.unknown(known))
    assert "topology.devices" in said
    assert "settings to expect" in said


def test_a_node_is_asked_through_a_scheduler(tmp_path):
    node = of_node.look_through(["env"], str(tmp_path))
    here = of_node.look_here(str(tmp_path))
    assert node.view.mount == here.view.mount
    assert node.cores == here.facts["cpu.cores"]
    with pytest.raises(OSError, match="exit status 1"):
        of_node.look_through(["env"], str(tmp_path / "absent"))


@pytest.mark.parametrize(
    ("remote", "source", "project"),
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
        ("/srv/hpc/iogauge", "/srv/hpc/iogauge", "hpc/iogauge"),
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
        subprocess.run([*git, *words], check=True)
    into = tmp_path / "repository"
    names = {
        str(file.relative_to(into))
        for file in writing.write_repository(into, "mine", "scratch", True)
    }
    assert names == {".gitlab-ci.yml", ".gitignore", "README.md", "activate", "setup",
                     "environments/mine/spack.yaml"}  # fmt: skip
    assert (
        writing.write_repository(into, "mine", "scratch", True) == []
    )  # a user's files stay
    pipeline = into / ".gitlab-ci.yml"
    (include,) = yaml.safe_load(pipeline.read_text())["include"]
    assert include["inputs"] == {"system": "mine", "targets": ["scratch"]}
    assert "+lustre~hdf5" in (into / "environments" / "mine" / "spack.yaml").read_text()

    def brought(version):
        pipeline.write_text(pipeline.read_text().replace(str(include["ref"]), version))
        include["ref"] = version
        subprocess.run(
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
    partition = written(target(seen(), QUEUE, slurm=slurm))
    assert (partition["scheduler"], partition["launcher"]) == ("squeue", "mpirun")


def test_every_target_has_a_partition_and_one_more_is_added_where_the_others_are():
    scratch = target(seen("xfs"))
    home = target(seen(), path="/home/me", partition="home")
    text = writing.settings_text([scratch, home], "2h0m")
    more = target(seen("ext4"), path="/projects/me", partition="projects")
    for one in (text, text.replace("\n      ", "\n          ")):
        added = writing.with_partition(one, writing.partition_lines(more, "1h"))
        data = yaml.safe_load(added)
        assert settings.find_mistakes("mine", data) == []
        names = [partition["name"] for partition in data["systems"][0]["partitions"]]
        assert names == ["scratch", "home", "projects"]
        assert set(one.splitlines()) <= set(added.splitlines())


def test_a_host_that_another_site_has_is_not_claimed_twice():
    text = writing.settings_text([target(seen("xfs"), claimed="old")], "1h")
    assert yaml.safe_load(text)["systems"][0]["hostnames"] == ["^$"]


def test_the_cure_of_a_slurm_that_loses_starts_is_written_in():
    cured = Slurm((QUEUE,), accounting=True, starts_mpi=True, breaks_mpi=True)
    variables = dict(written(target(seen(), QUEUE, slurm=cured)).get("env_vars", []))
    assert variables["SLURM_PMIX_FENCE"] == "ring"


def test_a_node_that_does_not_see_the_clone_is_said_to(tmp_path):
    apart = ["unshare", "--mount"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*apart, "true"], check=False).returncode
    ):
        pytest.skip(
            "the clone cannot be hidden from a process here: needs root and unshare"
        )
    if sys.prefix == sys.base_prefix:
        pytest.skip("Python is the host's own, which every process here sees")
    hide = 'mount -t tmpfs none "$0" && exec "$@"'
    words = [*apart, "sh", "-c", hide, sys.prefix]
    with pytest.raises(
        OSError, match=r"it does not see .*python.* Put the clone and IOGAUGE_HOME"
    ):
        of_node.look_through(words, str(tmp_path))
    assert of_node.look_through(["env"], str(tmp_path)).host
