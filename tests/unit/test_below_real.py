"""The stack below a mount on real file systems and devices, against what the kernel counts."""

import contextlib
import mmap
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from iogauge.node.lustre.quotas import project_of
from iogauge.node.view import look
from support.devices import MIB, Devices, encryption, overlay, run, unmount
from support.shell import as_user

pytestmark = [
    pytest.mark.needs_loop,
    pytest.mark.needs_root,
]


@pytest.fixture
def devices(tmp_path):
    with contextlib.ExitStack() as leaving:
        yield Devices(tmp_path, leaving)


def test_the_project_of_a_directory_is_the_one_that_new_files_join(devices):
    if shutil.which("xfs_io") is None:
        pytest.skip("needs xfs_io")
    mount = devices.made("xfs", devices.loop(devices.image("disk")))
    of_others, joined = mount / "others", mount / "joined"
    for directory in (of_others, joined):
        directory.mkdir()
        run("xfs_io", "-r", "-c", "chproj 77", directory)
    run("xfs_io", "-r", "-c", "chattr +P", joined)
    (joined / "new").mkdir()
    assert project_of(str(mount)) == project_of(str(of_others)) == 0
    assert project_of(str(joined)) == project_of(str(joined / "new")) == 77


def below(path):
    return look(str(path)).below


def number(device):
    info = os.stat(device).st_rdev
    return f"{os.major(info)}:{os.minor(info)}"


def disk_of(path):
    """The whole disk of a file system on one."""
    device = os.stat(path).st_dev
    real = Path("/sys/dev/block", f"{os.major(device)}:{os.minor(device)}").resolve()
    whole = real.parent if (real / "partition").exists() else real
    return (whole / "dev").read_text().strip()


def moved(numbers):
    """Bytes that devices have read and written, in sectors of 512 bytes (kernel, iostats.rst)."""
    lines = [line.split() for line in Path("/proc/diskstats").read_text().splitlines()]
    counts = [words for words in lines if f"{words[0]}:{words[1]}" in numbers]
    return sum(512 * int(words[5]) for words in counts), sum(
        512 * int(w[9]) for w in counts
    )


def direct_io(directory, numbers, data):
    """Write and sync 16 MiB with O_DIRECT and read them several times; return the devices' shares
    of the write, and of the read that took least from them: others may drop the page cache."""
    block = mmap.mmap(-1, MIB)
    block.write(data)
    file = directory / "data"
    before = moved(numbers)[1]
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
    try:
        for count in range(16):
            os.pwrite(fd, block, count * MIB)
        os.fsync(fd)
        run("sync", "-f", file)
        written = moved(numbers)[1] - before
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        reads = []
        for _ in range(6):
            before = moved(numbers)[0]
            for count in range(16):
                os.preadv(fd, [block], count * MIB)
            reads.append(moved(numbers)[0] - before)
        return written / (16 * MIB), min(reads) / (16 * MIB)
    finally:
        os.close(fd)
        file.unlink()


def test_ext4_and_xfs_keep_what_they_promise(devices):
    for kind in ("ext4", "xfs"):
        loop = devices.loop(devices.image(kind))
        point = devices.made(kind, loop)
        found = below(point)
        disk = disk_of(devices.folder)
        assert (found.devices, found.disks) == ((number(loop),), (disk,))
        assert found.names == {number(loop): loop.name, disk: found.names[disk]}
        assert (found.memory, found.cached, found.fsync, found.compresses) == ("",) * 4
        assert (found.o_direct, found.copies) == ("", (1, 1))
        written, read = direct_io(point, found.devices, os.urandom(MIB))
        assert written == pytest.approx(1, abs=0.2)
        assert read > 0.95


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_journal_on_another_device_lies_below_too(devices, in_memory):
    folder = devices
    if in_memory:
        memory = devices.mount("iogauge-test", "memory", "tmpfs")
        folder = Devices(memory, devices.leaving)
    journal = devices.loop(folder.image("journal", 64), direct=False)
    run("mkfs.ext4", "-q", "-F", "-O", "journal_dev", "-b", 4096, journal)
    loop = devices.loop(devices.image("image"))
    words = ["-b", "4096", "-J", f"device={journal}"]
    found = below(devices.made("ext4", loop, "rw", *words))
    # Other tests may have such a journal, too.
    assert {number(loop), number(journal)} <= {*found.devices}
    assert bool(found.memory) is in_memory


