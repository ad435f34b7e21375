"""What a directory on Lustre passes on to its files: layout, metadata targets.

The layouts come by getxattr(2). ``lfs`` is asked for metadata targets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from iogauge.core.vocabulary import Fingerprint
from iogauge.node.lustre import lov
from iogauge.node.lustre.file_layout import FileLayout, Part
from iogauge.node.lustre.lfs import SUMMARY, LustreError, excerpt, run_lfs
from iogauge.node.lustre.parameters import read_parameters
from iogauge.node.lustre.request import Layout
from iogauge.node.lustre.targets import (
    MetadataTarget,
    StorageTarget,
    parse_df,
    parse_df_inodes,
)
from iogauge.node.mounts import Mount, fsname_of
from iogauge.node.view import View

#: Size of a file that reaches every component.
_NO_END = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """What a directory passes on, as the first node saw it before the first byte.

    ``default`` is the layout of new files, ``of_root`` that of the file system's root, which fills
    what others leave open. Either is None if it is unknown. ``mdts`` are the metadata targets that
    the directory lies on: several if it is striped, then ``hash`` says how names go to them.
    ``metadata`` tells the inodes on all metadata targets, and ``metadata_space`` the bytes.
    ``unanswered`` says what else Lustre did not answer.
    """

    default: FileLayout | None = None
    of_root: FileLayout | None = None
    mdts: tuple[int, ...] = ()
    hash: str = ""
    metadata: tuple[MetadataTarget, ...] = ()
    metadata_space: tuple[StorageTarget, ...] = ()
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
        facts = {}
        if self.default:
            facts["layout.default"] = str(self.default)
        if self.mdts:
            facts["layout.directory"] = f"on MDT {self.mdts[0]}"
        if self.hash:
            over = f"striped over MDT {', '.join(map(str, self.mdts))} by {self.hash}"
            facts["layout.directory"] = over
        return facts

    def parts_of(
        self, request: Layout | None, targets: Sequence[StorageTarget]
    ) -> tuple[Part, ...]:
        """Return the parts that a file of a request will have; empty if a size is not known.

        -1 stands for as many active targets as there are.
        """
        active = len([target for target in targets if target.active])
        known, parts = [], self._default_parts
        if request:
            parts = request.parts
        for part in self._filled(parts):
            count = min(part.stripe_count, active)
            if count == -1:
                count = active
            if part.pattern != "mdt" and (not part.stripe_bytes or not count):
                return ()
            known.append(replace(part, stripe_count=count))
        return tuple(known)

    @property
    def stripes(self) -> Fingerprint:
        """Return stripe count and size of new files, of several components as a list; no key for what is unknown."""
        parts = [*self._filled(self._default_parts)]
        found: Fingerprint = {}
        for name in ("stripe_count", "stripe_bytes"):
            values = [getattr(part, name) for part in parts]
            if any(values):
                found[f"layout.{name}"] = ",".join(map(str, values))
            if len(values) == 1 and values[0]:
                found[f"layout.{name}"] = values[0]
        return found

    @property
    def _default_parts(self) -> tuple[Part, ...]:
        if self.default is None:
            return ()
        return self.default.parts

    def _filled(self, parts: Iterable[Part]) -> Iterator[Part]:
        """Yield parts with the root's count and size in place of those that they leave open."""
        for part in parts:
            if self.of_root and not self.of_root.composite and part.pattern != "mdt":
                root = self.of_root.parts[0]
                count = part.stripe_count or root.stripe_count
                size = part.stripe_bytes or min(root.stripe_bytes, part.holds(_NO_END))
                part = replace(part, stripe_count=count, stripe_bytes=size)
            yield part


def look_at_directory(view: View) -> Directory:
    """Return what the directory of a view on Lustre passes on.

    What Lustre does not answer is named in the answer.
    """
    found = passed_on(view.path, view.mount)
    unanswered = [*found.unanswered]
    try:
        found = replace(
            found,
            metadata=parse_df_inodes(run_lfs("df", "-i", view.path, ends=SUMMARY)),
        )
        space = parse_df(run_lfs("df", view.path, ends=SUMMARY), "MDT")
        found = replace(found, metadata_space=tuple(space.values()))
    except LustreError as error:
        unanswered.append(str(error))
    return replace(found, unanswered=tuple(unanswered))


def passed_on(path: str, mount: Mount) -> Directory:
    """Return the layout of new files in a directory, and the metadata targets that it lies on."""
    unanswered: list[str] = []
    found = Directory()
    try:
        default, of_root = default_layouts(path, mount)
        found = replace(found, default=default, of_root=of_root)
    except LustreError as error:
        unanswered.append(str(error))
    try:
        mdts, name = parse_getdirstripe(run_lfs("getdirstripe", "-y", path))
        found = replace(found, mdts=mdts, hash=name)
    except LustreError as error:
        unanswered.append(str(error))
    return replace(found, unanswered=tuple(unanswered))


def default_layouts(
    path: str, mount: Mount, root: Path = Path("/")
) -> tuple[FileLayout | None, FileLayout | None]:
    """Return the layouts of new files in a directory and in the file system's root; None if unknown.

    If no directory has one, the file system's own holds: the client shows its count and size to any user (2.17:
    /sys/fs/lustre/lov/FS-clilov-*/stripecount, stripesize). Raises :class:`LustreError`.
    """
    of_root = lov.read_default_lov(mount.point)
    if of_root is None:
        wanted = {"lov": ("stripecount", "stripesize")}
        told = read_parameters(fsname_of(mount.source), wanted, root)
        numbers = {}
        for name, value in told.items():
            if re.fullmatch("-?[0-9]{1,10}", value):
                numbers[name.rpartition(".")[2]] = int(value)
        if len(numbers) == 2:
            part = Part(
                stripe_count=numbers["stripecount"], stripe_bytes=numbers["stripesize"]
            )
            of_root = FileLayout(path=path, parts=(part,))
    return lov.read_default_lov(path) or of_root, of_root


def parse_getdirstripe(text: str) -> tuple[tuple[int, ...], str]:
    """Return a directory's metadata targets and hash from ``lfs getdirstripe -y DIR``.

    An ordinary directory lies on one metadata target and has no hash. Raises :class:`LustreError` for another answer.
    """

    def told(key: str, form: str = "[0-9]{1,9}") -> list[str]:
        return re.findall(rf"(?m)^[ -]*{key}:\s*({form})\s*$", text)

    counts, mdts = told("lmv_stripe_count"), told("l_mdt_idx")
    hashes = told("lmv_hash_type", r"\S+")
    if not (counts and mdts and hashes):
        raise LustreError(
            f"lfs getdirstripe -y: no layout of a directory in {excerpt(text)}"
        )
    indices = tuple(dict.fromkeys(map(int, mdts)))
    if not int(counts[0]):
        return indices, ""
    return indices, hashes[0]
