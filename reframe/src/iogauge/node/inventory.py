"""The inventory of a node, for its fingerprint: machine, mount, network, Lustre's client, and what stands between tools and kernel.

The last are libraries that the loader preloads, and tools that are scripts.
"""

import array
import contextlib
import fcntl
import functools
import os
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from iogauge.core import commands
from iogauge.core.text import text_digest
from iogauge.core.untrusted import read_text
from iogauge.core.vocabulary import (
    FIO,
    IO500,
    IOR,
    MDTEST,
    Fingerprint,
    Value,
)
from iogauge.node.between import (
    PROGRAM_SECONDS,
    handed_on,
    joined,
    of_processes,
    preloaded,
    script,
)
from iogauge.node.kernel import listed, memory_bytes, text
from iogauge.node.lustre import parameters
from iogauge.node.mounts import Mount, find_mount, fsname_of

#: Seconds for all readers of a node together, and for each program that a reader starts. A busy node
#: needs more than an idle one; no phase is timed meanwhile.
DEADLINE = 30.0

#: First word of a key that stands for the keys of a reader that did not answer in time.
UNANSWERED = "unanswered."
_GIB = 1 << 30

#: Names of mount options and variables whose values stay private.
SECRET = re.compile(
    r"(?i)pass|secret|cred|token|(?:^|[_.-])key|keyring|^(?:user|username|name|domain|password2)$|skpath"
)

#: Environment variables that change how MPI, and the libraries over and under it, do I/O and move data.
_HINTS = re.compile(
    r"(?:OMPI_MCA_(?:io|fs|fcoll|fbtl|sharedfp|coll|pml|btl|mtl|osc)(?:_\w+)?|(?:ROMIO|MPICH|UCX|FI|PSM2|PNETCDF|HDF5)_\w+"
    r"|IOR_HINT__\w+|I_MPI_(?:EXTRA_FILESYSTEM|FABRICS)\w*)"
)


#: Mount options that say nothing of how a target works: they differ from node to node, from mount to mount (the port of
#: NFS 3's mountd) or from container to container (an overlay's directories).
_NO_MATTER = frozenset(
    {"addr", "clientaddr", "mountaddr", "mountport", "lowerdir", "upperdir", "workdir"}
)


def safe_options(options: str) -> str:
    """Return the mount options that matter, sorted, each once, without the values of secret or private options."""
    kept = []
    for option in options.split(","):
        name, equals, _ = option.partition("=")
        if equals and SECRET.search(name):
            option = f"{name}=***"
        if name not in _NO_MATTER:
            kept.append(option)
    return ",".join(sorted(set(kept) - {""}))


def safe_source(source: str) -> str:
    """Return a mount's source without user and password (``//user:word@host/share``)."""
    return re.sub(r"(?<=//)[^/@\s]*@", "", source)


@dataclass(frozen=True)
class _Node:
    """A machine's files, and the mount at a path."""

    #: ``/`` on a real machine.
    root: Path
    path: str
    #: Those of the case's tools that run already.
    processes: Sequence[int]

    @functools.cached_property
    def mount(self) -> Mount:
        return find_mount(self.path)

    def text(self, *path: str) -> str:
        """Return the content of a file, empty if it cannot be read."""
        return text(self.root, *path)

    def files(self, pattern: str) -> list[Path]:
        """Return all matching files, sorted."""
        return sorted(self.root.glob(pattern))

    def texts(self, pattern: str) -> list[str]:
        """Return the contents of all matching readable files, each once, sorted."""
        return sorted(filter(None, {text(file) for file in self.files(pattern)}))


#: What a reader finds; "" and None stand for what it did not find. If it raises an exception, its keys are missing.
_Facts = Mapping[str, Value | None]


def _system(node: _Node) -> _Facts:
    kernel = os.uname()
    named = re.findall(r'(?m)^PRETTY_NAME="?([^"\n]*)', node.text("etc/os-release"))
    return {
        "kernel": kernel.release,
        "machine": kernel.machine,
        "os": "".join(named),
        "node.model": node.text("sys/class/dmi/id/product_name"),
    }


def _mount(node: _Node) -> _Facts:
    return {
        "mount.type": node.mount.type,
        "mount.source": safe_source(node.mount.source),
        "mount.options": safe_options(node.mount.options),
    }


