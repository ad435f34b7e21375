"""What a directory on Lustre passes on to its files: layout, metadata targets, pool.

The layouts come by getxattr(2) (:mod:`iogauge.node.layouts`), the metadata target of an ordinary
directory by ioctl(2). ``lfs`` is asked for striped directories and for pools.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from iogauge.node import layouts
from iogauge.node.layouts import FileLayout, Layout, LustreError, Part, excerpt
from iogauge.node.lustre import run_lfs
from iogauge.node.mounts import READ, StorageTarget, View

#: Size of a file that reaches every component.
_NO_END: Final = 1 << 62

#: Requests for a directory's stripes and for its metadata target (lustre_user.h: LL_IOC_LMV_GETSTRIPE,
#: struct lmv_user_md_v1 of 48 bytes, LL_IOC_GET_MDTIDX), and the magic number of the first
#: (lustre_idl.h: LMV_MAGIC_V1). Both directions together are the same two bits on every machine.
_GET_STRIPES: Final = 3 << 30 | 48 << 16 | ord("f") << 8 | 241
_GET_INDEX: Final = READ | 4 << 16 | ord("f") << 8 | 175
_STRIPES: Final = struct.Struct("=I44x").pack(0x0CD20CD0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataTarget:
    """One metadata target (MDT): its index, all its inodes, and the free ones."""

    index: int
    inodes_total: int
    inodes_free: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """What the target's directory passes on, as the first node saw it before the first byte.

    ``default`` is the layout of new files, ``of_root`` that of the file system's root, which fills
    what others leave open. Either is None if there is none. ``mdts`` are the metadata targets that
    the directory lies on: several if it is striped, then ``hash`` says how names go to them.
    ``metadata`` tells the room on them, if the case asks for it. ``pool`` are the storage targets
    of the declared pool, ``pool_problem`` says why it has none. ``unanswered`` says what else
    Lustre did not answer.
    """

    default: FileLayout | None = None
    of_root: FileLayout | None = None
    mdts: tuple[int, ...] = ()
    hash: str = ""
    metadata: tuple[MetadataTarget, ...] = ()
    pool: tuple[int, ...] = ()
    pool_problem: str = ""
    unanswered: tuple[str, ...] = ()

    @property
    def facts(self) -> Mapping[str, str]:
        """Return the facts of the fingerprint; what was not answered has no key."""
        facts = {"layout.default": str(self.default)} if self.default else {}
        if self.mdts:
            over = f"striped over MDT {', '.join(map(str, self.mdts))} by {self.hash}"
            facts["layout.directory"] = over if self.hash else f"on MDT {self.mdts[0]}"
        return facts

    def usable(self, targets: Sequence[StorageTarget]) -> tuple[StorageTarget, ...]:
        """Return the storage targets that files may lie on: those of the declared pool, or all."""
        return tuple(t for t in targets if not self.pool or t.index in self.pool)

    def parts_of(
        self, request: Layout | None, targets: Sequence[StorageTarget]
    ) -> tuple[Part, ...]:
        """Return the parts that a file of a request will have; empty if a size is not known.

        -1 stands for as many active targets as there are, in the pool if one is declared.
        """
        active = [target for target in self.usable(targets) if target.active]
        root = self.of_root.parts[0] if self.of_root and not self.of_root.composite else None
        known = []
        for part in _requested(request) if request else self.default.parts if self.default else ():
            size = part.stripe_bytes or (min(root.stripe_bytes, part.holds(_NO_END)) if root else 0)
            count = part.stripe_count or (root.stripe_count if root else 0)
            count = len(active) if count == -1 else min(count, len(active))
            if part.pattern != "mdt" and (not size or not count):
                return ()
            known.append(replace(part, stripe_bytes=size, stripe_count=count))
        return tuple(known)


def _requested(request: Layout) -> tuple[Part, ...]:
    if not request.components:
        return (
            Part(
                stripe_count=request.stripe_count or 0,
                stripe_bytes=request.stripe_bytes or 0,
                pool=request.pool,
            ),
        )
    begin, parts = 0, []
    for component in request.components:
        part = Part(
            stripe_count=component.stripe_count,
            stripe_bytes=component.stripe_bytes or 0,
            pool=request.pool,
        )
        parts.append(part.within(begin, component.end_bytes))
        begin = component.end_bytes or begin
    return tuple(parts)


def look(view: View, pool: str | None, metadata: bool) -> Directory:
    """Return what the directory of a view on Lustre passes on.

    ``metadata`` asks for the room on its metadata targets. What Lustre does not answer is named in
    the answer; a pool that cannot be listed has no storage targets.
    """
    unanswered: list[str] = []
    found = Directory()
    try:
        found = replace(found, default=layouts.read_default_lov(view.path))
        root = view.mount.point if view.mount else view.path
        found = replace(found, of_root=layouts.read_default_lov(root))
    except LustreError as error:
        unanswered.append(str(error))
    try:
        mdts, name = metadata_targets(view.path)
        found = replace(found, mdts=mdts, hash=name)
        if metadata:
            found = replace(found, metadata=parse_df_inodes(run_lfs("df", "-i", view.path)))
    except LustreError as error:
        unanswered.append(str(error))
    if pool is not None:
        try:
            name = f"{file_system(view.targets)}.{pool}"
            members = parse_pool(run_lfs("pool_list", name), view.targets)
            found = replace(found, pool=members)
        except LustreError as error:
            found = replace(found, pool_problem=str(error))
    return replace(found, unanswered=tuple(unanswered))


def metadata_targets(path: str) -> tuple[tuple[int, ...], str]:
    """Return the metadata targets of a directory on Lustre, and the hash of a striped directory.

    Raises :class:`LustreError` if Lustre does not answer.
    """
    index = _ordinary(path)
    if index is not None:
        return (index,), ""
    return parse_getdirstripe(run_lfs("getdirstripe", "-y", path))


def _ordinary(path: str) -> int | None:
    """Return the metadata target of an ordinary directory; None if the kernel does not call it so.

    The kernel has no stripes of an ordinary directory, and more than fit here of a striped one.
    """
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.ioctl(fd, _GET_STRIPES, _STRIPES)
        except OSError as error:
            if error.errno == errno.ENODATA:
                return int.from_bytes(fcntl.ioctl(fd, _GET_INDEX, bytes(4)), sys.byteorder)
        finally:
            os.close(fd)
    return None


def of_metadata_targets(count: int) -> tuple[str, ...]:
    """Return the name of a directory for each metadata target, with the index in hexadecimal."""
    return tuple(f"mdt{index:04x}" for index in range(count))


def file_system(targets: Sequence[StorageTarget]) -> str:
    """Return the name of the file system of storage targets; raises :class:`LustreError`."""
    names = {target.uuid.rpartition("-OST")[0] for target in targets}
    if len(names) != 1 or "" in names:
        raise LustreError(f"no file system has the storage targets {sorted(names)}")
    return names.pop()


def parse_getdirstripe(text: str) -> tuple[tuple[int, ...], str]:
    """Return a directory's metadata targets and hash from ``lfs getdirstripe -y DIR``.

    An ordinary directory lies on one metadata target and has no hash. Raises :class:`LustreError`
    if the answer is damaged.
    """
    values = {
        key: re.findall(rf"(?m)^[ -]*{key}:\s*(\S+)\s*$", text)
        for key in ("lmv_stripe_count", "lmv_stripe_offset", "lmv_hash_type", "l_mdt_idx")
    }
    (count, offset, name), mdts = (values[key] for key in list(values)[:3]), values["l_mdt_idx"]
    numbers = [*count, *offset, *mdts]
    if not (
        [len(count), len(offset), len(name)] == [1, 1, 1]
        and all(re.fullmatch("[0-9]{1,9}", number) for number in numbers)
        and len(mdts) == max(1, int(count[0]))
        and mdts[0] == offset[0]
    ):
        raise LustreError(f"lfs getdirstripe -y: no layout of a directory in {excerpt(text)}")
    indices = tuple(dict.fromkeys(map(int, mdts)))
    return indices, name[0] if int(count[0]) else ""


_INODES_LINE: Final = re.compile(
    r"\S+[ ]+([0-9]{1,18})[ ]+[0-9]{1,18}[ ]+([0-9]{1,18})[ ]+\S+[ ]+\S.*\[MDT:([0-9]{1,9})\].*"
)


def parse_df_inodes(text: str) -> tuple[MetadataTarget, ...]:
    """Return the metadata targets from ``lfs df -i PATH``; raises LustreError if there are none."""
    matches = map(_INODES_LINE.fullmatch, text.splitlines())
    found = tuple(
        MetadataTarget(index=int(m[3]), inodes_total=int(m[1]), inodes_free=int(m[2]))
        for m in matches
        if m
    )
    if not found:
        raise LustreError(f"lfs df -i: no metadata target in {excerpt(text)}")
    return found


def parse_pool(text: str, targets: Sequence[StorageTarget]) -> tuple[int, ...]:
    """Return the indices of a pool's storage targets from ``lfs pool_list FSNAME.POOL``.

    Raises :class:`LustreError` for a name that is none of ``targets``.
    """
    known = {target.uuid: target.index for target in targets}
    names = [line.strip() for line in text.splitlines() if line.strip()]
    if names[:1] and not names[0].startswith("Pool:"):
        raise LustreError(f"lfs pool_list: no pool in {excerpt(text)}")
    if unknown := [name for name in names[1:] if name not in known]:
        raise LustreError(f"lfs pool_list: {unknown[0]} is no storage target of the file system")
    return tuple(known[name] for name in names[1:])
