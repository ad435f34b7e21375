"""Loop devices, and file systems on them, for tests that run as root."""

import contextlib
import fcntl
import os
import shutil
import struct
import time
from pathlib import Path

import pytest

from support.shell import completed

MIB = 1 << 20


def run(*words):
    done = completed([str(word) for word in words])
    if done.returncode != 0:
        raise OSError(f"{words}: {done.stderr.strip()}")
    return done.stdout.strip()


def patiently(action):
    """Do what fails while somebody else looks at a mount."""
    for attempt in range(10):
        with contextlib.suppress(OSError):
            action()
            return
        time.sleep(0.1 * attempt)
    action()


def unmount(point):
    """Unmount a directory, at last even if hosts of other tests have a copy of what lies on it."""
    try:
        patiently(lambda: run("umount", point))
    except OSError:
        run("umount", "-l", point)


class Devices:
    """Loop devices and mounts below a directory, which leave in reverse order."""

    def __init__(self, folder, leaving):
        self.folder, self.leaving = folder, leaving
        #: The newest device of a file system that :meth:`formatted` made.
        self.last = Path()

    def formatted(self, kind, *words, options="rw", mib=1024):
        """A new file system on a device of its own, mounted."""
        file = self.folder / f"image{len(list(self.folder.iterdir()))}"
        self.last = self.loop(self.image(file.name, mib))
        return self.made(kind, self.last, options, *words)

    def image(self, name, mib=300):
        file = self.folder / name
        with open(file, "wb") as created:
            created.truncate(mib * MIB)
        return file

    def loop(self, file, direct=True):
        try:
            # Partitions leave with a device that is scanned for them.
            mode = f"--direct-io={'on' if direct else 'off'}"
            device = run("losetup", "--partscan", "-f", "--show", mode, file)
        except OSError as error:
            pytest.skip(f"no loop device: {error}")
        self.leaving.callback(run, "losetup", "-d", device)
        # Who had it before may have been killed before its counters were on again.
        Path(f"/sys/block/{Path(device).name}/queue/iostats").write_text("1")
        return Path(device)

    def zram(self, mib):
        """A file system in compressed memory, mounted."""
        size = Path("/sys/block/zram0/disksize")
        if not size.exists() or size.read_text().strip() != "0":
            pytest.skip("no unused zram0")
        size.write_text(f"{mib * MIB}")
        reset = size.with_name("reset")
        # Hosts of other tests may have a copy of the mount for as long as they live.
        self.leaving.callback(lambda: patiently(lambda: reset.write_text("1")))
        return self.made("ext4", Path("/dev/zram0"))

    def mount(self, source, name, kind="", options="rw"):
        point = self.folder / name
        point.mkdir(exist_ok=True)
        run("mount", *(["-t", kind] if kind else []), "-o", options, source, point)
        self.leaving.callback(unmount, point)
        return point

    def made(self, kind, device, options="rw", *words):
        """A new file system on a device, mounted."""
        # The kernel would write the inode tables of an ext4 later, beside what a test counts.
        ext4 = ["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"]
        quiet = ext4 if kind == "ext4" else ["-q", "-f"]
        program = f"mkfs.{kind}"
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}")
        run(program, *quiet, *words, device)
        return self.mount(device, f"on-{device.name}", options=options)


THROTTLE = Path("/sys/fs/cgroup/blkio")


@contextlib.contextmanager
def capped(device, **most):
    """A device takes at most so many bytes a second (``read``, ``written``), or so many requests (``reads``, ``writes``), from all of this machine."""
    files = {
        "read": "blkio.throttle.read_bps_device",
        "written": "blkio.throttle.write_bps_device",
        "reads": "blkio.throttle.read_iops_device",
        "writes": "blkio.throttle.write_iops_device",
    }
    if not (THROTTLE / files["read"]).exists():
        pytest.skip("needs the controller blkio of cgroup v1")
    number = Path(f"/sys/block/{device.name}/dev").read_text().strip()
    try:
        for way, limit in most.items():
            (THROTTLE / files[way]).write_text(f"{number} {limit}")
        yield
    finally:
        for way in most:
            (THROTTLE / files[way]).write_text(f"{number} 0")


@contextlib.contextmanager
def uncounted(device):
    """The kernel does not count what a device moves. A loop device keeps the setting for whoever has it next."""
    setting = Path(f"/sys/block/{device.name}/queue/iostats")
    setting.write_text("0")
    try:
        yield
    finally:
        setting.write_text("1")


def encrypted(directory):
    """Encrypt an empty directory with a key of this test (fscrypt, policy version 2)."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        key = bytearray(
            struct.pack("<II32sII32s", 2, 0, b"", 64, 0, b"") + bytes(range(64))
        )
        fcntl.ioctl(fd, 0xC0506617, key, True)
        policy = struct.pack("<BBBBB3s16s", 2, 1, 4, 0, 0, b"", bytes(key[8:24]))
        fcntl.ioctl(fd, 0x800C6613, policy)
    finally:
        os.close(fd)


def encryption(devices, loop):
    directory = devices.made("ext4", loop, "rw", "-O", "encrypt") / "directory"
    directory.mkdir()
    try:
        encrypted(directory)
    except OSError as error:
        pytest.skip(f"the kernel has no fscrypt: {error}")
    return directory


def overlay(devices, storage, *options):
    for name in ("upper", "work", "lower"):
        (storage / name).mkdir()
    words = [f"{name}dir={storage / name}" for name in ("upper", "work", "lower")]
    return devices.mount("overlay", "over", "overlay", ",".join([*words, *options]))
