"""The agent of one node while a case runs, and how the job script waits for all of them.

The launcher starts one on each node in the background. It looks at the target, may start a server, and then answers the
first task of its node (:mod:`iogauge.job.control_pipe`). It ends at a signal, and when the launcher or the job script is gone.
"""

import contextlib
import os
import re
import select
import signal
import socket
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType

from iogauge.core import processes
from iogauge.core.paths import expand
from iogauge.core.text import complain, say
from iogauge.job.control_pipe import AGENT, ControlPipe
from iogauge.job.target import look_again
from iogauge.plan import observations
from iogauge.plan import stage as files

#: Seconds between two looks at what started an agent, and between two words of the job script in the lease.
_PAUSE_S = 0.5
_BEAT_S = 2.0
#: Seconds after which an agent ends without a new word: a network with the stage directory may be away for a while.
_LEASE_S = 300.0


def server_here() -> int | None:
    """Return the process of this node's server; None without one."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path(files.SERVERS).read_text().splitlines():
            host, _, pid = line.split()
            if host == os.uname().nodename:
                return int(pid)
    return None


def begin_lease() -> None:
    """Renew the lease in the background for as long as the job script lives, whose child this is.

    A node opens the file to read it, which makes NFS fetch it anew: the file's time would come from a cache, and from
    another node's clock.
    """
    script = os.getppid()
    Path(files.LEASE).write_text("0\n")

    def work() -> None:
        count = 0
        while os.getppid() == script:
            count += 1
            with contextlib.suppress(OSError):
                Path(files.LEASE).write_text(f"{count}\n")
            time.sleep(_BEAT_S)

    threading.Thread(target=work, daemon=True).start()


def attend(stage: str, directory: str, program: str, interface: str) -> int:
    """Attend this node until the job ends; return the exit status.

    ``program`` is the server to start, or empty. What attends has a session of its own: a kill of what the launcher
    started, and of its group, does not reach it, and it ends the server.
    """
    host, launcher = os.uname().nodename, os.getppid()
    try:
        os.chdir(stage)
        observations.append("")
    except OSError as error:
        why = f"every node must see the stage directory: {error.strerror}"
        complain(f"iogauge: {host} cannot write {stage}: {why}")
        return 1
    front = os.getpid()
    child = os.fork()
    if child == 0:
        os.setsid()
        os._exit(_NodeAgent(front, launcher, program).run(directory, interface))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: os.kill(child, signal.SIGTERM))
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


class _NodeAgent:
    """What attends a node: ``front`` is what ``launcher`` started, and waits for this process."""

    def __init__(self, front: int, launcher: int, program: str) -> None:
        self._front, self._launcher, self._program = front, launcher, program
        self._name, self._why = os.path.basename(program), ""
        self._beat, self._renewed = "", time.monotonic()
        self._lease_s = float(os.environ.get("IOG_SERVERS_LEASE", _LEASE_S))

    def run(self, directory: str, interface: str) -> int:
        """Look at the target, start the server, and answer; return the exit status."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._told)
        host = os.uname().nodename
        try:
            view, objection = look_again(expand(directory))
            if objection:
                observations.note(observations.REFUSES, objection)
                return files.REFUSED
            with contextlib.ExitStack() as leaving:
                server = None
                if self._program:
                    from iogauge.job.server import Server

                    server = Server(self._program, interface)
                    leaving.callback(server.end)
                    observations.note(observations.SERVER, [server.address, server.pid])
                pipe = None
                # The agent that keeps the lock attends its own node.
                if not os.path.exists(f"{AGENT}.{host}"):
                    # Without named pipes there is no witness of counters.
                    with contextlib.suppress(OSError):
                        pipe = ControlPipe(expand(directory))
                        leaving.callback(pipe.close)
                observations.note(files.VIEW, view.to_json())
                while not self._why:
                    self._answer(pipe)
                    self._look()
                    if server and not server.runs():
                        self._why = f"{self._name} ended by itself"
        except OSError as error:
            self._why = str(error)
        if self._why == "a signal":
            return 0
        what = "agent"
        if self._program:
            what = f"{self._name} server"
        complain(f"iogauge: {what} failed on {host}: {self._why}")
        return 1

    def _answer(self, pipe: ControlPipe | None) -> None:
        """Answer what the tasks of this node ask, or wait for a while."""
        if pipe is None:
            time.sleep(_PAUSE_S)
            return
        pause_s = min(_PAUSE_S, pipe.pause_s)
        if select.select([pipe], [], [], pause_s)[0]:
            for _ in pipe.answer():
                pass
        pipe.settle()

    def _told(self, number: int, frame: FrameType | None) -> None:
        self._why = self._why or "a signal"

    def _look(self) -> None:
        """Set the reason to end, if there is one. A thousand nodes must not open a shared file all the time."""
        if (
            os.getppid() != self._front
            or processes.parent(self._front) != self._launcher
        ):
            self._why = "what started it is gone"
        now = time.monotonic()
        if now - self._renewed > self._lease_s / 5:
            with contextlib.suppress(OSError):
                beat = Path(files.LEASE).read_text()
                if beat != self._beat:
                    self._beat, self._renewed = beat, now
            if now - self._renewed > self._lease_s:
                self._why = (
                    f"the job did not renew {files.LEASE} for {self._lease_s:.0f} s"
                )


