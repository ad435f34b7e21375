"""What a machine is and has, and what the doctor says of it."""

import copy
import os
from pathlib import Path

import pytest

from iogauge.cli import doctor
from iogauge.core import words
from iogauge.node import host as node_cores
from iogauge.node import mounts
from iogauge.node.mounts import Space
from iogauge.site import machine as site_machine
from iogauge.site import programs as site_programs
from iogauge.site.extras import PartitionExtras
from iogauge.workspace import directory
from support.extras import extras
from support.shell import script

IOR_HELP = (Path(__file__).parents[1] / "data" / "samples" / "ior_help.txt").read_text()
FIO = "echo fio-3.33"
MPIRUN = "echo 'mpirun (Open MPI) 5.0.11'"
MDTEST = "echo 'Synopsis mdtest'; echo ' -n number'"


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


def put_ior(programs):
    (programs / "help.txt").write_text(IOR_HELP)
    put(programs, "ior", f"exec /bin/cat '{programs}/help.txt'")


def test_a_target_is_where_the_caller_stands_not_where_settings_are_read(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("PWD", str(tmp_path))
    assert site_machine.target_path() == str(tmp_path)
    monkeypatch.setenv("IOGAUGE_TARGET", "bin")
    assert site_machine.target_path() == str(tmp_path / "bin")


@pytest.mark.parametrize(
    ("name", "script"),
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


def test_answers_are_kept_until_the_program_changes(programs):
    counter = programs / "asked"
    put(programs, "fio", f"echo x >>'{counter}'; {FIO}")
    site_programs.machine()
    asked = counter.read_text()
    for _ in range(2):
        site_programs.machine()
    assert counter.read_text() == asked
    put(programs, "fio", f"echo x >>'{counter}'; echo fio-3.40")
    assert site_programs.machine().programs["fio"].version == "3.40"


@pytest.mark.parametrize("name", ["core_cpus_list", "thread_siblings_list"])
@pytest.mark.parametrize(
    ("siblings", "cpus", "cores"),
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


def put_darshan(programs, mpiio="yes"):
    """Darshan's programs, and its library in lib beside their directory."""
    put(programs, "darshan-config", f'[ "$*" = --mpiio-mod ] && echo {mpiio}')
    put(programs, "darshan-parser", "exit 0")
    library = programs.parent / "lib" / "libdarshan.so"
    library.parent.mkdir()
    library.write_bytes(b"")
    return library


def test_the_words_of_the_mpi_and_darshan_are_filled_in(programs, tmp_path):
    put(programs, "mpirun", MPIRUN)
    library = put_darshan(programs)
    _, (used, other) = completed(tmp_path)
    assert set(used["extras"].pop("lacks")) == words.ENVIRONMENT - {"darshan"}
    assert used["extras"] == {"mpi": "ompio5", "darshan": str(library)}
    assert used["features"] == ["darshan"]
    assert "extras" not in other


def test_darshan_that_does_not_watch_mpi_io_is_none(programs):
    put_darshan(programs, mpiio="no")
    assert site_programs.darshan_library() is None


@pytest.mark.parametrize("path", ["/no/such/place", "/etc/passwd"])
def test_a_target_that_is_no_directory_is_refused(tmp_path, path):
    with pytest.raises(NotADirectoryError, match="is not a directory"):
        completed(tmp_path, target={"path": path})


def test_the_probe_leaves_nothing(tmp_path):
    (tmp_path / "d").mkdir()
    assert site_machine.probe_write(str(tmp_path / "d"), seconds=0.05, most=8 << 20) > 0
    assert not list((tmp_path / "d").iterdir())


@pytest.mark.parametrize(
    ("speed", "size"), [(0, 16 << 20), (100.9 * 2**20, 100 << 20), (1e15, 1 << 30)]
)
def test_the_size_of_a_quick_case(monkeypatch, speed, size):
    monkeypatch.setattr(
        site_machine, "space_of", lambda _: Space(1 << 40, 1 << 40, 0, 0)
    )
    assert site_machine.quick_case_bytes(speed, "/") == size


# --- the doctor -----------------------------------------------------------------------------------


MPIRUN_OF = """
if [ "$1" = --version ]; then echo mpirun; exit 0; fi
for word; do case $word in summaryFile=*) file=${word#summaryFile=};; esac; done
echo '{"tests": [{"Options": {"tasks": %s}}]}' >"$file"
"""


@pytest.mark.parametrize(("tasks", "state"), [(2, "ok"), (1, "problem")])
def test_a_launcher_of_another_mpi_is_found_out(programs, tasks, state):
    put(programs, "mpirun", MPIRUN_OF % tasks)
    put_ior(programs)
    check = doctor.launch_check(site_programs.machine())
    assert check.state == state
    assert state == "ok" or "asked for 2 tasks, ior saw 1" in check.text


def test_a_launch_that_fails_is_a_problem(programs):
    put(programs, "mpirun", "exit 1")
    put_ior(programs)
    check = doctor.launch_check(site_programs.machine())
    assert (check.state, "two tasks did not run" in check.text) == ("problem", True)


def test_what_dead_sessions_left_is_named(tmp_path):
    gone = [4194305, 1]
    case = Path(
        directory.create(str(tmp_path), "t-h-4194305", "case", owner_process=gone)
    )
    place = extras(target={"path": str(tmp_path), "type": "ext4"})
    texts = [f"{c.text} {c.remedy}" for c in doctor.of_target(place)]
    assert any(
        f"left by dead sessions: {case.parent} run: iogauge clean" in text
        for text in texts
    )
