"""The programs of this machine: their versions, the features that they give an environment, and what brings those that lack."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from iogauge.core import commands, untrusted, words
from iogauge.core.paths import project_root, replace_file, state_dir
from iogauge.core.versions import too_old
from iogauge.node.between import version
from iogauge.site.stack import Stack, StackError, of_program
from iogauge.tools.fio.options import METADATA_PHASES
from iogauge.tools.ior import options

#: A program that somebody has built already needs no command.
_ELSEWHERE: Final = (
    " (or put it on PATH, or set IOGAUGE_STACK to the prefix whose bin/ holds it)"
)

#: The command that installs a missing program.
BRINGS: Final = {
    "ior": f"ci/bring{_ELSEWHERE}",
    "mdtest": f"ci/bring{_ELSEWHERE}",
    "fio": "apt install fio (or: dnf install fio, spack install fio)",
    "iperf3": "apt install iperf3 (or: dnf install iperf3, spack install iperf3)",
    "io500": "spack install io500 (the recipe is in spack-repo/)",
    "mpirun": "apt install openmpi-bin, or the MPI that ior was built with",
    "darshan": "ci/build-stack",
    "wrf_io": "docs/checks.md, 'An application's output'",
}


def brings(name: str) -> str:
    """Return the command that brings a program: that of the shell if it is installed already."""
    views = project_root().glob(f"environments/*/.spack-env/view/bin/{name}")
    if any(views):
        return "ci/stack && . ./activate"
    return BRINGS[name]


#: The program that gives an environment a feature.
_PROGRAM_OF: Final = {
    **dict.fromkeys(
        (words.IOR, words.IOR_MPIIO, words.IOR_HDF5, words.IOR_NCMPI), "ior"
    ),
    words.FIO_METADATA: "fio",
    **{name: name for name in (words.MDTEST, words.FIO, words.IPERF, words.IO500)},
}

#: Features of IOR by its back ends.
_BACK_ENDS: Final = {
    words.IOR_MPIIO: "MPIIO",
    words.IOR_HDF5: "HDF5",
    words.IOR_NCMPI: "NCMPI",
}

#: Programs that an MPI launcher starts.
_BY_MPI: Final = ("io500", "ior", "mdtest")


@dataclass(frozen=True, slots=True)
class Program:
    """A program on PATH."""

    name: str
    path: str
    version: str
    #: Features that it gives an environment.
    features: tuple[str, ...] = ()
    #: Why it does not serve; empty if it does.
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """The programs of this machine by name, without missing ones."""

    programs: dict[str, Program] = field(default_factory=dict)

    @property
    def stack(self) -> Stack | None:
        """Return the Spack stack of the benchmark programs, or None; see iogauge.site.stack."""
        for name in ("ior", "fio"):
            if name in self.programs:
                try:
                    built = of_program(self.programs[name].path)
                except StackError:
                    continue
                if built:
                    return built
        return None

    @property
    def features(self) -> list[str]:
        """Return the features of an environment of these programs; MPI programs need a launcher."""
        names: set[str] = set()
        for program in self.programs.values():
            if program.name in _BY_MPI and "mpirun" not in self.programs:
                continue
            names.update(program.features)
        return sorted(names)

    def lacks(self) -> dict[str, str]:
        """Return, for each feature of programs that this machine lacks, why, and what brings it."""
        missing = {
            feature: self._why_not(feature, name)
            for feature, name in _PROGRAM_OF.items()
            if feature not in self.features
        }
        return missing | {
            words.DARSHAN: f"no Darshan that sees MPI-IO is on PATH. It comes with: {BRINGS['darshan']}",
            words.WRF_IO: f"no wrf_io with its header is on PATH. It comes with: {BRINGS['wrf_io']}",
        }

    def _why_not(self, feature: str, name: str) -> str:
        program = self.programs.get(name)
        if program is None:
            return f"{name} is not on PATH. It comes with: {brings(name)}"
        if program.problem:
            return f"{program.path} {program.problem}. Install a working {name}: {BRINGS[name]}"
        if "mpirun" not in self.programs and name in _BY_MPI:
            return f"{name} needs mpirun, which is not on PATH. It comes with: {BRINGS['mpirun']}"
        old = too_old(feature, program.version)
        if old:
            return f"{program.path}: {old}"
        return f"{program.path} was built without it. Install a {name} with this feature: {BRINGS[name]}"


def _output(command: list[str]) -> str:
    """Return standard output and error of a program that reports about itself."""
    done = commands.run(
        *command, seconds=60, environment=os.environ | mpi_environment()
    )
    return done.stdout + done.stderr


def mpi_environment() -> dict[str, str]:
    """Return variables that let Open MPI 4 and 5 start any number of ranks here, also as root."""
    variables = {
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }
    if os.getuid() == 0:
        variables |= {
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }
    return variables


#: How a program prints its version.
_VERSION: Final = {
    words.FIO: r"fio-(\S+)",
    words.IPERF: r"^iperf (\S+)",
}
#: An option and a pattern by which others are known: IO500's help speaks of no version, and its list of options of no MPI.
_KNOWN_BY: Final = {
    words.IO500: ("--list", r"\[mdtest-hard\]"),
    words.MDTEST: ("--help", "(?i:mdtest)|-n"),
}


def _ask(name: str, path: str) -> Program:
    """Ask a program for its version and its features; all but IOR give the one of their name."""
    try:
        if name == "mpirun":
            lines = _output([path, "--version"]).strip().splitlines() or ["unknown"]
            return Program(name, path, lines[0])
        if name in _VERSION:
            text = _output([path, "--version"])
            match = re.search(_VERSION[name], text)
            found = match[1] if match else ""
        else:
            found = version(path) if name != words.IO500 else ""
            option, pattern = _KNOWN_BY.get(name, ("--help", ""))
            text = "" if too_old(name, found) else _output([path, option])
            match = re.search(pattern, text)
        old = too_old(name, found)
        if old:
            return Program(name, path, found, (), old)
        if match is None:
            return _odd(name, path, text)
        features = [name]
        if name == words.IOR:
            back_ends = options.parse_help(text)
            features += [
                f for f, back_end in _BACK_ENDS.items() if back_end in back_ends
            ]
        engines = _output([path, "--enghelp"]).split() if name == words.FIO else []
        if METADATA_PHASES.keys() <= {*engines} and not too_old(
            words.FIO_METADATA, found
        ):
            features.append(words.FIO_METADATA)
        return Program(name, path, found, tuple(features))
    except (OSError, ValueError) as error:
        return _odd(name, path, str(error))


def _odd(name: str, path: str, text: str) -> Program:
    lines = text.strip().splitlines() or ["nothing"]
    problem = f"does not answer as {name} would: {lines[0][:120]}"
    return Program(name, path, "", (), problem)


def machine(cache: Path | None = None) -> Machine:
    """Return the programs on PATH.

    Their answers are cached in ``cache``, by default ``detect.json`` in the state directory.
    """
    file = cache or state_dir() / "detect.json"
    try:
        cached = untrusted.read_json(file)
    except (OSError, ValueError):
        cached = {}
    programs, fresh = {}, {}
    for name in ("ior", "mdtest", "fio", "io500", "iperf3", "mpirun"):
        path = shutil.which(name)
        if path is None:
            continue
        info = os.stat(path)
        key = f"{path}:{info.st_mtime_ns}:{info.st_size}"
        try:
            program: Program = untrusted.build(Program, cached[key])
        except (KeyError, TypeError):
            program = _ask(name, path)
        programs[name], fresh[key] = program, asdict(program)
    if fresh != cached:
        with contextlib.suppress(
            OSError
        ):  # a cache that cannot be kept costs a second, not a result
            file.parent.mkdir(parents=True, exist_ok=True)
            replace_file(file, json.dumps(fresh).encode())
    return Machine(programs)


def darshan_library() -> str | None:
    """Return the path of the libdarshan.so of the darshan-config on PATH, or None if it is of no
    use.

    It is of no use without support for MPI-IO, or without a darshan-parser for its logs.
    """
    config = shutil.which("darshan-config")
    if config is None or shutil.which("darshan-parser") is None:
        return None
    library = Path(config).parent.parent / "lib" / "libdarshan.so"
    try:
        watches = _output([config, "--mpiio-mod"]).strip() == "yes"
    except OSError:
        return None
    if not watches or not library.exists():
        return None
    return str(library)
