"""Stand-in for ``os.getxattr`` of ``lustre.lov``: layouts that standin.py remembers, in Lustre's binary form.

A local file system has no such attribute, so that agents (agent.py, replay/agent.py) and tests put :func:`getxattr` in the
place of the real one. The bytes are those of lov.py.
"""

import errno
import os

if __package__:
    from support.lustre import lov, standin
else:
    import lov
    import standin


_known = {}


def _refused(number, path):
    return OSError(number, os.strerror(number), path)


def getxattr(path, name):
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
        return lov.plain({**default, "objects": ()})
    layout = _known.get(standin.identity(path))
    if layout is None:
        with standin.remembered() as state:
            folder = os.path.dirname(path)
            for one in sorted(os.listdir(folder)):
                if os.path.isfile(os.path.join(folder, one)):
                    standin.layout_of(state, os.path.join(folder, one))
            layout = standin.layout_of(state, path)
        _known.update(state["files"])
    osts, size = layout["osts"], standin.stripe_size(layout)
    return lov.plain({"count": len(osts), "size": size, "objects": osts})
