"""The stack below a mount, on made trees of sysfs. What real devices show: test_below_real.py."""

import os

import pytest

from iogauge.node import btrfs, layers
from iogauge.node.kinds import Below
from iogauge.node.mounts import Mount


class Tree:
    """A made root with devices, and with mounts at some of its directories."""

    def __init__(self, root):
        self.root, self.mounts = root, dict[str, Mount]()

    def place(self, path):
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def device(self, name, number, slaves="", folder="virtual/block", **files):
        """A device over others. In the keys of ``files`` two underscores stand for a slash."""
        place = self.root / "sys/devices" / folder / name
        (place / "slaves").mkdir(parents=True)
        for file, text in {"dev": number, **files}.items():
            path = place / file.replace("__", "/")
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"{text}\n")
        self.place(f"sys/dev/block/{number}").symlink_to(place)
        if "partition" not in files:
            self.place(f"sys/block/{name}").symlink_to(place)
        for slave in slaves.split():
            (whole,) = (self.root / "sys/devices").rglob(f"{slave}/dev")
            (place / "slaves" / slave).symlink_to(whole.parent)

    def disk(self, name, number):
        self.device(name, number, folder="pci0/ata1/block")

    def loop(self, name, number, file, direct=True):
        self.device(name, number, loop__backing_file=file, loop__dio=str(int(direct)))

    def mount(self, point, kind, number="0:50", options="rw", source="source"):
        place = self.place(point)
        place.mkdir(exist_ok=True)
        mount = Mount(len(self.mounts) + 1, point, source, kind, options, "/", number)
        self.mounts[str(place)] = mount

    def shown(self, point, source):
        """A program shows a directory."""
        self.place(point).unlink(missing_ok=True)
        self.place(point).symlink_to(self.place(source))
        self.mount(point, "fuse.bindfs", "0:52", source=source)

    def find(self, path):
        at = [point for point in self.mounts if f"{path}/".startswith(f"{point}/")]
        return self.mounts[max(at, key=len)] if at else None

    def resolve(self, point):
        place = str(self.place(point))
        return layers.resolve(place, self.mounts[place], root=str(self.root))


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A tree with one disk, which has a file system with an image at /data."""
    made = Tree(tmp_path)
    monkeypatch.setattr(layers, "find_mount", made.find)
    made.disk("sda", "8:0")
    made.mount("/data", "ext4", "8:0")
    made.place("/data/image").touch()
    return made


def test_what_a_program_shows_elsewhere_may_be_memory(tree):
    """bindfs and others name the directory as their source. The name of a bucket or of a server says nothing."""
    tree.mount("/memory", "tmpfs", "0:51")
    tree.shown("/shown", "/memory")
    assert tree.resolve("/shown").memory == "fuse.bindfs on tmpfs at /memory"
    # The path became another directory: what is shown lies elsewhere.
    (tree.root / "shown").unlink()
    tree.mount("/shown", "fuse.bindfs", "0:52", source="/memory")
    os.utime(tree.root / "shown", (1, 1))
    assert tree.resolve("/shown") == Below(ways=("8:0",))
    for source in ("/data", "/missing", "memory", "host:/memory", "fuse-overlayfs"):
        tree.mount("/shown", "fuse.bindfs", "0:52", source=source)
        assert tree.resolve("/shown").memory == ""
    # What is shown below may be another mount.
    tree.mount("/data/inner", "tmpfs", "0:53")
    (tree.root / "shown").rmdir()
    tree.shown("/shown", "/data")
    mount = tree.mounts[str(tree.root / "shown")]
    inner = layers.resolve(
        str(tree.root / "shown" / "inner"), mount, root=str(tree.root)
    )
    assert inner.memory == "fuse.bindfs on tmpfs at /data/inner"
    # An image may be shown too; a device of characters is none.
    tree.place("/memory/image").touch()
    tree.mount("/dev", "devtmpfs", "0:5")
    tree.place("/dev/fuse").symlink_to("/dev/null")
    for source, memory in (
        ("/memory/image", "fuse.ext4 on tmpfs at /memory"),
        ("/dev/fuse", ""),
    ):
        tree.mount("/shown", "fuse.ext4", "0:52", source=source)
        assert tree.resolve("/shown").memory == memory


def test_a_program_keeps_no_promise_of_fsync_that_what_it_shows_does_not_keep(tree):
    tree.shown("/shown", "/data")
    assert tree.resolve("/shown").fsync == ""
    tree.mount("/data", "ext4", "8:0", options="rw,nobarrier")
    assert tree.resolve("/shown").fsync.startswith(
        "fuse.bindfs on ext4 with nobarrier: fsync does"
    )


def test_bytes_leave_a_node_by_devices_that_lie_over_no_other_and_are_storage(tree):
    tree.device("dm-0", "252:0", "sda")
    tree.disk("nvme0n1", "259:0")
    tree.device("md0", "9:0", "nvme0n1")
    tree.loop("loop0", "7:0", "/data/image")
    tree.device("zram0", "253:0")
    tree.device("sdz", "65:0", folder="pci0/ata9/block", device__model="scsi_debug")
    for point, kind in (("/fuse", "fuse.any"), ("/gpfs", "gpfs")):
        tree.mount(point, kind)
        assert set(tree.resolve(point).ways) == {"8:0", "259:0", "7:0"}
    # The devices under this mount are known.
    assert tree.resolve("/data").ways == ()


def test_bytes_of_a_program_leave_by_the_devices_under_what_it_shows(tree):
    """Seen: other programs read from a disk while bindfs answered from the page cache."""
    tree.loop("loop0", "7:0", "/data/image")
    tree.mount("/scratch", "ext4", "7:0")
    tree.shown("/shown", "/scratch")
    assert tree.resolve("/shown").ways == ("7:0",)


@pytest.mark.parametrize(
    "counts, devices", [("0", ("nvme0c0n1", "nvme0c3n1")), ("1", ("259:1",))]
)
def test_the_paths_of_an_nvme_disk_count_if_the_disk_does_not(tree, counts, devices):
    """Linux before 6.2 and after it. Others are paths of another disk, or of another namespace."""
    subsystem = "virtual/nvme-subsystem/nvme-subsys0"
    tree.device("nvme0n1", "259:1", folder=subsystem, queue__iostats=counts)
    tree.device("nvme0n1p2", "259:2", folder=f"{subsystem}/nvme0n1", partition="2")
    tree.device("dm-0", "252:0", "nvme0n1p2", queue__iostats="0", dm__uuid="LVM-x")
    for name in ("nvme0c0n1", "nvme0c3n1", "nvme0c0n2", "nvme1c0n1"):
        place = tree.place(f"sys/devices/pci0/nvme/{name}")
        (place / "queue").mkdir(parents=True)
        (place / "queue/iostats").write_text("1\n")
        tree.place(f"sys/block/{name}").symlink_to(place)
    tree.mount("/whole", "xfs", "259:1")
    tree.mount("/part", "xfs", "259:2")
    tree.mount("/lvm", "xfs", "252:0")
    tree.mount("/fuse", "fuse.any")
    whole, part, lvm = (tree.resolve(point) for point in ("/whole", "/part", "/lvm"))
    assert (whole.devices, whole.disks) == (devices, devices)
    assert (part.devices, part.disks) == (
        devices if counts == "0" else ("259:2",),
        devices,
    )
    assert (lvm.devices, lvm.disks) == (("252:0",), devices)
    assert set(tree.resolve("/fuse").ways) == {"8:0", *devices}


#: Clients, and the numbers that their mounts bear. Lustre's is recorded (2.17.0; the same source since 2.10); a hash may
#: also be the number of a disk. Others take one of the kernel's anonymous numbers, or a node of /dev of their own (GPFS).
CLIENTS = {
    "lustre": "2200:574172",
    "gpfs": "239:150",
    **dict.fromkeys(
        ("nfs4", "ceph", "beegfs", "wekafs", "zfs", "bcachefs", "unheard-of"), "8:0"
    ),
    **dict.fromkeys(("fuse.sshfs", "fuse.dfuse", "fuse.cvmfs2"), "0:50"),
}


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_client_of_servers_has_no_block_device_below_whatever_its_number(tree, kind):
    tree.mount("/m", kind, CLIENTS[kind])
    assert tree.resolve("/m") == Below(
        ways=("8:0",), compresses="zfs" if kind == "zfs" else ""
    )


@pytest.mark.parametrize(
    "name, files, memory",
    [
        ("zram0", {}, "zram0, compressed memory"),
        ("nullb0", {}, "nullb0, which keeps nothing"),
        ("dm-4", {"dm__uuid": "zero"}, "dm-4, which maps to no device"),
        ("sdq", {"device__model": "scsi_debug"}, "sdq, a disk in memory (scsi_debug)"),
    ],
)
def test_a_disk_in_memory_is_memory_and_no_disk(tree, name, files, memory):
    tree.device(name, "240:0", **files)
    tree.device("md1", "9:1", f"sda {name}")
    for number, reason in (("240:0", memory), ("9:1", f"md1 on {memory}")):
        tree.mount("/m", "ext4", number)
        found = tree.resolve("/m")
        assert (found.memory, "240:0" in found.disks) == (reason, False)


@pytest.mark.parametrize(
    "name, folder",
    [
        ("pmem0", "LNXSYSTM:00/ndbus0/block"),
        ("nvme0n1", "virtual/nvme-subsystem/nvme-subsys0"),
        ("rbd0", "rbd/0/block"),
        ("vda", "pci0/virtio1/block"),
    ],
)
def test_a_disk_is_storage(tree, name, folder):
    tree.device(name, "240:0", folder=folder)
    tree.mount("/m", "ext4", "240:0")
    names = {"240:0": name}
    assert tree.resolve("/m") == Below(
        devices=("240:0",), disks=("240:0",), names=names
    )


@pytest.mark.parametrize("name", ["zd16", "nbd0", "ublkb0", "new0"])
def test_a_device_that_something_else_serves_proves_nothing(tree, name):
    tree.device(name, "240:0")
    tree.mount("/m", "ext4", "240:0")
    found = tree.resolve("/m")
    assert found.cached.startswith(f"{name}, ")
    assert (found.fsync, found.memory, found.disks) == (found.cached, "", ())


@pytest.mark.parametrize(
    "kind, memory, cached, fsync",
    [
        ("tmpfs", "loop0 on tmpfs at /back", True, False),
        ("fuse.sshfs", "", True, True),
        ("zfs", "", True, False),
        ("nfs4", "", False, False),
        ("lustre", "", False, False),
    ],
)
def test_a_loop_device_is_as_good_as_the_file_system_of_its_file(
    tree, kind, memory, cached, fsync
):
    tree.mount("/back", kind)
    tree.place("/back/image").touch()
    tree.loop("loop0", "7:0", "/back/image")
    tree.mount("/m", "xfs", "7:0")
    found = tree.resolve("/m")
    assert found.memory == memory
    assert (bool(found.cached), bool(found.fsync)) == (cached, fsync)
    assert f"loop0 on {kind} at /back" in found.memory + found.cached or not cached


def upper(tree, point, directory):
    """An overlay, which shows its upper directory as it is."""
    tree.place(directory).mkdir(parents=True, exist_ok=True)
    tree.place(point).symlink_to(tree.place(directory))
    tree.mount(
        point,
        "overlay",
        options=f"rw,lowerdir=/l,upperdir={directory},workdir=/w",
    )


@pytest.mark.parametrize(
    "kind, option, cache, proves",
    [
        ("ext4", "nobarrier", "write back", False),
        ("ext3", "barrier=0", "write back", False),
        ("f2fs", "fsync_mode=nobarrier", "write back", False),
        ("ext4", "barrier", "write back", True),
        # There is no cache that would have to be emptied.
        ("ext4", "nobarrier", "write through", True),
    ],
)
def test_fsync_without_barriers_proves_nothing(tree, kind, option, cache, proves):
    tree.device("sdz", "8:96", folder="pci0/ata1/block", queue__write_cache=cache)
    tree.mount("/m", kind, "8:96", f"rw,{option}")
    found = tree.resolve("/m").fsync
    assert (found == "") is proves
    if not proves:
        assert option in found and "write cache of sdz" in found
    # The file of a loop device lies on it.
    tree.place("/m/file").touch()
    tree.loop("loop5", "7:5", "/m/file")
    tree.mount("/over", "ext4", "7:5")
    assert (tree.resolve("/over").fsync == "") is proves


@pytest.mark.parametrize(
    "upper, disk, proves",
    [
        ("write through", "write back", False),
        ("write back", "write back", True),
        ("write through", "write through", True),
        # The kernel does not tell.
        ("write through", "", True),
        ("", "write back", True),
    ],
)
def test_a_device_that_hands_no_flush_on_proves_no_fsync(tree, upper, disk, proves):
    tree.device("sdz", "8:96", folder="pci0/ata1/block", queue__write_cache=disk)
    tree.mount("/m", "ext4", "8:96")
    tree.place("/m/file").touch()
    told = {
        "loop__backing_file": "/m/file",
        "loop__dio": "1",
        "queue__write_cache": upper,
    }
    tree.device("loop5", "7:5", **told)
    tree.mount("/over", "ext4", "7:5")
    found = tree.resolve("/over").fsync
    assert (found == "") is proves
    if not proves:
        assert "loop5 hands no flush on" in found and "sdz has a write cache" in found


@pytest.mark.parametrize("hidden", ["missing", "another", "relative", "itself"])
def test_an_overlay_whose_upper_directory_is_hidden_proves_nothing(tree, hidden):
    directory = {"relative": "data/upper", "itself": "/m/upper"}.get(
        hidden, "/data/upper"
    )
    upper(tree, "/m", "/data/upper")
    point = str(tree.place("/m"))
    options = f"rw,lowerdir=/l,upperdir={directory},workdir=/w"
    tree.mounts[point] = Mount(9, "/m", "overlay", "overlay", options)
    if hidden == "missing":
        tree.mounts[point] = Mount(
            9, "/m", "o", "overlay", options.replace("upper,", "gone,")
        )
    elif hidden == "another":
        tree.place("/m").unlink()
        tree.place("/m").mkdir()
    elif hidden == "itself":
        tree.place("/data/upper/upper").symlink_to(".")
    found = tree.resolve("/m")
    assert found.cached, found
    assert found.fsync == found.cached


def test_a_btrfs_whose_devices_are_hidden_proves_nothing(tree):
    tree.mount("/m", "btrfs", "0:44")
    assert "btrfs" in tree.resolve("/m").cached


@pytest.mark.parametrize(
    "flags, whole, copies",
    [
        ([1], True, (1, 1)),
        ([1 | 1 << 4], True, (2, 2)),
        ([1 | 1 << 10], True, (4, 4)),
        # Parity of a block, or of a whole stripe.
        ([1 | 1 << 7], True, (1, 2)),
        ([1, 1 | 1 << 9], True, (1, 3)),
        ([1 | 1 << 4], False, (1, 2)),
    ],
)
def test_copies_of_btrfs(flags, whole, copies):
    assert btrfs.copies(flags, whole) == copies


@pytest.mark.parametrize(
    "kind, attributes, reason",
    [
        ("ext4", 0x800, "ext4 encrypts what lies here (fscrypt)"),
        ("f2fs", 0x4, "f2fs compresses what lies here (chattr +c)"),
    ],
)
def test_o_direct_that_is_accepted_and_not_honoured(
    tree, monkeypatch, kind, attributes, reason
):
    monkeypatch.setattr(layers, "_attributes", lambda _: attributes)
    tree.mount("/m", kind, "8:0")
    assert tree.resolve("/m").o_direct == reason


@pytest.mark.parametrize(
    "mounted, kind, believed",
    [
        ("/ /sys", "sysfs", True),
        ("/ /sys/fs/cgroup", "tmpfs", True),
        ("/sys /proc/sys", "proc", True),
        ("/ /sys/dev/block", "tmpfs", False),
        # The kernel's own directory of another disk.
        (
            "/devices/pci0/ata1/block/sdb /sys/devices/pci0/ata1/block/sda",
            "sysfs",
            False,
        ),
        ("/f /sys/devices/pci0/ata1/block/sda/queue/write_cache", "ext4", False),
        ("/ /sys", "tmpfs", False),
    ],
)
def test_a_device_counts_as_what_the_kernel_itself_shows_of_it(
    tree, mounted, kind, believed
):
    line = f"30 23 0:21 {mounted} rw - {kind} none rw\n"
    tree.place("/proc/self/mountinfo").write_text(line)
    found = tree.resolve("/data")
    assert (not found.cached, found.disks) == (believed, ("8:0",) * believed)
    if not believed:
        assert f"{kind} is mounted at {mounted.split()[1]}" in found.cached
        assert found.fsync == found.cached


@pytest.mark.parametrize(
    "kind, options, attributes, reason",
    [
        ("zfs", "rw", 0, "zfs"),
        ("btrfs", "rw,compress=zstd:3,ssd", 0, "btrfs compress=zstd:3"),
        ("btrfs", "rw,compress=no", 0, ""),
        (
            "btrfs",
            "rw",
            4,
            "btrfs, which compresses what lies here (chattr +c or btrfs property)",
        ),
        ("f2fs", "rw,compress_extension=*", 0, "f2fs compress_extension=*"),
        ("f2fs", "rw,compress_extension=txt", 0, ""),
        ("ext4", "rw", 4, ""),
    ],
)
def test_what_makes_data_smaller_is_named(
    tree, monkeypatch, kind, options, attributes, reason
):
    monkeypatch.setattr(layers, "_attributes", lambda _: attributes)
    tree.mount("/m", kind, "0:44", options)
    assert tree.resolve("/m").compresses == reason


@pytest.mark.parametrize(
    "upper_uuid, lower_uuid, reason",
    [
        ("VDO-1f", "", "dm-vdo"),
        ("LVM-abc", "LVM-x-vpool", "dm-vdo"),
        ("LVM-abc", "LVM-d", ""),
    ],
)
def test_a_device_that_makes_data_smaller_is_named(
    tree, upper_uuid, lower_uuid, reason
):
    tree.device("dm-0", "252:0", "sda", dm__uuid=lower_uuid)
    tree.device("dm-1", "252:1", "dm-0", dm__uuid=upper_uuid)
    tree.mount("/m", "xfs", "252:1")
    assert tree.resolve("/m").compresses == reason
