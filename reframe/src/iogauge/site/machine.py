"""Programs, cores, memory, queues and file systems of this machine and of its nodes.

Only the site ``local`` uses this module: a machine that nobody has described. Declared settings are
kept, and the others are filled in from the machine. The answers of programs about themselves are
cached beside the records until the program file changes.

``python -m iogauge.site.machine PATH`` prints what the node that runs it sees, as JSON: a node of a
scheduler is asked so.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from iogauge.core import processes, untrusted
from iogauge.core.paths import LIBRARY, project_root, state_dir
from iogauge.core.words import (
    DARSHAN,
    ELBENCHO,
    FIO,
    FIO_METADATA,
    IO500,
    IOR,
    IOR_HDF5,
    IOR_LUSTRE,
    IOR_MPIIO,
    IOR_NCMPI,
    IPERF,
    MD_WORKBENCH,
    MDTEST,
    WRF_IO,
    Fingerprint,
)
from iogauge.node import below, probes
from iogauge.node.host import usable_cores
from iogauge.node.kinds import Below, traits
from iogauge.node.lustre.directory import look_at_directory, stripe_facts
from iogauge.node.lustre.programs import LustreError
from iogauge.node.mounts import Mount, Space, find_mount, space_of
from iogauge.node.probes import too_old, version
from iogauge.node.view import View, look, with_lustre
from iogauge.site.stack import Stack, StackError, of_program
from iogauge.tools.fio.options import METADATA_PHASES
from iogauge.tools.ior import options
from iogauge.tools.mpi import dialect_of

#: Bytes that a quick case may hold, at most, on a target that nobody has described.
QUICK_BYTES = 1 << 30

#: Files of a quick case. A local file system answers metadata operations from memory, and needs
#: many files for a meaningful figure. Over a network a tenth is plenty.
QUICK_FILES_LOCAL, QUICK_FILES = 20_000, 4_000

#: Key that is added to an environment's ``extras``: for each feature that the machine's programs do
#: not give, why, and what brings it.
LACKS: Final = "lacks"

#: A program that somebody has built already needs no command.
_ELSEWHERE: Final = " (or put it on PATH, or set IOGAUGE_STACK to the prefix whose bin/ holds it)"

#: The command that installs a missing program.
BRINGS: Final = {
    "ior": f"ci/build-stack{_ELSEWHERE}",
    "mdtest": f"ci/build-stack{_ELSEWHERE}",
    "fio": "apt install fio (or: dnf install fio, spack install fio)",
    "iperf3": "apt install iperf3 (or: dnf install iperf3, spack install iperf3)",
    "elbencho": "spack install elbencho (or put it on PATH)",
    "md-workbench": f"ci/build-stack{_ELSEWHERE}",
    "io500": "spack install io500 (the recipe is in spack-repo/)",
    "mpirun": "apt install openmpi-bin, or the MPI that ior was built with",
    "darshan": "ci/build-stack",
    "wrf_io": "docs/checks.md, 'An application's output'",
}


def brings(name: str) -> str:
    """Return the command that brings a program: that of the shell if it is installed already."""
    views = project_root().glob(f"environments/*/.spack-env/view/bin/{name}")
    return "ci/stack && . ./activate" if any(views) else BRINGS[name]


#: The program that gives an environment a feature.
_PROGRAM_OF: Final = {
    IOR: "ior",
    IOR_MPIIO: "ior",
    IOR_HDF5: "ior",
    IOR_NCMPI: "ior",
    IOR_LUSTRE: "ior",
    MDTEST: "mdtest",
    ELBENCHO: "elbencho",
    FIO: "fio",
    FIO_METADATA: "fio",
    IPERF: "iperf3",
    IO500: "io500",
    MD_WORKBENCH: "md-workbench",
}

#: Programs that an MPI launcher starts.
_BY_MPI: Final = ("io500", "ior", "md-workbench", "mdtest")
_LOCAL_TYPES = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs", "overlay", "zfs"}
)


@dataclass(frozen=True, slots=True)
class Program:
    """A program on PATH: its path, its version, and the features that it gives an environment."""

    name: str
    path: str
    version: str
    features: tuple[str, ...] = ()
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
            DARSHAN: f"no Darshan that sees MPI-IO is on PATH. It comes with: {BRINGS['darshan']}",
            WRF_IO: f"no wrf_io with its header is on PATH. It comes with: {BRINGS['wrf_io']}",
        }

    def _why_not(self, feature: str, name: str) -> str:
        program = self.programs.get(name)
        if program is None:
            return f"{name} is not on PATH. It comes with: {brings(name)}"
        if program.problem:
            return f"{program.path} {program.problem}. Install a working {name}: {BRINGS[name]}"
        if "mpirun" not in self.programs and name in _BY_MPI:
            return f"{name} needs mpirun, which is not on PATH. It comes with: {BRINGS['mpirun']}"
        if old := too_old(feature, program.version):
            return f"{program.path}: {old}"
        return f"{program.path} was built without it. Install a {name} with this feature: {BRINGS[name]}"


@dataclass(frozen=True, slots=True)
class Modules:
    """The modules that are loaded in this shell, in their order, and ReFrame's name of their system."""

    system: str
    loaded: list[str]


