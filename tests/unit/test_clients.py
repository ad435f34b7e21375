"""Clients beside each other: real processes that work in one directory, and mounts that differ."""

import contextlib
import os
import shutil
import socket
import sys
import threading
import time
from dataclasses import replace

import pytest

from iogauge.cli.answers import Place
from iogauge.core.measurement import ToolOutputError
from iogauge.core.paths import JOB_FILES
from iogauge.node.mounts import find_mount
from iogauge.node.view import look as look_at
from iogauge.site.extras import PartitionExtras, Target
from iogauge_extras.clients import client, health, meeting
from iogauge_extras.clients.client import Client
from iogauge_extras.clients.clients_command import of_partition
from iogauge_extras.clients.line import Line, NodeError, started
from iogauge_extras.clients.meeting import judge_semantics, judged
from iogauge_extras.clients.questions import QUESTIONS, unclaimed
from iogauge_extras.clients.semantics_check import KEPT, parse
from support.extras import EXTRAS

CLIENT = ["/bin/sh", str(JOB_FILES / "agent.sh"), sys.executable, "client"]


def together(apart, directory, names=QUESTIONS):
    """The answers of two clients, and their mounts; the second starts by ``apart``, and who has a FUSE comes last."""
    start = ["sh", "-c", f'"$@" & {apart} "$@"; wait', "sh"]
    with started(start, CLIENT, 2, "lo") as lines:
        seen = meeting.look(lines, str(directory), 5)
        order = sorted(lines, key=lambda name: "fuse" in seen[name].get("type", ""))
        lines = {name: lines[name] for name in order}
        mounts = {name: {"type": "ext4", "options": ""} for name in lines}
        answers = meeting.ask_all(lines, mounts, str(directory), names, 400)
    return dict(zip(names, answers, strict=True)), seen


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts: needs root")
def test_a_client_with_another_file_system_there_agrees_on_nothing(tmp_path):
    """A tmpfs that one client alone has over the directory: what the other does is not seen there."""
    apart = f"unshare -m sh -c 'mount -t tmpfs none {tmp_path} && exec \"$@\"' sh"
    answers, seen = together(apart, tmp_path, ("rename", "flock", "exclusive"))
    assert {answer.state for answer in answers.values()} == {"does not hold"}
    kinds = {answer["type"] for answer in seen.values()}
    assert "tmpfs" in kinds
    target = Target(path=str(tmp_path), type=(kinds - {"tmpfs"}).pop())
    wrong = next(health.compare(seen, target))
    assert "," not in wrong.subject
    assert "type of the mount: tmpfs; the site declares" in wrong.text


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("bindfs") is None,
    reason="mounts by FUSE: needs root and bindfs",
)
def test_a_client_that_keeps_what_it_knew_and_locks_alone_is_named(tmp_path):
    """A FUSE mount of one client that trusts what it looked up for 15 minutes, and whose locks stay on its node."""
    stale = "attr_timeout=900,entry_timeout=900,negative_timeout=900"
    apart = f"unshare -m sh -c 'bindfs -o {stale} {tmp_path} {tmp_path} && \"$@\"; umount {tmp_path}' sh"
    answers, _ = together(apart, tmp_path)
    broken = {name for name, row in answers.items() if row.state == "does not hold"}
    assert broken >= {"rename", "times", "flock", "fcntl"}
    assert answers["exclusive"].state == "holds"


def test_what_a_file_system_refuses_does_not_hold(tmp_path):
    (tmp_path / "times").mkdir()
    answers, _ = together("", tmp_path, ["times"])
    assert answers["times"].state == "does not hold"
    assert ": [Errno 21] Is a directory: 'times'" in answers["times"].text


def test_clients_work_nowhere_but_in_their_directory():
    with pytest.raises(NodeError, match="No such file or directory: '/nowhere'"):
        together("", "/nowhere", ["times"])


@pytest.fixture
def seat(tmp_path, monkeypatch):
    """The second of two clients, in a directory."""
    monkeypatch.chdir(tmp_path)
    with contextlib.ExitStack() as leaving:
        client = Client(leaving)
        client.sit(str(tmp_path), 1, 2, 400)
        yield client


