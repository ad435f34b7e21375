"""A real Slurm on one machine: its nodes are hosts as of :mod:`support.hosts`, one more host is its head.

munged, slurmctld and, with accounting, mariadbd and slurmdbd run on the head, which users log in to as well; a
slurmd runs on every node. All that they keep lies below the hosts' directory, networks are the hosts' own, so
that no port or name can meet another instance's. Nothing below /etc is read. What still runs at the end is
killed with the hosts.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import time

from support import hosts as support
from support.shell import completed, kill

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "sinfo")
_ACCOUNTING = (
    "slurmdbd",
    "mariadbd",
    "mariadb",
    "mariadb-install-db",
    "sacctmgr",
    "sacct",
)

_SLURM = """\
ClusterName=rig
SlurmctldHost={head}({address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={base}/munge.socket
CredType=cred/munge
StateSaveLocation={base}/state
SlurmdSpoolDir={base}/spool.%n
SlurmctldPidFile={base}/slurmctld.pid
SlurmdPidFile={base}/slurmd.%n.pid
SlurmctldLogFile={base}/slurmctld.log
SlurmdLogFile={base}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
# With memory as a resource a step takes all that the job has, as at most sites.
SelectTypeParameters=CR_Core_Memory
MpiDefault={mpi}
SwitchType=switch/none
ReturnToService=2
# How soon a node that does not answer is given up.
SlurmdTimeout=12
MessageTimeout=5
KillWait=15
{accounting}
NodeName=DEFAULT CPUs={cpus} CoresPerSocket={cpus} RealMemory=1024
{nodes}
PartitionName=compute Nodes=ALL Default=YES State=UP
"""

_SLURMDBD = """\
AuthType=auth/munge
AuthInfo=socket={base}/munge.socket
DbdHost={head}
SlurmUser=root
PidFile={base}/slurmdbd.pid
LogFile={base}/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=3306
StorageUser=slurm
StoragePass=rig
StorageLoc=slurm_acct_db
"""

_DATABASE = """\
create database slurm_acct_db;
create user 'slurm'@'127.0.0.1' identified by 'rig';
create user 'slurm'@'localhost' identified by 'rig';
grant all on slurm_acct_db.* to 'slurm'@'127.0.0.1';
grant all on slurm_acct_db.* to 'slurm'@'localhost';
"""


def why_not(accounting=False):
    """Why Slurm cannot run here; None where it can."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    needed = [*_PROGRAMS, *(_ACCOUNTING if accounting else ())]
    missing = [name for name in needed if shutil.which(name, path=path) is None]
    if missing:
        return f"not on PATH: {', '.join(missing)}"
    return support.why_not()


class Slurm:
    """Slurm on the first hosts, for the time of a ``with``; the last host is the head."""

    def __init__(self, hosts, accounting):
        self.hosts = hosts
        self.nodes, self.head = hosts.names[:-1], hosts.names[-1]
        self._accounting = accounting
        self._daemons: list[subprocess.Popen[bytes]] = []

    @property
    def environment(self):
        """Variables of every user of this Slurm."""
        return {
            "SLURM_CONF": str(self.base / "slurm.conf"),
            "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
        }

    def run(self, *words, timeout=60):
        """What a command on the head prints; raises OSError where it fails."""
        done = completed(
            self.hosts.command(self.head, words),
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            env=os.environ | self.environment,
        )
        if done.returncode != 0:
            raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def jobs(self):
        """Numbers of the jobs that run or wait."""
        return self.run("squeue", "--noheader", "--format=%A").split()

    def processes(self):
        """Command lines on every node that are not Slurm's own, by node; nodes without are left out."""
        found = {
            node: [
                line
                for line in self.hosts.processes(node).values()
                if line and "slurmd" not in line
            ]
            for node in self.nodes
        }
        return {node: lines for node, lines in found.items() if lines}

    def cut(self, node):
        """Take a node from the network, and kill all that runs there: as without power."""
        self.hosts.run("switch", ["ip", "link", "set", node, "down"])
        kill(*self.hosts.processes(node))

    def mend(self, node):
        """Start a node that was cut."""
        self.hosts.run("switch", ["ip", "link", "set", node, "up"])
        self._daemons = [daemon for daemon in self._daemons if daemon.poll() is None]
        self._start(node, "slurmd", "-D")
        self._all_idle()

    def __enter__(self):
        """Start it; raises OSError with the daemons' own words where that fails."""
        self.base = self.hosts.base / "slurm"
        self.hosts.base.chmod(0o711)  # munged wants that everybody can reach its socket
        for name in (
            "",
            "state",
            "database",
            *(f"spool.{node}" for node in self.nodes),
        ):
            (self.base / name).mkdir(mode=0o755)
        try:
            self._munge()
            self._configure()
            if self._accounting:
                self._database()
            self._start(self.head, "slurmctld", "-D")
            for node in self.nodes:
                self._start(node, "slurmd", "-D")
            self._all_idle()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind,
        value,
        trace,
    ):
        """Kill the daemons; what they have started ends with the hosts."""
        for daemon in reversed(self._daemons):
            daemon.kill()
            daemon.wait()

    def _start(self, host, *words):
        with open(self.base / f"{words[0]}.{host}.out", "ab") as out:
            daemon = subprocess.Popen(
                self.hosts.command(host, words),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=os.environ | self.environment,
                start_new_session=True,
            )
        self._daemons.append(daemon)

    def _wait(self, *words, until="", seconds=60):
        """Run a command on the head again and again until it succeeds and prints a text."""
        end = time.monotonic() + seconds
        while True:
            try:
                printed = self.run(*words, timeout=20)
                if until in printed:
                    return
            except (OSError, subprocess.TimeoutExpired) as error:
                printed = str(error)
            ended = [
                daemon.args for daemon in self._daemons if daemon.poll() is not None
            ]
            if ended or time.monotonic() > end:
                raise OSError(
                    f"{' '.join(words)}: {printed}; ended: {ended}{self._said()}"
                )
            time.sleep(0.1)

    def _said(self):
        """The last that each daemon said."""
        texts = {
            file.name: file.read_text(errors="replace")
            for file in self.base.glob("*.out")
        }
        return "".join(
            f"\n{name}: {text[-500:].strip()}" for name, text in texts.items()
        )

    def _munge(self):
        key = self.base / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        files = {"key-file": key, "socket": self.base / "munge.socket"}
        files |= {
            name: self.base / f"munge.{name}"
            for name in ("pid-file", "log-file", "seed-file")
        }
        words = [f"--{name}={file}" for name, file in files.items()]
        self._start(self.head, "munged", "--foreground", "--num-threads=4", *words)
        self._wait("munge", "--no-input", f"--socket={self.base}/munge.socket")

    def _configure(self):
        accounting = ["AccountingStorageType=accounting_storage/none"]
        if self._accounting:
            accounting = [
                "AccountingStorageType=accounting_storage/slurmdbd",
                f"AccountingStorageHost={self.head}",
                f"AccountingStoragePass={self.base}/munge.socket",
            ]
        cpus = os.cpu_count() or 1
        names = [
            f"NodeName={node} NodeAddr={self.hosts.address(node)}"
            for node in self.nodes
        ]
        fields = {
            "base": self.base,
            "head": self.head,
            "address": self.hosts.address(self.head),
            "accounting": "\n".join(accounting),
            "cpus": cpus,
            # Debian's plugin needs the library that comes with Open MPI.
            "mpi": "pmix" if shutil.which("mpirun") else "none",
            "nodes": "\n".join(names),
        }
        (self.base / "slurm.conf").write_text(_SLURM.format(**fields))
        (self.base / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        secret = self.base / "slurmdbd.conf"
        secret.write_text(_SLURMDBD.format(**fields))
        secret.chmod(0o600)

    def _database(self):
        data, socket = self.base / "database", self.base / "database.socket"
        own = ["--no-defaults", "--user=root"]
        self.run(
            "mariadb-install-db",
            *own,
            f"--datadir={data}",
            "--auth-root-authentication-method=normal",
        )
        self._start(
            self.head,
            "mariadbd",
            *own,
            f"--datadir={data}",
            f"--socket={socket}",
            f"--pid-file={self.base}/database.pid",
            "--bind-address=127.0.0.1",
            "--innodb-buffer-pool-size=64M",
            "--innodb-log-file-size=16M",
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-lock-wait-timeout=900",
        )
        client = ["mariadb", *own, f"--socket={socket}", "--execute"]
        self._wait(*client, "select 1")
        self.run(*client, _DATABASE)
        self._start(self.head, "slurmdbd", "-D")
        self._wait("sacctmgr", "--noheader", "show", "cluster")
        self.run("sacctmgr", "--immediate", "add", "cluster", "rig")

    def _all_idle(self):
        words = ("sinfo", "--noheader", "--states=idle", "--format=%D")
        self._wait(*words, until=f"{len(self.nodes)}\n")