def modules() -> Modules | None:
    """Return the modules of this shell; None if none is loaded, or if their system is not known."""
    loaded = [name for name in os.environ.get("LOADEDMODULES", "").split(":") if name]
    systems = {"LMOD_CMD": "lmod", "MODULES_CMD": "tmod4"}
    system = next((systems[name] for name in systems if name in os.environ), "")
    return Modules(system, loaded) if loaded and system else None


def _output(words: list[str]) -> str:
    """Return standard output and error of a program that reports about itself."""
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        errors="replace",
        stdin=subprocess.DEVNULL,
        env=os.environ | mpi_environment(),
    )
    return done.stdout + done.stderr


def mpi_environment() -> dict[str, str]:
    """Return variables that let Open MPI 4 and 5 start any number of ranks here, also as root."""
    variables = {
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }
    if os.getuid() == 0:
        variables |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return variables


def _ask(name: str, path: str) -> Program:
    """Ask a program for its version and its features."""
    try:
        if name == "fio":
            text = _output([path, "--version"])
            match = re.search(r"fio-(\S+)", text)
            if match is None:
                return _odd(name, path, text)
            if old := too_old(FIO, match[1]):
                return Program(name, path, match[1], (), old)
            engines = _output([path, "--enghelp"]).split()
            whole = METADATA_PHASES.keys() <= {*engines} and not too_old(FIO_METADATA, match[1])
            return Program(name, path, match[1], (FIO, FIO_METADATA) if whole else (FIO,))
        if name == "elbencho":
            text = _output([path, "--version"])
            match = re.search(r"^elbencho\n \* Version: (\S+)", text)
            return Program(name, path, match[1], (ELBENCHO,)) if match else _odd(name, path, text)
        if name == "iperf3":
            text = _output([path, "--version"])
            match = re.match(r"iperf (\S+)", text)
            return Program(name, path, match[1], (IPERF,)) if match else _odd(name, path, text)
        if name == "mpirun":
            text = _output([path, "--version"])
            return Program(name, path, text.strip().splitlines()[0] if text.strip() else "unknown")
        if name == "io500":
            # Its help speaks of no version, its list of options of no MPI.
            own = "[mdtest-hard]" in (text := _output([path, "--list"]))
            return Program(name, path, "", (IO500,)) if own else _odd(name, path, text)
        found = version(path)
        if old := too_old(name, found):
            return Program(name, path, found, (), old)
        text = _output([path, "--help"])
        if name == "md-workbench":
            own = "Synopsis md-workbench" in text
            return Program(name, path, found, (MD_WORKBENCH,)) if own else _odd(name, path, text)
        if name == "mdtest":
            features = (MDTEST,) if "mdtest" in text.lower() or "-n" in text else ()
            return Program(name, path, found, features) if features else _odd(name, path, text)
        offers = options.parse_help(text)
        wanted = {
            IOR: True,
            IOR_MPIIO: "MPIIO" in offers.apis,
            IOR_HDF5: "HDF5" in offers.apis,
            IOR_NCMPI: "NCMPI" in offers.apis,
            IOR_LUSTRE: offers.lustre,
        }
        return Program(name, path, found, tuple(f for f, has in wanted.items() if has))
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        return _odd(name, path, str(error))


def _odd(name: str, path: str, text: str) -> Program:
    first = text.strip().splitlines()[0] if text.strip() else "nothing"
    return Program(name, path, "", (), f"does not answer as {name} would: {first[:120]}")


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
    for name in ("ior", "mdtest", "md-workbench", "fio", "elbencho", "io500", "iperf3", "mpirun"):
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
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            scratch = file.with_suffix(f".{os.getpid()}")
            scratch.write_text(json.dumps(fresh), encoding="utf-8")
            scratch.replace(file)
        except OSError:
            pass  # a cache that cannot be kept costs a second, not a result
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
    except (OSError, subprocess.TimeoutExpired):
        return None
    return str(library) if watches and library.exists() else None


