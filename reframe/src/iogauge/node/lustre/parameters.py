"""What Lustre's client says of itself, of a file system and of its servers, in the kernel's own files.

``lctl get_param`` reads the same files for single values (cfs_get_param_paths, libcfs/libcfs/util/param.c). But it is a
program, and took up to 0.74 s on a busy node. Users may read sysfs, root alone debugfs; clients before Lustre 2.12 keep
some values in procfs. Counters (``stats``) are not read here: Lustre 2.17 shows them to users through netlink only.
"""

import os
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path

from iogauge.core.vocabulary import Fingerprint
from iogauge.node.kernel import listed, text
from iogauge.node.keys import tunables

#: Directories of the parameters, below the root of the machine.
TOPS = ("sys/fs/lustre", "sys/kernel/debug/lustre", "proc/fs/lustre")

#: A client's devices by kind. The devices of metadata servers (``-osc-MDT0000``), seen if client
#: and server share a node, fit too, and are left out.
_DEVICES = {
    "llite": "{fs}-*",
    "osc": "{fs}-OST*-osc-*",
    "mdc": "{fs}-MDT*-mdc-*",
    "lov": "{fs}-clilov-*",
    "lmv": "{fs}-clilmv-*",
}
_OF_SERVER = "-osc-MDT"
#: What the number of devices (``numobd``) says, by the kind of device.
_COUNTED = {"lmv": "lustre.mdts", "lov": "lustre.osts"}


def read_parameters(
    fsname: str, wanted: Mapping[str, Sequence[str]], root: Path = Path("/")
) -> dict[str, str]:
    """Return the wanted parameters of a file system by name, as ``lctl get_param`` names them.

    ``wanted`` lists parameters by the kind of device, and those of the whole node by "". What this
    user may not read is left out.
    """
    values: dict[str, str] = {}
    for top in TOPS:
        for kind, names in wanted.items():
            folder = os.path.join(root, top, kind)
            devices = [""]
            if kind:
                pattern = _DEVICES[kind].format(fs=fsname)
                devices = [d for d in listed(folder) if fnmatchcase(d, pattern)]
            for device, name in product(devices, names):
                value = text(folder, device, name)
                key = ".".join(filter(None, [kind, device, name]))
                if value and _OF_SERVER not in device:
                    values.setdefault(key, value)
    return values


def facts_of(parameters: Mapping[str, str]) -> Fingerprint:
    """Return versions, counts and tunables from parameters.

    If a value differs between devices, all values are given, sorted and separated by commas.
    """
    facts: Fingerprint = {}
    values: dict[str, set[str]] = {}
    addresses = set()
    for name, value in parameters.items():
        first, last = name.split(".")[0], name.split(".")[-1]
        # The type in use stands in brackets; a value of many lines begins with its own name.
        pattern = rf"(?m)^{last}:\s*(\S+)"
        if last == "checksum_type":
            pattern = r"\[(\S+)\]"
        elif last == "import":
            pattern = r"target_version:\s*([\d.]+)"
        match = re.search(pattern, value)
        if name == "version":
            facts["lustre.client"] = value.strip()
        elif last == "numobd" and first in _COUNTED and value.isdecimal():
            facts[_COUNTED[first]] = int(value)
        elif last == "ost_conn_uuid" and "@" in value:
            addresses.add(value)
            facts["lustre.servers"] = len(addresses)
        elif last == "import" and match:
            values.setdefault("lustre.server", set()).add(match[1])
        elif last in tunables().get(first, ()):
            if match:
                value = match[1]
            different = values.setdefault(f"tunable.{first}.{last}", set())
            different.add(" ".join(value.split()))
    return facts | {
        key: ",".join(sorted(different)) for key, different in values.items()
    }


def facts(fsname: str, root: Path = Path("/")) -> Fingerprint:
    """Return what a node's Lustre client says of itself, of a file system and of its servers."""
    wanted = {
        "": ("version",),
        **tunables(),
        "osc": (*tunables()["osc"], "ost_conn_uuid", "import"),
        "lov": ("numobd",),
        "lmv": ("numobd",),
    }
    return facts_of(read_parameters(fsname, wanted, root))


def client_servers(fsname: str, root: Path = Path("/")) -> dict[str, str]:
    """Return the address of the server of each storage target, by the target's UUID.

    Targets without a connection are left out.
    """
    servers = {}
    for name, value in read_parameters(
        fsname, {"osc": ("ost_conn_uuid",)}, root
    ).items():
        target = name.split(".")[1].partition("-osc-")[0]
        if "@" in value:
            servers[f"{target}_UUID"] = value.strip()
    return servers
