"""The kernel's word: lines of job/witness.sh, what they add up to, and when bytes moved."""

import contextlib
import math
import os
import re
import select
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iogauge.core import processes
from iogauge.core.measurement import Phase, Quantity, ToolOutput, ToolOutputError
from iogauge.core.paths import JOB_FILES
from iogauge.evidence import task_counters
from iogauge.evidence.task_counters import TaskCounters as Heard
from iogauge.evidence.times import (
    seconds_of_activity,
    seconds_of_asking,
    seconds_of_files,
    seconds_of_jobs,
)
from iogauge.job import recorder as looks_at
from iogauge.job.control_pipe import Task
from iogauge.job.recorder import Mounts, Recorder
from iogauge.node.counters import Reading
from iogauge.node.mounts import parse_mountinfo
from iogauge.plan.observations import (
    ASKED,
    FOUND,
    MOVED,
    PRINTED,
    PROCESSES,
    Instant,
    NodeObservations,
    Observation,
    TaskLine,
    growth_of,
    read,
)
from support import compiler
from support.shell import completed, script

MIB = 1 << 20
NAMES = st.sampled_from(["8:0", "259:12", "/mnt/a b", "/scratch"])
SUMS = st.integers(0, 10**15)
BYTES = st.builds(Reading, SUMS, SUMS, st.just(0))
SECONDS = st.integers(0, 10**9).map(lambda hundredths: hundredths / 100)
LATE_S = {name: getattr(looks_at, name) for name in ("_EXACT_S", "_CLOSE_EXACT_S")}


@pytest.fixture(autouse=True)
def _no_look_is_late(monkeypatch):
    """A busy machine leaves out no look, unless a test is about that."""
    for limit in LATE_S:
        monkeypatch.setattr(looks_at, limit, math.inf)


TARGETS = st.builds(
    "{}-{}{:04x}".format,
    st.sampled_from(["rig", "home-2"]),
    st.sampled_from(["OST", "MDT"]),
    st.integers(0, 999),
)


@st.composite
def witnesses(draw):
    started = draw(SECONDS)
    counted = st.builds(Reading, SUMS, SUMS, SUMS | st.none())
    return TaskLine(
        host=draw(st.sampled_from(["n1", "n2", "node-3.x"])),
        started=started,
        ended=started + draw(SECONDS),
        synced=draw(st.none() | SECONDS),
        asked=draw(BYTES),
        calls=Reading(draw(SUMS), draw(SUMS)),
        moved=draw(BYTES),
        counters=draw(st.dictionaries(NAMES | TARGETS, counted)),
    )


def test_a_look_at_the_node_of_a_server_that_counted_nothing_is_no_witness():
    """witness.sh notes each look, also of a node whose agent does not answer: it took no seconds, and the servers' work did."""
    looks = [
        of("n1", execution="read.1", number=None, started=at, ended=at)
        for at in (1.0, 9.0)
    ]
    counts = [
        Observation(at, "counters", ["read.1", when, {"net": [1, 1, None]}])
        for at, when in ((1.0, "before"), (9.0, "after"))
    ]
    assert task_counters.witnesses(NodeObservations({}, tuple(looks))) == {}
    (look,) = of_node(counts, looks[1])["read.1"]
    assert (
        task_counters.TaskCounters(
            witnesses=(look,), expected=1, of_tasks=False
        ).seconds
        == 8.0
    )


def of_node(looks, task):
    """The counts of a task's executions on its node, whose agent noted looks at the counters."""
    grown = {(task.host, name): grew for name, grew in growth_of(looks).items()}
    return task_counters.witnesses(NodeObservations(tasks=(task,), grown=grown))


def of(host, read=0, **more):
    given = {
        "host": host,
        "started": 10.0,
        "ended": 12.0,
        "synced": None,
        "asked": Reading(read, 0),
        "moved": Reading(read, 0),
    }
    return TaskLine(**{**given, **more})


def grown(host, **growth):
    """A task of a node whose counters grew so."""
    told = {name.replace("_", ":"): words for name, words in growth.items()}
    notes = [Observation(1.0, "counters", ["write.1", "before", {}])]
    notes.append(Observation(2.0, "counters", ["write.1", "after", told]))
    (found,) = of_node(notes, of(host, 9, execution="write.1"))["write.1"]
    return found


