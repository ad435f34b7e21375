"""No figure passes on the tool's word alone: real file systems and devices that make a tool's word untrue.

Each situation is made of the kernel's own means: options of file systems, memory under a device, layers that swallow
fsync, caps of a control group. No output and no record is edited, but by a program that stands where the tool should.
"""

import os
import re
import shutil
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.rig import GENEROUS, MIB, ROOT, verdict_of
from support import compiler, hanging
from support.devices import Devices, capped, uncounted
from support.shell import completed

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs_loop,
    pytest.mark.needs_root,
]

#: Source of a library that makes clocks wrong.
CLOCK = ROOT / "tests" / "support" / "clock.c"


def shell(*words, skips=False):
    """Run a program; its complaint is the failure of the test, or the reason to skip it."""
    done = completed(words)
    if skips and done.returncode != 0:
        pytest.skip(f"{' '.join(words)}: {done.stderr.strip()}")
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
    return done.stdout.strip()


def judged(make_rig, target, *words, tools=("ior",), **fields):
    """A run on a target, whose references anything meets that is proven."""
    rig = make_rig(target=target / "t", tools=tools, **fields)
    rig.write_references(GENEROUS)
    return rig.run(*words, "--keep-stage-files")


#: The device is the test's own: what others move there is a fault of the suite.
ALONE = {"max_foreign": "10 %"}
IOR = ("-n", "IorPosix%files=per-process%order=sequential%cache=buffered")
DIRECT = ("-n", "FioRandomRead%block=4")
IOR_DIRECT = ("-n", "IorPosix%files=per-process%order=sequential%cache=direct")


@pytest.mark.needs_fio
def test_direct_reads_from_the_memory_of_a_daemon(make_rig, devices):
    """A file system that is a program. What was written reached a disk; what is read comes from the page cache behind it."""
    # Its disk is a device of its own down to the bottom: other tests use the machine's disk at the same time.
    memory = devices.mount("none", "memory", "tmpfs")
    below = Devices(memory, devices.leaving)
    folder = below.made("ext4", below.loop(below.image("image", 256), direct=False))
    try:
        with hanging.mounted(folder, keeps=True) as mount:
            (mount.point / "t").mkdir()
            declared = {
                "type": "fuse",
                "source": "slowfs-place",
                "honours_o_direct": True,
            }
            # Not as many bytes as other tests write meanwhile to devices of their own: theirs would be taken for its own.
            limits = {"case_bytes": "172 MiB"}
            run = judged(
                make_rig,
                mount.point,
                *DIRECT,
                tools=("fio",),
                declared=declared,
                limits=limits,
            )
    except hanging.Unavailable as error:
        pytest.skip(str(error))
    run.never_passed(
        "G8 witness: the tool read .*, as it says; the networks and disks of the nodes moved"
    )
    assert run.record["verdict"] == "INVALID"


@pytest.mark.needs_ior
@pytest.mark.skipif(shutil.which("bindfs") is None, reason="bindfs is not on PATH")
@pytest.mark.parametrize(
    "memory", [True, pytest.param(False, marks=pytest.mark.nightly)]
)
def test_a_directory_that_a_program_shows_elsewhere(make_rig, devices, memory):
    """bindfs names the directory as its source: on memory nothing passes, on storage it may."""
    folder = devices.formatted("ext4")
    if memory:
        devices.mount("none", str((folder / "t").relative_to(devices.folder)), "tmpfs")
    point = devices.folder / "shown"
    point.mkdir()
    shell("bindfs", str(folder), str(point), skips=True)
    try:
        (point / "t").mkdir(exist_ok=True)
        declared = {"type": "fuse", "source": str(folder)}
        run = judged(
            make_rig, point, "-n", "MdtestEasy", tools=("mdtest",), declared=declared
        )
    finally:
        shell("umount", "--lazy", str(point))
    if memory:
        run.never_passed(
            r"G9 storage: the target is memory, not storage \(fuse on tmpfs"
        )
    else:
        # A sync of its mount ends at the program.
        assert run.record["verdict"] == "PASS", run.out
        said = {
            f["metric"]
            for f in run.record["findings"]
            if "no second witness" in f["saw"]
        }
        assert {"create_rate", "remove_rate"} <= said, run.record["findings"]