@pytest.mark.parametrize(
    ("count", "more", "told"),
    [
        (199, "", "0 torn lines, and 1 of 400 not at all: 0 199"),
        (200, "0 1\n0\n1 7\n", "3 torn lines, and 0 of 400"),
        (200, "", ""),
    ],
)
def test_lines_that_are_lost_or_torn(seat, tmp_path, count, more, told):
    lines = [f"0 {number} ".ljust(63, ".") + "\n" for number in range(count)]
    (tmp_path / "appended").write_text("".join(lines) + more)
    seat.append()
    assert told in seat.lines() and bool(told) == bool(seat.lines())


def test_a_file_that_comes_late_or_has_other_content(seat, tmp_path):
    (tmp_path / "other").touch()
    assert seat.read("other", "x") == "reads other content, of 0 bytes"
    seat.write("late", "x")
    late = tmp_path / "late"
    hidden = late.rename(tmp_path / "hidden")
    threading.Timer(1.5, hidden.rename, [late]).start()
    assert "did not see it before 1." in seat.read("late", "x")


def test_names_without_a_single_winner_and_names_that_lack(seat, tmp_path):
    seat.before = [seat.win("O_EXCL"), [0, 1]]
    assert seat.winners().startswith("2 of 50 names had no winner, or several")
    seat.fill()
    first = Client(contextlib.ExitStack())
    first.sit(str(tmp_path), 0, 2, 400)
    for number in range(196):
        (tmp_path / "many" / f"0.{number}").touch()
    assert first.list_or_fill() == "4 names lack, 0 come twice, of 396"


@pytest.mark.parametrize(
    ("second", "state", "why"),
    [
        ("rw,flock", "does not hold", "n1: mounted with localflock"),
        ("rw,localflock", "not claimed", "n1, n2: mounted with localflock"),
    ],
)
def test_a_lock_is_not_claimed_if_no_client_claims_it(second, state, why):
    """One client of two has localflock: the locks of the other one exclude nobody there."""
    seen = {}
    for name, options in (("n1", "rw,localflock"), ("n2", second)):
        seen[name] = {"type": "lustre", "options": options}
    answer = judged(QUESTIONS["flock"], {"n2": "got the lock that n1 held"}, seen)
    assert answer.state == state
    assert answer.text == f"n2: got the lock that n1 held; {why}"


def view(**change):
    usual = {
        "problem": "",
        "type": "lustre",
        "source": "10.0.0.1@tcp:/scratch",
        "uuid": "scratch@10.0.0.1@tcp",
        "options": "flock,rw",
        "version": "Lustre 2.17.0",
        "free": 0.5,
        "inodes": 0.9,
        "apart": [],
        "log": [],
        "ahead": 0.02,
    }
    return usual | change


def test_a_client_without_a_target_is_left_out_by_no_job(tmp_path):
    """The answers of two clients of three would pass for those of all."""
    silent = (
        "import sys; from iogauge_extras.clients.line import join; line = join(*sys.argv[-3:]); line.hear(); line.tell(0); line.hear();"
        " line.tell({'problem': 'does not answer in 30 s'}); line.hear(None)"
    )
    start = ["sh", "-c", f'"$@" & "$@" & "{sys.executable}" -c "{silent}" "$@"; wait']
    words = [str(tmp_path), "3", "400", str(tmp_path / "out"), "lo"]
    with pytest.raises(NodeError, match="does not answer in 30 s"):
        judge_semantics([*words, *start, "sh", *CLIENT[:-1]])


def test_who_knocks_and_says_something_else_disturbs_nobody():
    knock = (
        "import socket, sys; "
        "socket.create_connection((sys.argv[-3], int(sys.argv[-2]))).sendall(b'GET /\\n')"
    )
    start = f'"{sys.executable}" -c "{knock}" "$@"; "$@" & "$@"; wait'
    with started(["sh", "-c", start, "sh"], CLIENT, 2, "lo") as both:
        assert len(both) == 2


