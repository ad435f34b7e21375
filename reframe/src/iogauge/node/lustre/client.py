"""What Lustre's client says of itself, of a file system and of its servers, in the kernel's own files.

``lctl get_param`` reads the same files for single values (cfs_get_param_paths, libcfs/libcfs/util/param.c). But it is a
program, and took up to 0.74 s on a busy node. Users may read sysfs, root alone debugfs; clients before Lustre 2.12 keep
some values in procfs. Counters (``stats``) are not read here: Lustre 2.17 shows them to users through netlink only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Final

from iogauge.core.words import Fingerprint
from iogauge.node.kernel import listed, text
from iogauge.node.keys import tunables

#: Directories of the parameters, below the root of the machine.
TOPS = ("sys/fs/lustre", "sys/kernel/debug/lustre", "proc/fs/lustre")

#: A client's devices by kind. The devices of metadata servers (``-osc-MDT0000``), seen if client
#: and server share a node, fit too, and are left out.
_DEVICES: Final = {
    "llite": "{fs}-*",
    "osc": "{fs}-OST*-osc-*",
    "mdc": "{fs}-MDT*-mdc-*",
    "lov": "{fs}-clilov-*",
    "lmv": "{fs}-clilmv-*",
}
_OF_SERVER: Final = "-osc-MDT"


def read_parameters(
    fsname: str, wanted: Mapping[str, Sequence[str]], root: Path = Path("/")
) -> dict[str, str]:
    """Return the wanted parameters of a file system by name, as ``lctl get_param`` names them.

    ``wanted`` lists parameters by the kind of device, and those of the whole node by "". What this
    user may not read is left out.
    """
    found: dict[str, str] = {}
    for name, top in product(wanted.get("", ()), TOPS):
        if value := text(root, top, name):
            found.setdefault(name, value)
    for kind in filter(None, wanted):
        names, pattern = wanted[kind], _DEVICES[kind].format(fs=fsname)
        for top in (os.path.join(root, top, kind) for top in TOPS):
            for device in listed(top):
                if fnmatchcase(device, pattern) and _OF_SERVER not in device:
                    for name in names:
                        if value := text(top, device, name):
                            found.setdefault(f"{kind}.{device}.{name}", value)
    return found


def facts_of(parameters: Mapping[str, str]) -> Fingerprint:
    """Return versions, counts and tunables from parameters.

    If a value differs between devices, all values are given, sorted and separated by commas.
    """
    facts: Fingerprint = {}
    values: dict[str, set[str]] = {}
    client_servers: dict[str, set[str]] = {"versions": set(), "addresses": set()}
    for name, value in parameters.items():
        first, last = name.split(".")[0], name.split(".")[-1]
        if name == "version":
            facts["lustre.client"] = value.strip()
        elif last == "numobd" and "-cli" in name and re.fullmatch("[0-9]{1,9}", value):
            facts["lustre.mdts" if first == "lmv" else "lustre.osts"] = int(value)
        elif last == "ost_conn_uuid" and "@" in value:
            client_servers["addresses"].add(value.strip())
        elif last == "import" and (
            match := re.search(r"target_version:\s*([\d.]+)", value)
        ):
            client_servers["versions"].add(match[1])
        elif last in tunables().get(first, ()) and _OF_SERVER not in name:
            # The type in use stands in brackets; a value of many lines begins with its own name.
            pattern = (
                r"\[(\S+)\]" if last == "checksum_type" else rf"(?m)^{last}:\s*(\S+)"
            )
            if match := re.search(pattern, value):
                value = match[1]
            values.setdefault(f"tunable.{first}.{last}", set()).add(
                " ".join(value.split())
            )
    if client_servers["versions"]:
        facts["lustre.server"] = ",".join(sorted(client_servers["versions"]))
    if client_servers["addresses"]:
        facts["lustre.servers"] = len(client_servers["addresses"])
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


def client_targets(fsname: str, root: Path = Path("/")) -> dict[str, tuple[int, bool]]:
    """Return index and activity of every storage target, by UUID; empty if the kernel shows none.

    These are the answers of ``lfs osts``. A name ends in the index: ``scratch-OST001f`` is the
    target 31. Of a file system that is mounted twice, each mount must call the target active.
    """
    found: dict[str, tuple[int, bool]] = {}
    for name, value in read_parameters(fsname, {"osc": ("active",)}, root).items():
        target = name.split(".")[1].partition("-osc-")[0]
        if index := re.search(r"-OST([0-9a-f]{4})\Z", target):
            _, active = found.get(f"{target}_UUID", (0, True))
            found[f"{target}_UUID"] = int(index[1], 16), active and value.strip() == "1"
    return found


def client_servers(fsname: str, root: Path = Path("/")) -> dict[str, str]:
    """Return the address of the server of each storage target, by the target's UUID.

    Targets without a connection are left out.
    """
    found = read_parameters(fsname, {"osc": ("ost_conn_uuid",)}, root)
    pairs = (
        (name.split(".")[1].partition("-osc-")[0], value)
        for name, value in found.items()
    )
    return {f"{target}_UUID": value.strip() for target, value in pairs if "@" in value}