@pytest.mark.needs_ior
@pytest.mark.needs_fio
@pytest.mark.parametrize(
    "tool, words, cause",
    [
        ("ior", IOR, "G8 holes: 0 block"),
        ("mdtest", ("-n", "MdtestEasy"), "the files lay elsewhere"),
        ("fio", DIRECT, "G8"),
    ],
)
def test_a_container_shows_memory_in_the_place_of_the_target(
    make_rig, devices, tool, words, cause
):
    folder = devices.formatted("ext4")
    memory = devices.mount("none", "memory", "tmpfs")
    (folder / "t").mkdir()
    rig = make_rig(target=folder / "t", tools=(tool,))
    rig.write_references(GENEROUS)
    inside = f'mount --bind {memory} "$IOG_DIR" && exec "$@"'
    rig.program(tool, f'exec unshare --mount sh -c \'{inside}\' sh "$real" "$@"')
    rig.run(*words).never_passed(cause)


WRAPPER = """
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **words)
{
    setenv("LD_PRELOAD", "%(library)s", 1);
    return execv(words[0] = "%(real)s", words);
}
"""


@pytest.mark.needs_ior
@pytest.mark.skipif(
    shutil.which("eatmydata") is None, reason="eatmydata is not on PATH"
)
def test_a_library_that_only_the_tasks_know_of(make_rig, devices):
    """A program under the tool's name preloads it: neither the job's environment nor a script tells."""
    rig = make_rig(target=devices.formatted("ext4") / "t", tools=("ior",))
    rig.write_references(GENEROUS)
    said = shell("eatmydata", "sh", "-c", "echo $LD_PRELOAD").split()[0]
    library = (
        said if said.startswith("/") else shell("sh", "-c", f"ls /usr/lib/*/{said}")
    )
    compiler.demand()
    source = devices.folder / "wrapper.c"
    source.write_text(WRAPPER % {"library": library, "real": shutil.which("ior")})
    shell("gcc", "-o", str(rig.bin / "ior"), str(source))
    rig.run(*IOR_DIRECT).never_passed(
        r"G22 environment: libeatmydata.so\S* \(LD_PRELOAD of a task\), which makes fsync"
    )


LIES = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
/* Direct transfers go through the page cache. */
int open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    if ((flags & O_ACCMODE) == WAY)
        flags &= ~O_DIRECT;
    return syscall(SYS_openat, AT_FDCWD, path, flags, va_arg(more, int));
}
int open64(const char *path, int flags, ...) __attribute__((alias("open")));
/* Files are not removed, but renamed. */
int unlink(const char *path)
{
    static int number;
    char kept[4096];
    if (!strstr(path, "file.mdtest"))
        return syscall(SYS_unlink, path);
    snprintf(kept, sizeof kept, "%s/%d.%d", getenv("IOG_DIR"), getpid(), number++);
    return rename(path, kept);
}
"""


@pytest.mark.needs_ior
@pytest.mark.parametrize(
    "way, words, cause",
    [
        (
            "O_RDONLY",
            IOR_DIRECT,
            r"O_DIRECT, but the page cache held .* after the read",
        ),
        ("O_RDWR", IOR_DIRECT, r"O_DIRECT, but the page cache held .* after the write"),
        (
            "",
            ("-n", "MdtestEasy"),
            r"removed, as the tool says; the inodes in use changed",
        ),
    ],
)
def test_a_tool_that_does_something_easier(make_rig, devices, way, words, cause):
    """Each byte moves from and to the disk, and in the tool's time. Only what stays behind tells."""
    source, library = devices.folder / "lies.c", devices.folder / "lies.so"
    compiler.demand()
    source.write_text(LIES)
    shell(
        "gcc",
        "-w",
        "-shared",
        "-fPIC",
        f"-DWAY={way or -1}",
        "-o",
        str(library),
        str(source),
    )
    rig = make_rig(
        target=devices.formatted("ext4") / "t", tools=("ior", "mdtest"), limits=ALONE
    )
    rig.write_references(GENEROUS)
    rig.program("ior" if way else "mdtest", f'LD_PRELOAD={library} exec "$real" "$@"')
    ran = rig.run(*words)
    ran.shows_no_pass()
    assert re.search(cause, str(ran.records)), ran.out
    # Others could have made files while the tool removed its own.
    assert ran.records[0]["verdict"] == ("INVALID" if way else "CONTAMINATED")


