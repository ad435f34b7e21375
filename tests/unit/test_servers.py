"""Agents of nodes with the real fio on this node: they serve the job, and end with it."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.rig import processes, wait_for
from iogauge.core.measurement import ToolOutputError
from iogauge.core.paths import JOB_FILES
from iogauge.node import mounts
from iogauge.plan import observations
from iogauge.plan.observations import SERVER
from iogauge.tools.fio import fio_options, fio_output
from iogauge.workspace.directory import session_dir
from support.orders import job_order
from support.shell import kill, script

UUID = Path("/proc/sys/kernel/random/uuid")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs_fio,
    pytest.mark.skipif(shutil.which("fio") is None, reason="no fio on PATH"),
    pytest.mark.skipif(
        not UUID.exists() or shutil.which("ip") is None, reason="no Linux, or no ip"
    ),
]

#: Starts words as three hosts would: each has a name and, by that name, an address of its own.
THREE = """#!/bin/sh
for number in 1 2 3; do
    unshare --uts --mount sh -euc 'hostname "n$0"; mount --bind "$1" /etc/hosts; shift; exec "$@"' \\
        "$number" "${0%/*}/hosts" "$@" &
done
wait
"""


class Servers:
    """A stage directory with job files, and what runs in it."""

    def __init__(self, base):
        self.stage = base / "stage"
        self.directory = Path(session_dir(str(base / "target"), "session")) / "case"
        self.bin = base / "bin"
        self.environment = {
            "PATH": os.environ["PATH"],
            "IOG_DIR": str(self.directory),
            "IOG_TOKEN": "by.hand",
            "CASE_DIR": str(self.directory),
        }
        self.stage.mkdir()
        self.bin.mkdir()
        fields = {
            "directory": "${IOG_DIR}",
            "block_bytes": 4096,
            "file_bytes": 1 << 18,
            "numjobs": 2,
            "filename_format": "k$jobnum/$clientuid.$filenum",
        }
        for job in (
            fio_options.FioJob(
                name="layout",
                pattern="write",
                fsync_at_end=True,
                checksum_bytes=4096,
                **fields,
            ),
            fio_options.FioJob(name="read", pattern="randread", runtime_s=1, **fields),
            fio_options.FioJob(
                name="long", pattern="randread", runtime_s=300, **fields
            ),
        ):
            (self.stage / f"{job.name}.fio").write_text(job.job_file())
        self.program("launch", THREE)
        (self.bin / "hosts").write_text(
            "".join(f"127.0.0.{n} n{n}\n" for n in (1, 2, 3))
        )

    def program(self, name, text):
        return script(self.bin / name, text)

    def start(self, words):
        return subprocess.Popen(
            words,
            cwd=self.stage,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def job(self, prepare, case="true"):
        target = self.directory.parents[3]
        target.mkdir(exist_ok=True)
        mount = mounts.find_mount(str(target))
        order = job_order(
            str(target),
            type=mount.type,
            source=mount.source,
            locks=(),
            session="session",
        )
        (self.stage / "case.json").write_text(json.dumps(order.to_json()))
        agent = f"/bin/sh {JOB_FILES}/agent.sh {sys.executable}"
        (self.stage / "job").write_text(
            f"export IOG_DIR=$CASE_DIR\n. {JOB_FILES}/job.sh\n. {JOB_FILES}/servers.sh\niog_prepare() {{\n{prepare}\n}}\n"
            f"iog_case() {{\n{case}\n}}\niog_open {agent} open case.json\niog_prepare\niog_repeat 1 1 iog_case\n"
        )
        return self.start(["bash", "job"])

    def run(self, prepare, case="true"):
        process = self.job(prepare, case)
        printed, _ = process.communicate(timeout=600)
        return process.returncode, printed

    def attend(self):
        """An agent by itself with a server on the loopback interface; returns the server's address and process, too."""
        self.job("exit").communicate(timeout=600)
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.stage / "agents.lease").write_text("1\n")
        agent = ["/bin/sh", str(JOB_FILES / "agent.sh"), sys.executable]
        words = [*agent, "attend", str(self.stage)]
        process = self.start([*words, str(self.directory), shutil.which("fio"), "lo"])
        told = wait_for(
            lambda: observations.read(self.stage).by_host(SERVER),
            30,
            "the server's address",
        )
        ((address, server),) = told.values()
        return process, address, server

    def text(self, name):
        return (self.stage / name).read_text()

    def left(self):
        return processes(str(self.stage))

    def all_gone(self):
        return not self.left()

    def measured(self, *names):
        return fio_output.parse_json("".join(self.text(name) for name in names))

    def busy(self):
        """Whether fio's server has a process for each of the two of a job, which leave its session."""
        sessions = {os.getsid(pid) for pid in self.left() if "--server" in command(pid)}
        return len(sessions) >= 3