def _processor(node: _Node) -> _Facts:
    cpuinfo = node.text("proc/cpuinfo")
    models = dict(re.findall(r"(?m)^(model name|cpu|CPU part)\s*:\s*(.+)$", cpuinfo))
    model = ""
    for name in ("CPU part", "cpu", "model name"):
        model = models.get(name, model)
    cpus = "sys/devices/system/cpu/cpu[0-9]*"
    # Since Linux 5.3, and before.
    cores = node.texts(f"{cpus}/topology/core_cpus_list")
    cores = cores or node.texts(f"{cpus}/topology/thread_siblings_list")
    has_smt = None
    if cores:
        has_smt = len(node.files(f"{cpus}/topology")) > len(cores)
    flaws = []
    for file in node.files("sys/devices/system/cpu/vulnerabilities/*"):
        flaws.append(f"{file.name}: {text(file)}")
    numa_nodes = node.files("sys/devices/system/node/node[0-9]*")
    return {
        "cpu.model": " ".join(model.split()),
        "cpu.cores": len(cores) or None,
        "cpu.smt": has_smt,
        "cpu.sockets": len(node.texts(f"{cpus}/topology/physical_package_id")) or None,
        "cpu.numa_nodes": len(numa_nodes) or None,
        "cpu.governor": ",".join(node.texts(f"{cpus}/cpufreq/scaling_governor")),
        "cpu.mitigations": (flaws and text_digest("\n".join(flaws))) or None,
    }


def _memory(node: _Node) -> _Facts:
    total = memory_bytes(str(node.root))
    limits = [limit for limit in _memory_limits(node) if limit < total]
    pages = node.text("sys/kernel/mm/transparent_hugepage/enabled")
    return {
        "mem.bytes": round(total / _GIB) * _GIB,
        "mem.limit": min(limits, default=None),
        "mem.thp": "".join(re.findall(r"\[(\w+)\]", pages)),
    }


def _memory_limits(node: _Node) -> list[int]:
    """Return the limits of memory of this process's control group and of those above it, in bytes.

    A control group also pays for the pages that it reads into the page cache, so that the cache of
    a job is no larger. A group outside of what is mounted here tells nothing.
    """
    limits = []
    for line in node.text("proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if ".." in path.split("/"):
            continue
        if not controllers:
            top, file = "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            top, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        group = PurePosixPath(f"/{path}")
        for place in (group, *group.parents):
            with contextlib.suppress(ValueError):  # "max" is no limit
                limits.append(int(node.text(f"{top}{place}/{file}")))
    return limits


def _firmware(interface: str) -> str:
    """Return the firmware of an interface (ETHTOOL_GDRVINFO); empty if it does not tell."""
    block = array.array("B", struct.pack("I", 0x3) + bytes(192))
    request = struct.pack("16sP", interface.encode()[:15], block.buffer_info()[0])
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock,
    ):
        fcntl.ioctl(sock, 0x8946, request)  # SIOCETHTOOL
    field = block.tobytes()[68:100].partition(b"\0")[0]
    return field.decode("ascii", "replace").removeprefix("N/A")


def _network(node: _Node) -> _Facts:
    """Return facts of all active interfaces that have hardware, or bond others that have."""
    facts: dict[str, Value | None] = {}
    for name in listed(str(node.root), "sys/class/net"):
        place = node.root / "sys/class/net" / name
        bonds = (place / "bonding").exists()
        real = bonds or (place / "device").exists()
        if not real or text(place, "operstate") not in ("up", "unknown"):
            continue
        ids = [text(place, "device", part) for part in ("vendor", "device")]
        if all(ids):
            facts[f"nic.{name}.model"] = ":".join(ids)
        if bonds:
            facts[f"nic.{name}.driver"] = "bonding"
        with contextlib.suppress(OSError):
            link = os.readlink(place / "device/driver")
            facts[f"nic.{name}.driver"] = os.path.basename(link)
        if node.root == Path("/"):
            facts[f"nic.{name}.firmware"] = _firmware(name)
        for key, file in (("speed_mbps", "speed"), ("mtu", "mtu")):
            with contextlib.suppress(ValueError):
                facts[f"nic.{name}.{key}"] = max(0, int(text(place, file))) or None
    return facts


def _infiniband(node: _Node) -> _Facts:
    facts: Fingerprint = {}
    for port in node.files("sys/class/infiniband/*/ports/*"):
        device = port.parent.parent
        key = f"ib.{device.name}:{port.name}"
        facts[f"{key}.rate"] = text(port, "rate")
        facts[f"{key}.firmware"] = text(device, "fw_ver")
    return facts