@pytest.mark.needs_ior
def test_half_of_the_ranks_write_nothing(make_rig, devices):
    """A task's file is a link into memory, and the tool says that all is well."""
    rig = make_rig(target=devices.formatted("ext4") / "t", tools=("ior",))
    rig.write_references(GENEROUS)
    memory = Path(f"/dev/shm/iogauge-half-{os.getpid()}")
    link = f'rm -f {memory}; ln -s {memory} "$IOG_DIR/data.00000001"'
    rig.program(
        "ior", f'case "$rank $* " in 1*" -w "*) {link} ;; esac\nexec "$real" "$@"'
    )
    try:
        rig.run(*IOR).never_passed("G8 witness: the tool wrote 128 MiB, as it says")
        assert memory.exists()
    finally:
        memory.unlink(missing_ok=True)


@pytest.mark.needs_ior
def test_small_files_that_come_from_a_cache(make_rig, devices):
    """btrfs keeps what is so small in its trees, whose cache nobody can empty."""
    target = devices.formatted("btrfs", options="max_inline=4095") / "t"
    rig = make_rig(target=target, tools=("mdtest",), limits={"case_files": 2_000})
    rig.write_references(GENEROUS)
    run = rig.run("-n", "MdtestHard")
    run.never_passed(
        "G8 witness: the tool read .*, as it says; the kernel moved for its tasks"
    )


# Not of the module: a module that shares a fixture runs in one worker, and this one waits for slow disks for ten minutes.
@pytest.fixture(scope="session")
def clock(tmp_path_factory):
    library = tmp_path_factory.mktemp("clock") / "clock.so"
    shell("gcc", "-O2", "-shared", "-fPIC", "-o", str(library), str(CLOCK), skips=True)
    return library


@pytest.mark.needs_ior
def test_a_slow_clock_and_a_disk_that_does_not_count(make_rig, devices, clock):
    """No counter says when bytes move, as on many networks: what the task asked for does.

    A phase lasts for more than two seconds. From then on the agent looks five times a second, and seldom between the end
    of a task and the next task.
    """
    target = devices.formatted("btrfs")
    rig = make_rig(target=target / "t", tools=("ior",), limits={"case_bytes": "64 MiB"})
    rig.write_references(GENEROUS)
    rig.program("ior", f'LD_PRELOAD={clock} CLOCK_SPEED=0.33 exec "$real" "$@"')
    with uncounted(devices.last), capped(devices.last, read=20 * MIB, written=20 * MIB):
        run = rig.run(*IOR_DIRECT)
    run.never_passed(
        "G4 seconds: the tool reports .*; its bytes moved for .* .asked for by its first task."
    )
    assert {verdict_of(metric) for metric in run.record["metrics"]} == {"INVALID"}


FAKETIME = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
#: How somebody's environment may have a tool at half speed of the clock, with Debian's libfaketime.
HALF_SPEED = {"FAKETIME": "+0 x0.5"}


@pytest.mark.needs_ior
@pytest.mark.skipif(not FAKETIME, reason="no libfaketime in /usr/lib")
@pytest.mark.parametrize("way", ["option", "session", "renamed"])
def test_a_clock_at_half_speed_from_somebodys_environment(make_rig, devices, way):
    """In a gate, and without one. What watches has a clock of its own, whatever its caller preloads."""
    rig = make_rig(target=devices.formatted("ext4") / "t", tools=("ior",))
    rig.write_references(GENEROUS)
    library, words, variables = FAKETIME[0], list(IOR_DIRECT), {}
    if way == "renamed":
        library = Path(shutil.copy(library, rig.base / "libm.so.6"))
    if way == "option":
        # ReFrame parts pairs at commas, and names from values at the first colon.
        pairs = ["LD_PRELOAD:" + str(library), *map(":".join, HALF_SPEED.items())]
        words += ["-S", "env_vars=" + ",".join(pairs)]
    else:
        variables = {"LD_PRELOAD": str(library), **HALF_SPEED}
    run = rig.run(*words, IOGAUGE_GATE="1", **variables)
    run.never_passed(
        "G22 environment: .*(nothing proves what it does|which tells the tool another time)"
    )
    assert run.rc == 1