def wrf_header() -> str | None:
    """Return the path of the header that lies beside WRF-IO on PATH, where the recipe of this suite puts it; None without."""
    program = Path(shutil.which("wrf_io") or "/nonexistent")
    header = program.parent.parent / "share" / "wrf-io" / "wrf_header.txt"
    return str(header) if header.exists() else None


def memory_bytes() -> int:
    """Return the memory of this node, ``MemTotal`` of /proc/meminfo."""
    with open("/proc/meminfo", encoding="ascii") as file:
        match = re.search(r"^MemTotal:\s+(\d+) kB", file.read(), re.MULTILINE)
    if match is None:
        raise OSError("/proc/meminfo has no MemTotal")
    return int(match[1]) * 1024


def target_path() -> str:
    """Return ``$IOGAUGE_TARGET``, or the current directory."""
    path = os.environ.get("IOGAUGE_TARGET") or os.environ.get("PWD") or os.getcwd()
    return processes.call_in_time(path, lambda: os.path.realpath(path))


@dataclass(frozen=True, slots=True)
class _PathFacts:
    mount: Mount
    below: Below
    space: Space


def _look(path: str) -> _PathFacts:
    if not os.path.isdir(path):
        raise NotADirectoryError(f"target {path!r} is not a directory")
    mount = find_mount(path)
    if mount is None:
        raise OSError(f"no mount holds {path!r}")
    return _PathFacts(mount, below.resolve(path, mount), space_of(path))


