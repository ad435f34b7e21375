"""The kernel's word: lines of job/witness.sh, what they add up to, and when bytes moved."""

import math
import os
import re
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
from iogauge.evidence.times import (
    longest_unasked,
    seconds_of_activity,
    seconds_of_asking,
    seconds_of_files,
)
from iogauge.job import recorder as looks_at
from iogauge.job.control_pipe import Task
from iogauge.job.recorder import Recorder
from iogauge.node.counters import Reading
from iogauge.plan.observations import (
    ASKED,
    FOUND,
    MOVED,
    PRINTED,
    Instant,
    NodeObservations,
    Observation,
    TaskLine,
    growth_of,
    read,
)
from support.project import TESTS
from support.shell import completed, script

MIB = 1 << 20
LATE_S = {name: getattr(looks_at, name) for name in ("_EXACT_S", "_CLOSE_EXACT_S")}


@pytest.fixture(autouse=True)
def _no_look_is_late(monkeypatch):
    """A busy machine leaves out no look, unless a test is about that."""
    for limit in LATE_S:
        monkeypatch.setattr(looks_at, limit, math.inf)


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


def test_the_seconds_of_files_that_are_made_and_of_those_that_are_removed():
    """Others' files take as many from both ends; nothing is known if they are a quarter, or if nobody counted."""
    looks = [(n / 5, min(10_000, max(0, 200 * (n - 5)))) for n in range(80)]
    for way in (1, -1):
        instants = [Instant(time, 0, 0, 50_000 + way * files) for time, files in looks]
        assert seconds_of_files(instants, (0.5, 13.0), way * 10_000) == pytest.approx(
            9.4, abs=0.21
        )
        assert seconds_of_files(instants, (0.5, 13.0), way * 9_000) == pytest.approx(
            7.6, abs=0.41
        )
        assert seconds_of_files(instants, (0.5, 13.0), way * 7_000) is None
        assert seconds_of_files(instants, (0.5, 13.0), -way * 10_000) is None
    unknown = [Instant(time, 0, 0) for time, _ in looks]
    assert seconds_of_files(unknown, (0.5, 13.0), 10_000) is None