def test_a_launcher_that_complains_is_quoted():
    with (
        pytest.raises(NodeError, match=r"0 of 2 clients joined .* \(no such queue\)"),
        started(["sh", "-c", "echo no such queue >&2; echo ---- >&2"], [], 2, "lo"),
    ):
        pass


@pytest.mark.parametrize(("pause", "apart"), [(1.5, 0), (0.0, -5), (0.0, 5)])
def test_only_a_clock_that_must_be_wrong_is(pause, apart):
    """A busy client answers late, which is no fault of its clock."""
    here, there = socket.socketpair()

    def answer():
        other = Line(there)
        other.hear()
        time.sleep(pause)
        other.tell(time.time() + apart)
        other.hear()
        other.tell({"problem": ""})

    client = threading.Thread(target=answer)
    client.start()
    seen = meeting.look({"n1": Line(here, "n1")}, "/", 2)
    client.join()
    assert seen["n1"]["ahead"] == pytest.approx(apart, abs=0.5)


def test_an_idle_connection_to_a_server_is_healthy(tmp_path):
    for number, state in enumerate(("FULL", "IDLE", "NEW", "DISCONN")):
        device = f"sys/fs/lustre/osc/scratch-OST000{number}-osc-ffff8000"
        (tmp_path / device).mkdir(parents=True)
        text = f"import:\n    name: x\n    state: {state}\n    connect_flags: [ ]\n"
        (tmp_path / device / "import").write_text(text)
    _, apart = client._peers("10.0.0.1@tcp:/scratch", "lustre", tmp_path)
    assert apart == ["scratch-OST0003-osc-ffff8000"]


def test_a_file_system_of_several_networks_is_the_declared_one():
    target = Target(path="/scratch", type="lustre", uuid="scratch@10.0.0.1@tcp,1@o2ib")
    for name in ("scratch@10.0.0.1@tcp", "scratch@10.0.0.1@tcp0"):
        seen = dict.fromkeys(("n1", "n2"), view(uuid=name))
        assert list(health.compare(seen, target)) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"version": "Lustre 2.15.4"}, "client: Lustre 2.15.4; the others have Lustre 2.17.0"),
        ({"options": "localflock,rw"}, "mount options: localflock; the others have flock"),
        ({"problem": "does not answer in 2 s (df, ls)"}, "/scratch does not answer in 2 s (df, ls)"),
        ({"free": 0.25}, "sees 25.0% of the space free, most see 50.0%"),
        ({"inodes": 0.4}, "sees 40.0% of the inodes free, most see 90.0%"),
        ({"apart": ["scratch-OST0002"]}, "not connected to scratch-OST0002"),
        ({"ahead": 9.5}, "its clock is +9.5 s from the asking host's, most are +0.0 s"),
        ({"source": "10.0.0.9@tcp:/old"}, "the site declares 10.0.0.1@tcp:/scratch"),
        ({"log": ["LustreError: 11-0: evicted"]}, "the kernel's log: LustreError"),
    ],
)  # fmt: skip
def test_one_client_of_four_that_is_otherwise_is_named_with_what_it_has(change, told):
    target = Target(path="/scratch", type="lustre", source="10.0.0.1@tcp:/scratch")
    clients = {f"n{number}": view() for number in range(4)}
    assert list(health.compare(clients, target)) == []
    first = next(health.compare(clients | {"n2": view(**change)}, target))
    assert first.subject == "client n2"
    assert told in first.text


def test_the_address_of_each_client_of_nfs_4_is_no_difference(tmp_path, monkeypatch):
    """The options of two clients of one server, as their kernels had them."""
    here, seen = look_at(str(tmp_path)), {}
    for number in (2, 3):
        options = f"rw,relatime,vers=4.2,rsize=262144,wsize=262144,namlen=255,hard,proto=tcp,timeo=600,retrans=2,sec=sys,clientaddr=10.88.0.{number},local_lock=none,addr=10.88.0.1"
        mount = replace(here.mount, type="nfs4", source="srv:/data", options=options)
        looked = replace(here, mount=mount)
        monkeypatch.setattr(client.view, "look", lambda path, looked=looked: looked)
        seen[f"c{number}"] = client._seen(str(tmp_path)) | {"ahead": 0.0, "log": []}
    target = Target(path=str(tmp_path), type="nfs4", source="srv:/data")
    assert list(health.compare(seen, target, "hard,proto=tcp")) == []


