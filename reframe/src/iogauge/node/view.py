"""One host's view of a path: its mount, its room, what lies below, and what Lustre adds."""

import os
from dataclasses import dataclass, field, replace

from iogauge.core.untrusted import Plain
from iogauge.node import layers
from iogauge.node.identity import uuid_of
from iogauge.node.kinds import Below
from iogauge.node.lustre.quotas import Quota, quotas_of
from iogauge.node.lustre.targets import StorageTarget, storage_targets
from iogauge.node.mounts import (
    Mount,
    Space,
    cache_id,
    existing_parent,
    find_mount,
    fsname_of,
    space_of,
)

#: Programs of FUSE that reach a server. Their source does not tell: that of mergerfs, over two directories, was ``x:/b``.
_CLIENTS = ("fuse.glusterfs", "fuse.sshfs")


@dataclass(frozen=True, slots=True)
class View(Plain):
    """One host's view of a path: its mount and its room.

    ``cache_id`` names the page cache of the path: kernel and mounted file system. Two hosts that
    are containers of one kernel may share it. ``below`` are the layers below the mount. ``targets``
    are the storage targets, if files are striped over them. ``uuid`` names the file system itself
    (:mod:`iogauge.node.identity`), "" if unknown. ``unanswered`` names the owners whose quota was
    asked for in vain.
    """

    host: str
    path: str
    mount: Mount
    space: Space
    quotas: tuple[Quota, ...] = ()
    cache_id: str = ""
    below: Below = field(default_factory=lambda: Below())
    targets: tuple[StorageTarget, ...] = ()
    uuid: str = ""
    unanswered: tuple[str, ...] = ()

    @property
    def on_lustre(self) -> bool:
        """Return whether the mount is a client of Lustre."""
        return self.mount.type == "lustre"

    @property
    def is_unproven(self) -> bool:
        """Return whether a program shows files (FUSE) that may lie in memory: it is no client of a server, and names no place
        on storage that it shows.
        """
        kind = self.mount.type
        if not kind.startswith("fuse") or kind in _CLIENTS:
            return False
        return not self.below.names

    @property
    def counters(self) -> tuple[str, ...]:
        """Return the names of the kernel's counters directly under the mount; empty without any.

        They are block devices, the mount itself on NFS, the file system's name on Lustre
        (job/witness.sh).
        """
        if self.mount.type in ("nfs", "nfs4"):
            return (self.mount.point,)
        if self.on_lustre:
            return (fsname_of(self.mount.source),)
        return self.below.devices


def look(path: str) -> View:
    """Return this host's view of a path, as its kernel sees it; raises OSError if it cannot be looked at."""
    mount = find_mount(path)
    return View(
        host=os.uname().nodename,
        path=path,
        mount=mount,
        space=space_of(path),
        cache_id=cache_id(path),
        below=layers.resolve(path, mount),
        uuid=uuid_of(existing_parent(path), mount),
    )


def with_lustre(view: View, striped: bool) -> View:
    """Return a view with what Lustre's programs say: the quotas, and the storage targets if striped.

    ``striped`` means that Lustre lays out the files, whatever the mount's type. Elsewhere nothing is
    asked. Raises :class:`LustreError` if the storage targets cannot be found out.
    """
    if not (striped or view.on_lustre):
        return view
    targets: tuple[StorageTarget, ...] = ()
    if striped:
        targets = storage_targets(view.path)
    quotas, unanswered = quotas_of(view.path)
    return replace(view, quotas=quotas, targets=targets, unanswered=unanswered)
