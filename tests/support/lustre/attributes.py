"""Stand-in for ``os.getxattr`` of ``lustre.lov``: layouts that standin.py remembers, in Lustre's binary form.

A local file system has no such attribute, so that agents (agent.py, replay/agent.py) and tests put :func:`getxattr` in the
place of the real one. The bytes are those of lov.py.
"""

from __future__ import annotations

import errno
import os

if __package__:
    from support.lustre import lov, standin
else:
    import lov  # type: ignore[no-redef]
    import standin  # type: ignore[no-redef]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_known: dict[str, Any] = {}


def _refused(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


def getxattr(path: str, name: str) -> bytes:
    """The layout of a file, or a directory's default.

    Who asks for one file of a directory gives all of them their layouts, in the order of their names, and
    remembers them: a thousand files are asked for at a time.
    """
    if name != "lustre.lov":
        raise standin.not_covered(f"getxattr {name}")
    # The mount point of the file system below stands for that of Lustre.
    inside = os.path.join(path, os.environ.get("LFS_MOUNT", "/"))
    root = os.path.ismount(path) and standin.mount() and standin.on_lustre(inside)
    if not root and not standin.on_lustre(path):
        raise _refused(errno.EOPNOTSUPP, path)
    if not os.path.isfile(path):
        with standin.remembered() as state:
            default = None if root else standin.default_above(state, path)
        if default is None:
            raise _refused(errno.ENODATA, path)
        return lov.encode(binary(default, of_file=False))
    layout = _known.get(standin.identity(path))
    if layout is None or layout["composite"] or not layout["parts"]:
        with standin.remembered() as state:
            folder = os.path.dirname(path)
            for one in sorted(os.listdir(folder)):
                if os.path.isfile(os.path.join(folder, one)):
                    standin.layout_of(state, os.path.join(folder, one))
            layout = standin.layout_of(state, path)
        _known.update(state["files"])
    if not layout["parts"]:
        raise _refused(errno.ENODATA, path)
    return lov.encode(binary(layout, of_file=True))


def binary(layout: dict[str, Any], of_file: bool) -> dict[str, Any]:
    """A layout as lov.py encodes it; a directory's default is as it was asked for."""
    parts: list[dict[str, Any]] = []
    begin = 0
    for part in layout["parts"]:
        objects = [index for index, _ in part.get("objects", [])]
        count, size = part["count"], part["size"]
        if of_file:
            count = len(objects) or (0 if part["pattern"] == "mdt" else count or 1)
            size = standin.stripe_size(part)
        parts.append(
            {
                "count": count,
                "size": size,
                "pattern": part["pattern"],
                "pool": part["pool"],
                "objects": objects,
                "begin": begin,
                "end": part["end"],
                "init": "objects" in part,
            }
        )
        begin = part["end"] or begin
    return {"composite": layout["composite"], "parts": parts}
