"""Who writes a shared file: hints in the words of an MPI, counted by Darshan.

Real runs of four ranks on one node. A block is one transfer long, so that a collective call writes one piece
without holes. Skipped where mpirun, ior or a Darshan that belongs to this MPI is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from e2e.rig import MIB, ROOT, Rig
from iogauge.site import machine
from iogauge.tools import darshan, mpi
from iogauge.tools.mpi import MpiHints
from iogauge_extras.compare import compare

TASKS = 4
_STACK = ROOT / "environments" / "local" / ".spack-env" / "view" / "bin"

pytestmark = pytest.mark.needs_ior


@pytest.fixture(scope="module")
def library() -> str:
    """Darshan's library: that of PATH, or of the stack that was built here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{os.environ['PATH']}{os.pathsep}{_STACK}")
        found = machine.darshan_library()
    if found is None:
        pytest.skip(f"no Darshan that watches MPI-IO on PATH or in {_STACK}: run ci/build-stack")
    return found


@pytest.fixture(scope="module")
def dialect() -> str:
    """That of mpirun's own MPI-IO."""
    text = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=True)
    found = mpi.dialect_of(text.stdout)
    if found is None:
        pytest.skip(f"an MPI whose hints are not known: {text.stdout[:80]}")
    return found


Watched = Callable[..., Path]


@pytest.fixture
def watched(library: str, storage: Path, tmp_path: Path) -> Watched:
    """Runs IOR under Darshan, with variables for the ranks; returns the log."""

    def run(
        environment: Mapping[str, str],
        *arguments: str,
        transfer: str = "1m",
        tasks: int = TASKS,
        log: Path | None = None,
        summed_up: bool = False,
    ) -> Path:
        log = log or tmp_path / f"{len(list(tmp_path.iterdir()))}.darshan"
        words = darshan.run_words(library, str(log))
        if summed_up:
            words = [word for word in words if not word.startswith(darshan.KEEP_RANKS)]
        words += [f"{name}={value}" for name, value in environment.items()]
        ior = ["ior", "-a", "MPIIO", "-w", "-e", "-t", transfer, *arguments]
        try:
            done = subprocess.run(
                ["mpirun", "-n", str(tasks), *words, *ior, "-o", str(storage / "watched")],
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
                env=os.environ | machine.mpi_environment(),
            )
        finally:
            (storage / "watched").unlink(missing_ok=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert log.exists(), f"Darshan left no log: {done.stderr}"
        return log

    return run


COLLECTIVE = ("-c", "-b", "1m", "-s", "4")


def parsed(log: Path) -> str:
    """What darshan-parser prints of a log."""
    parser = shutil.which("darshan-parser") or str(_STACK / "darshan-parser")
    done = subprocess.run([parser, str(log)], capture_output=True, text=True, check=True)
    return done.stdout


def count(log: Path, tasks: int = TASKS) -> float:
    """Ranks that wrote, from the log."""
    output = darshan.as_output(parsed(log), "watched")
    assert output.tasks == tasks
    return output.phases[0].rates["writers"].value


@pytest.mark.parametrize(("tasks", "aggregators"), [(4, 1), (4, 2), (4, 4), (2, 1), (3, 2)])
def test_aggregators_of_ompio(watched: Watched, dialect: str, tasks: int, aggregators: int) -> None:
    if not dialect.startswith("ompio"):
        pytest.skip(f"this MPI has no OMPIO: {dialect}")
    given = mpi.environment(dialect, MpiHints(aggregators=aggregators), nodes=1)
    assert count(watched(given, *COLLECTIVE, tasks=tasks), tasks) == aggregators


@pytest.mark.parametrize("aggregators", [1, 2, 3])
def test_aggregators_of_romio(watched: Watched, aggregators: int) -> None:
    given = mpi.environment("romio", MpiHints(aggregators=aggregators), nodes=1)
    log = watched(given, *COLLECTIVE)
    assert count(log) == aggregators
    assert compare.read_subject(str(log)).values["POSIX / MPI-IO bytes written"].value == 1


def test_two_transfer_sizes_compared(watched: Watched) -> None:
    large, small = (watched({}, "-b", "4m", transfer=size) for size in ("1m", "4k"))
    comparison = compare.compare(compare.read_subject(str(large)), compare.read_subject(str(small)))
    rows = {row.name: row for row in comparison.rows}
    assert rows["MPI-IO bytes written"].a == rows["MPI-IO bytes written"].b == 4 * TASKS * MIB
    assert rows["small accesses"].b and rows["small accesses"].b > 99
    assert rows["small accesses"].mark == "differs"
    assert rows["writers of the shared file"].a == TASKS
    changes = {change.name: (change.a, change.b) for change in comparison.changes}
    assert changes["access sizes"][0].startswith(f"1 MiB x {4 * TASKS}")
    assert changes["access sizes"][1].startswith(f"4 KiB x {1024 * TASKS}")


def test_a_profiled_case_judges_only_what_darshan_leaves(
    make_rig: Callable[..., Rig], library: str
) -> None:
    rig = make_rig(tools=("ior",), limits={"case_bytes": "64 MiB"})
    settings = rig.settings()
    (environment,) = settings["environments"]
    environment["features"].append("darshan")
    environment["extras"] = {"darshan": library}
    rig.write_settings(settings)
    case = "IorPosix.*%files=per-process.*%order=sequential.*%cache=buffered"
    done = rig.run("-n", case, "-S", "IorPosix.variant=profiled")
    metrics = {m["name"]: m for m in done.record["metrics"]}
    assert set(metrics) == {"write_kept", "read_kept"}, done.out
    assert done.record["variant"] == "profiled"
    # The numbers are noise here; that they were measured, and against which bound, is not.
    assert {m["verdict"] for m in metrics.values()} <= {"PASS", "FAIL"}, done.out
    assert metrics["write_kept"]["reference"]["lower"] == -0.1
    assert metrics["write_kept"]["samples"][0] > 0
    logs = sorted(rig.home.rglob("write.1.darshan"))
    assert logs, done.out
    log = compare.read_subject(str(logs[0]))
    assert log.values["POSIX bytes written"].value >= 64 * MIB
