"""Storage targets (OSTs) and metadata targets (MDTs), as ``lfs`` and the client show them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from iogauge.node.lustre.lfs import SUMMARY, LustreError, excerpt, run_lfs
from iogauge.node.lustre.parameters import client_servers
from iogauge.node.mounts import find_mount, fsname_of


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageTarget:
    """One storage target (OST) as a client sees it.

    ``flags`` are those of ``lfs df`` (lfs-df(1)): D degraded, N no new files, R read-only, S out of
    space, I out of inodes, f flash. ``bytes_total`` and ``bytes_free`` are for an ordinary user
    (Used + Available, Available). ``server`` is the current server's address (NID), None if
    unknown. A server with several addresses counts as several.
    """

    index: int
    uuid: str
    active: bool
    flags: str = ""
    bytes_total: int = 0
    bytes_free: int = 0
    server: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataTarget:
    """One metadata target (MDT): its index, all its inodes, and the free ones."""

    index: int
    inodes_total: int
    inodes_free: int


def storage_targets(path: str) -> tuple[StorageTarget, ...]:
    """Return the storage targets of a path on Lustre; raises :class:`LustreError` if unknown."""
    shown, osts = (
        parse_df(run_lfs("df", path, ends=SUMMARY)),
        parse_osts(run_lfs("osts", path)),
    )
    servers = client_servers(fsname_of(find_mount(path).source))
    return join_targets(osts=osts, shown=shown, servers=servers)


_DF_LINE = re.compile(
    r"(?P<uuid>\S+)[ ]+(?P<blocks>[0-9]{1,18})[ ]+(?P<used>[0-9]{1,18})[ ]+(?P<available>[0-9]{1,18})[ ]+\S+[ ]+"
    r"\S.*\[(?P<kind>OST|MDT):(?P<index>[0-9]{1,9})\](?:[ ]+(?P<flags>[A-Za-z]+))?\s*"
)
_OSTS_LINE = re.compile(r"([0-9]{1,9}): (\S+) (ACTIVE|INACTIVE)\s*")


def parse_df(
    text: str, kind: Literal["OST", "MDT"] = "OST"
) -> dict[str, StorageTarget]:
    """Return targets by UUID from ``lfs df PATH`` (1K blocks), which omits inactive targets."""
    targets = {}
    for line in _shown(text, kind):
        used, free = int(line["used"]) * 1024, int(line["available"]) * 1024
        targets[line["uuid"]] = StorageTarget(
            index=int(line["index"]),
            uuid=line["uuid"],
            active=True,
            flags=line["flags"] or "",
            bytes_total=used + free,
            bytes_free=free,
        )
    return targets


def _shown(text: str, kind: str) -> list[re.Match[str]]:
    """Return the lines of ``lfs df`` about targets of a kind."""
    lines = map(_DF_LINE.fullmatch, text.splitlines())
    return [line for line in lines if line and line["kind"] == kind]


def parse_osts(text: str) -> dict[str, tuple[int, bool]]:
    """Return index and activity of every target, by UUID, from ``lfs osts PATH``.

    Raises :class:`LustreError` if no target is listed. Without a mounted Lustre ``lfs osts`` succeeds and prints nothing.
    """
    targets: dict[str, tuple[int, bool]] = {}
    for line in text.splitlines():
        match = _OSTS_LINE.fullmatch(line)
        if match:
            targets[match[2]] = int(match[1]), match[3] == "ACTIVE"
    if not targets:
        raise LustreError(f"lfs osts: no storage target in {excerpt(text)}")
    return targets


def join_targets(
    *,
    osts: Mapping[str, tuple[int, bool]],
    shown: Mapping[str, StorageTarget],
    servers: Mapping[str, str],
) -> tuple[StorageTarget, ...]:
    """Join what was found out to all targets, in order of index.

    A target is active if the client calls it active and ``lfs df``, which asks its server, shows it.
    """
    joined = []
    for uuid, (index, active) in osts.items():
        target = shown.get(uuid, StorageTarget(index=index, uuid=uuid, active=False))
        is_active = active and target.active
        joined.append(replace(target, active=is_active, server=servers.get(uuid)))
    return tuple(sorted(joined, key=lambda target: target.index))


def parse_df_inodes(text: str) -> tuple[MetadataTarget, ...]:
    """Return the metadata targets from ``lfs df -i PATH``; raises LustreError if there are none."""
    found = []
    for line in _shown(text, "MDT"):
        target = MetadataTarget(
            index=int(line["index"]),
            inodes_total=int(line["blocks"]),
            inodes_free=int(line["available"]),
        )
        found.append(target)
    if not found:
        raise LustreError(f"lfs df -i: no metadata target in {excerpt(text)}")
    return tuple(found)


def ost_name(index: int) -> str:
    """Return what a storage target is called, with the index in hexadecimal: ``ost000a``."""
    return f"ost{index:04x}"