def test_compressed_memory_is_no_storage(devices):
    assert below(devices.zram(300)).memory == "zram0, compressed memory"


def test_a_log_of_xfs_on_another_device_lies_below_too(devices):
    log, loop = (devices.loop(devices.image(name)) for name in ("log", "image"))
    found = below(devices.made("xfs", loop, f"logdev={log}", "-l", f"logdev={log}"))
    assert {*found.devices} == {number(loop), number(log)}


def journal_as_option(devices, loop):
    return devices.made("ext4", loop, "data=journal")


def journal_of_a_directory(devices, loop):
    (devices.folder / "root/directory").mkdir(parents=True)
    run(
        "mkfs.ext4",
        "-q",
        "-F",
        "-E",
        "lazy_itable_init=0",
        "-d",
        devices.folder / "root",
        loop,
    )
    run("debugfs", "-w", "-R", "set_inode_field /directory flags 0x84000", loop)
    return devices.mount(loop, "point", options="nodelalloc") / "directory"


@pytest.mark.parametrize(
    "make, reason, copies",
    [
        (journal_as_option, "ext4 with data=journal", (1, 2)),
        (journal_of_a_directory, "chattr +j", (1, 2)),
        (encryption, "fscrypt", (1, 1)),
    ],
)
def test_o_direct_that_reads_from_the_page_cache_is_named(
    devices, make, reason, copies
):
    directory = make(devices, devices.loop(devices.image("image")))
    found = below(directory)
    assert reason in found.o_direct
    assert (found.copies, found.cached, found.memory) == (copies, "", "")
    written, read = direct_io(directory, found.devices, os.urandom(MIB))
    assert read < 0.05
    assert copies[0] * 0.9 <= written <= copies[1] * 1.5


@pytest.mark.parametrize("profile, count, copies", [("dup", 1, 2), ("raid1", 2, 2)])
def test_copies_of_btrfs(devices, profile, count, copies):
    loops = [devices.loop(devices.image(f"image{n}")) for n in range(count)]
    words = ["-d", profile, "-m", "single", *map(str, loops[1:])]
    point = devices.made("btrfs", loops[0], "rw", *words)
    found = below(point)
    assert set(found.devices) == {number(loop) for loop in loops}
    assert found.disks == (disk_of(devices.folder),)
    assert (found.copies, found.cached, found.o_direct) == ((copies, copies), "", "")
    written, read = direct_io(point, found.devices, os.urandom(MIB))
    assert written == pytest.approx(copies, rel=0.2)
    assert read > 0.95


@pytest.fixture
def opened(devices):
    """Devices in a directory that everybody may look into."""
    devices.folder = Path(devices.leaving.enter_context(tempfile.TemporaryDirectory()))
    devices.folder.chmod(0o755)
    return devices


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("memory", [False, True])
def test_an_ordinary_user_sees_the_same_below_a_closed_directory(
    opened, direct, memory
):
    closed = opened.folder / "closed"
    closed.mkdir(0o700)
    inner = Devices(closed, opened.leaving)
    images = Devices(inner.mount("iogauge-test", "memory", "tmpfs"), opened.leaving)
    image = (images if memory else inner).image("image", 100)
    point = opened.made("ext4", opened.loop(image, direct))
    found = below(point)
    assert (bool(found.memory), bool(found.cached)) == (memory, memory or not direct)
    assert as_user(65534, lambda: repr(below(point))) == repr(found)


@pytest.mark.parametrize(
    "options, attribute, reason",
    [
        ("compress=zstd", (), "btrfs compress=zstd:3"),
        ("rw", ("btrfs", "property"), "chattr +c or btrfs property"),
    ],
)
def test_btrfs_that_compresses_is_named(devices, options, attribute, reason):
    """Random data, which G18 demands of it, are read from the device; others are not."""
    point = devices.made("btrfs", devices.loop(devices.image("image")), options)
    directory = point / "directory"
    directory.mkdir()
    if attribute[:1] == ("chattr",):
        run(*attribute, directory)
    elif attribute:
        run("btrfs", "property", "set", directory, "compression", "zstd")
    found = below(directory)
    assert reason in found.compresses
    assert bool(below(point).compresses) is not bool(attribute)
    assert direct_io(directory, found.devices, os.urandom(MIB))[1] > 0.95
    written, read = direct_io(directory, found.devices, bytes(MIB))
    assert written < 0.5
    assert read < 0.05