def heard(*each):
    return task_counters.TaskCounters(witnesses=each, expected=len(each))


def test_all_bytes_of_networks_and_disks_may_be_those_of_a_tool():
    seen = heard(
        grown(
            "n1",
            **{"8:0": [3072, 1024, 2], "net": [1000, 30, None], "/nfs": [7, 7, None]},
        ),
        grown("n2", net=[500, 70, None]),
    )
    networks, disk = Reading(1500, 100, None), Reading(6 * 512, 2 * 512, 2)
    assert seen.passed({"n1": ["8:0", "8:16"], "n2": []})[""] == networks + disk
    # A file system of Lustre may have this name; its client tells for itself.
    assert seen.counted({"n1": ["net"], "n2": ["net"]}) is None
    assert heard(of("a")).passed({}) == {"": Reading()}


def test_seconds_are_those_of_the_longest_node():
    seen = task_counters.TaskCounters(
        witnesses=(
            of("a", started=100.0, ended=103.0),
            of("a", started=100.5, ended=104.0, synced=106.5),
            of("b", started=7.0, ended=11.5, synced=11.75),
        ),
        expected=3,
    )
    assert seen.seconds == 6.5
    assert seen.sync_seconds == 2.5
    assert (
        task_counters.TaskCounters(
            witnesses=seen.witnesses[:1], expected=1
        ).sync_seconds
        is None
    )


def test_a_sync_belongs_to_the_time_of_what_it_follows():
    phase = Phase("create", {"rate": Quantity(1000.0, "ops/s")}, 2.0, operations=2000)
    beside = Phase("tree_create", {"rate": Quantity(50.0, "ops/s")}, 0.5)
    output = ToolOutput("mdtest", "4.0.0", (beside, phase))
    synced = task_counters.TaskCounters(witnesses=(of("a", synced=14.0),), expected=1)
    tree, longer = task_counters.synced(output, {"create"}, synced, "create").phases
    assert tree == beside
    assert (longer.seconds, longer.rates["rate"].value) == (4.0, 500.0)
    with pytest.raises(ToolOutputError, match="create: a node did not report"):
        unknown = task_counters.TaskCounters(witnesses=(of("a"),), expected=1)
        task_counters.synced(output, {"create"}, unknown, "create")


# --- when bytes moved -----------------------------------------------------------------------------


