"""The programs of this machine: their versions, the features that they give an environment, and what brings those that lack."""

import os
import re
import shutil
from dataclasses import dataclass, field
from typing import Final

from iogauge.core import commands, vocabulary
from iogauge.core.paths import project_root
from iogauge.core.versions import too_old
from iogauge.node.between import version
from iogauge.site.stack import Stack, StackError, of_program
from iogauge.tools.ior import ior_options

#: What starts tasks of MPI.
_MPIRUN: Final = "mpirun"

#: A program that somebody has built already needs no command.
_ELSEWHERE: Final = " (or put it on PATH, or run: IOGAUGE_STACK=PREFIX make setup, if PREFIX/bin holds it)"


@dataclass(frozen=True, slots=True)
class Tool:
    """A program that measures, or that starts what measures."""

    #: What installs it.
    brings: str
    #: The option with which it says what it is, and a pattern of its answer; a group is the version.
    option: str = "--help"
    pattern: str = ""
    #: The checks that need it; empty of a few.
    needed_for: str = ""
    #: Whether mpirun starts it.
    by_mpi: bool = False


#: The programs that are looked for on PATH. IO500's help speaks of no version, and its list of options of no MPI.
TOOLS: Final = {
    vocabulary.IOR: Tool(
        f"ci/bring{_ELSEWHERE}",
        needed_for="bandwidth with IOR (IorPosix, IorMpiio)",
        by_mpi=True,
    ),
    vocabulary.MDTEST: Tool(
        f"ci/bring{_ELSEWHERE}",
        pattern="(?i:mdtest)|-n",
        needed_for="metadata rates with mdtest (MdtestEasy, MdtestHard)",
        by_mpi=True,
    ),
    vocabulary.FIO: Tool(
        "apt install fio (or: dnf install fio, spack install fio)",
        "--version",
        r"fio-(\S+)",
        "bandwidth and random reads with fio (FioSequential, FioRandomRead)",
    ),
    vocabulary.IO500: Tool(
        "spack install io500 (the recipe is in spack-repo/)",
        "--list",
        r"\[mdtest-hard\]",
        by_mpi=True,
    ),
    _MPIRUN: Tool(
        "apt install openmpi-bin, or the MPI that ior was built with",
        "--version",
        r"(.+)",
        "everything that runs IOR or mdtest",
    ),
}


def brings(name: str) -> str:
    """Return the command that brings a program: that of the shell if it is installed already."""
    views = project_root().glob(f"environments/*/.spack-env/view/bin/{name}")
    if any(views):
        return "ci/stack && . ./activate"
    return TOOLS[name].brings


#: Features of IOR by its back ends.
_BACK_ENDS: Final = {
    vocabulary.IOR_MPIIO: "MPIIO",
    vocabulary.IOR_HDF5: "HDF5",
    vocabulary.IOR_NCMPI: "NCMPI",
}


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
            if not TOOLS[program.name].by_mpi or _MPIRUN in self.programs:
                names.update(program.features)
        return sorted(names)

    def lacks(self) -> dict[str, str]:
        """Return, for each feature of programs that this machine lacks, why, and what brings it."""
        missing = {
            vocabulary.DARSHAN: "the stack has no Darshan that sees MPI-IO. It comes with: ci/build-stack",
            vocabulary.WRF_IO: "a site declares wrf_io: docs/checks.md, 'An application's output'",
        }
        for feature in vocabulary.ENVIRONMENT - set(self.features) - set(missing):
            missing[feature] = self._why_not(feature.partition("-")[0])
        return missing

    def _why_not(self, name: str) -> str:
        program = self.programs.get(name)
        if program is None:
            return f"{name} is not on PATH. It comes with: {brings(name)}"
        other = TOOLS[name].brings
        if program.problem:
            return (
                f"{program.path} {program.problem}. Install a working {name}: {other}"
            )
        if TOOLS[name].by_mpi and _MPIRUN not in self.programs:
            return f"{name} needs mpirun, which is not on PATH. It comes with: {brings(_MPIRUN)}"
        return f"{program.path} was built without it. Install a {name} with this feature: {other}"


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


def _output(path: str, option: str) -> str:
    environment = os.environ | mpi_environment()
    done = commands.run(path, option, seconds=60, environment=environment)
    return done.stdout + done.stderr


def _ask(name: str, path: str) -> Program:
    """Ask a program what it is; raises OSError."""
    tool = TOOLS[name]
    number = ""
    text = ""
    if name in (vocabulary.IOR, vocabulary.MDTEST):
        number = version(path)
    if not too_old(name, number):
        text = _output(path, tool.option)
    match = re.search(tool.pattern, text)
    if match and match.groups():
        number = match[1]
    old = too_old(name, number)
    if old:
        return Program(name, path, number, (), old)
    if match is None:
        return _odd(name, path, text)
    features: list[str] = []
    if name != _MPIRUN:
        features.append(name)
    if name == vocabulary.IOR:
        try:
            back_ends = ior_options.parse_help(text)
        except ValueError as error:
            return _odd(name, path, str(error))
        for feature, back_end in _BACK_ENDS.items():
            if back_end in back_ends:
                features.append(feature)
    return Program(name, path, number, tuple(features))


def _odd(name: str, path: str, text: str) -> Program:
    lines = text.strip().splitlines() or ["nothing"]
    problem = f"does not answer as {name} would: {lines[0][:120]}"
    return Program(name, path, "", (), problem)


def machine() -> Machine:
    """Return the programs on PATH, as they answer."""
    programs = {}
    for name in TOOLS:
        path = shutil.which(name)
        if path:
            try:
                programs[name] = _ask(name, path)
            except OSError as error:
                programs[name] = _odd(name, path, str(error))
    return Machine(programs)