#: Two mounts of NFS, the second with three connections, as their kernel shows them.
STATISTICS = """\
device /dev/vda mounted on / with fstype ext4
device srv:/ mounted on /data with fstype nfs4 statvers=1.1
\txprt:\ttcp 0 0 1 0 5 90 90 0 90 0 2 0 0
device srv2:/x mounted on /data/x with fstype nfs statvers=1.1
\topts:\trw,vers=3,proto=tcp,nconnect=3
\txprt:\ttcp 729 1 2 0 7 100 100 0 100 0 2 0 0
\txprt:\ttcp 730 1 2 0 7 100 99 0 100 0 2 0 0
\txprt:\ttcp 731 1 2 0 7 100 100 0 100 0 2 0 0
"""


@pytest.mark.parametrize(
    ("now", "told"),
    [
        ("4 0 0 103 99", "; no reply from srv2 to 3 requests on a connection that was made anew 2 times"),
        ("2 0 0 103 100", ""),
        ("2 0 9 100 99", ""),
    ],
)  # fmt: skip
def test_a_server_of_nfs_that_leaves_requests_without_a_reply_is_named(now, told):
    other = STATISTICS.replace("srv2:/x", "srv2:/y").partition("device srv2")[2]
    before = f"{STATISTICS}device srv2{other}"
    after = before.replace("2 0 7 100 99", now)
    assert client.unanswered(before, after) == told


#: Rows of a client of two servers, ``srv`` and ``srv2``, of which the second had withdrawn its exports and went away.
KERNEL_LOG = """\
4,523,2141870000,-;NFS: state manager: check lease failed on NFSv4 server srv2 with error 13
4,530,2195860000,-;nfs: server srv2 not responding, still trying
 SUBSYSTEM=nfs
6,531,2196100000,-;nfs: server srv OK
30,533,2196200000,-;systemd[1]: Mounted data of srv.
4,532,2197750000,-;nfs: server srv2 OK"""


@pytest.mark.parametrize(
    ("server", "rows"), [("srv", 0), ("srv2", 3), ("10.88.0.5", 0)]
)
def test_the_kernels_log_of_another_server_is_no_complaint(server, rows):
    assert len(client.complaints(KERNEL_LOG, f"{server}:/data", "nfs4")) == rows


def test_a_lustre_that_was_mounted_is_no_complaint():
    """As a real client printed it, with the priority of a warning."""
    log = "4,771,9012345,-;Lustre: Mounted rig-client\n4,772,9012346,-;Lustre: rig-OST0000-osc-ffff: Connection to rig-OST0000 was lost\n"
    (row,) = client.complaints(log, "10.9.0.1@tcp:/rig", "lustre")
    assert "was lost" in row


def test_an_option_that_the_site_expects_is_asked_for():
    target = Target(path="/scratch", type="lustre")
    clients = {"n1": view(), "n2": view()}
    (lacks,) = health.compare(clients, target, "flock,noatime")
    assert lacks.subject == "client n1, n2"
    assert "without noatime" in lacks.text


def asked(path, kind="ext4", **more):
    """What two clients on this host answer of a target there."""
    extras = PartitionExtras.of_partition(
        {**EXTRAS, "target": {"path": path, "type": kind}, **more}
    )
    place = Place({}, {"name": "mnt", "scheduler": "local"}, extras)
    return list(of_partition(place))


def test_a_partition_without_a_scheduler_has_two_clients_that_leave_nothing(tmp_path):
    kind = find_mount(str(tmp_path)).type
    answers = asked(str(tmp_path), kind)
    assert {answer.state for answer in answers} == {"ok"}
    assert len(answers) == 9
    assert os.listdir(tmp_path) == []