@given(
    begin=st.floats(1.0, 5.0),
    length=st.floats(0.05, 60.0),
    pause=st.sampled_from([0.2, 0.23, 1.0]),
    late=st.floats(0.0, 1.0),
)
def test_the_seconds_of_bytes_are_never_too_many(begin, length, pause, late):
    """However the looks fall, and however late the busy node takes them."""
    total = 1000 * MIB

    def moved(time):
        return int(total * min(1.0, max(0.0, (time - begin) / length)))

    looks = [late + n * pause for n in range(int((begin + length + 3) / pause) + 2)]
    instants = [
        Instant(time, moved(time) // 2, (moved(time) + 1) // 2) for time in looks
    ]
    found = seconds_of_activity(instants, (0.5, begin + length + 1.5), total)
    assert found is None or found <= length
    if length > 10 * pause:
        assert found is not None and found >= 0.95 * length - 2 * pause


def test_the_seconds_of_files_are_known_if_nobody_else_makes_any():
    made = [
        Instant(t / 10, 0, 0, 5000 + 100 * min(max(t - 20, 0), 40)) for t in range(101)
    ]
    assert seconds_of_files(made, (0, 10), 4000) == pytest.approx(3.8, abs=0.15)
    removed = [Instant(i.time, 0, 0, 9000 - (i.files or 0)) for i in made]
    assert seconds_of_files(removed, (0, 10), -4000) == pytest.approx(3.8, abs=0.15)
    assert seconds_of_files([Instant(t, 0, 0) for t in range(9)], (0, 8), 4000) is None
    # Others remove 300 while the tool makes its files, and make 300 afterwards.
    for since in (3.0, 3.05):
        others = [0 if i.time < since else -300 if i.time < 9 else 0 for i in made]
        both = [
            Instant(i.time, 0, 0, (i.files or 0) + n)
            for i, n in zip(made, others, strict=True)
        ]
        assert seconds_of_files(both, (0, 10), 4000) is None


def test_a_short_phase_has_enough_looks(tmp_path, monkeypatch):
    """Bytes that move for 60 ms are not believed to have moved for 20."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(looks_at.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(looks_at.time, "clock_gettime", lambda _: now[0])
    now, total = [1000.0], 256 * MIB
    recorder = Recorder([])
    recorder._looks.append(
        lambda: Reading(0, round(total * min(1, max(0, (now[0] - 1003.456) / 0.06))))
    )
    recorder.begin()
    while now[0] < 1005:
        now[0] += recorder.pause_s
        recorder.look()
    recorder.write()
    instants = read(tmp_path).instants(MOVED)
    seconds = seconds_of_activity(instants, (1003.3, 1003.6), total - (16 << 20))
    assert seconds is not None and 0.033 < seconds <= 0.06


def test_of_a_server_only_what_it_does_in_the_phase_counts(tmp_path, monkeypatch):
    """A server lived and worked before the phase, which the agent knows before; a task begins with it."""
    monkeypatch.chdir(tmp_path)
    passed, now = [(7 << 30, 9 << 30)], [1000.0]
    monkeypatch.setattr(
        looks_at, "asked_by", lambda pids: passed[0] if pids else (0, 0)
    )
    monkeypatch.setattr(looks_at.time, "clock_gettime", lambda _: now[0])
    recorder = Recorder([])

    def counted(server):
        now[0] += 10
        began = now[0]
        recorder.begin(server=server)
        recorder.take(itself())
        passed[0] = (passed[0][0] + 5, passed[0][1] + 6)
        now[0] += 1
        recorder.look()
        recorder.write()
        seen = read(tmp_path).instants(ASKED)
        return [(i.read, i.written) for i in seen if i.time > began]

    assert counted(os.getpid()) == [(5, 6)]
    assert counted(os.getpid()) == [(5, 6)]
    assert counted(None) == [passed[0]]


def counted_in(case):
    """Let the agent count the files of a case, and return all that it has counted."""
    looks_at.note_found(str(case))
    return [found for _, found in read(Path()).counts(FOUND)]


def test_a_link_is_no_file_of_a_case(tmp_path, monkeypatch):
    """What lies behind a symbolic link may be anywhere, though 200 files lie beside it; a hard link makes no file."""
    monkeypatch.chdir(tmp_path)
    case, other = tmp_path / "case", tmp_path / "other"
    for tree in (case / "tree.0", other):
        tree.mkdir(parents=True)
        for number in range(200):
            (tree / str(number)).touch()
    (case / "tree.1").symlink_to(other)
    assert counted_in(case) == [0]
    (case / "tree.1").unlink()
    assert counted_in(case)[-1] == 100
    for number in range(200):
        (case / "tree.0" / str(number)).unlink()
        os.link(other / "0", case / "tree.0" / str(number))
    assert counted_in(case)[-1] == 1


def test_a_task_passes_its_bytes_to_the_kernel_for_so_long():
    """8 MiB a second of reads between 2 and 8 s, and half a MiB of programs before and after."""
    read = [
        MIB // 2 * (t > 5) + 8 * MIB * min(max(t - 20, 0), 60) // 10 for t in range(101)
    ]
    looks = [
        Instant(t / 10, bytes_read + MIB // 2 * (t > 95), 0)
        for t, bytes_read in enumerate(read)
    ]
    for phases in (1, 2):
        seconds = seconds_of_asking(looks, (0, 10), {"read"}, phases=phases)
        assert seconds is not None
        assert 5.3 < seconds <= 6.0
    assert seconds_of_asking(looks, (0, 10), {"write"}) is None
    few = [Instant(t / 10, MIB * t // 50, 0) for t in range(101)]
    assert seconds_of_asking(few, (0, 10), {"read"}) is None
    assert seconds_of_asking([], (0, 10), {"read"}, phases=2) is None


def test_what_a_task_asked_for_before_and_after_is_not_of_this_execution():
    """The agent looks five times a second, and each execution counts anew: it has mostly no look after the end of this one."""
    before = [Instant(t / 5, 0, 8 * MIB * t) for t in range(1, 16)]
    this = [Instant(3.5 + t / 5, 81774, 8 * MIB * t) for t in range(16)]
    later = [Instant(7.0 + t / 5, 8 * MIB * t, 6054) for t in range(16)]
    looks = [*before, *this, *later]
    for span in ((3.1, 6.7), (3.0, 6.5), (2.99, 6.99)):
        assert seconds_of_asking(looks, span, {"write"}) == pytest.approx(
            2.8, abs=0.21
        ), span
        assert seconds_of_asking(looks, span, {"read"}) is None
    assert seconds_of_asking(looks, (6.8, 10.4), {"read"}) == pytest.approx(
        2.8, abs=0.21
    )
    assert seconds_of_asking(looks, (20, 21), {"read"}) is None


def test_a_rest_between_two_phases_is_no_asking():
    """8 MiB in each of ten looks a second: writes for 2 s, nothing for 4 s, reads for 3 s."""
    busy = [t for t in range(91) if t <= 20 or t > 60]
    looks = [
        Instant(t / 10, MIB * 8 * max(0, t - 60), MIB * 8 * min(t, 20)) for t in busy
    ]
    both = {"read", "write"}
    longest = seconds_of_asking(looks, (0, 9), both)
    assert longest == pytest.approx(8.7, abs=0.2)
    seconds = seconds_of_asking(looks, (0, 9), both, phases=2)
    assert seconds is not None
    assert 4.2 < seconds <= 4.9


def test_the_jobs_of_fio_live_for_so_long():
    """fio for 0.3 s, four jobs one after the other, all for 2 s; then those of another execution."""
    counts = [(1.0, 1), (1.3, 1), (1.4, 3), (1.5, 5), (3.5, 5), (3.6, 4), (3.7, 1)]
    assert seconds_of_jobs([*counts, (9.0, 8)], (1.0, 4.0)) == pytest.approx(2.0)
    assert seconds_of_jobs([(1.0, 1), (3.5, 1)], (1.0, 4.0)) is None
    assert seconds_of_jobs([], (1.0, 4.0)) is None


def test_a_quiet_time_ends_at_its_last_look(tmp_path, monkeypatch):
    """Also if the next execution has as many processes, and at the end of the job."""
    monkeypatch.chdir(tmp_path)
    recorder = Recorder([])
    for when in (1.0, 2.0, 3.0):
        recorder._processes.note(when, 3)
    recorder.begin()
    for when in (9.0, 9.1):
        recorder._processes.note(when, 3)
    recorder.write()
    seen = read(tmp_path).counts(PROCESSES)
    assert seen == ((1.0, 3), (3.0, 3), (9.0, 3), (9.1, 3))
    assert seconds_of_jobs(seen, (0.5, 4.0)) == pytest.approx(2.0)


def test_the_recorder_says_when_a_tool_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recorder = Recorder([])
    recorder.begin("create.1.out")
    for text in ("", "a line\n", "a line\n", "a line\nand results\n"):
        (tmp_path / "create.1.out").write_text(text)
        recorder.look()
    recorder.begin("remove.1.out")
    recorder.write()
    sizes = [size for _, size in read(tmp_path).counts(PRINTED)]
    assert sizes == [0, 0, 7, 7, 19, 0]


#: A library of two functions, one of them its own: what it does is not seen from its name.
SLOW_CLOCK = (
    "int clock_gettime(int c, void *t) { return -1; } void f(void) { fsync(0); }"
)


def test_the_recorder_names_what_stands_between_the_task_and_the_kernel(
    tmp_path, monkeypatch
):
    """Libraries are known by what they define, not by their names; what replaces nothing is in nobody's way."""
    monkeypatch.chdir(tmp_path)
    library = tmp_path / "libm.so.6"
    compiler.demand()
    compiled = ["gcc", "-shared", "-w", "-x", "c", "-", "-o", str(library)]
    completed(compiled, input=SLOW_CLOCK, check=True)
    own = {**os.environ, "LD_PRELOAD": str(library), "LD_AUDIT": ""}
    words = ["sh", "-c", "echo up; read x; :"]
    with subprocess.Popen(words, stdin=-1, stdout=-1, env=own) as task:
        task.stdout.readline()
        recorder = Recorder([])
        recorder.begin()
        recorder.take(itself(task.pid))
        for _ in range(3):
            recorder.look()
        task.stdin.close()
    recorder.write()
    (loaded,) = read(tmp_path).loaded()
    assert loaded == (str(library), "", ("clock_gettime",))
    assert loaded.lie == "has a clock_gettime of its own"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts, which root may")
def test_the_recorder_sees_what_hides_the_directory_from_the_tool(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    case = tmp_path / "case"
    case.mkdir()
    recorder = Recorder([], directory=str(case))
    recorder.begin()
    beside = f"mount -t tmpfs beside {tmp_path} && mkdir {case} && mount -t tmpfs 'a b' {case} || exit"
    below = f"mkdir {case}/tree && mount -t tmpfs part {case}/tree || exit"
    for mounts, said in (("", False), (beside, True), (below, True)):
        words = ["unshare", "--mount", "sh", "-c", f"{mounts}\necho up; read -r end"]
        task = subprocess.Popen(words, stdin=-1, stdout=-1)
        with task:
            assert task.stdout and task.stdin
            if task.stdout.readline() != b"up\n":
                pytest.skip(
                    "mounts in a namespace of its own, which is not allowed here"
                )
            recorder.begin()
            recorder.take(itself(task.pid))
            recorder.look()
            task.stdin.close()
        recorder.write()
        assert bool(read(tmp_path).hidden()) == said
    assert read(tmp_path).hidden() == (
        f"tmpfs from a b, mounted at {case}",
        f"tmpfs from part, mounted at {case}/tree",
    )


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="no bwrap on PATH")
@pytest.mark.parametrize("hides", [False, True])
def test_a_container_that_is_being_made_hides_nothing(tmp_path, hides):
    """bwrap moves its root twice before the tool begins, and its mounts change while they are read."""
    own = Mounts("self", str(tmp_path)).own
    more = ["--tmpfs", str(tmp_path)] if hides else []
    words = ["bwrap", "--dev-bind", "/", "/", *more, "sh", "-c", "echo up; read -r end"]
    seen = set()

    def look(first):
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{first}/task/{first}/children").read_text()
            for pid in (first, *map(int, children.split())):
                seen.update(Mounts(pid, str(tmp_path), own).look())

    for _ in range(20):
        with subprocess.Popen(words, stdin=-1, stdout=-1) as task:
            assert task.stdin and task.stdout
            while not select.select([task.stdout], [], [], 0)[0]:
                look(task.pid)
            if task.stdout.readline() != b"up\n":
                pytest.skip("bwrap, which is not allowed here")
            look(task.pid)
            task.stdin.close()
    assert seen == ({"tmpfs", str(tmp_path)} if hides else set())


@pytest.mark.parametrize("before", [False, True])
def test_the_recorder_sees_that_the_target_lost_its_barriers(
    tmp_path, monkeypatch, before
):
    """What was mounted so from the beginning is judged by the layers below it."""
    monkeypatch.chdir(tmp_path)
    recorder = Recorder([], directory=str(tmp_path))

    def without(text):
        return [
            replace(one, options=f"{one.options},nobarrier")
            for one in parse_mountinfo(text)
        ]

    monkeypatch.setattr(looks_at, "parse_mountinfo", without)
    if before:
        recorder = Recorder([], directory=str(tmp_path))
    (mounts,) = recorder._mounts.values()
    mounts._read()
    recorder._look_at_mounts(1.0, [])
    recorder.write()
    hidden = read(tmp_path).hidden()
    assert [one.rpartition(" with ")[2] for one in hidden] == (
        [] if before else ["nobarrier"]
    )


# --- the script itself ----------------------------------------------------------------------------


ATTENDED = [sys.executable, str(Path(__file__).parents[1] / "support" / "attended.py")]


def witnessed(stage, *words, directory=None):
    """Words that run witness.sh in a stage, and an agent that attends it, for a case's directory."""
    for old in [*stage.glob("tasks.*"), *stage.glob("seen.*")]:
        old.unlink()
    return [
        *ATTENDED,
        str(stage),
        str(directory or stage),
        "sh",
        str(JOB_FILES / "witness.sh"),
        str(stage),
        "write.1",
        *words,
    ]


def told(tmp_path, *words, **environment):
    """Run witness.sh in a new stage; return its status, what was noted, and what it printed."""
    done = completed(
        witnessed(tmp_path, *words), cwd=tmp_path, env={**os.environ, **environment}
    )
    own = re.sub(r"(?m)^task .*\n", "", done.stdout)
    return done.returncode, noted(tmp_path), own + done.stderr


def noted(stage):
    """What was noted in a stage, whatever the execution."""
    return [
        one for each in task_counters.witnesses(read(stage)).values() for one in each
    ]


def test_a_node_without_an_agent_has_no_counters_and_one_that_is_silent_is_named(
    tmp_path,
):
    """The tool runs all the same. An agent that has died tells nothing of its tasks: a case without them says so."""
    words = [
        "sh",
        str(JOB_FILES / "witness.sh"),
        str(tmp_path),
        "write.1",
        "true",
    ]
    limit = tmp_path / "timeout"
    limit.touch(mode=0o755)
    pipes = [tmp_path / f"agent.{os.uname().nodename}{end}" for end in (".said", "")]
    held = []
    for agent in ("none", "dead", "silent"):
        for pipe in pipes if agent == "dead" else ():
            os.mkfifo(pipe)
        # Who holds the pipes open lives. Of one that is dead the task hears even if a kill of all has ended the limit.
        held += [os.open(pipe, os.O_RDWR) for pipe in pipes if agent == "silent"]
        limit.write_text(
            f'#!/bin/sh\nshift\nexec {"/usr/bin/timeout 0.2" if held else ""} "$@"\n'
        )
        done = completed(
            words, env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        )
        assert done.returncode == 0
        assert ("the agent of this node does not answer" in done.stderr) == (
            agent != "none"
        )
        (task,) = noted(tmp_path)
        assert task.counters == {}
    for file in held:
        os.close(file)


def test_an_agent_that_was_asked_once_says_nothing_of_what_moved():
    """One that died meanwhile: a count that nobody took is not one of zero."""
    before = Observation(
        1.0, "counters", ["write.1", "before", {"8:0": [1, 1, 1], "net": [1, 1, None]}]
    )
    task = of("n1", 9, execution="write.1")
    (found,) = of_node([before], task)["write.1"]
    seen = task_counters.TaskCounters(witnesses=(found,), expected=1)
    assert seen.counted({"n1": ["8:0"]}) is None and seen.passed({}) == {"": Reading()}


def test_where_the_kernel_lists_no_disk_none_moved_nothing():
    """As in a container whose /proc/diskstats is empty (lxcfs)."""
    listed, hidden = (
        heard(grown("n1", **{"8:16": [0, 0, 0]})),
        heard(grown("n1", net=[5, 5, None])),
    )
    assert listed.counted({"n1": ["8:0"]}) == Reading()
    assert hidden.counted({"n1": ["8:0"]}) is None


@pytest.mark.parametrize(
    ("devices", "counted"),
    [
        (
            {"rig-OST0000": [0, 0, 0]},
            Reading(),
        ),  # nothing travelled: a read from the cache
        ({}, None),  # no client told, which root alone may ask before 2.17
        ({"rig-OST0000": None}, None),
        ({"rig-OST0000": [8, 8, 1], "rig-OST0001": None}, None),  # a device went away
    ],
)
def test_a_client_that_tells_nothing_is_not_one_that_moved_nothing(devices, counted):
    assert heard(grown("n1", **devices)).counted({"n1": ["rig"]}) == counted


def test_a_node_that_does_not_see_the_stage_is_named_before_the_tool_runs(tmp_path):
    words = [
        "sh",
        JOB_FILES / "witness.sh",
        "/nowhere",
        "write.1",
        "touch",
        "made",
    ]
    done = completed(words, cwd=tmp_path)
    assert done.returncode == 1 and not (tmp_path / "made").exists()
    assert f"iogauge: {os.uname().nodename} cannot write /nowhere/tasks." in done.stderr


def test_what_a_tool_or_a_launcher_prints_changes_nothing(tmp_path):
    """Its standard error may be closed, or end within a line."""
    code, found, out = told(
        tmp_path, "sh", "-c", "printf unended >&2; exec 2>&-; exec true"
    )
    assert (code, len(found), out) == (0, 1, "unended")


@pytest.mark.parametrize("syncs", [False, True])
def test_a_look_may_bring_what_servers_wrote_to_storage(storage_file, syncs):
    """The servers' client says when it ended; what is still to be written then costs the seconds of the sync."""
    place = storage_file.parent
    (place / "file").write_bytes(bytes(8 * MIB))
    words = ["--sync", str(place)] if syncs else []
    looks = [witnessed(place, *words, "--look", when) for when in ("before", "after")]
    script = " && ".join(shlex.join(look[4:]) for look in looks)
    subprocess.run(
        [*ATTENDED, str(place), str(place), "sh", "-c", script], check=True, timeout=60
    )
    (look,) = noted(place)
    seen = Heard(witnesses=(look,), expected=1, of_tasks=False)
    # One clock, but /proc/uptime tells hundredths alone.
    assert look.counters and look.ended >= look.started - 0.01
    if syncs:
        assert seen.sync_seconds is not None
    else:
        assert seen.sync_seconds is None


def test_the_agent_is_told_the_process_of_the_tool_alone(tmp_path):
    """What counts, and what it starts to count, is no process of the tool."""
    words = witnessed(tmp_path, "sh", "-c", "sleep 0.2; echo $$")
    out = completed(words, check=True).stdout
    _, named, _, own = out.split()
    assert named == own


def itself(process=None):
    """A process, as witness.sh names it; without one, this one."""
    number = process or os.getpid()
    return Task(number, processes.started(number) or 0)


BRIDGE = """
mount -t sysfs sysfs /sys
ip link add p0 type veth peer name p1
ip link add b0 type bridge
ip link set p0 master b0
for name in lo p0 p1 b0; do ip link set "$name" up; done
ip address add 10.9.0.1/24 dev b0
ip neighbour replace 10.9.0.2 lladdr 02:00:00:00:00:02 dev b0
exec "$@"
"""
SENDS = (
    "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM);"
    "[s.sendto(bytes(1400), ('10.9.0.2', 9)) for _ in range(1000)]"
)


def networks_apart(enter, code, place):
    """What the networks count while Python code runs in a name space of its own, which a script prepares."""
    apart = ["unshare", "--net", "--mount", "sh", "-euc", enter, "sh"]
    if (
        subprocess.run([*apart, "true"], check=False, capture_output=True).returncode
        != 0
    ):
        pytest.skip(
            "networks cannot be made here: ip of iproute2, veth and bridge are needed"
        )
    words = [*apart, *witnessed(place, sys.executable, "-c", code)]
    completed(words, check=True, cwd=place)
    (seen,) = noted(place)
    return seen.counters["net"]


@pytest.mark.skipif(os.geteuid() != 0, reason="makes networks, which root may")
def test_an_interface_over_others_counts_nothing_twice(tmp_path):
    """A bridge, as a bond or a VLAN, counts what the interface below it counts, too."""
    assert 1_400_000 <= networks_apart(BRIDGE, SENDS, tmp_path).written < 2_100_000


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts, which root may")
def test_ports_of_infiniband_count_for_their_interfaces(tmp_path):
    """They count words of four bytes. One that counts no further is left out. IP over InfiniBand passes the ports, too."""
    ports = {"mlx5_0": "1000", "mlx4_0": "4294967295"}
    for name, count in ports.items():
        counters = tmp_path / "infiniband" / name / "ports" / "1" / "counters"
        counters.mkdir(parents=True)
        for way in ("port_rcv_data", "port_xmit_data"):
            (counters / way).write_text(f"{count}\n")
    # The only interface of a network of its own is one of InfiniBand, says its type.
    (tmp_path / "net" / "lo").mkdir(parents=True)
    (tmp_path / "net" / "lo" / "type").write_text("32\n")
    grown = tmp_path / "infiniband" / "mlx5_0" / "ports" / "1" / "counters"
    moves = (
        f"from pathlib import Path; at = Path({str(grown)!r}); (at / 'port_rcv_data').write_text('5000\\n');"
        f"(at / 'port_xmit_data').write_text('2000\\n'); {SENDS.replace('10.9.0.2', '127.0.0.1')}"
    )
    enter = f'mount --bind {tmp_path} /sys/class; ip link set lo up; exec "$@"'
    assert networks_apart(enter, moves, tmp_path) == Reading(4 * 4000, 4 * 1000, None)


@pytest.fixture
def storage_file(tmp_path_factory):
    """8 MiB on storage, written back."""
    file = tmp_path_factory.mktemp("witness") / "data"
    with file.open("wb") as out:
        out.write(os.urandom(8 * MIB))
        out.flush()
        os.fsync(out.fileno())
    try:
        os.close(os.open(file, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        pytest.skip(f"{file.parent} takes no O_DIRECT")
    if not os.major(os.stat(file).st_dev):
        pytest.skip(f"{file.parent} is on no block device")
    return file


# --- witness.sh on a node with Lustre -------------------------------------------------------------

LUSTRE = Path(__file__).parents[1] / "support" / "lustre"
#: Names of devices where a kernel with Lustre shows them, in a mount namespace of one's own. What a metadata
#: server has for itself is beside them.
NODE = """
mount -t tmpfs none /sys/fs
client=ffff888129458800
for index in 0 1 2 3; do mkdir -p /sys/fs/lustre/osc/lustre-OST000$index-osc-$client; done
for index in 0 1; do mkdir -p /sys/fs/lustre/mdc/lustre-MDT000$index-mdc-$client; done
mkdir -p /sys/fs/lustre/osc/lustre-OST0000-osc-MDT0000
exec "$@"
"""


def on_lustre(tmp_path, tool, *words, **knobs):
    """What witness.sh says on a node of the stand-in's Lustre, while a shell runs a tool."""
    command = words or ("sh", "-c", tool)
    completed(
        [
            "unshare",
            "--mount",
            "sh",
            "-euc",
            NODE,
            "sh",
            *witnessed(tmp_path, *command),
        ],
        env={
            **os.environ,
            "PATH": f"{LUSTRE}:{os.environ['PATH']}",
            "LFS_STATE": str(tmp_path),
            **knobs,
        },
        check=True,
    )
    return task_counters.TaskCounters(witnesses=tuple(noted(tmp_path)), expected=1)


def here(seen):
    return {seen.witnesses[0].host: ["lustre"]}


needs_namespace = pytest.mark.skipif(
    os.getuid() != 0
    or subprocess.run(
        ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/sys/fs"],
        capture_output=True,
        check=False,
    ).returncode
    != 0,
    reason="a mount namespace, in which to show devices of Lustre, needs root",
)


@needs_namespace
@pytest.mark.parametrize(
    ("knobs", "counted"),
    [
        ({"LCTL_USER": "1"}, Reading()),
        ({"LCTL_USER": "1", "LFS_VERSION": "2.15.4"}, None),
        ({"LFS_VERSION": "2.15.4"}, Reading()),
        ({"LFS_OSTS": "3"}, None),  # a device that does not answer
    ],
)
def test_what_nobody_may_read_is_not_nothing(tmp_path, knobs, counted):
    seen = on_lustre(tmp_path, "true", **knobs)
    assert seen.counted(here(seen)) == counted


@pytest.mark.parametrize(("meets", "status"), [("before", 0), ("meanwhile", 1)])
def test_an_old_error_of_the_mount_is_not_the_tools(tmp_path, meets, status):
    """syncfs(2) tells its next caller what any program met: only what was met since the tool began ends its case."""
    place = tmp_path / "place"
    error = ["mkdir", place]
    if meets == "meanwhile":
        place.mkdir()
        error = ["rmdir", place]
    done = completed(witnessed(tmp_path, "--sync", place, *error, directory=place))
    assert done.returncode == status, done.stderr
    assert "No such file or directory" in done.stderr
    assert ("is of a write before this command" in done.stderr) == (meets == "before")


def test_no_program_on_path_syncs(tmp_path):
    """One that does nothing would hide what the sync costs."""
    for name in ("sync", "timeout"):
        script(tmp_path / name, "#!/bin/sh\nexit 0\n")
    path = f"{tmp_path}:{os.environ['PATH']}"
    code, (task,), _ = told(tmp_path, "--sync", str(tmp_path), "true", PATH=path)
    assert code == 0 and task.synced is not None
    # Without an answer there are no counters either.
    assert task.counters == {}


def test_without_an_agent_the_systems_own_sync_brings_the_data_to_storage(tmp_path):
    """A stage directory on 9p takes no named pipes."""
    script(tmp_path / "sync", "#!/bin/sh\nexit 1\n")
    words = witnessed(tmp_path, "--sync", str(tmp_path), "true")
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = completed(words[len(ATTENDED) + 2 :], env={**os.environ, "PATH": path})
    assert done.returncode == 0, done.stderr
    (line,) = [file.read_text() for file in tmp_path.rglob("tasks.*")]
    assert line.split()[4] != "-"
