"""Facts of a node for its fingerprint, probed on the node. The tools on PATH: their versions, and what stands between them and
the kernel.

That is: libraries that the loader preloads, and tools that are scripts.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import functools
import ipaddress
import os
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from iogauge.core import commands
from iogauge.core.text import text_digest
from iogauge.core.untrusted import read_text
from iogauge.core.words import (
    FIO,
    IO500,
    IOR,
    MDTEST,
    Fingerprint,
    Value,
)
from iogauge.node import layers
from iogauge.node.between import (
    PROGRAM_SECONDS,
    handed_on,
    of_processes,
    preloaded,
    script,
)
from iogauge.node.kernel import listed, memory_bytes, text
from iogauge.node.lustre import client
from iogauge.node.mounts import Mount, find_mount, fsname_of

#: Seconds for all probes of a node together, and for each program that a probe starts. A busy node
#: needs more than an idle one; no phase is timed meanwhile.
DEADLINE: Final = 30.0

#: First word of a key that stands for the keys of a probe that did not answer in time.
UNANSWERED: Final = "unanswered."
_GIB: Final = 1 << 30

#: Names of mount options and variables whose values stay private.
SECRET: Final = re.compile(
    r"(?i)pass|secret|cred|token|(?:^|[_.-])key|keyring|^(?:user|username|name|domain|password2)$|skpath"
)

#: Environment variables that change how MPI, and the libraries over and under it, do I/O and move data.
_HINTS: Final = re.compile(
    r"(?:OMPI_MCA_(?:io|fs|fcoll|fbtl|sharedfp|coll|pml|btl|mtl|osc)(?:_\w+)?|(?:ROMIO|MPICH|UCX|FI|PSM2|PNETCDF|HDF5)_\w+"
    r"|IOR_HINT__\w+|I_MPI_(?:EXTRA_FILESYSTEM|FABRICS)\w*)"
)


#: Mount options that say nothing of how a target works: they differ from node to node, from mount to mount (the port of
#: NFS 3's mountd) or from container to container (an overlay's directories).
_NO_MATTER: Final = frozenset(
    {"addr", "clientaddr", "mountaddr", "mountport", "lowerdir", "upperdir", "workdir"}
)


def safe_options(options: str) -> str:
    """Return the mount options that matter, sorted, each once, without the values of secret or private options."""
    kept = []
    for option in options.split(","):
        name, equals, _ = option.partition("=")
        if name not in _NO_MATTER:
            kept.append(f"{name}=***" if equals and SECRET.search(name) else option)
    return ",".join(sorted(set(kept) - {""}))


def safe_source(source: str) -> str:
    """Return a mount's source without user and password (``//user:word@host/share``)."""
    return re.sub(r"(?<=//)[^/@\s]*@", "", source)


def route_interface(table: str, address: str) -> str | None:
    """Return the interface that leads to an IPv4 address: longest prefix of ``/proc/net/route``."""
    wanted = int(ipaddress.IPv4Address(address))
    best: tuple[int, str] | None = None
    for line in table.splitlines()[1:]:
        words = line.split()
        if len(words) < 8:
            continue
        with contextlib.suppress(ValueError, struct.error):
            network, mask = (
                struct.unpack("<I", struct.pack(">I", int(words[i], 16)))[0]
                for i in (1, 7)
            )
            if wanted & mask == network and (best is None or mask > best[0]):
                best = (mask, words[0])
    return best[1] if best else None


# Probes of the machine. Each may fail: its exception is dropped, and its keys are missing.
class _Node:
    """A machine's files below ``root`` (``/`` on a real machine), and the mount at ``path``.

    ``processes`` are those of the case's tools that run already.
    """

    def __init__(self, root: Path, path: str, processes: Sequence[int]) -> None:
        self.root, self.path, self.processes = root, path, processes

    @functools.cached_property
    def mount(self) -> Mount | None:
        return find_mount(self.path)

    def text(self, *path: str) -> str:
        """Return the content of a file, empty if it cannot be read."""
        return text(self.root, *path)

    def texts(self, pattern: str) -> list[str]:
        """Return the contents of all matching readable files, each once, sorted."""
        return sorted(filter(None, {text(file) for file in self.root.glob(pattern)}))


#: What a probe tells; "" and None stand for what it was not told.
_Told = Mapping[str, Value | None]


def _system(node: _Node) -> _Told:
    kernel = os.uname()
    named = re.search(r'^PRETTY_NAME="?([^"\n]*)', node.text("etc/os-release"), re.M)
    return {
        "kernel": kernel.release,
        "machine": kernel.machine,
        "os": named and named[1],
        "node.model": node.text("sys/class/dmi/id/product_name"),
    }