def test_what_a_client_made_goes_when_another_one_has_gone(tmp_path):
    """Both are on one node, which a launcher gives once."""
    once = ["flock", "-n", f"{tmp_path}.lock"]
    with (
        pytest.raises(OSError, match=r"has gone|Broken pipe"),
        started(once, CLIENT, 1, "lo") as lines,
    ):
        first, other = lines.values()
        first.ask("make", str(tmp_path), "s")
        assert first.hear()[0].startswith(str(tmp_path))
        assert os.listdir(tmp_path) != []
        other.connection.shutdown(socket.SHUT_RDWR)
        meeting.look(lines, str(tmp_path), 2)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("path", "more", "told"),
    [
        ("/nowhere", {}, "/nowhere cannot be looked at: No such file or directory"),
        ("/proc", {}, "they have no directory to meet in: "),
        ("/proc", {"interface": "none0"}, "not all answered: "),
    ],
)
def test_what_clients_cannot_do_at_all_is_an_answer(path, more, told):
    problems = [row.text for row in asked(path, **more) if row.state == "problem"]
    assert any(told in text for text in problems), problems


#: Lustre 2.17 as /proc/mounts shows it, mounted with flock and with localflock.
_FLOCK = "rw,checksum,encrypt,flock,lazystatfs,lruresize,nolock,statfs_project,nouser_fid2path,user_xattr,verbose"
_LOCALFLOCK = _FLOCK.replace("flock,lazystatfs", "noflock,localflock")


@pytest.mark.parametrize(
    ("question", "kind", "options", "claimed"),
    [
        ("flock", "lustre", _FLOCK, True),
        ("fcntl", "lustre", _FLOCK, True),
        ("fcntl", "lustre", "rw", False),
        ("flock", "lustre", _LOCALFLOCK, False),
        ("fcntl", "nfs", "nolock", False),
        ("fcntl", "nfs4", "local_lock=posix", False),
        ("fcntl", "nfs4", "local_lock=none", True),
        ("append", "nfs", "", False),
        ("append", "ext4", "", True),
        ("exclusive", "nfs", "", True),
    ],
)
def test_what_a_mount_does_not_claim_is_no_fault(question, kind, options, claimed):
    assert (unclaimed(QUESTIONS[question], kind, options) == "") is claimed


@pytest.mark.parametrize(
    ("options", "state"), [(_FLOCK, "holds"), (_LOCALFLOCK, "not claimed")]
)
def test_local_locks_that_exclude_on_one_node_are_no_answer(options, state):
    view = {"type": "lustre", "options": options}
    seen = {"n1": view, "n1#2": view}
    answer = meeting.judged(QUESTIONS["flock"], {}, seen)
    assert answer.state == state
    assert meeting.judged(QUESTIONS["append"], {}, seen).state == "holds"


def noted(*states, clients='"n1", "n2"'):
    rows = ",".join(
        f'{{"question": "q{number}", "state": "{state}", "text": "n2"}}'
        for number, state in enumerate(states)
    )
    told = '"version": "2", "command": ["semantics"]'
    return f'{{{told}, "clients": [{clients}], "answers": [{rows}]}}'


def test_the_share_that_is_kept_leaves_out_what_is_not_claimed():
    states = ["holds"] * 6 + ["not claimed", "does not hold", "does not hold"]
    output = parse(noted(*states), 2)
    assert output.phases[0].rates[KEPT.name].value == 0.75
    assert "q7: does not hold: n2" in output.notes[KEPT.name]


@pytest.mark.parametrize(
    ("clients", "state"), [('"n1", "n1#2"', "holds"), ('"n1", "n2"', "not claimed")]
)
def test_clients_of_one_node_do_not_speak_for_two_nor_unclaimed_answers_for_anything(
    clients, state
):
    with pytest.raises(ToolOutputError, match="clients on 2 node"):
        parse(noted(*[state] * len(QUESTIONS), clients=clients), 2)
