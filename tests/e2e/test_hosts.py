"""fio's servers on several hosts, started by a real mpirun: they serve one job, and nothing is left of them.

The hosts are namespaces of this machine that share its files, so that the stage directory and the target
are the same on all.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.rig import processes, wait_for
from iogauge.core.measurement import ToolOutput
from iogauge.core.paths import JOB_FILES, LIBRARY
from iogauge.plan import script, stage
from iogauge.tools.fio import options, output
from support import hosts as support
from support.hosts import Hosts

AGENT = f"""\
[ "$1" = open ] || exec env PYTHONPATH={LIBRARY.parent} {sys.executable} -m iogauge.job.agent "$@"
mkdir -p "$CASE_DIR" && touch "${{CASE_DIR%/*}}/.iogauge-session"
"""

pytestmark = [pytest.mark.needs_fio, pytest.mark.slow]


def open_mpi() -> bool:
    """Whether mpirun is Open MPI's, whose agent can be replaced."""
    if shutil.which("mpirun") is None:
        return False
    words = ["mpirun", "--version"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
    return "Open MPI" in done.stdout


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Three hosts with one more interface, ``stor0``: that of n3 answers to nobody."""
    reason = support.why_not()
    if reason is not None:
        pytest.skip(reason)
    if not open_mpi():
        pytest.skip("no mpirun of Open MPI on PATH")
    with Hosts(3, tmp_path_factory.getbasetemp()) as made:
        for number, host in enumerate(made.names, 1):
            for words in (
                "link add stor0 type veth peer name stor1",
                f"addr add 10.79.0.{number}/32 dev stor0",
                "link set stor0 up",
                "link set stor1 up",
                *(
                    f"route add 10.79.0.{other} via {support.NETWORK}.{other}"
                    for other in (1, 2, 3)
                    if other != number
                ),
            ):
                assert made.run(host, ["ip", *words.split()]).returncode == 0, words
        # Packets to it end nowhere, as behind a firewall.
        lost = "neigh replace 10.78.0.99 lladdr 02:00:00:00:00:99 dev eth0 nud permanent"
        for words in (lost, "route replace 10.79.0.3 via 10.78.0.99"):
            assert made.run("n1", ["ip", *words.split()]).returncode == 0, words
        yield made


class Job:
    """A job script on n1 with servers on all hosts."""

    def __init__(self, base: Path, cluster: Hosts) -> None:
        self.cluster = cluster
        self.stage = base / "stage"
        self.directory = base / "target" / "iogauge" / "user" / "session" / "case"
        self.stage.mkdir()
        (self.stage / stage.HOSTFILE).write_text("".join(f"{h} slots=2\n" for h in cluster.names))
        fields: dict[str, Any] = {
            "directory": "${IOG_DIR}",
            "block_bytes": 4096,
            "file_bytes": 1 << 18,
            "files": 2,
            "numjobs": 2,
            "filename_format": "k$jobnum/$clientuid.$filenum",
        }
        for job in (
            options.FioJob(name="layout", pattern="write", fsync_at_end=True, **fields),
            options.FioJob(name="read", pattern="randread", runtime_s=1, **fields),
            options.FioJob(name="long", pattern="randread", runtime_s=300, **fields),
        ):
            (self.stage / f"{job.name}.fio").write_text(job.job_file())

    def start(self, case: str, interface: str = "eth0", before: str = "") -> subprocess.Popen[str]:
        launcher = " ".join(script.per_node_launcher("mpirun", 3, self.cluster.names))
        (self.stage / "agent").write_text(AGENT)
        (self.stage / "job").write_text(
            f"export IOG_DIR=$CASE_DIR\n. {JOB_FILES}/job.sh\n. {JOB_FILES}/servers.sh\n"
            f"iog_prepare() {{\n{before}\niog_servers fio 3 {interface} {launcher}\n"
            "iog_client layout layout.fio layout.json\n}\n"
            f"iog_case() {{\n{case}\n}}\niog_open bash ./agent open case.json\niog_prepare\niog_repeat 1 1 iog_case\n"
        )
        environment = os.environ | {
            "CASE_DIR": str(self.directory),
            "IOG_SERVERS_LEASE": "4",
            "IOG_SERVERS_SECONDS": "15",
            "OMPI_MCA_plm_rsh_agent": str(self.cluster.agent),
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }
        return subprocess.Popen(
            self.cluster.command("n1", ["bash", "job"]),
            cwd=self.stage,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, case: str, interface: str = "eth0", before: str = "") -> tuple[int, str]:
        process = self.start(case, interface, before)
        printed, _ = process.communicate(timeout=600)
        return process.returncode, printed

    def text(self, name: str) -> str:
        return (self.stage / name).read_text()

    def measured(self, name: str) -> ToolOutput:
        return output.parse_json(self.text(f"{name}.json") + self.text(f"{name}.1.out"))

    def running(self, word: str) -> dict[str, list[int]]:
        """Processes of every host whose command line holds a word."""
        return {
            host: [pid for pid, line in self.cluster.processes(host).items() if word in line]
            for host in self.cluster.names
        }

    def busy(self) -> bool:
        """Whether fio's jobs run on all hosts: two processes, each with a session of its own."""
        try:
            sessions = [{os.getsid(pid) for pid in p} for p in self.running("--server").values()]
        except ProcessLookupError:
            return False
        return all(len(found) >= 3 for found in sessions)

    def all_gone(self) -> bool:
        """Nothing is left on the hosts, nor anything that was started in the stage directory."""
        return not any(self.running("").values()) and not processes(str(self.stage))


@pytest.fixture
def job(tmp_path: Path, cluster: Hosts) -> Job:
    assert not any(cluster.processes(host) for host in cluster.names)
    return Job(tmp_path, cluster)


def test_all_hosts(job: Job) -> None:
    status, printed = job.run(
        "iog_client all read.fio all.json\n"
        'iog_phase files find "$IOG_DIR" -type f -printf "%P %s\\n"; iog_servers_stop\n'
        "iog_phase left mpirun -np 3 --hostfile hosts.txt --map-by ppr:1:node cat /proc/net/tcp"
    )
    assert status == 0, printed + job.text("servers.err")
    lines = [line.split() for line in job.text("servers.txt").splitlines()]
    assert [line[0] for line in lines] == ["n1", "n2", "n3"]
    assert [line[1].partition(",")[0] for line in lines] == [
        f"{support.NETWORK}.{i}" for i in (1, 2, 3)
    ]
    addresses = {f"{support.NETWORK}.{i}" for i in (1, 2, 3)}
    everyone = job.measured("all")
    assert (everyone.nodes, everyone.tasks, everyone.warnings) == (3, 6, ())
    assert isinstance(everyone.parameters["clients"], dict)
    assert set(everyone.parameters["clients"]) == addresses
    # The files of the layout, by the address of the server, and none that a read made for itself.
    assert sorted(job.text("files.1.out").splitlines()) == sorted(
        f"k{number}/{address}.{file} {1 << 18}"
        for number in (0, 1)
        for address in addresses
        for file in (0, 1)
    )
    for _, address, _ in lines:
        port = int(address.partition(",")[2])
        assert f":{port:04X} 00000000:0000 0A" not in job.text("left.1.out")
    wait_for(job.all_gone, 30, "the end of all processes")
    assert not job.directory.exists()


def test_a_job_that_is_killed_leaves_nothing(job: Job) -> None:
    """Job, launcher, and what shows of the servers."""
    process = job.start("iog_client long long.fio long.json")
    wait_for(job.busy, 60, "fio's processes on all hosts")
    for word in ("server.sh /", "bash job", "mpirun"):
        for found in job.running(word).values():
            for pid in found:
                # The death of one may have ended another.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    process.wait(60)
    wait_for(job.all_gone, 60, "the end of all processes")


def test_a_job_that_stands_still_loses_its_servers(job: Job) -> None:
    process = job.start("iog_client long long.fio long.json")
    wait_for(job.busy, 60, "fio's processes on all hosts")
    halted = job.running("bash job")["n1"]
    for pid in halted:
        os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: not any(job.running("--server").values()), 60, "the end of the servers")
    assert process.poll() is None
    for pid in halted:
        os.kill(pid, signal.SIGCONT)
    assert process.wait(60) != 0
    wait_for(job.all_gone, 30, "the end of all processes")


def test_a_host_that_cannot_be_reached(job: Job) -> None:
    status, printed = job.run("true", interface="stor0")
    assert status == 1
    assert "n3 serves at 10.79.0.3," in printed
    assert "which cannot be reached from n1" in printed
    assert "fio servers failed: 2 of 3 nodes answered within 15 s (n1 n2)" in printed
    wait_for(job.all_gone, 30, "the end of all processes")
    assert not job.directory.exists()