def await_all(nodes: int, tool: str, launcher: int, seconds: float) -> int:
    """Wait until all nodes are attended, and reached if they serve; return the exit status.

    ``launcher`` is the process that started their agents. Prints who did not answer, and why nodes refuse the case.
    """
    deadline = time.monotonic() + seconds
    reached: set[str] = set()
    reader = observations.Reader(Path())
    while True:
        why = ""
        if not processes.started(launcher):
            why = "and what started them has ended"
        if time.monotonic() >= deadline:
            why = f"within {seconds:.0f} s"
        if why or len([*Path().glob(f"{observations.SEEN}.*.jsonl")]) >= nodes:
            found = reader.read()
            refusals = [text for _, _, text in found.each(observations.REFUSES, str)]
            for text in refusals:
                say(f"{files.REFUSAL}{text}")
            if refusals:
                return files.REFUSED
            there = set(found.by_host(files.VIEW))
            servers = found.by_host(observations.SERVER)
            served = {host: str(words[0]) for host, words in servers.items()}
            if tool:
                if _apart(tool, served):
                    return 1
                reached |= _reached(served, there - reached)
                there = reached
            if len(there) >= nodes:
                _write(found)
                return 0
            if why:
                _complain(tool, nodes, there, served, why)
                return 1
        time.sleep(0.2)


def _reached(served: dict[str, str], hosts: set[str]) -> set[str]:
    """Return those of some hosts whose servers can be reached."""
    reached = set()
    for host in hosts & served.keys():
        address, _, port = served[host].partition(",")
        with (
            contextlib.suppress(OSError),
            socket.create_connection((address, int(port)), 3),
        ):
            reached.add(host)
    return reached


def _apart(tool: str, served: dict[str, str]) -> bool:
    """Print whether servers have one address: they would share their files."""
    used = Counter(address.partition(",")[0] for address in served.values())
    for address, count in used.items():
        if count > 1:
            why = f"several nodes serve at {address}; name their interface in extras.interface"
            say(f"iogauge: {tool} servers failed: {why}")
            return True
    return False


def _complain(
    tool: str, nodes: int, there: set[str], served: dict[str, str], why: str
) -> None:
    """Print which nodes answered, and what the others and their launcher said."""
    lines = Path(files.AGENTS_ERRORS).read_text(errors="replace").splitlines()
    own = [line for line in lines if line.startswith("iogauge: ")]
    for line in own or lines[-3:]:
        say(line)
    for host in sorted(served.keys() - there):
        where = f"{served[host]}, which cannot be reached from {os.uname().nodename}"
        say(f"iogauge: {host} serves at {where}")
    with contextlib.suppress(OSError):
        hosts = re.findall(r"(?m)^(\S+)", Path(files.HOSTFILE).read_text())
        silent = sorted(set(hosts) - there)
        say(f"iogauge: no answer of {', '.join(silent)}")
    what = "agents"
    if tool:
        what = f"{tool} servers"
    names = ", ".join(sorted(there)) or "none"
    answered = f"{len(there)} of {nodes} nodes answered {why} ({names})"
    say(f"iogauge: {what} failed: {answered}")


def _write(found: observations.NodeObservations) -> None:
    """Write the addresses of the servers for fio."""
    lines = []
    for host, (address, pid) in sorted(found.by_host(observations.SERVER).items()):
        lines.append(f"{host} {address} {pid}\n")
    if lines:
        Path(files.SERVERS).write_text("".join(lines))
