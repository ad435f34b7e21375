"""Stand-in for ``lfs`` and ``lctl``: those of tests/support/lustre, with a state for each case (see figures.py).

Storage targets are as large as the file system below. What the program ``lfs`` in front of this can say
by itself is kept for it.
"""

import contextlib
import io
import os
import sys

import figures


def main(program, keep, argv):
    """Answer; ``keep`` names the file to keep the answer in where it will be the same, or is empty."""
    lustre = figures.of_this_case()
    if argv[:1] == ["setstripe"]:
        return setstripe(lustre, argv)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        status = int(getattr(lustre, os.path.basename(program))(argv))
    print(said.getvalue(), end="")
    if os.path.basename(keep).startswith("said.") and status == 0:
        figures.write(keep, said.getvalue())
    return status


def setstripe(lustre, argv):
    """``lfs setstripe``, in one go for all names on the command line."""
    with lustre.remembered() as state:
        lustre.remembered = lambda: contextlib.nullcontext(state)
        return int(lustre.lfs(argv))


if __name__ == "__main__":
    os.environ.setdefault("IOG_DIR", "/none")
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