def test_a_loop_device_in_memory_is_memory_until_it_is_hidden(devices):
    memory = devices.mount("iogauge-test", "memory", "tmpfs")
    inner = Devices(memory, devices.leaving)
    loop = devices.loop(inner.image("image", 100))
    point = devices.made("ext4", loop)
    assert below(point).memory == f"{loop.name} on tmpfs at {memory}"
    # Nobody sees what the path leads to now, and root sees that another file is there.
    devices.mount("iogauge-test", "memory", "tmpfs")
    for _ in range(2):
        found = below(point)
        assert (
            f"{loop.name}, whose file {memory}/image cannot be seen here"
            in found.cached
        )
        assert (found.fsync, found.disks) == (found.cached, ())
        inner.image("image", 100)


@pytest.mark.parametrize("volatile", [False, True])
def test_an_overlay_is_its_upper_directory(devices, volatile):
    loop = devices.loop(devices.image("image"))
    point = overlay(
        devices, devices.made("ext4", loop), *(["volatile"] if volatile else [])
    )
    (point / "directory").mkdir()
    found = below(point / "directory")
    assert (found.devices, found.disks) == ((number(loop),), (disk_of(devices.folder),))
    assert (found.cached, found.memory) == ("", "")
    assert found.fsync == ("a volatile overlay ignores fsync" if volatile else "")
    if shutil.which("bindfs"):
        shown = devices.folder / "shown"
        shown.mkdir()
        run("bindfs", point, shown)
        devices.leaving.callback(unmount, shown)
        told = "fuse on a volatile overlay ignores fsync" if volatile else ""
        assert look(str(shown)).below.fsync == told
    before = moved(found.devices)[1]
    with open(point / "directory" / "data", "wb") as file:
        file.write(os.urandom(16 * MIB))
        file.flush()
        os.fsync(file)
        assert (moved(found.devices)[1] - before < 8 * MIB) is volatile


@pytest.mark.skipif(shutil.which("mergerfs") is None, reason="needs mergerfs")
def test_two_directories_of_mergerfs_are_no_server(devices):
    first, second, shown = (devices.folder / name for name in ("ax", "a/b", "shown"))
    for place in (first, second, shown):
        place.mkdir(parents=True)
    run("mergerfs", f"{first}:{second}", shown)
    devices.leaving.callback(unmount, shown)
    found = look(str(shown))
    assert (found.mount.type, found.mount.source) == ("fuse.mergerfs", "x:/b")
    assert found.is_unproven


def test_a_mount_over_what_the_kernel_shows_of_a_disk_is_no_disk(devices):
    """As a container's may be: zram that a bind mount calls a disk, and another table of counters."""
    loop = devices.loop(devices.image("image"))
    point = devices.made("ext4", loop)
    assert below(point).cached == ""
    fake = devices.folder / "fake"
    fake.mkdir()
    for place, told in (
        (
            "/sys/dev/block",
            "'/sys/dev/block, over what the kernel shows' in found.cached",
        ),
        (
            f"/sys/block/{loop.name}/queue",
            "'over what the kernel shows' in found.fsync",
        ),
        (
            "/proc/diskstats",
            "not found.cached and not not_the_kernels() and read_all()",
        ),
    ):
        script = (
            "from iogauge.node.view import look\n"
            "from iogauge.node.counters import not_the_kernels, read_all as every\n"
            "read_all = lambda: [name for name in every() if ':' in name]\n"
            f"found = look({str(point)!r}).below\nassert {told}, found\n"
        )
        source = fake
        if place == "/proc/diskstats":
            source = Path("/dev/null")
        enter = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
        words = ["unshare", "--mount", "sh", "-c", enter, "sh", source, place]
        run(*words, sys.executable, "-c", script)