def command(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""


@pytest.fixture
def servers(tmp_path):
    made = Servers(tmp_path)
    yield made
    kill(*made.left())


def test_a_server_here_serves_the_phases_of_a_job(servers):
    status, printed = servers.run(
        "iog_agents fio 1 lo; iog_client layout layout.fio layout.json",
        "iog_client read read.fio read.$IOG_REP.json; iog_phase sockets cat /proc/net/tcp\n"
        'iog_phase files find "$IOG_DIR" -type f -printf "%P %s\\n"',
    )
    assert status == 0, printed
    host = os.uname().nodename
    match = re.fullmatch(
        rf"{re.escape(host)} 127\.0\.0\.1,(\d+) (\d+)\n", servers.text("servers.txt")
    )
    assert 20000 <= int(match[1]) < 32768
    # It listens there, and nowhere else.
    ends = re.findall(
        rf"([0-9A-F]+):{int(match[1]):04X} \S+ 0A ", servers.text("sockets.1.out")
    )
    assert ends == ["0100007F"]
    # One address in the names of both runs: the read made no files of its own.
    assert sorted(servers.text("files.1.out").splitlines()) == [
        f"k{number}/127.0.0.1.0 {1 << 18}" for number in range(2)
    ]
    layout, read = servers.measured("layout.json"), servers.measured("read.1.json")
    assert (layout.phases[0].name, layout.phases[0].bytes_moved) == ("write", 2 << 18)
    assert (read.phases[0].name, read.nodes, read.tasks) == ("read", 1, 2)
    names = [line.split("\t")[1:3] for line in servers.text("phases.tsv").splitlines()]
    assert names[:3] == [["view", "0"], ["layout", "0"], ["read", "0"]]
    wait_for(servers.all_gone, 10, "the end of all processes")
    assert not servers.directory.exists()


@pytest.mark.parametrize(
    "damage", ["true", 'truncate -s 0 "$FILE"; truncate -s 256K "$FILE"']
)
def test_servers_check_the_data_in_the_warm_up(servers, damage):
    words = " ".join(fio_options.verification(4096))
    status, printed = servers.run(
        f"iog_agents fio 3 '' {servers.bin / 'launch'}; iog_client layout layout.fio layout.json\n"
        f'FILE=$IOG_DIR/k1/127.0.0.2.0; [ -s "$FILE" ] || exit; {damage}\n'
        f'iog_verify {words}; iog_client read read.fio read.json "${{IOG_VERIFY[@]}}"',
        f'iog_verify {words}; echo "words: ${{IOG_VERIFY[*]}}"',
    )
    said = servers.text("read.json").partition("{")[0]
    assert (status == 0) == (damage == "true"), printed
    assert bool(re.search(fio_options.MISMATCH, said)) == (damage != "true"), said
    assert ("127.0.0.2.0 offset" in said) == (damage != "true"), said
    assert printed.count("words: \n") == (damage == "true")
    wait_for(servers.all_gone, 10, "the end of all processes")


def test_a_server_that_is_lost_spoils_the_result(servers):
    servers.program(
        "lose",
        "#!/bin/bash\nread -r host address pid < <(tail -n 1 servers.txt)\nkill -KILL $pid\n"
        # For a moment after its end its port still takes connections.
        "while (: <>/dev/tcp/${address/,//}); do sleep 0.05; done 2>/dev/null\n",
    )
    status, printed = servers.run(
        f"iog_agents fio 3 '' {servers.bin / 'launch'}",
        f"iog_phase lose {servers.bin / 'lose'}\niog_client read read.fio read.json",
    )
    assert status == 0, printed  # fio calls that a success
    with pytest.raises(
        ToolOutputError, match=r"a server's report is missing; fio said: .*connect"
    ):
        servers.measured("read.json", "read.1.out", "read.1.err")
    wait_for(servers.all_gone, 10, "the end of all processes")


@pytest.mark.parametrize("name", ["TERM", "KILL"])
def test_a_job_that_is_ended_in_the_middle_leaves_nothing(servers, name):
    servers.environment["IOG_SERVERS_LEASE"] = "2"
    process = servers.job(
        f"iog_agents fio 3 '' {servers.bin / 'launch'}; iog_client layout layout.fio layout.json",
        "iog_client long long.fio long.json",
    )
    wait_for(servers.busy, 30, "fio's processes")
    process.send_signal(signal.Signals[f"SIG{name}"])
    wait_for(lambda: process.poll() is not None, 20, "the end of the job script")
    # fio's client outlives a job script that is killed, until its servers are gone.
    wait_for(servers.all_gone, 20, "the end of all processes")
    assert name == "KILL" or not servers.directory.exists()


@pytest.mark.parametrize(
    "start, message",
    [
        ("iog_agents fio 1 none0", "no IPv4 address of none0: name an interface"),
        ("iog_agents fio 2 lo", "1 of 2 nodes answered within 6 s"),
    ],
)
def test_servers_that_do_not_come_up(servers, start, message):
    servers.environment["IOG_SERVERS_SECONDS"] = "6"
    status, printed = servers.run(start, "iog_phase never true")
    assert status != 0
    assert message in printed
    assert "phase view, repetition 0: exit status 1" in printed
    assert "never" not in servers.text("phases.tsv")
    wait_for(servers.all_gone, 10, "the end of all processes")


def test_servers_at_one_address_would_share_their_files(servers):
    status, printed = servers.run(f"iog_agents fio 3 lo {servers.bin / 'launch'}")
    assert status == 1
    assert (
        "several nodes serve at 127.0.0.1; name their interface in extras.interface"
        in printed
    )
    wait_for(servers.all_gone, 10, "the end of all processes")


# --- what ends an agent ---------------------------------------------------------------------------


def end_launcher(process, server):
    process.terminate()


def kill_launcher(process, server):
    process.kill()


def kill_fio(process, server):
    os.kill(server, signal.SIGKILL)


@pytest.mark.parametrize(
    "end, message",
    [
        (end_launcher, ""),
        (kill_launcher, "what started it is gone"),
        (kill_fio, "fio ended by itself"),
    ],
)
def test_what_ends_an_agent_ends_the_jobs_of_its_server(servers, end, message):
    process, address, server = servers.attend()
    client = servers.start(["fio", f"--client={address}", "long.fio"])
    wait_for(servers.busy, 30, "fio's processes")
    end(process, server)
    printed, _ = process.communicate(timeout=600)
    assert message in printed
    client.kill()
    client.communicate()
    wait_for(servers.all_gone, 20, "the end of all processes")


def test_a_lease_that_is_not_renewed_ends_the_agent(servers):
    servers.environment["IOG_SERVERS_LEASE"] = "1"
    process, _, _ = servers.attend()
    printed, _ = process.communicate(timeout=600)
    assert "did not renew" in printed
    wait_for(servers.all_gone, 20, "the end of all processes")


def test_an_agent_outlasts_a_stage_directory_that_is_away(servers):
    """The agents of a case with a failure ended after 30 s: their stage directory could not be written for 42 s."""
    process, _, server = servers.attend()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(42)
    end_launcher(process, server)
    process.communicate(timeout=600)
    wait_for(servers.all_gone, 20, "the end of all processes")


def test_a_node_that_does_not_see_the_stage_is_named(servers):
    servers.program(
        "blind",
        '#!/bin/sh\nexec unshare --mount sh -euc \'mount -t tmpfs none "$0"; exec "$@"\' "$PWD" "$@"\n',
    )
    servers.environment["IOG_SERVERS_SECONDS"] = "6"
    status, printed = servers.run(
        f"iog_agents '' 2 '' {servers.bin / 'blind'}", "iog_phase never true"
    )
    assert status == 1
    assert f"iogauge: agent failed on {os.uname().nodename}" in printed
    assert "0 of 2 nodes answered and what started them has ended (none)" in printed
    assert not (servers.stage / "never.1.out").exists()
