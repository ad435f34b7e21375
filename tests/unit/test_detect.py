"""What a machine is and has, and which programs it has."""

import copy
import os

import pytest

from iogauge.core import vocabulary
from iogauge.node import activity as node_cores
from iogauge.node import mounts
from iogauge.node.mounts import Space
from iogauge.site import machine as site_machine
from iogauge.site import programs as site_programs
from iogauge.site.extras import PartitionExtras
from support.shell import script

FIO = "echo fio-3.33"
MPIRUN = "echo 'mpirun (Open MPI) 5.0.11'"


@pytest.fixture(autouse=True)
def programs(tmp_path, monkeypatch):
    """An empty PATH of our own, and a state directory."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("IOGAUGE_HOME", str(tmp_path / "home"))
    for name in ("IOGAUGE_TARGET", "IOGAUGE_CASE_BYTES"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "bin"


def put(programs, name, lines):
    script(programs / name, f"#!/bin/sh\n{lines}\n")


def test_a_target_is_where_the_caller_stands_not_where_settings_are_read(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("PWD", str(tmp_path))
    assert site_machine.target_path() == str(tmp_path)
    monkeypatch.setenv("IOGAUGE_TARGET", "bin")
    assert site_machine.target_path() == str(tmp_path / "bin")


@pytest.mark.parametrize("named, said", [("", "is empty"), ("link", "bin$")])
def test_a_target_that_is_no_name_or_a_link_is_refused(
    tmp_path, monkeypatch, named, said
):
    (tmp_path / "link").symlink_to("bin")
    monkeypatch.setenv("PWD", str(tmp_path))
    monkeypatch.setenv("IOGAUGE_TARGET", named)
    with pytest.raises(OSError, match=said):
        site_machine.target_path()


@pytest.mark.parametrize(
    "name, script",
    [
        ("fio", "echo hello"),
        ("fio", "exit 1"),
        ("mdtest", "echo hello"),
        ("ior", "echo hello"),
    ],
)
def test_a_program_that_is_not_what_its_name_says_gives_no_feature(
    programs, name, script
):
    put(programs, "mpirun", MPIRUN)
    put(programs, name, script)
    program = site_programs.machine().programs[name]
    assert program.features == ()
    assert f"does not answer as {name} would" in program.problem
    assert program.problem in site_programs.machine().lacks()[name]


@pytest.mark.parametrize("name", ["core_cpus_list", "thread_siblings_list"])
@pytest.mark.parametrize(
    "siblings, cpus, cores",
    [
        # Two sockets with four cores of two threads: threads are numbered after all cores.
        ([f"{cpu % 8},{cpu % 8 + 8}" for cpu in range(16)], range(16), 8),
        # The same in a job that has three cores, and in one that has threads of three.
        ([f"{cpu % 8},{cpu % 8 + 8}" for cpu in range(16)], [1, 2, 5, 9, 10, 13], 3),
        # A virtual machine whose threads are numbered beside each other.
        (["0-1", "0-1", "2-3", "2-3"], range(4), 2),
        # Six fast cores of two threads, eight cores of one.
        (
            [f"{c // 2 * 2}-{c // 2 * 2 + 1}" if c < 12 else f"{c}" for c in range(20)],
            range(20),
            14,
        ),
        (["0,2", "", "0,2", ""], range(4), 3),
    ],
)
def test_threads_are_no_cores(tmp_path, name, siblings, cpus, cores):
    for cpu, text in enumerate(siblings):
        if text:
            (tmp_path / f"cpu{cpu}" / "topology").mkdir(parents=True)
            (tmp_path / f"cpu{cpu}" / "topology" / name).write_text(f"{text}\n")
    assert node_cores.core_count(cpus, tmp_path) == cores


def completed(tmp_path, **extras):
    partition = {
        "name": "p",
        "environs": ["e"],
        "extras": {"target": {"path": str(tmp_path)}, **extras},
    }
    environments = [{"name": "e"}, {"name": "other"}]
    site_machine.complete(partition, environments)
    return partition, environments


def test_what_is_not_declared_is_filled_in(programs, tmp_path):
    put(programs, "fio", FIO)
    partition, environments = completed(tmp_path)
    site = PartitionExtras.of_partition(copy.deepcopy(partition["extras"]))
    mount = mounts.find_mount(str(tmp_path))
    assert (site.target.type, site.target.source) == (mount.type, mount.source)
    assert site.node.memory == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert site.limits.case_bytes <= site_machine.QUICK_BYTES
    assert site.topology is None
    assert partition["launcher"] == "local"
    assert [e.get("features") for e in environments] == [["fio"], None]


def test_the_mpi_and_what_lacks_are_filled_in(programs, tmp_path):
    put(programs, "mpirun", MPIRUN)
    _, (used, other) = completed(tmp_path)
    assert set(used["extras"].pop("lacks")) == vocabulary.ENVIRONMENT
    assert (used["extras"], used["features"]) == ({"mpi": "ompio5"}, [])
    assert "extras" not in other


@pytest.mark.parametrize(
    "path, said", [("/proc", "keeps no data"), ("/dev/shm", "memory, not storage")]
)
def test_a_target_that_is_no_storage_is_refused(monkeypatch, path, said):
    monkeypatch.setenv("IOGAUGE_TARGET", path)
    with pytest.raises(OSError, match=said):
        completed(path)


@pytest.mark.parametrize("path", ["/no/such/place", "/etc/passwd"])
def test_a_target_that_is_no_directory_is_refused(tmp_path, path):
    with pytest.raises(NotADirectoryError, match="is not a directory"):
        completed(tmp_path, target={"path": path})


def test_the_measured_speed_leaves_nothing(tmp_path):
    (tmp_path / "d").mkdir()
    assert site_machine.write_speed(str(tmp_path / "d"), seconds=0.05, most=8 << 20) > 0
    assert not list((tmp_path / "d").iterdir())


@pytest.mark.parametrize(
    "speed, size", [(0, 16 << 20), (100.9 * 2**20, 100 << 20), (1e15, 1 << 30)]
)
def test_the_size_of_a_quick_case(speed, size):
    room = Space(1 << 40, 1 << 40, 0, 0)
    assert site_machine.quick_bytes(speed, room) == size
