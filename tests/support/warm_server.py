"""Forks commands from a process that has imported ReFrame and the library; see e2e.warm.

Each fork becomes the command in all that can be seen of a process: environment, arguments, working directory,
session, standard streams, /proc, exit status. Nothing but imports happens before the fork.
"""

import array
import ctypes
import fnmatch
import gc
import importlib
import inspect
import json
import os
import pkgutil
import select
import socket
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

LENGTH_BYTES = 8
_LIBC = ctypes.CDLL(None, use_errno=True)


def receive(control):
    """Return a request with the ends of its pipes for output and status; None if nobody asks any more."""
    head, ancillary, _, _ = control.recvmsg(LENGTH_BYTES, socket.CMSG_SPACE(8))
    if not head:
        return None
    output, status = array.array("i", ancillary[0][2])
    text = b""
    while len(text) < int(head):
        text += control.recv(int(head) - len(text))
    return json.loads(text), output, status


def serve(control):
    """Fork a process for each request, tell how it ended. Returns in the forks only, with the request."""
    running = {}
    while True:
        ready, _, _ = select.select([control, *running], [], [])
        for pidfd in set(ready) & running.keys():
            pid, status = running.pop(pidfd)
            _, ended = os.waitpid(pid, 0)
            os.write(status, b"%d\n" % ended)
            os.close(status)
            os.close(pidfd)
        if control not in ready:
            continue
        request = receive(control)
        if request is None:
            # What was started runs on, as it does if the starter of a command ends.
            os._exit(0)
        told, output, status = request
        pid = os.fork()
        if pid == 0:
            control.close()
            for other, (_, theirs) in running.items():
                os.close(other)
                os.close(theirs)
            become(told, output, status)
            return told
        os.close(output)
        running[os.pidfd_open(pid)] = (pid, status)


def become(told, output, status):
    """Take over what a new process gets from whoever starts it."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    for given, number in ((null, 0), (output, 1), (output, 2)):
        os.dup2(given, number)
    os.close(null)
    os.close(output)
    if told["like"]:
        enter(told["like"])
    os.chdir(told["cwd"])
    # ReFrame sets this while it is imported.
    prefix = os.environ["RFM_INSTALL_PREFIX"]
    os.environ.clear()
    os.environ.update(told["environment"])
    os.environ["RFM_INSTALL_PREFIX"] = prefix
    time.tzset()
    sys.argv[:] = told["argv"]
    python_path = [
        p for p in told["environment"].get("PYTHONPATH", "").split(os.pathsep) if p
    ]
    sys.path[:] = [told["path"], *python_path, *sys.path]
    show(told["shown"], [f"{k}={v}" for k, v in told["environment"].items()])
    with open("/proc/self/comm", "w") as file:
        file.write(told["name"])
    os.write(status, b"%d\n" % os.getpid())
    os.close(status)


def enter(pid):
    """Take over network, name of the host, mounts and cores of another process."""
    spaces = [
        os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY) for kind in ("net", "uts", "mnt")
    ]
    cores = os.sched_getaffinity(pid)
    root = os.open(f"/proc/{pid}/root", os.O_RDONLY)
    for space in spaces:
        if _LIBC.setns(space, 0) != 0:
            raise OSError(ctypes.get_errno(), "setns")
        os.close(space)
    # A mount namespace leads out of a changed root.
    os.fchdir(root)
    os.chroot(".")
    os.close(root)
    os.sched_setaffinity(0, cores)


def show(words, variables):
    """Let /proc tell the command's own words and environment; the server was started with room for them."""
    with open("/proc/self/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    edges = [int(field) for field in fields[45:49]]
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        for start, end, texts in ((*edges[:2], words), (*edges[2:], variables)):
            content = b"".join(os.fsencode(text) + b"\0" for text in texts)
            if len(content) > end - start:
                raise SystemExit(f"no room for {len(content)} bytes in /proc")
            memory.seek(start)
            memory.write(content.ljust(end - start, b"\0"))


def prepare():
    """Do once what ReFrame does in every command, and what leaves nothing that can be seen."""
    import jsonschema
    import reframe.core.warnings
    from reframe.core import config

    from iogauge.site.references import known_checks

    # Patterns of its settings, and names of the checks: modules keep what they have compiled or parsed.
    schema = config._SiteConfig().schema
    for pattern in schema["defaults"]:
        fnmatch.fnmatchcase("", pattern)
    known_checks(Path(__file__).parents[2] / "checks")

    # ReFrame asks each time whether its own schema is one.
    validator = jsonschema.validators.validator_for(schema)
    check_schema = validator.check_schema
    validator.check_schema = lambda asked: (
        None if asked == schema else check_schema(asked)
    )

    # For each class of a check it looks through all callers, to name one in a warning that nobody hears.
    unheard = ("ignore", None, reframe.core.warnings.ReframeDeprecationWarning, None, 0)

    def callers():
        return [] if warnings.filters[:1] == [unheard] else inspect.stack()[1:]

    reframe.core.warnings.inspect = SimpleNamespace(
        stack=callers, getmodule=inspect.getmodule
    )


def main():
    # No child of the tests: some of them look at the children that they have.
    if os.fork():
        os._exit(0)
    control = socket.socket(fileno=int(sys.argv[1]))
    # The library lies where it lies for the literal command. This folder is no command's.
    sys.path[0] = sys.argv[2]
    from reframe.core import backends
    from reframe.frontend import cli

    import iogauge.cases
    import iogauge.cli.app

    for kind in ("launcher", "scheduler"):
        for name in getattr(backends, f"_{kind}_backend_modules"):
            importlib.import_module(name)
    for module in pkgutil.iter_modules(iogauge.cases.__path__, "iogauge.cases."):
        importlib.import_module(module.name)
    del sys.path[0]
    prepare()
    # What is imported stays shared: the collector of a fork would copy every page of it.
    gc.collect()
    gc.freeze()
    threads = os.listdir("/proc/self/task")
    if len(threads) != 1:
        raise SystemExit(f"a process of {len(threads)} threads cannot be forked")
    told = serve(control)
    return cli.main() if told["name"] == "reframe" else iogauge.cli.app.app()


if __name__ == "__main__":
    sys.exit(main())
