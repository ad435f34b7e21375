"""What a client does on its node when it is asked: look at its mount, and answer questions together with the others."""

from __future__ import annotations

import contextlib
import os
import re
import time
from itertools import islice
from pathlib import Path
from typing import Any, Final

from iogauge.core import processes
from iogauge.node import probes, view
from iogauge.node.host import kernel_log
from iogauge.node.lustre import client as lustre_client
from iogauge.node.mounts import fsname_of
from iogauge.workspace import directory
from iogauge_extras.clients.line import Line, NodeError, join
from iogauge_extras.clients.questions import QUESTIONS, Seat

#: Names of a directory that are listed at most.
_MOST_NAMES: Final = 10_000


def _seen(path: str) -> dict[str, Any]:
    """Return this client's view of a path: its mount, its room, its servers, and what the kernel says of them."""
    seen = view.look(path)
    with os.scandir(path) as entries:
        for _ in islice(entries, _MOST_NAMES):
            pass
    kind, source = seen.mount.type, seen.mount.source
    version, apart = _peers(source, kind)
    log = ""
    with contextlib.suppress(OSError):
        log = kernel_log()
    return {
        "problem": "",
        "type": kind,
        "source": source,
        "options": probes.safe_options(seen.mount.options),
        "uuid": seen.uuid,
        "bytes": seen.space.bytes_total,
        "free": seen.space.bytes_free,
        "version": version,
        "apart": apart,
        "log": complaints(log, source, kind),
    }


#: The state of a connection to a server of Lustre, and the healthy ones: one that is idle for 20 s is closed until it is used.
_STATE: Final = re.compile(r"(?m)^\s*state:\s*(\w+)")
_CONNECTED: Final = ("FULL", "IDLE", "NEW")


def _peers(source: str, kind: str, root: Path = Path("/")) -> tuple[str, list[str]]:
    """Return the version of a mount's client, and the servers that it is not connected to."""
    if kind != "lustre":
        return f"Linux {os.uname().release}", []
    wanted = {"": ("version",), "osc": ("import",), "mdc": ("import",)}
    version = ""
    apart = []
    found = lustre_client.read_parameters(fsname_of(source), wanted, root)
    for key, value in found.items():
        if key == "version":
            version = value
        state = _STATE.search(value)
        if state and state[1] not in _CONNECTED:
            apart.append(key.split(".")[1])
    return f"Lustre {version}", apart


#: A record of ``/dev/kmsg`` with its priority of syslog(3): of the last digit, 0 to 4 are warnings and worse.
_WARNING: Final = re.compile(r"(?m)^(\d+),[^;]*;(.*)$")


def complaints(log: str, source: str, kind: str) -> list[str]:
    """Return the newest rows of the kernel's log that warn and name a mount or its server."""
    words = {fsname_of(source), source.partition(":")[0]} - {"*", ""}
    if kind == "lustre":
        words.add("LustreError")
    name = re.compile(rf"\b({'|'.join(map(re.escape, sorted(words)))})\b")
    found = []
    for level, text in _WARNING.findall(log):
        if int(level) % 8 <= 4 and name.search(text):
            found.append(text[:200])
    return found[-3:]


def _look(path: str, seconds: float) -> dict[str, Any]:
    """Look at a mount: ``problem`` says why nothing is known of it."""
    clock = time.time()
    try:
        seen = processes.call_in_time(path, lambda: _seen(path), seconds)
    except processes.NoAnswer:
        seen = {"problem": f"does not answer in {seconds:g} s (df, ls)"}
    except OSError as error:
        seen = {"problem": f"cannot be looked at: {error.strerror or error}"}
    return {**seen, "clock": clock}


def _do(
    line: Line, leaving: contextlib.ExitStack, ask: str, path: str, **words: Any
) -> object:
    match ask:
        case "look":
            return _look(path, **words)
        case "make":
            made = directory.create(path, **words)
            leaving.callback(directory.remove, os.path.dirname(made))
            return made
    return QUESTIONS[ask](Seat(line=line, directory=path, **words))


def command(words: list[str]) -> int:
    """Join who asks clients, by the agent's command ``client ADDRESS PORT PASSWORD``; return the exit status.

    However the other end goes, the directory that this client has made goes, too.
    """
    line = join(*words)
    with (
        contextlib.ExitStack() as leaving,
        contextlib.suppress(NodeError, BrokenPipeError),
    ):
        while True:
            asked = line.hear(None)
            try:
                answer = {"answer": _do(line, leaving, **asked)}
            except NodeError:
                raise
            except OSError as error:
                answer = {"answer": str(error), "refused": True}
            line.tell(answer)
    return 0