def test_a_short_phase_has_enough_looks(tmp_path, monkeypatch):
    """Bytes that move for 60 ms are not believed to have moved for 20."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(looks_at.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(looks_at.time, "clock_gettime", lambda _: now[0])
    now, total = [1000.0], 256 * MIB
    recorder = Recorder([])
    recorder._looks.append(
        lambda: Reading(0, round(total * min(1, max(0, (now[0] - 1001.456) / 0.06))))
    )
    recorder.begin()
    while now[0] < 1005:
        now[0] += recorder.pause_s
        recorder.look()
    recorder.write()
    instants = read(tmp_path).instants(MOVED)
    seconds = seconds_of_activity(instants, (1001.3, 1001.6), total - (16 << 20))
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
    """What lies behind a symbolic link may be anywhere, though 200 files lie beside it."""
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


def test_how_long_nobody_looked_at_what_a_task_asked_for():
    """Seen on NFS: the agent had no processor while a fifth of the data moved."""
    looks = [(3583.302, 5221), (3584.806, 20979277), (3585.028, 34610765)]
    looks += [(3585.867, 57679437), (3586.923, 78650957), (3589.0, 100675526)]
    seen = [Instant(time, 0, written) for time, written in looks]
    assert longest_unasked(seen, (3579.67, 3588.85), {"write"}) > 1.5
    assert longest_unasked(seen, (3579.67, 3588.85), {"read"}) == 0
    assert longest_unasked([], (0, 1), {"write"}) == 0


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


def test_the_recorder_names_what_is_preloaded_in_the_task_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = {**os.environ, "LD_AUDIT": "/no/such.so"}
    words = ["sh", "-c", "echo up; read x; :"]
    with subprocess.Popen(words, stdin=-1, stdout=-1, stderr=-3, env=own) as task:
        task.stdout.readline()
        recorder = Recorder([])
        recorder.begin()
        recorder.take(itself(task.pid))
        for _ in range(3):
            recorder.look()
        task.stdin.close()
    recorder.write()
    (loaded,) = read(tmp_path).loaded()
    assert loaded["preload.LD_AUDIT"] == "such.so"


# --- the script itself ----------------------------------------------------------------------------


ATTENDED = [sys.executable, str(TESTS / "support" / "attended.py")]


def witnessed(stage, *words, directory=None):
    """Words that run witness.sh in a stage, and an agent that attends it, for a case's directory."""
    for old in [*stage.glob("tasks.*"), *stage.glob("seen.*")]:
        old.unlink()
    return [
        *ATTENDED,
        str(stage),
        str(directory or stage),
        "/bin/sh",
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


def test_the_kernel_tells_who_kept_the_processors_busy(tmp_path):
    """Of the ticks of a node those of the tool and its children are its own. Earlier versions counted none."""
    spin = "i=0; while [ $i -lt 150000 ]; do i=$((i + 1)); done"
    code, (task,), _ = told(tmp_path, "sh", "-c", spin)
    assert code == 0 and task.ticks > 5
    assert task.processors.work >= task.ticks - 2 and task.processors.idle >= 0
    (line,) = tmp_path.glob("tasks.*")
    line.write_text(line.read_text().replace(f" {task.ticks} end", " end"))
    (earlier,) = noted(tmp_path)
    assert replace(earlier, ticks=task.ticks) == task and earlier.ticks is None


def test_a_node_without_an_agent_has_no_counters_and_one_that_is_silent_is_named(
    tmp_path,
):
    """The tool runs all the same. An agent that has died tells nothing of its tasks: a case without them says so."""
    tasks, held = {}, []
    for agent in ("none", "dead", "silent"):
        stage = tmp_path / agent
        stage.mkdir()
        for end in () if agent == "none" else (".said", ""):
            pipe = stage / f"agent.{os.uname().nodename}{end}"
            os.mkfifo(pipe)
            # Who holds the pipes open lives.
            held += [os.open(pipe, os.O_RDWR)] if agent == "silent" else []
        words = ["/bin/sh", str(JOB_FILES / "witness.sh"), str(stage), "write.1"]
        tasks[stage] = subprocess.Popen([*words, "true"], stderr=-1, text=True)
    for stage, task in tasks.items():
        _, said = task.communicate(timeout=600)
        assert task.returncode == 0
        silent = "the agent of this node does not answer" in said
        assert silent == (stage.name != "none")
        assert [line.counters for line in noted(stage)] == ([] if silent else [{}])
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
    "devices, counted",
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


def test_what_a_tool_or_a_launcher_prints_changes_nothing(tmp_path):
    """Its standard error may be closed, or end within a line."""
    code, found, out = told(
        tmp_path, "sh", "-c", "printf unended >&2; exec 2>&-; exec true"
    )
    assert (code, len(found), out) == (0, 1, "unended")


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


# --- witness.sh on a node with Lustre -------------------------------------------------------------


@pytest.mark.parametrize("meets, status", [("before", 0), ("meanwhile", 1)])
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
    """Programs that do nothing would hide what the sync costs, and what was counted."""
    for name in ("sync", "timeout", "sh"):
        script(tmp_path / name, "#!/bin/sh\nexit 0\n")
    path = f"{tmp_path}:{os.environ['PATH']}"
    code, (task,), _ = told(tmp_path, "--sync", str(tmp_path), "true", PATH=path)
    assert code == 0 and task.synced is not None
    assert task.counters


def test_without_an_agent_the_systems_own_sync_brings_the_data_to_storage(tmp_path):
    """A stage directory on 9p takes no named pipes."""
    script(tmp_path / "sync", "#!/bin/sh\nexit 1\n")
    words = witnessed(tmp_path, "--sync", str(tmp_path), "true")
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = completed(words[len(ATTENDED) + 2 :], env={**os.environ, "PATH": path})
    assert done.returncode == 0, done.stderr
    (line,) = [file.read_text() for file in tmp_path.rglob("tasks.*")]
    assert line.split()[4] != "-"
