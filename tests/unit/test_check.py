"""Probes of ``iogauge check``: what they find out of a target, of queues and of nodes, and what to do."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from iogauge.cli import check, host, nodes, planning, queues
from iogauge.cli.answers import Place
from iogauge.cli.app import app
from iogauge.node.kinds import Below
from iogauge.node.mounts import Mount, Space
from iogauge.node.view import View
from iogauge.workspace import directory
from support.extras import extras
from support.shell import script


def view(**more):
    plain = {
        "host": "n1",
        "path": "/data",
        "mount": Mount(1, "/data", "/dev/sdb1", "ext4", "rw"),
        "space": Space(1, 1, 1, 1),
    }
    return View(**plain | more)


def of_target(path):
    place = extras(target={"path": str(path), "type": "ext4"})
    return list(check._of_target(place.target))


def test_what_dead_sessions_left_is_named(tmp_path):
    gone = [4194305, 1]
    case = Path(
        directory.create(str(tmp_path), "t-h-4194305", "case", owner_process=gone)
    )
    (found,) = [line for line in of_target(tmp_path) if "dead" in line.text]
    assert (str(case.parent) in found.text, found.remedy) == (
        True,
        "run: iogauge clean",
    )


@pytest.mark.parametrize(
    "declared, state", [(None, ["note"]), (True, []), (False, ["problem"])]
)
def test_data_that_may_shrink(declared, state):
    target = extras(target={"path": "/data", "type": "ext4", "compresses": declared})
    seen = view(below=Below(compresses="dm-vdo"))
    found = list(host.promises(target.target, seen))
    assert [line.state for line in found] == state


@pytest.mark.parametrize(
    "seen, said",
    [
        (view(mount=Mount(1, "/data", "none", "tmpfs", "rw")), "memory, not storage"),
        (view(below=Below(fsync="a loop device")), "fsync does not wait for storage"),
        (view(mount=Mount(1, "/d", "x", "fuse.sshfs", "rw")), "cannot check"),
    ],
)
def test_what_a_target_does_not_promise(seen, said):
    target = extras(target={"path": "/data", "type": "ext4"}).target
    (found,) = host.promises(target, seen)
    assert said in found.text and found.remedy


def test_a_target_that_is_mounted_read_only():
    answer = host.not_writable("/data", "ro,relatime")
    assert "remount,rw" in answer.remedy and "chmod" not in answer.remedy
    assert "chmod 1777 /data" in host.not_writable("/data", "rw").remedy


def on_slurm(time_limit="2h", access=(), **more):
    partition = {
        "name": "p",
        "scheduler": "slurm",
        "launcher": "srun",
        "environs": ["e"],
        "time_limit": time_limit,
        "access": list(access),
    }
    return Place({"environments": [{"name": "e"}]}, partition, extras(**more))


@pytest.mark.parametrize(
    "place, said",
    [
        (on_slurm(), ""),
        (on_slurm("1d"), "time_limit is 1d, and batch allows 3.0 h"),
        (on_slurm("1d", ["-p", "long"]), ""),
        (on_slurm(access=["--partition=lnog"]), "its queue is lnog, and Slurm has"),
        (on_slurm(scale={"nodes": 5}), "a case has 5 nodes, and batch has 4"),
    ],
)
def test_jobs_that_would_never_start(place, said, tmp_path, monkeypatch):
    script(tmp_path / "sbatch", "#!/bin/sh\n")
    lines = "batch*|4|2|32|257000|3:00:00|up\\nlong|4|2|32|257000|infinite|up\\n"
    script(tmp_path / "sinfo", f"#!/bin/sh\nprintf '{lines}'\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = [f"{line.text} -> {line.remedy}" for line in queues.start(place)]
    assert len(found) == bool(said)
    assert all(said in text for text in found)


def test_hosts_are_asked_with_the_variables_of_a_job():
    partition = {"scheduler": "local", "env_vars": [["OMPI_MCA_x", "eth1"]]}
    two = extras().model_copy(update={"hosts": ("n1", "n2")})
    words = nodes.launch(partition, two)
    assert words[:2] == ["env", "OMPI_MCA_x=eth1"]
    assert words[2:] == ["mpirun", "-x", "PATH", "--host", "n1,n2", "-N", "1"]


def test_nodes_are_asked_what_they_lack(tmp_path, monkeypatch):
    """Two hosts, of which the second sees neither the target nor a module."""
    for name in ("ior", "mdtest", "fio"):
        script(tmp_path / name, "#!/bin/sh\n")
    launch = '#!/bin/sh\nwhile [ "$1" != sh ]; do shift; done\n'
    launch += 'hostname() { echo $H; }; H=n1 "$@"; H=n2 sh -c "$(echo "$3" | sed s,/data,/none,g)"\n'
    script(tmp_path / "srun", launch)
    (tmp_path / "data").mkdir()
    script(tmp_path / "hostname", "#!/bin/sh\necho $H\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("IOGAUGE_HOME", str(tmp_path / "home"))
    path = tmp_path / "data"
    place = on_slurm(target={"path": str(path), "type": "ext4"})
    found = {line.state: line.text for line in nodes.lack(place)}
    assert found["problem"] == f"n2: does not see the target {path}"
    assert found["ok"] == "2 answered: n1, n2"


def test_hosts_that_ssh_reaches_get_the_path_of_jobs(tmp_path, monkeypatch):
    """Its own PATH showed no IOR in /opt, which jobs on the same host ran."""
    for name in ("ior", "mdtest", "fio"):
        script(tmp_path / name, "#!/bin/sh\n")
    words = 'case $* in *"-x PATH"*) ;; *) PATH=/usr/bin:/bin ;; esac\n'
    words += 'while [ "$1" != sh ]; do shift; done\nexec "$@"\n'
    script(tmp_path / "mpirun", f"#!/bin/sh\n{words}")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("IOGAUGE_HOME", str(tmp_path / "home"))
    place = on_slurm(target={"path": str(tmp_path), "type": "ext4"})
    partition = {**place.partition, "scheduler": "local"}
    on_hosts = place.extras.model_copy(update={"hosts": ("n1",)})
    place = replace(place, partition=partition, extras=on_hosts)
    assert {line.state for line in nodes.lack(place)} == {"ok"}


@pytest.mark.parametrize("path, asked", [("/data", True), ("$DW_JOB", False)])
def test_nodes_are_not_asked_for_a_target_that_only_a_job_has(path, asked):
    place = on_slurm(target={"path": path, "type": "xfs"})
    names = [question.name for question in nodes._questions(place)]
    assert ("target" in names, "writable" in names) == (asked, asked)


@pytest.mark.parametrize(
    "arguments, said",
    [
        ([], []),
        (["-n", "IorPosix"], []),
        (["-n"], ["-n needs a value; iogauge run -l lists the cases"]),
        (
            ["-t", "--system=local"],
            ["-t needs a value; iogauge run -l lists the cases"],
        ),
    ],
)
def test_slips_in_the_arguments_of_a_run(arguments, said):
    assert list(planning._slips(arguments)) == said


def test_clients_of_a_site_that_cannot_be_read_are_not_ready(tmp_path, monkeypatch):
    monkeypatch.setenv("IOGAUGE_SITES", str(tmp_path))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/settings.yaml").write_text("systems: []\n")
    done = CliRunner().invoke(app, ["check", "mine", "--clients"])
    assert done.exit_code == 1
    assert "systems" in done.output


def test_check_takes_a_site_by_an_option_as_all_commands_do():
    done = CliRunner().invoke(app, ["check", "--system", "locla"])
    assert (done.exit_code, "did you mean local?" in done.output) == (2, True)


@pytest.mark.parametrize(
    "words, said",
    [
        (["--system=mine:scratch"], "site mine name its targets"),
        (["--system=local"], ""),
    ],
)
def test_a_target_of_the_environment_that_a_site_leaves_out_is_named(
    words, said, monkeypatch, capsys
):
    monkeypatch.setenv("IOGAUGE_TARGET", "/data")
    planning.say_target(words)
    error = capsys.readouterr().err
    assert said in error and bool(error) == bool(said)
