"""What breaks while a case runs: storage, rights, processes, the clock; storage that hangs; signals; two sessions at once.

Never a pass, the cause is named, nothing runs on, and what is left on the target the janitor removes.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from errno import EDQUOT, EIO
from pathlib import Path

import pytest

from e2e.rig import (
    GENEROUS,
    RANDOM_READ,
    ROOT,
    command,
    command_of,
    processes,
    program_of,
    wait_for,
)
from e2e.test_never_pass import IOR, IOR_BUFFERED
from e2e.test_scenarios import STAND_INS, striped
from iogauge.workspace import directory, lock
from support.hanging import Frozen, Unavailable, mounted
from support.shell import completed, kill

pytestmark = [pytest.mark.needs_fio, pytest.mark.slow]

# --- whatever ends a run, nothing of ours stays ---------------------------------------------------


#: Tools and launchers; ReFrame, the job script and the agent are Python and bash.
PROGRAMS = ("fio", "ior", "mdtest", "mpirun", "orted", "prterun")


def tools_of(rig):
    """Tool processes that a rig's run has started and that are still there."""
    return [pid for pid in processes(str(rig.base)) if program_of(pid) in PROGRAMS]


@pytest.fixture
def running(make_rig):
    """A rig, and the command of a case whose first phase takes many seconds."""
    rig = make_rig(limits={"phase_seconds": "60 s", "case_bytes": "64 MiB"})
    return rig, ["-n", "FioRandomRead%block=4"]


def start_and_wait(rig, arguments, *program):
    process = rig.start([*program, *arguments] if program else command(*arguments))
    # In the middle of a phase: the tool runs, and data is on the target.
    wait_for(lambda: tools_of(rig), 40, "the tool")
    wait_for(
        lambda: any(
            p.is_file() and p.stat().st_size > 0
            for p in rig.leftovers()
            if p.name != ".iogauge-session"
        ),
        40,
        "data on the target",
    )
    return process


@pytest.mark.quick
@pytest.mark.parametrize(
    "number, program",
    [
        (signal.SIGINT, ()),
        (
            signal.SIGTERM,
            ("iogauge", "run"),
        ),  # to the command alone, and not to ReFrame below it
    ],
)
def test_signal(running, number, program):
    rig, arguments = running
    process = start_and_wait(rig, arguments, *program)
    os.kill(process.pid, number)
    run = rig.finish(process, timeout=600)
    assert run.rc != 0, run.out
    run.shows_no_pass()
    reason = f"run: {number.name} told the session to end, before the case was decided"
    assert run.record["reason"] == reason
    wait_for(lambda: not tools_of(rig), 10, "the tools to end")
    wait_for(lambda: not processes(str(rig.base)), 10, "the job to end")
    rig.assert_clean()


def test_kill_leaves_and_clean_removes(running):
    rig, arguments = running
    process = start_and_wait(rig, arguments)
    # The session first, then whatever it had started: nobody is left to tidy up.
    rig.kill(process.pid)
    process.communicate(timeout=600)
    left = [path for path in rig.leftovers() if path.is_file()]
    assert any(path.name == ".iogauge-session" for path in left), left

    dry = rig.iogauge("clean", "--dry-run")
    assert dry.rc == 0 and "would remove" in dry.out
    assert [path for path in rig.leftovers() if path.is_file()] == left

    first = rig.iogauge("clean")
    assert first.rc == 0 and "removed: " in first.out, first.out
    rig.assert_clean()
    second = rig.iogauge("clean")
    assert second.rc == 0 and "nothing to remove" in second.out


WRITE, READ, FSYNC = "write", "read", "fsync"
MDTEST = ("-n", "MdtestHard")
#: A case whose read takes four seconds, and nothing else long.
LONG = {"phase_seconds": "4 s", "case_bytes": "8 MiB"}


def start(rig, *words, **environment):
    rig.write_references(GENEROUS)
    return rig.start(command(*words), **environment)


def data_of(rig):
    """Files with something in them below the directory of a case."""
    found = []
    for path in rig.leftovers():
        with contextlib.suppress(OSError):
            if (
                not re.search(r"/\.(iogauge|lock)", str(path))
                and path.is_file()
                and path.stat().st_size
            ):
                found.append(path)
    return found


