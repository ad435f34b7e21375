"""Several hosts on one machine: namespaces of Linux, joined by a bridge.

Each host has a network of its own (``eth0`` at 10.78.0.i), a host name and a /tmp; processes, users and all
other directories are those of the machine. The bridge has a namespace of its own too, so that nothing is
left in the machine's network, and two test runs cannot meet. Namespaces last as long as a process is in
them: one for each is held by a process that ends when this one closes a pipe, or dies.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from support.project import ROOT
from support.shell import completed, kill, script

NETWORK = "10.78.0"
_PROGRAMS = ("unshare", "nsenter", "mount", "ip", "hostname")
_UNSHARE = ("unshare", "--net", "--uts", "--mount", "--propagation", "slave")

#: What a host does first. Arguments: its name, /etc/hosts, /tmp, directories below /tmp that it shall see.
_HOLD = """
set -eu
hostname "$1"
ip link set lo up
mount --bind "$2" /etc/hosts
tmp=$3
shift 3
for seen in "$@"; do
    mkdir -p "$tmp/${seen#/tmp/}"
    mount --rbind "$seen" "$tmp/${seen#/tmp/}"
done
mount --rbind "$tmp" /tmp
echo ready
exec cat >/dev/null
"""

#: Run words on a host, as ssh would: joined by blanks, and read by a shell.
_AGENT = """#!/bin/sh
while :; do case $1 in -*) shift ;; *) break ;; esac; done
host=${1#*@}
shift
pid=$(cat "$(dirname "$0")/$host.pid") || exit 255
exec nsenter --target "$pid" --net --uts --mount --wd="$PWD" /bin/sh -c "$*"
"""


def why_not():
    """Why hosts cannot be made here; None where they can."""
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"not on PATH: {', '.join(missing)}"
    trial = "hostname trial && ip link add br0 type bridge && ip link add v0 type veth peer name v1"
    done = completed([*_UNSHARE, "sh", "-c", trial])
    if done.returncode != 0:
        return f"no namespaces, bridge or veth (root?): {done.stderr.strip()}"
    # Its agent can be replaced, by one that reaches these hosts.
    words = ["mpirun", "--version"] if shutil.which("mpirun") else ["echo"]
    done = completed(words)
    return None if "Open MPI" in done.stdout else "no mpirun of Open MPI on PATH"


class Hosts:
    """Hosts n1 to nN, for the time of a ``with``. ``seen`` directories keep their place below /tmp.

    ``base`` is a directory of the rig, with ``agent``, a program that takes the place of ssh
    (``OMPI_MCA_plm_rsh_agent``). What still runs on the hosts at the end is killed.
    """

    def __init__(self, number, *seen):
        self.names = [f"n{i}" for i in range(1, number + 1)]
        self._seen = [ROOT, Path(sys.prefix), *seen]
        self._holders: dict[str, subprocess.Popen[str]] = {}

    @property
    def agent(self):
        """Program that starts commands on a host."""
        return self.base / "agent"

    def address(self, host):
        """IPv4 address of a host."""
        return f"{NETWORK}.{self.names.index(host) + 1}"

    def command(self, host, words):
        """Words that run a command on a host, in the current directory."""
        pid = self._holders[host].pid
        return [
            "nsenter",
            f"--target={pid}",
            "--net",
            "--uts",
            "--mount",
            "--wd=.",
            *words,
        ]

    def run(self, host, words, timeout=600):
        """Run a command on a host to its end."""
        return completed(
            self.command(host, words), timeout=timeout, stdin=subprocess.DEVNULL
        )

    def processes(self, host):
        """Command lines of what runs on a host, by process, without the process that holds it."""
        holder = self._holders[host].pid
        network = os.readlink(f"/proc/{holder}/ns/net")
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == holder:
                continue
            with contextlib.suppress(OSError):
                if os.readlink(entry / "ns" / "net") == network:
                    words = (entry / "cmdline").read_bytes().decode(errors="replace")
                    found[int(entry.name)] = words.replace("\0", " ").strip()
        return found

    def __enter__(self):
        """Make the hosts; raises OSError with the reason where that fails."""
        self.base = Path(tempfile.mkdtemp(prefix="iogauge-hosts-"))
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def _make(self):
        script(self.agent, _AGENT)
        table = self.base / "hosts"
        lines = [
            "127.0.0.1 localhost",
            *(f"{self.address(host)} {host}" for host in self.names),
        ]
        table.write_text("\n".join(lines) + "\n")
        # Beside a mount lies the image that it is made of.
        places = (path.parent if os.path.ismount(path) else path for path in self._seen)
        seen = [self.base, *(path.resolve() for path in places)]
        below = [str(path) for path in seen if str(path).startswith("/tmp/")]
        for host in ["switch", *self.names]:
            tmp = self.base / f"tmp.{host}"
            tmp.mkdir()
            tmp.chmod(0o1777)
            self._holders[host] = holder = subprocess.Popen(
                [
                    *_UNSHARE,
                    "sh",
                    "-c",
                    _HOLD,
                    "sh",
                    host,
                    str(table),
                    str(tmp),
                    *below,
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            assert holder.stdout is not None
            assert holder.stderr is not None
            if holder.stdout.readline() != "ready\n":
                raise OSError(f"{host}: {holder.stderr.read().strip()}")
            (self.base / f"{host}.pid").write_text(f"{holder.pid}\n")
        self._ip("switch", "link add br0 type bridge")
        self._ip("switch", "link set br0 up")
        for host in self.names:
            pid = self._holders[host].pid
            self._ip("switch", f"link add {host} type veth peer name eth0 netns {pid}")
            self._ip("switch", f"link set {host} master br0 up")
            self._ip(host, f"addr add {self.address(host)}/24 dev eth0")
            self._ip(host, "link set eth0 up")

    def _ip(self, host, words):
        done = self.run(host, ["ip", *words.split()])
        if done.returncode != 0:
            raise OSError(f"{host}: ip {words}: {done.stderr.strip()}")

    def _remove(self):
        for host, holder in self._holders.items():
            end = time.monotonic() + 10
            while holder.poll() is None and (left := self.processes(host)):
                kill(*left)
                if time.monotonic() > end:
                    break
                time.sleep(0.05)
        for holder in self._holders.values():
            with holder:  # closes its pipes, which ends it
                pass
        shutil.rmtree(self.base, ignore_errors=True)

    def __exit__(
        self,
        kind,
        value,
        trace,
    ):
        """Kill what still runs there, and remove the hosts."""
        self._remove()