def complete(partition: dict[str, Any], environments: list[dict[str, Any]]) -> None:
    """Fill in a partition's and its environments' keys; raises OSError for a bad target."""
    extras = partition.setdefault("extras", {})
    target = extras.setdefault("target", {})
    path = target.setdefault("path", target_path())
    looked = processes.call_in_time(path, lambda: _look(path))
    target.setdefault("type", looked.mount.type)
    target.setdefault("source", looked.mount.source)
    known = traits(looked.mount.type).over(looked.below)
    if known.why:
        target.setdefault("cache", known.cache)
        target.setdefault("honours_o_direct", known.honours_o_direct)
    if looked.below.compresses:
        target.setdefault("compresses", True)
    cores = usable_cores()
    extras.setdefault("node", {"cores": cores, "memory": f"{memory_bytes()} B"})
    tasks = extras.setdefault("scale", {}).setdefault("tasks_per_node", min(cores, 8))
    points = sorted({*(1 << n for n in range(tasks.bit_length())), tasks})
    sweeps = {"tasks_per_node": points, "tasks_per_client": [tasks], "aggregators": [1, tasks]}
    extras.setdefault("sweeps", {name: sorted({*values}) for name, values in sweeps.items()})
    room = looked.space
    limits = extras.setdefault("limits", {})
    share = (room.bytes_free // 20) >> 20 << 20
    limits.setdefault(
        "case_bytes", os.environ.get("IOGAUGE_CASE_BYTES") or f"{min(QUICK_BYTES, share)} B"
    )
    files = QUICK_FILES_LOCAL if target["type"] in _LOCAL_TYPES else QUICK_FILES
    limits.setdefault(
        "case_files", min(files, room.inodes_free // 20) if room.inodes_total else files
    )
    # A case takes a twentieth at most, unless the user requests more (IOGAUGE_CASE_BYTES).
    limits.setdefault("max_of_free", "50 %")
    limits.setdefault("phase_seconds", "2 s")
    limits.setdefault("tier", "quick")
    limits.setdefault("max_spread", "20 %")
    here = machine()
    partition["launcher"] = "mpirun" if "mpirun" in here.programs else "local"
    declared = {name for name, _ in partition.get("env_vars", [])}
    partition["env_vars"] = partition.get("env_vars", []) + [
        [name, value] for name, value in mpi_environment().items() if name not in declared
    ]
    built = here.stack
    library = (built and built.darshan) or darshan_library()
    mpi = dialect_of(here.programs["mpirun"].version) if "mpirun" in here.programs else None
    header = wrf_header()
    found = (("mpi", mpi), (DARSHAN, library), (WRF_IO, header))
    detected = {name: value for name, value in found if value}
    for environment in environments:
        if environment["name"] in partition.get("environs", []):
            has = [*here.features, *(name for name in (DARSHAN, WRF_IO) if name in detected)]
            environment["features"] = sorted({*environment.get("features", []), *has})
            environment["extras"] = detected | environment.get("extras", {})
            lacks = {name: why for name, why in here.lacks().items() if name not in has}
            environment["extras"][LACKS] = lacks
            if built:
                environment["extras"]["installed"] = built.to_record()


def probe_write(directory: str, seconds: float = 0.5, most: int = 256 << 20) -> float:
    """Return a rough bandwidth of writing to a directory in bytes/s, to size cases with, not to
    report.

    Writes 4 MiB blocks, with O_DIRECT if it is accepted, until the time or ``most`` bytes are used
    up. Raises OSError.
    """
    block = mmap.mmap(-1, 4 << 20)
    path = os.path.join(directory, "probe")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        fd = os.open(path, flags | os.O_DIRECT, 0o600)
    except OSError:
        fd = os.open(path, flags, 0o600)
    try:
        written, start = 0, time.monotonic()
        while written < most and time.monotonic() - start < seconds:
            written += os.write(fd, block)
        os.fsync(fd)
        return written / (time.monotonic() - start)
    finally:
        os.close(fd)
        os.unlink(path)


def quick_case_bytes(speed_bytes_s: float, path: str) -> int:
    """Return the bytes of a quick case: a second of writing, whole MiB, within the free space."""
    wanted = int(speed_bytes_s) >> 20 << 20
    most = min(QUICK_BYTES, (space_of(path).bytes_free // 20) >> 20 << 20)
    return max(min(wanted, most), 16 << 20)


#: Seconds for a question to the scheduler, and for a node that has to be waited for.
ASK_SECONDS: Final = 30
NODE_SECONDS: Final = 60

#: Columns of sinfo: partition, nodes, sockets, cores of each, memory in MiB, longest job, state.
_SINFO: Final = "%P|%D|%X|%Y|%m|%l|%a"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSeen(untrusted.Plain):
    """What a node sees: itself, and the target.

    ``facts`` are those of a fingerprint. ``layout`` holds the default layout of the target, as
    ``expect`` names it. ``mdts`` is the number of metadata targets, 0 if unknown. ``troubles`` say
    what it could not find out.
    """

    host: str
    cores: int
    memory_bytes: int
    facts: Fingerprint
    view: View
    layout: Fingerprint
    mdts: int
    troubles: tuple[str, ...] = ()

    @property
    def servers(self) -> int:
        """Return the number of object storage servers, 0 if unknown."""
        addresses = {target.server for target in self.view.targets if target.server}
        return len(addresses)

    @property
    def nic_bytes_s(self) -> tuple[float, str] | None:
        """Return the rate of the network interface that leads to storage, and its name; else None.

        That is the interface of the route to the server, else the fastest one.
        """
        found: dict[str, float] = {}
        for key, value in self.facts.items():
            if match := re.fullmatch(r"nic\.(.+)\.speed_mbps", key):
                found[match[1]] = float(str(value)) * 1e6 / 8
            match = re.fullmatch(r"ib\.(.+)\.rate", key)
            if match and (rate := re.match(r"([\d.]+) Gb/sec", str(value))):
                found[match[1]] = float(rate[1]) * 1e9 / 8
        way = str(self.facts.get("nic.target", ""))
        if way in found:
            return found[way], way
        fastest = max(found, key=lambda name: found[name], default=None)
        return (found[fastest], fastest) if fastest else None


def look_here(path: str) -> NodeSeen:
    """Return what this node sees of itself and of a target; raises OSError if there is no target."""
    if not os.path.isdir(path):
        raise NotADirectoryError(f"{path} is not a directory on {os.uname().nodename}")
    view, troubles = look(path), []
    layout: Fingerprint = {}
    mdts = 0
    facts = probes.collect(path)
    if view.on_lustre:
        try:
            view = with_lustre(view, True)
        except LustreError as error:
            troubles.append(f"storage targets: {error}")
        seen = look_at_directory(view)
        mdts = len(seen.metadata)
        layout = stripe_facts(seen.default)
        troubles += [f"Lustre: {text}" for text in seen.unanswered]
    return NodeSeen(
        host=os.uname().nodename,
        cores=usable_cores(),
        memory_bytes=memory_bytes(),
        facts=facts,
        view=view,
        layout=layout,
        mdts=mdts,
        troubles=tuple(troubles),
    )


def look_through(words: Sequence[str], path: str) -> NodeSeen:
    """Return what a node sees that a scheduler's command gives, such as ``srun``; raises OSError.

    A node's core count is of all its cores: the command may give its process fewer.
    """
    command = [*words, sys.executable, "-m", "iogauge.site.machine", path]
    sources = [str(LIBRARY.parent), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sources))}
    printed = _printed(command, NODE_SECONDS, environment)
    try:
        seen = NodeSeen.from_json(json.loads(printed))
    except (ValueError, TypeError, KeyError) as error:
        raise OSError(
            f"{words[0]} printed no facts of a node: found {printed[:200]!r}, expected JSON. "
            f"Run '{words[0]} hostname' to see what the prologue prints"
        ) from error
    cores = seen.facts.get("cpu.cores")
    return replace(seen, cores=cores) if isinstance(cores, int) and cores > 0 else seen


def _printed(
    words: Sequence[str], seconds: float, environment: dict[str, str] | None = None
) -> str:
    """Return what a program prints; raises OSError with its complaint if it fails or is late."""
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
            stdin=subprocess.DEVNULL,
            env=environment,
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(f"{words[0]}: no answer in {seconds:g} s") from error
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "it printed nothing").splitlines()
        raise OSError(f"{words[0]}: exit status {done.returncode}: {said[-1]}")
    return done.stdout


@dataclass(frozen=True, slots=True)
class Queue:
    """A partition of Slurm: its nodes, and what the smallest of them has; 0 if not known."""

    name: str
    nodes: int
    cores: int
    memory_bytes: int
    limit_seconds: int | None
    default: bool


@dataclass(frozen=True, slots=True)
class Slurm:
    """A Slurm of which this host is a client: its queues, the default one first."""

    queues: tuple[Queue, ...]
    #: Whether jobs leave accounts, which ReFrame's scheduler ``slurm`` needs.
    accounting: bool
    #: Whether srun starts MPI programs by itself (MpiDefault).
    starts_mpi: bool


def parse_limit(text: str) -> int | None:
    """Return the seconds of a time limit of Slurm (``1-12:00:00``, ``30:00``); None if infinite."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def parse_sinfo(text: str) -> tuple[Queue, ...]:
    """Return the queues that are up from the output of sinfo, the default one first."""
    queues: dict[str, Queue] = {}
    for line in text.splitlines():
        words = line.strip().split("|")
        if len(words) != 7 or words[6] != "up":
            continue
        # Lines of one queue are of different nodes; a plus sign stands for "at least".
        nodes, sockets, cores, mebibytes = (
            int(re.sub(r"\D.*", "", word) or 0) for word in words[1:5]
        )
        name = words[0].rstrip("*")
        here = Queue(
            name, nodes, sockets * cores, mebibytes << 20, parse_limit(words[5]), "*" in words[0]
        )
        if other := queues.get(name):
            here = replace(
                here,
                nodes=here.nodes + other.nodes,
                cores=min(here.cores, other.cores),
                memory_bytes=min(here.memory_bytes, other.memory_bytes),
            )
        queues[name] = here
    return tuple(sorted(queues.values(), key=lambda queue: not queue.default))


def slurm() -> Slurm | None:
    """Return the Slurm of this host; None without its programs. Raises OSError if it does not answer."""
    if shutil.which("sinfo") is None or shutil.which("sbatch") is None:
        return None
    queues = parse_sinfo(_printed(["sinfo", "--noheader", f"--format={_SINFO}"], ASK_SECONDS))
    settings = ""
    with contextlib.suppress(OSError):
        settings = _printed(["scontrol", "show", "config"], ASK_SECONDS)
    storage = re.search(r"AccountingStorageType\s*=\s*(\S+)", settings)
    mpi = re.search(r"MpiDefault\s*=\s*(\S+)", settings)
    return Slurm(
        queues,
        accounting=bool(storage) and "none" not in storage[1] if storage else False,
        starts_mpi=bool(mpi) and mpi[1] != "none" if mpi else False,
    )


def other_scheduler() -> str:
    """Return the command of a scheduler that is here and is not asked; empty if there is none."""
    return next((name for name in ("qsub", "bsub", "flux", "oarsub") if shutil.which(name)), "")


if __name__ == "__main__":
    print(json.dumps(look_here(sys.argv[1]).to_json()))
