"""A mount that can be made to hang, or to fail: a FUSE daemon that is stopped and continued, or answers with errors."""

import atexit
import functools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from support import compiler
from support.shell import completed

SOURCE = Path(__file__).with_name("slowfs.c")


class Unavailable(Exception):
    """No such mount can be made here; the message says why."""


class Hanging:
    """A mounted directory and its daemon."""

    def __init__(self, point, daemon):
        self.point, self.daemon = point, daemon

    def hang(self):
        """From now on nothing answers."""
        os.kill(self.daemon.pid, signal.SIGSTOP)

    def wake(self):
        """Everything that waits is answered."""
        os.kill(self.daemon.pid, signal.SIGCONT)


class Frozen(Hanging):
    """A mounted file system on which from some moment on nobody can write."""

    def __init__(self, point):
        self.point = point

    def hang(self):
        completed(["fsfreeze", "--freeze", str(self.point)], check=True)

    def wake(self):
        completed(["fsfreeze", "--unfreeze", str(self.point)])


@functools.cache
def build():
    """The daemon's program, built once by a process; raises :class:`Unavailable`."""
    if compiler.lacks():
        raise Unavailable(compiler.lacks())
    for name in ("pkg-config", "fusermount3"):
        if shutil.which(name) is None:
            raise Unavailable(f"not on PATH: {name}")
    flags = completed(["pkg-config", "--cflags", "--libs", "fuse3"])
    if flags.returncode != 0:
        raise Unavailable("no libfuse3-dev")
    folder = Path(tempfile.mkdtemp(prefix="slowfs-"))
    atexit.register(shutil.rmtree, folder)
    program = folder / "slowfs"
    words = ["gcc", "-O2", "-Wall", "-Wextra", str(SOURCE), "-o", str(program)]
    completed([*words, *flags.stdout.split()], check=True)
    return program


@contextmanager
def mounted(
    folder,
    fail="",
    log=None,
    keeps=False,
    old=False,
):
    """Mount ``folder``/back at ``folder``/mnt; raises :class:`Unavailable`.

    ``fail``: what fails, as ``OPERATION:ERRNO:N``. ``log``: where reads and writes are written down.
    ``keeps``: the daemon reads from memory what was written before.
    ``old``: the client asks for no attribute, name or content twice. See slowfs.c.
    """
    back, point = folder / "back", folder / "mnt"
    back.mkdir()
    point.mkdir()
    words = [str(build()), str(back), str(point), "-f", "-o", "fsname=slowfs-place"]
    daemon = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        env=os.environ
        | ({"SLOWFS_FAIL": fail} if fail else {})
        | ({"SLOWFS_LOG": str(log)} if log else {})
        | ({"SLOWFS_KEEPS": "1"} if keeps else {})
        | ({"SLOWFS_OLD": "1"} if old else {}),
    )
    try:
        end = time.monotonic() + 10
        while not os.path.ismount(point):
            if daemon.poll() is not None or time.monotonic() > end:
                raise Unavailable("FUSE cannot be mounted here")
            time.sleep(0.05)
        yield Hanging(point, daemon)
    finally:
        if daemon.poll() is None:
            os.kill(daemon.pid, signal.SIGCONT)
        completed(["fusermount3", "-u", "-z", str(point)])
        daemon.terminate()
        daemon.wait(600)