def those(rig, *words):
    """Processes of a rig whose command line holds all of the words."""
    mine = [pid for pid in processes(str(rig.base)) if program_of(pid)]
    return sorted(pid for pid in mine if all(word in command_of(pid) for word in words))


def name_of(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def stands(pid):
    """Whether a process was stopped in the middle of its work."""
    with contextlib.suppress(OSError):
        return (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        )
    return False


def has_read(pid):
    """Whether a process has begun its work: fio waits for ever for one that dies before."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/io").read_text().split()[1]) > 1 << 20
    return False


@contextlib.contextmanager
def stopped(rig):
    """The tools stand still meanwhile, in the middle of their work."""
    pids = tools_of(rig)
    assert pids
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    yield
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def nothing_runs_on(rig):
    wait_for(lambda: not those(rig), 30, "everything to end")


def janitor_removes_all(rig):
    done = rig.iogauge("clean")
    assert done.rc == 0, done.out
    rig.assert_clean()


# --- room, quota, storage that fails --------------------------------------------------------------


@pytest.mark.needs_loop
@pytest.mark.needs_ior
def test_a_target_that_fills_up_in_the_middle(make_rig, small_fs):
    """By another process, after the look at the room."""
    target = small_fs("ext4", 256 << 20)
    rig = make_rig(tools=("ior",), target=target, limits={"case_bytes": "96 MiB"})
    process = start(rig, *IOR, "-S", "transfer_bytes=4096")
    wait_for(lambda: data_of(rig), 60, "the first data")
    # It goes on: what a repetition removes is room for the next one.
    filler = f"while :; do cat /dev/zero >>{rig.target}/filler; sleep 0.05; done"
    with stopped(rig):
        filling = subprocess.Popen(["bash", "-c", filler], stderr=subprocess.DEVNULL)
        time.sleep(2)
    run = rig.finish(process)
    filling.kill()
    filling.wait()
    run.never_passed("No space left on device", "ERROR")
    assert run.record["verdict"] == "ERROR"
    (rig.target / "filler").unlink()
    rig.assert_clean()


@pytest.fixture
def failing(storage, make_rig):
    """Makes a rig on a mount on which every N-th operation of a kind fails."""
    with contextlib.ExitStack() as stack:

        def make(fail, *tools):
            folder = storage / f"failing{time.monotonic_ns()}"
            folder.mkdir()
            try:
                mount = stack.enter_context(mounted(folder, fail))
            except Unavailable as error:
                pytest.skip(str(error))
            (mount.point / "target").mkdir()
            rig = make_rig(
                target=mount.point / "target",
                tools=tools,
                limits={
                    "case_bytes": "8 MiB",
                    "case_files": 200,
                    "phase_seconds": "0.5 s",
                },
                # Then reads are O_DIRECT.
                declared={"honours_o_direct": True},
            )
            rig.write_references(GENEROUS)
            return rig

        yield make


@pytest.mark.needs_ior
@pytest.mark.parametrize(
    "tool, words, fail, told",
    [
        ("mdtest", MDTEST, (WRITE, EDQUOT, 20), os.strerror(EDQUOT)),
        ("fio", RANDOM_READ, (READ, EIO, 50), os.strerror(EIO)),
    ],
)
def test_an_error_of_the_storage_is_an_error(failing, tool, words, fail, told):
    """Whichever rank meets it, and if only one does."""
    rig = failing(":".join(map(str, fail)), tool)
    run = rig.run(*words)
    run.never_passed("ERROR", told)
    assert run.record["verdict"] == "ERROR"
    assert re.search(told, run.record["reason"]), run.record["reason"]
    rig.assert_clean()


@pytest.mark.needs_ior
def test_an_fsync_that_failed_makes_the_figure_invalid(failing):
    """IOR warns, and its status is that of a success."""
    rig = failing(f"{FSYNC}:{EIO}:2", "ior")
    run = rig.run(*IOR_BUFFERED)
    run.never_passed("INVALID", r"fsync\(\d+\) failed")
    rig.assert_clean()


@pytest.mark.needs_loop
@pytest.mark.needs_ior
def test_a_target_that_dies_under_the_tool(make_rig, small_fs):
    """ext4 is shut down, and everything fails."""
    limits = {"case_bytes": "96 MiB", "lock_lease": "5 s"}
    rig = make_rig(tools=("ior",), target=small_fs("ext4", 256 << 20), limits=limits)
    process = start(rig, *IOR, "-S", "transfer_bytes=4096")
    wait_for(lambda: data_of(rig), 60, "the first data")
    completed(["xfs_io", "-x", "-c", "shutdown", str(rig.target)], check=True)
    run = rig.finish(process)
    run.never_passed(
        "ERROR", "Input/output error", f"iogauge clean --target {rig.target}"
    )
    assert run.record["verdict"] == "ERROR"
    completed(["umount", str(rig.target)], check=True)
    # A copy: hosts of other tests may hold the old mount in namespaces of their own.
    image = rig.target.parent / "image"
    copy = shutil.copy(image, image.with_name("copy"))
    completed(["mount", "-o", "loop", copy, rig.target], check=True)
    assert rig.leftovers()
    janitor_removes_all(rig)


# --- processes that are killed --------------------------------------------------------------------


class TestKilled:
    """One of the processes of a run, in the middle of a phase."""

    @pytest.fixture
    def rig(self, make_rig):
        # fio waits for ever for a process that was killed before it had begun; the time limit does not.
        return make_rig(limits=LONG, time_limit="25s")

    def begin(self, rig):
        process = start(rig, *RANDOM_READ)
        wait_for(lambda: those(rig, "fio", "randread.fio"), 60, "the read")
        return process

    def test_one_process_of_the_tool(self, rig):
        process = self.begin(rig)

        def halted():
            found = [
                p for p in those(rig, "fio", "randread.fio") if program_of(p) == "fio"
            ][1:]
            ranks = [pid for pid in found if has_read(pid)][-1:]
            for rank in ranks:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rank, signal.SIGSTOP)
            # A process that has ended its work meanwhile could not be killed any more.
            return [rank for rank in ranks if stands(rank)]

        kill(*wait_for(halted, 30, "a process for each task"))
        run = rig.finish(process)
        run.never_passed("ERROR", "randread|job timed out")
        assert run.record["verdict"] == "ERROR"
        nothing_runs_on(rig)
        rig.assert_clean()

    def test_the_job(self, rig):
        process = self.begin(rig)
        kill(those(rig, "rfm_job.sh")[0])
        run = rig.finish(process)
        run.never_passed("ERROR", "killed by SIGKILL")
        assert run.record["verdict"] == "ERROR"
        nothing_runs_on(rig)
        rig.assert_clean()  # what the job left, the session has removed

    def test_reframe_below_our_own_command(self, rig):
        """The cases that had passed do not make a success of it."""
        rig.write_references(GENEROUS)
        # The first case passes at once, the second waits.
        rig.program(
            "fio",
            'case $PWD in *128KiB*|*7d516c0f*) sleep 4 ;; esac; exec "$real" "$@"',
        )
        code = "import sys; sys.argv[0] = 'iogauge'; from iogauge.cli.app import app; app()"
        process = rig.start(
            [
                sys.executable,
                "-c",
                code,
                "run",
                "--exec-policy=serial",
                "-n",
                "FioRandomRead",
            ],
            PYTHONPATH=str(ROOT / "reframe" / "src"),
        )
        wait_for(rig.records, 60, "the first record")
        # A fork of iogauge, which has the same command line.
        # A fork of ReFrame has its name until it becomes a job.
        below = min(pid for pid in those(rig, "run") if name_of(pid) == "reframe")
        kill(below)
        run = rig.finish(process)
        assert run.rc == 137, run.out
        assert [record["verdict"] for record in run.records] == ["PASS"]
        assert "ReFrame was killed by SIGKILL (exit status 137)" in run.out
        assert "iogauge: FAILED" in run.out
        nothing_runs_on(rig)
        janitor_removes_all(rig)


# --- killed while removing ------------------------------------------------------------------------


def test_who_removes_is_killed_meanwhile(make_rig):
    """Agent, job and then the session: the marker is still there, and the janitor ends the work."""
    rig = make_rig()
    made, go = rig.base / "made", rig.base / "go"
    rig.program(
        "fio",
        f'cd "$IOG_DIR" && seq 20000 | xargs touch && touch {made}\n'
        f"until [ -e {go} ]; do sleep 0.05; done; exit 1",
    )

    def left():
        return sum(1 for path in rig.leftovers() if path.name.isdigit())

    process = start(rig, *RANDOM_READ)
    wait_for(made.exists, 60, "the names")
    go.touch()
    wait_for(lambda: 0 < left() < 18_000, 60, "the removal to be under way")
    # Without an agent and the job's script the session removes it.
    kill(*those(rig, "rfm_job.sh"), *those(rig, "job/start.py", "open"))
    then = left()
    wait_for(lambda: left() < then - 200, 60, "the session to remove")
    kill(process.pid)
    run = rig.finish(process)
    run.never_passed()
    nothing_runs_on(rig)
    assert directory.MARKER in {path.name for path in rig.leftovers()}
    janitor_removes_all(rig)


# --- settings of the system -----------------------------------------------------------------------


@pytest.mark.needs_ior
@pytest.mark.needs_root
def test_checksums_come_back_after_session_and_job_were_killed(make_rig):
    """On the stand-ins of Lustre's commands: by the next case that starts, with the former value on record."""
    rig = striped(make_rig, rights=["lustre-checksums"])
    state = rig.base / "lfs"
    state.mkdir()
    path = os.pathsep.join([str(STAND_INS), rig.environment()["PATH"]])
    knobs = {"LFS_STATE": str(state), "LFS_SERVERS": "2", "PATH": path}

    def value():
        out = completed(
            ["lctl", "get_param", "osc.*-OST*-osc-[!M]*.checksums"],
            env=os.environ | knobs,
        ).stdout
        return {line.partition("=")[2] for line in out.splitlines() if "=" in line}

    assert value() == {"1"}
    process = rig.start(command("-n", "ChecksumOverhead"), **knobs)
    wait_for(lambda: value() == {"0"}, 120, "the checksums to be off")
    rig.kill(process.pid)
    process.communicate(timeout=600)
    assert value() == {"0"}
    (kept,) = (rig.home / "restore").iterdir()
    assert set(json.loads(kept.read_text())["found"].values()) == {"1"}

    done = rig.iogauge("clean", **knobs)
    assert done.rc == 0, done.out
    process = rig.start(command(*RANDOM_READ), **knobs)
    rig.finish(process)
    assert value() == {"1"}
    assert list((rig.home / "restore").iterdir()) == []


# --- storage that stops answering -----------------------------------------------------------------


#: ReFrame's start and end, agent and job, on a busy machine.
MARGIN_S = 45
#: Seconds for which a target may be silent, and how a site says so.
ANSWER_S = 5
SILENCE = {"IOGAUGE_SILENCE_S": str(ANSWER_S)}


@pytest.fixture
def mount(storage):
    folder = storage / f"hanging{time.monotonic_ns()}"
    folder.mkdir()
    try:
        with mounted(folder) as found:
            yield found
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def hung(mount, make_rig):
    (mount.point / "target").mkdir()
    hung = make_rig(
        target=mount.point / "target",
        limits={"phase_seconds": "60 s", "case_bytes": "8 MiB"},
        # What waits for the target are children that ReFrame forks: here they are a cold command's.
        cold=True,
        # Then reads are O_DIRECT, which a daemon may be believed to honour.
        declared={"honours_o_direct": True},
    )
    hung.time_limit = "15s"
    hung.write_settings()
    return hung


READ_4K = ("-n", "FioRandomRead%block=4KiB")


def test_a_run_ends_with_an_error_and_the_janitor_removes_what_is_left(hung, mount):
    process = hung.start(command(*READ_4K), **SILENCE)
    wait_for(lambda: tools_of(hung), 40, "the tool")
    time.sleep(1)
    mount.hang()
    run = hung.finish(process, timeout=15 + ANSWER_S + MARGIN_S)
    run.never_passed(f"{hung.target} has not answered for {ANSWER_S} s")
    assert run.record["verdict"] == "ERROR"
    # The time limit ended it, nothing else.
    assert re.search(r"TIMEOUT, time limit 15 s", run.record["reason"]), run.record[
        "reason"
    ]
    assert f"{hung.target} has not answered" in run.record["reason"]

    # The commands that look at the target do not hang either, and say what it is.
    for words in (["clean"], ["run", "--dry-run", *READ_4K]):
        began = time.monotonic()
        done = hung.iogauge(*words, timeout=ANSWER_S + MARGIN_S, **SILENCE)
        told = " ".join(done.out.split()).replace(f"{hung.target}: ", f"{hung.target} ")
        assert done.rc == 1 and f"{hung.target} has not answered for" in told, done.out
        assert time.monotonic() - began >= ANSWER_S - 1

    mount.wake()
    wait_for(
        lambda: not processes(str(hung.base)), 20, "the processes that waited to end"
    )
    assert any(p.is_file() for p in hung.leftovers())
    done = hung.iogauge("clean")
    assert done.rc == 0 and "removed: " in done.out, done.out
    hung.assert_clean()


@pytest.mark.needs_loop
def test_a_lock_is_not_broken_for_ever_on_a_target_that_stops_answering(
    make_rig, small_fs
):
    """It answers when it is looked at, and hangs when it is written to: when the lock is broken."""
    hung = make_rig(target=small_fs("ext4", 64 << 20), limits={"lock_lease": "2 s"})
    assert lock.Lock(str(hung.target), {"host": "elsewhere", "lease_s": 2}).try_take()
    frozen = Frozen(hung.target)
    frozen.hang()
    try:
        words = ["clean", "--all", "--target", str(hung.target)]
        done = hung.iogauge(*words, timeout=ANSWER_S + MARGIN_S, **SILENCE)
    finally:
        frozen.wake()
    told = " ".join(done.out.split())
    assert done.rc == 1, done.out
    assert f"{hung.target} has not answered for" in told, done.out
    # What had been begun is ended by the kernel when it goes on, though who began it was killed.
    done = hung.iogauge(*words)
    assert done.rc == 0, done.out
    hung.assert_clean()


# --- two sessions on one target -------------------------------------------------------------------


@pytest.fixture
def pair(make_rig):
    """Two sites whose target is the same directory."""
    first = make_rig(limits={"lock_lease": "3 s"})
    return first, make_rig(
        target=first.target, limits={"lock_lease": "3 s", "lock_wait": "1 s"}
    )


def hold(rig):
    """A session in the midst of a phase."""
    words = ("-n", "FioRandomRead%block=4", "-S", "repetitions=1")
    process = rig.start(command(*words))
    wait_for(
        lambda: [p for p in processes(str(rig.base)) if program_of(p) == "fio"],
        60,
        "fio",
    )
    return process


def keeper_of(rig):
    """The process that keeps the lock of a rig's target."""
    holder = lock.standing(str(rig.target))
    return int(holder.details["processes"][0][0])


def test_who_waits_too_long_is_contaminated_and_names_the_holder(pair):
    first, second = pair
    first.limits["phase_seconds"] = "60 s"
    first.write_settings()
    holding = hold(first)
    try:
        run = second.run(*RANDOM_READ)
        record = run.record
        assert record["verdict"] == "CONTAMINATED", run.out
        assert record["metrics"] == []
        assert run.rc == 0
        run.shows_no_pass()
        assert "CONTAMINATED" in run.out
        for word in (
            "FioRandomRead",
            os.uname().nodename,
            "limits.lock_wait",
            "iogauge clean",
        ):
            assert word in record["reason"], record["reason"]
        held = second.iogauge("check", IOGAUGE_TARGET=str(first.target)).out.replace(
            "\n", " "
        )
        assert "locked by user" in held
        kept = second.iogauge("clean", "--target", str(first.target))
        assert kept.rc == 0
        assert "kept: the lock of user" in kept.out
        assert "it is in use" in kept.out
        assert data_of(first), "a living session is kept"
    finally:
        os.kill(holding.pid, signal.SIGTERM)
        first.finish(holding, timeout=600)
    first.assert_clean()


def test_the_janitor_breaks_the_lock_of_the_dead(pair):
    first, second = pair
    first.limits["phase_seconds"] = "60 s"
    first.write_settings()
    process = hold(first)
    # First what keeps the lock: it would give it up when it sees that the rest is gone.
    first.kill(keeper_of(first), process.pid)
    process.communicate(timeout=600)
    told = second.iogauge("check", IOGAUGE_TARGET=str(first.target)).out.replace(
        "\n", " "
    )
    assert "whose processes have ended" in told
    dry = first.iogauge("clean", "--dry-run")
    assert "would remove: the lock of user" in dry.out
    assert lock.standing(str(first.target)) is not None
    done = first.iogauge("clean")
    assert done.rc == 0
    assert "removed: the lock of user" in done.out, done.out
    first.assert_clean()
