"""What a directory on Lustre passes on to its files: layout, metadata targets, pool.

The layouts come by getxattr(2), the metadata target of an ordinary directory by ioctl(2). ``lfs`` is asked for striped
directories and for pools.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from iogauge.core.words import Fingerprint
from iogauge.node.lustre import lov
from iogauge.node.lustre.client import read_parameters
from iogauge.node.lustre.layout import FileLayout, Part
from iogauge.node.lustre.programs import LustreError, excerpt, run_lfs
from iogauge.node.lustre.request import Layout
from iogauge.node.lustre.targets import (
    MetadataTarget,
    StorageTarget,
    file_system,
    parse_df,
    parse_df_inodes,
    parse_pool,
)
from iogauge.node.mounts import READ, Mount, fsname_of
from iogauge.node.view import View

#: Size of a file that reaches every component.
_NO_END: Final = 1 << 62

#: Requests for a directory's stripes and for its metadata target (lustre_user.h: LL_IOC_LMV_GETSTRIPE,
#: struct lmv_user_md_v1 of 48 bytes, LL_IOC_GET_MDTIDX), and the magic number of the first
#: (lustre_idl.h: LMV_MAGIC_V1). Both directions together are the same two bits on every machine.
_GET_STRIPES: Final = 3 << 30 | 48 << 16 | ord("f") << 8 | 241
_GET_INDEX: Final = READ | 4 << 16 | ord("f") << 8 | 175
_STRIPES: Final = struct.Struct("=I44x").pack(0x0CD20CD0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """What a directory passes on, as the first node saw it before the first byte.

    ``default`` is the layout of new files, ``of_root`` that of the file system's root, which fills
    what others leave open. Either is None if it is unknown. ``mdts`` are the metadata targets that
    the directory lies on: several if it is striped, then ``hash`` says how names go to them.
    ``metadata`` tells the inodes on all metadata targets, and ``metadata_space`` the bytes.
    ``pool`` are the storage targets of the declared pool, ``pool_problem`` says why it has none.
    ``unanswered`` says what else Lustre did not answer.
    """

    default: FileLayout | None = None
    of_root: FileLayout | None = None
    mdts: tuple[int, ...] = ()
    hash: str = ""
    metadata: tuple[MetadataTarget, ...] = ()
    metadata_space: tuple[StorageTarget, ...] = ()
    pool: tuple[int, ...] = ()
    pool_problem: str = ""
    unanswered: tuple[str, ...] = ()

    def at(self, other: Directory) -> Directory:
        """Return what another directory of the same file system passes on."""
        unanswered = tuple(dict.fromkeys(self.unanswered + other.unanswered))
        return replace(
            self,
            default=other.default,
            mdts=other.mdts,
            hash=other.hash,
            unanswered=unanswered,
        )

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
        known = []
        for part in self._filled(request.parts if request else self._default_parts):
            count = (
                len(active)
                if part.stripe_count == -1
                else min(part.stripe_count, len(active))
            )
            if part.pattern != "mdt" and (not part.stripe_bytes or not count):
                return ()
            known.append(replace(part, stripe_count=count))
        return tuple(known)

    @property
    def stripes(self) -> Fingerprint:
        """Return stripe count and size of new files, of several components as a list; no key for what is unknown."""
        parts = [*self._filled(self._default_parts)]
        found = {
            "layout.stripe_count": [part.stripe_count for part in parts],
            "layout.stripe_bytes": [part.stripe_bytes for part in parts],
        }
        return {
            key: values[0] if len(values) == 1 else ",".join(map(str, values))
            for key, values in found.items()
            if any(values)
        }

    @property
    def _default_parts(self) -> tuple[Part, ...]:
        return self.default.parts if self.default else ()

    def _filled(self, parts: Iterable[Part]) -> Iterator[Part]:
        """Yield parts with the root's count and size in place of those that they leave open."""
        root = (
            self.of_root.parts[0]
            if self.of_root and not self.of_root.composite
            else None
        )
        for part in parts:
            if root is None or part.pattern == "mdt":
                yield part
            else:
                count = part.stripe_count or root.stripe_count
                size = part.stripe_bytes or min(root.stripe_bytes, part.holds(_NO_END))
                yield replace(part, stripe_count=count, stripe_bytes=size)