def _mount(node: _Node) -> _Told:
    if node.mount is None:
        return {}
    return {
        "mount.type": node.mount.type,
        "mount.source": safe_source(node.mount.source),
        "mount.options": safe_options(node.mount.options),
        "mount.compresses": layers.resolve(
            node.path, node.mount, root=str(node.root)
        ).compresses,
    }


def _processor(node: _Node) -> _Told:
    models = dict(
        re.findall(
            r"(?m)^(model name|cpu|CPU part)\s*:\s*(.+)$", node.text("proc/cpuinfo")
        )
    )
    model = next(
        (models[key] for key in ("model name", "cpu", "CPU part") if key in models), ""
    )
    cpus = "sys/devices/system/cpu/cpu[0-9]*"
    topology = f"{cpus}/topology"
    cores = node.texts(f"{topology}/core_cpus_list") or node.texts(
        f"{topology}/thread_siblings_list"
    )
    threads = len(list(node.root.glob(topology))) if cores else 0
    flaws = [
        f"{file.name}: {text(file)}"
        for file in sorted(node.root.glob("sys/devices/system/cpu/vulnerabilities/*"))
    ]
    return {
        "cpu.model": " ".join(model.split()),
        "cpu.cores": len(cores) or None,
        "cpu.threads": threads or None,
        "cpu.smt": threads > len(cores) if threads else None,
        "cpu.sockets": len(node.texts(f"{topology}/physical_package_id")) or None,
        "cpu.numa_nodes": len(
            list(node.root.glob("sys/devices/system/node/node[0-9]*"))
        )
        or None,
        "cpu.governor": ",".join(node.texts(f"{cpus}/cpufreq/scaling_governor")),
        "cpu.mitigations": text_digest("\n".join(flaws)) if flaws else "",
    }


def _memory(node: _Node) -> _Told:
    total = memory_bytes(str(node.root))
    limit = min(_memory_limits(node), default=total)
    pages = re.search(
        r"\[(\w+)\]", node.text("sys/kernel/mm/transparent_hugepage/enabled")
    )
    return {
        "mem.bytes": round(total / _GIB) * _GIB,
        "mem.limit": limit if limit < total else None,
        "mem.thp": pages and pages[1],
    }


def _memory_limits(node: _Node) -> list[int]:
    """Return the limits of memory of this process's control group and of those above it, in bytes.

    A control group also pays for the pages that it reads into the page cache, so that the cache of
    a job is no larger. A group outside of what is mounted here tells nothing.
    """
    limits = []
    for line in node.text("proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        version_1 = "memory" in controllers.split(",")
        if (controllers and not version_1) or ".." in path.split("/"):
            continue
        top = "sys/fs/cgroup/memory" if version_1 else "sys/fs/cgroup"
        file = "memory.limit_in_bytes" if version_1 else "memory.max"
        group = PurePosixPath(f"/{path}")
        for place in (group, *group.parents):
            with contextlib.suppress(ValueError):  # "max" is no limit
                limits.append(int(node.text(f"{top}{place}/{file}")))
    return limits


def _driver_info(interface: str) -> tuple[str, str]:
    """Return driver and firmware of an interface (ETHTOOL_GDRVINFO); empty if it does not tell."""
    block = array.array("B", struct.pack("I", 0x3) + bytes(192))
    request = struct.pack("16sP", interface.encode()[:15], block.buffer_info()[0])
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock,
    ):
        fcntl.ioctl(sock, 0x8946, request)  # SIOCETHTOOL
    fields = (
        block.tobytes()[first : first + 32].partition(b"\0")[0] for first in (4, 68)
    )
    driver, firmware = (field.decode("ascii", "replace") for field in fields)
    return driver, firmware if firmware != "N/A" else ""


def _network(node: _Node) -> _Told:
    """Return facts of all active interfaces that have hardware, or bond others that have."""
    facts: dict[str, Value | None] = {}
    for name in listed(str(node.root), "sys/class/net"):
        place = node.root / "sys/class/net" / name
        real = (place / "device").exists() or (place / "bonding").exists()
        if not real or text(place, "operstate") not in ("up", "unknown"):
            continue
        speed, mtu = (text(place, what) for what in ("speed", "mtu"))
        ids = [text(place, "device", part) for part in ("vendor", "device")]
        driver, firmware = _driver_info(name) if node.root == Path("/") else ("", "")
        with contextlib.suppress(OSError):
            driver = os.path.basename(os.readlink(place / "device/driver"))
        told = {
            "speed_mbps": int(speed) if speed.isdecimal() and int(speed) else None,
            "mtu": int(mtu) if mtu.isdecimal() else None,
            "model": ":".join(ids) if all(ids) else "",
            "driver": driver,
            "firmware": firmware,
        }
        facts |= {f"nic.{name}.{key}": value for key, value in told.items()}
    source = node.mount.source if node.mount else ""
    if match := re.search(r"(?<![\w.])(\d{1,3}(?:\.\d{1,3}){3})(?=[@:])", source):
        with contextlib.suppress(ValueError):
            facts["nic.target"] = route_interface(node.text("proc/net/route"), match[1])
    return facts