def _lustre(node: _Node) -> _Facts:
    if node.mount.type != "lustre":
        return {}
    return parameters.facts(fsname_of(node.mount.source), node.root)


def _hints(node: _Node) -> _Facts:
    variables: dict[str, str] = {}
    # What Open MPI's file of a user sets, as the variables that would do the same.
    home = os.environ.get("HOME", "/").lstrip("/")
    for line in node.text(home, ".openmpi/mca-params.conf").splitlines():
        name, equals, value = line.partition("#")[0].partition("=")
        if equals:
            variables[f"OMPI_MCA_{name.strip()}"] = value.strip()
    variables |= os.environ
    hints = []
    for name, value in sorted(variables.items()):
        if not _HINTS.fullmatch(name) or SECRET.search(name):
            continue
        hint = f"{name}={value}"
        if name == "ROMIO_HINTS":
            with contextlib.suppress(OSError, ValueError):
                hint += f" ({text_digest(read_text(Path(value)))})"
        hints.append(hint)
    return {"hints.environment": "; ".join(hints)}


def _between(node: _Node) -> _Facts:
    """Return libraries and scripts between the tools and the kernel, see node/programs."""
    own = preloaded(handed_on(os.environ), node.root)
    facts = joined([own, of_processes(node.processes)])
    for tool in (FIO, IOR, MDTEST, IO500):
        with contextlib.suppress(OSError):
            facts |= script(tool, os.environ)
    return facts


def mpi_version(text: str) -> str:
    """Return name and version of an MPI from ``mpirun --version``; raises IndexError if it printed nothing."""
    hydra = re.search(r"(?m)^HYDRA build details:\s+Version:\s*(\S+)", text)
    if hydra:
        return f"MPICH {hydra[1]}"
    return re.sub(r"^\S+ \((.*)\)", r"\1", text.strip().splitlines()[0])


def _mpi(node: _Node) -> _Facts:
    printed = ""
    with contextlib.suppress(OSError):
        done = commands.run("mpirun", "--version", seconds=PROGRAM_SECONDS)
        printed = done.stdout
    cray = os.environ.get("CRAY_MPICH_VERSION")
    # The launcher of another MPI is the one that is used, whatever module is loaded.
    if cray and not re.search("Open MPI|HYDRA|Intel", printed):
        return {"mpi": f"Cray MPICH {cray}"}
    return {"mpi": mpi_version(printed)}


#: Readers by name, each with the keys (patterns of fnmatch) that it may give.
READERS: dict[str, tuple[Callable[[_Node], _Facts], tuple[str, ...]]] = {
    "system": (_system, ("kernel", "machine", "os", "node.model")),
    "mount": (_mount, ("mount.*",)),
    "processor": (_processor, ("cpu.*",)),
    "memory": (_memory, ("mem.*",)),
    "network": (_network, ("nic.*",)),
    "infiniband": (_infiniband, ("ib.*",)),
    "lustre": (_lustre, ("lustre.*", "tunable.*")),
    "hints": (_hints, ("hints.environment",)),
    "between": (_between, ("preload.*", "script.*")),
    "mpi": (_mpi, ("mpi",)),
}


def collect(
    path: str,
    *,
    root: Path = Path("/"),
    deadline: float = DEADLINE,
    processes: Sequence[int] = (),
) -> Fingerprint:
    """Return the facts of this node and of the file system at ``path`` within ``deadline`` seconds.

    ``processes`` are those of the case's tools that run already. Readers run side by side. A failing
    reader gives no key. A late one, or one whose program is late, gives :data:`UNANSWERED` with its
    name. Never raises.
    """
    parts: dict[str, Fingerprint] = {}
    node = _Node(root, path, processes)

    def work(name: str) -> None:
        try:
            facts = READERS[name][0](node)
            parts[name] = {k: v for k, v in facts.items() if v not in ("", None)}
        except TimeoutError:
            pass
        except Exception:
            parts[name] = {}

    threads = [
        threading.Thread(target=work, args=(name,), daemon=True) for name in READERS
    ]
    until = time.monotonic() + deadline
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    facts: Fingerprint = {}
    for name in READERS:
        facts |= parts.get(name, {f"{UNANSWERED}{name}": True})
    return dict(sorted(facts.items()))