def look_at_directory(view: View, pool: str | None = None) -> Directory:
    """Return what the directory of a view on Lustre passes on.

    What Lustre does not answer is named in the answer; a pool that cannot be listed has no storage targets.
    """
    found = passed_on(view.path, view.mount)
    unanswered = [*found.unanswered]
    try:
        found = replace(found, metadata=parse_df_inodes(run_lfs("df", "-i", view.path)))
        space = parse_df(run_lfs("df", view.path), "MDT")
        found = replace(found, metadata_space=tuple(space.values()))
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


def passed_on(path: str, mount: Mount | None) -> Directory:
    """Return the layout of new files in a directory, and the metadata targets that it lies on."""
    unanswered: list[str] = []
    found = Directory()
    try:
        default, of_root = default_layouts(path, mount)
        found = replace(found, default=default, of_root=of_root)
    except LustreError as error:
        unanswered.append(str(error))
    try:
        mdts, name = metadata_targets(path)
        found = replace(found, mdts=mdts, hash=name)
    except LustreError as error:
        unanswered.append(str(error))
    return replace(found, unanswered=tuple(unanswered))


def default_layouts(
    path: str, mount: Mount | None, root: Path = Path("/")
) -> tuple[FileLayout | None, FileLayout | None]:
    """Return the layouts of new files in a directory and in the file system's root; None if unknown.

    If no directory has one, the file system's own holds: the client shows its count and size to any user (2.17:
    /sys/fs/lustre/lov/FS-clilov-*/stripecount, stripesize). Raises :class:`LustreError`.
    """
    of_root = lov.read_default_lov(mount.point) if mount else None
    if of_root is None:
        fsname = fsname_of(mount.source if mount else "")
        told = read_parameters(fsname, {"lov": ("stripecount", "stripesize")}, root)
        values = {name.rpartition(".")[2]: value for name, value in told.items()}
        if len(values) == 2 and all(
            re.fullmatch("-?[0-9]{1,10}", v) for v in values.values()
        ):
            count, size = int(values["stripecount"]), int(values["stripesize"])
            part = Part(stripe_count=count, stripe_bytes=size)
            of_root = FileLayout(path=path, parts=(part,))
    return lov.read_default_lov(path) or of_root, of_root


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
                return int.from_bytes(
                    fcntl.ioctl(fd, _GET_INDEX, bytes(4)), sys.byteorder
                )
        finally:
            os.close(fd)
    return None


def parse_getdirstripe(text: str) -> tuple[tuple[int, ...], str]:
    """Return a directory's metadata targets and hash from ``lfs getdirstripe -y DIR``.

    An ordinary directory lies on one metadata target and has no hash. Raises :class:`LustreError`
    if the answer is damaged.
    """
    values = {
        key: re.findall(rf"(?m)^[ -]*{key}:\s*(\S+)\s*$", text)
        for key in (
            "lmv_stripe_count",
            "lmv_stripe_offset",
            "lmv_hash_type",
            "l_mdt_idx",
        )
    }
    (count, offset, name), mdts = (
        (values[key] for key in list(values)[:3]),
        values["l_mdt_idx"],
    )
    numbers = [*count, *offset, *mdts]
    if not (
        [len(count), len(offset), len(name)] == [1, 1, 1]
        and all(re.fullmatch("[0-9]{1,9}", number) for number in numbers)
        and len(mdts) == max(1, int(count[0]))
        and mdts[0] == offset[0]
    ):
        raise LustreError(
            f"lfs getdirstripe -y: no layout of a directory in {excerpt(text)}"
        )
    indices = tuple(dict.fromkeys(map(int, mdts)))
    return indices, name[0] if int(count[0]) else ""