def _infiniband(node: _Node) -> _Told:
    facts: Fingerprint = {}
    for port in sorted(node.root.glob("sys/class/infiniband/*/ports/*")):
        device = port.parent.parent
        key = f"ib.{device.name}:{port.name}"
        facts |= {
            f"{key}.rate": text(port, "rate"),
            f"{key}.firmware": text(device, "fw_ver"),
        }
    return facts


def _lustre(node: _Node) -> _Told:
    if node.mount is None or node.mount.type != "lustre":
        return {}
    return client.facts(fsname_of(node.mount.source), node.root)


def _hints(node: _Node) -> _Told:
    told = {**_of_open_mpi(node.root), **os.environ}
    hints = [
        f"{name}={value}{_content(name, value)}"
        for name, value in sorted(told.items())
        if _HINTS.fullmatch(name) and not SECRET.search(name)
    ]
    return {"hints.environment": "; ".join(hints)}


def _of_open_mpi(root: Path) -> dict[str, str]:
    """Return what Open MPI's file of a user sets, as the variables that would do the same."""
    file = (
        root / os.environ.get("HOME", "/").lstrip("/") / ".openmpi" / "mca-params.conf"
    )
    with contextlib.suppress(OSError, ValueError):
        lines = (
            line.partition("#")[0].partition("=")
            for line in read_text(file).splitlines()
        )
        return {
            f"OMPI_MCA_{name.strip()}": v.strip() for name, equals, v in lines if equals
        }
    return {}


def _content(name: str, value: str) -> str:
    """Return a digest of the hints of ROMIO, which are in a file."""
    with contextlib.suppress(OSError, ValueError):
        return (
            f" ({text_digest(read_text(Path(value)))})" if name == "ROMIO_HINTS" else ""
        )
    return ""


def _between(node: _Node) -> _Told:
    """Return libraries and scripts between the tools and the kernel, see node/programs."""
    looks = [
        preloaded(environ, node.root)
        for environ in (handed_on(os.environ), *of_processes(node.processes))
    ]
    facts: Fingerprint = {}
    for key in {key for look in looks for key in look}:
        facts[key] = ":".join(
            dict.fromkeys(str(look[key]) for look in looks if key in look)
        )
    for tool in (FIO, IOR, MDTEST, IO500):
        with contextlib.suppress(OSError):
            facts |= script(tool, os.environ)
    return facts


def mpi_version(text: str) -> str:
    """Return name and version of an MPI from ``mpirun --version``; raises ValueError."""
    lines = text.strip().splitlines()
    if not lines:
        raise ValueError("mpirun --version printed nothing")
    if match := re.search(
        r"^HYDRA build details:\s+Version:\s*(\S+)", text, re.MULTILINE
    ):
        return f"MPICH {match[1]}"
    return re.sub(r"^\S+ \((.*)\)", r"\1", lines[0])


def _mpi(node: _Node) -> _Told:
    if version := os.environ.get("CRAY_MPICH_VERSION"):
        return {"mpi": f"Cray MPICH {version}"}
    said = commands.run("mpirun", "--version", seconds=PROGRAM_SECONDS)
    return {"mpi": mpi_version(said.stdout)}


#: Probes by name, each with the keys (patterns of fnmatch) that it may give.
PROBES: Final[dict[str, tuple[Callable[[_Node], _Told], tuple[str, ...]]]] = {
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

    ``processes`` are those of the case's tools that run already. Probes run side by side. A failing
    probe gives no key. A late one, or one whose program is late, gives :data:`UNANSWERED` with its
    name. Never raises.
    """
    parts: dict[str, Fingerprint] = {}
    node = _Node(root, path, processes)

    def work(name: str) -> None:
        try:
            told = PROBES[name][0](node)
            parts[name] = {
                key: value for key, value in told.items() if value not in ("", None)
            }
        except TimeoutError:
            pass
        except Exception:
            parts[name] = {}

    threads = [
        threading.Thread(target=work, args=(name,), daemon=True) for name in PROBES
    ]
    until = time.monotonic() + deadline
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    answered = dict(parts)
    joined: Fingerprint = {
        f"{UNANSWERED}{name}": True for name in PROBES if name not in answered
    }
    for part in answered.values():
        joined |= part
    return dict(sorted(joined.items()))