@pytest.mark.needs_ior
def test_files_that_are_hidden_from_the_target(make_rig, devices):
    """btrfs counts no inodes. But the agent finds none of the files that a tool made in memory."""
    target = devices.formatted("btrfs")
    rig = make_rig(target=target / "t", tools=("mdtest",), limits={"case_files": 4000})
    rig.write_references(GENEROUS)
    memory = devices.mount("iogauge-test", "memory", "tmpfs")
    own = devices.folder / "own.sh"
    own.write_text(f'mount --bind {memory} "$IOG_DIR" && exec "$@"\n')
    rig.program("mdtest", f'unshare --mount sh {own} "$real" "$@"')
    rig.run("-n", "MdtestEasy").never_passed(
        "G9 storage: .*the case's directory holds 0, not counting links"
    )


@contextmanager
def writer(target):
    """Another program that writes to a target, 16 MiB at a time, as fast as its disk takes them."""
    # The same 16 MiB again and again: the disk has no room for all that it writes until the case ends.
    once = (
        f"dd if=/dev/zero of={target}/theirs bs=1M count=16 oflag=direct conv=notrunc"
    )
    words = ["sh", "-c", f"while {once} 2>/dev/null; do :; done"]
    other = subprocess.Popen(words, start_new_session=True)
    try:
        yield
    finally:
        os.killpg(other.pid, signal.SIGTERM)
        other.wait()


@pytest.mark.needs_ior
def test_a_writer_beside_a_case(make_rig, devices):
    """Others write to the disk meanwhile: half of its bandwidth is theirs."""
    target = devices.formatted("ext4")
    limits = {"case_bytes": "256 MiB", **ALONE}
    with capped(devices.last, written=40 * MIB), writer(target):
        run = judged(make_rig, target, *IOR_DIRECT, limits=limits)
    assert run.record["verdict"] == "CONTAMINATED", run.out
    assert "G19 foreign load: others on 1 node(s) moved" in run.out, run.out


@pytest.mark.needs_ior
@pytest.mark.needs_fio
def test_a_slow_disk_is_healthy(make_rig, devices):
    """Bytes take most of the time, so that both words about the seconds are exact."""
    target = devices.formatted("xfs")
    limits = {"phase_seconds": "3 s", "case_bytes": "64 MiB", **ALONE}
    with capped(devices.last, read=20 * MIB, written=20 * MIB):
        run = judged(
            make_rig,
            target,
            *IOR,
            *DIRECT,
            *IOR_DIRECT,
            tools=("ior", "fio"),
            limits=limits,
        )
    assert [record["verdict"] for record in run.records] == ["PASS"] * 3, run.out
    # What test_contents.py makes untrue is true here.
    for record in run.records:
        found = [f for f in record["findings"] if f["guard"] == "G8"]
        assert {f["outcome"] for f in found} == {"ok"}, found
        text = "\n".join(f["saw"] for f in found)
        tool = "fio" if record["check"].startswith("Fio") else "ior"
        assert f"{tool} checked its data in the warm-up" in text
        assert re.search(
            r"[1-9][0-9]* block\(s\) of 1 repetition\(s\) read again", text
        ), text
    figures = {
        m["name"]: m["median"] for record in run.records for m in record["metrics"]
    }
    # Others use the machine too.
    assert figures["write_bw"] < 22


@pytest.mark.needs_fio
def test_a_disk_that_others_share_request_by_request(make_rig, devices):
    """A disk of 400 reads a second, half of them for another program: some MiB, which are few bytes and half of the work."""
    target = devices.formatted("ext4")
    limits = {"phase_seconds": "6 s", "case_bytes": "32 MiB", "max_foreign": "10 %"}
    other = [
        "fio",
        "--name=other",
        "--size=64m",
        "--bs=4k",
        "--direct=1",
        "--numjobs=2",
    ]
    shell(*other, "--rw=write", f"--directory={target}", "--end_fsync=1")
    reads = ["--rw=randread", f"--directory={target}", "--time_based", "--runtime=600"]
    reading = subprocess.Popen([*other, *reads], stdout=subprocess.DEVNULL)
    try:
        with capped(devices.last, reads=400):
            run = judged(make_rig, target, *DIRECT, tools=("fio",), limits=limits)
    finally:
        reading.terminate()
        reading.wait()
    assert run.record["verdict"] == "CONTAMINATED", run.out
    assert re.search(r"G19 foreign load: others on .* of \d+ requests", run.out), (
        run.out
    )
