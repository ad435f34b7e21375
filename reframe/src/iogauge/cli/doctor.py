"""Examine the machine: what is available, what is missing, and the one command that provides it."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, Literal

from iogauge.core import deadline, paths
from iogauge.core.units import format_bytes
from iogauge.core.yamlfile import Mistake
from iogauge.node import lustre_targets
from iogauge.node.mounts import View, traits
from iogauge.site import machine as site_machine
from iogauge.site import settings
from iogauge.site.machine import BRINGS, Machine, mpi_environment
from iogauge.workspace import directory, lock, permission

#: The checks that need a program, in words.
NEEDED_FOR: Final = {
    "ior": "bandwidth with IOR (IorPosix, IorMpiio)",
    "mdtest": "metadata rates with mdtest (MdtestEasy, MdtestHard)",
    "fio": "random reads and metadata with fio (FioRandomRead, FioMetadata)",
    "mpirun": "everything that runs IOR or mdtest",
}


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor's report."""

    state: Literal["ok", "note", "problem"]
    subject: str
    text: str
    remedy: str = ""


def describe_stack(machine: Machine) -> list[str]:
    """Return one line for each program that was found."""
    return [
        f"{p.name}: {p.path}" + (f" ({p.version})" if p.version else "")
        for p in machine.programs.values()
    ]


def launch_check(machine: Machine) -> Check | None:
    """Run IOR on two tasks over a few KiB, to see whether launcher and program use the same MPI.

    Returns None if IOR or mpirun is missing.
    """
    if not {"ior", "mpirun"} <= set(machine.programs):
        return None
    ior, mpirun = machine.programs["ior"].path, machine.programs["mpirun"].path
    with tempfile.TemporaryDirectory(prefix="iogauge-doctor-") as scratch:
        words = [mpirun, "-np", "2", ior, "-w", "-t", "64k", "-b", "64k", "-o", f"{scratch}/data"]
        words += ["-O", "summaryFormat=JSON", "-O", f"summaryFile={scratch}/out.json"]
        try:
            done = subprocess.run(
                words,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
                env=os.environ | mpi_environment(),
            )
            out = json.loads(Path(scratch, "out.json").read_text(encoding="utf-8"))
            tasks = out["tests"][0]["Options"]["tasks"]
        except (OSError, ValueError, LookupError, subprocess.TimeoutExpired) as error:
            return Check(
                "problem", "mpirun and ior", f"two tasks did not run: {error}", " ".join(words)
            )
    if done.returncode == 0 and tasks == 2:
        return Check("ok", "mpirun and ior", "two tasks ran together")
    return Check(
        "problem",
        "mpirun and ior",
        f"asked for 2 tasks, ior saw {tasks}: {mpirun} is not of the MPI that {ior} was built with",
        f"put the right mpirun first on PATH (see: ldd {ior} | grep libmpi)",
    )


def site_mistakes(folder: Path) -> list[Mistake]:
    """Return the mistakes of a site, including references to checks that do not exist."""
    return settings.read_site(folder)[1]


def _versions() -> list[Check]:
    versions = []
    for name in ("ReFrame-HPC", "pydantic", "rich"):
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            return [Check("problem", "Python packages", f"{name} is missing", "run: make setup")]
    return [Check("ok", "Python", f"{platform.python_version()}, " + ", ".join(versions))]


def _programs(machine: Machine) -> list[Check]:
    checks = []
    for name in ("ior", "mdtest", "fio", "mpirun"):
        program = machine.programs.get(name)
        if program is None:
            checks.append(
                Check("note", name, f"not on PATH; needed for {NEEDED_FOR[name]}", BRINGS[name])
            )
        elif program.problem:
            checks.append(
                Check("problem", name, f"{program.path}: {program.problem}", BRINGS[name])
            )
        else:
            offers = f", offers {', '.join(program.features)}" if program.features else ""
            checks.append(Check("ok", name, f"{program.path} {program.version}{offers}".strip()))
    return checks


def _target(path: str) -> list[Check]:
    try:
        view = deadline.call(path, lambda: lustre_targets.look(path))
    except OSError as error:
        return [Check("problem", f"target {path}", str(error), "set IOGAUGE_TARGET to a directory")]
    checks = _target_mount(path, view)
    try:
        by = deadline.call(path, lambda: permission.reason(path))
        checks.append(Check("ok", f"target {path}", f"may be written in: {by}"))
        writable, sessions, holder = deadline.call(
            path,
            lambda: (
                os.access(path, os.W_OK | os.X_OK),
                directory.sessions(path),
                lock.standing(path),
            ),
        )
    except OSError as error:
        what = f"iogauge allow {path}, or set IOGAUGE_TARGET to a directory of your own"
        return [*checks, Check("problem", f"target {path}", str(error), what)]
    if not writable:
        checks.append(
            Check("problem", f"target {path}", "not writable for you", "choose another directory")
        )
    return [*checks, *_target_sessions(path, sessions, holder)]


def _target_mount(path: str, view: View) -> list[Check]:
    """Return the lines about the file system of a target."""
    mount, room = view.mount, view.space
    kind = mount.type if mount else "unknown"
    checks = [
        Check(
            "ok",
            f"target {path}",
            f"{kind} from {mount.source if mount else '?'}, {format_bytes(room.bytes_free)} free of "
            f"{format_bytes(room.bytes_total)} ({room.fill:.0%} full), {room.inodes_free} inodes free",
        )
    ]
    if traits(kind).cache != "page-cache":
        checks.append(
            Check(
                "note",
                f"target {path}",
                f"a client of {kind} caches where nothing can be proven: buffered reads on one node are INVALID",
                "use two nodes or more, or say what is true: target.cache, target.honours_o_direct",
            )
        )
    return checks


def _target_sessions(
    path: str, sessions: Sequence[directory.FoundSession], holder: lock.Holder | None
) -> Iterator[Check]:
    """Yield the lines about a lock on a target, and about what dead sessions left there."""
    if holder is not None:
        yield Check(
            "note",
            f"target {path}",
            f"locked by {holder}" + (", whose processes have ended" if holder.gone else ""),
            "run: iogauge clean, which breaks the lock if its holder is dead",
        )
    dead = [session.path for session in sessions if not directory.may_be_alive(session)]
    if dead:
        yield Check(
            "note",
            f"target {path}",
            f"left by dead sessions: {', '.join(dead)}",
            "run: iogauge clean",
        )


def examine() -> list[Check]:
    """Return all lines of the doctor's report: Python, programs, target, sites."""
    machine = site_machine.machine()
    checks = [*_versions(), *_programs(machine)]
    launch = launch_check(machine)
    checks += [launch] if launch else []
    checks += _target(site_machine.target_path())
    for folder in settings.site_folders(paths.sites_dir()):
        mistakes = site_mistakes(folder)
        state: Literal["ok", "problem"] = "problem" if mistakes else "ok"
        text = "; ".join(map(str, mistakes)) if mistakes else "settings and references are in order"
        checks.append(
            Check(state, f"site {folder.name}", text, "correct the file" if mistakes else "")
        )
    return checks
