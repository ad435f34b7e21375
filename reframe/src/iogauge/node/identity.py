"""The name of a file system: its own, whatever device or server it comes from.

It is a UUID, or a word and a number. A look needs neither root nor udev, and is "" if the file
system has no name or none can be seen. docs/keys.md lists the names of each type.
"""

import contextlib
import os
import re
import time

from iogauge.node.kernel import asked, text
from iogauge.node.kinds import kind_of
from iogauge.node.mounts import READ, Mount, find_mount, upper_directory


def _request(kind: int, number: int, size: int) -> int:
    """Return the number of a request that reads ``size`` bytes (``_IOR``, asm-generic/ioctl.h)."""
    return READ | size << 16 | kind << 8 | number


#: Requests by type: number, question, place of the UUID in the answer. From linux/fs.h
#: (FS_IOC_GETFSUUID, Linux 6.9, any type; the first byte is the length), fs/ext4/ext4.h
#: (EXT4_IOC_GETFSUUID, Linux 6.0; the caller gives the length), linux/btrfs.h (BTRFS_IOC_FS_INFO),
#: xfs_fs.h (XFS_IOC_FSGEOMETRY_V1, the form that every kernel answers).
_ANY = (_request(0x15, 0, 17), bytes(17), 1)

_OF_TYPE = {
    "ext4": (_request(ord("f"), 44, 8), b"\x10" + bytes(23), 8),
    "btrfs": (_request(0x94, 31, 1024), bytes(1024), 16),
    "xfs": (_request(ord("X"), 100, 112), bytes(112), 64),
}

#: Types whose statfs(2) number is made of an identity: ext4's UUID, the cluster of Ceph, the
#: dataset of ZFS. XFS and F2FS make it of the device number, which names no file system.
_NUMBERED = ("ext2", "ext3", "ext4", "ceph", "zfs")
_NUMBER = "fsid-"
_BY_UUID = "/dev/disk/by-uuid"
_NFS_VOLUMES = "/proc/fs/nfsfs/volumes"
#: Version, server and port in hexadecimal, device, number of the volume.
_NFS_VOLUME = r"v\d +(?P<server>[0-9a-f]+) +\S+ +(?P<device>[0-9:]+) +(?P<number>[0-9a-f]+:[0-9a-f]+)\b.*"


def text_of(raw: bytes) -> str:
    """Return the text of a UUID; other lengths are hexadecimal, and zeros are "" (no UUID)."""
    digits = raw.hex()
    if len(raw) == 16:
        parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
        digits = "-".join(parts)
    return digits if any(raw) else ""


def folded(name: str) -> str:
    """Return a UUID as ext4's statfs(2) shows it: both halves, little-endian, exclusive or.

    That is ``uuid_to_fsid`` of linux/statfs.h. Other names stay as they are.
    """
    if not re.fullmatch("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", name):
        return name
    raw = bytes.fromhex(name.replace("-", ""))
    first, second = raw[:8], raw[8:]
    number = int.from_bytes(first, "little") ^ int.from_bytes(second, "little")
    return f"{_NUMBER}{number:016x}"


def lustre_name(source: str) -> str:
    """Return the name of a Lustre file system from a mount's source: fsname and MGS NIDs, sorted.

    A source is ``nid[,nid...][:nid...]:/fsname[/directory]`` (mount.lustre(8)); commas join the
    NIDs of a server, colons join servers. Returns "" for another text.
    """
    nids, slash, path = source.partition(":/")
    found = re.findall(r"[:,]?([^@,\s]+@[a-z0-9]+)(?=[:,]|$)", nids)
    fsname = path.partition("/")[0]
    if not slash or not found or not fsname:
        return ""
    return f"{fsname}@{','.join(sorted(set(found)))}"


def nfs_name(volumes: str, device: int) -> str:
    """Return the server's identifier of a mounted NFS volume, from ``/proc/fs/nfsfs/volumes``.

    It is the same on every client, by whatever name or address it knows the server. A small number is one that somebody
    chose (exports(5), ``fsid``): another server may have it too, so the server's address follows. Returns "" if
    the volume is not listed, or the server gives none.
    """
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in volumes.splitlines():
        match = re.fullmatch(_NFS_VOLUME, line.strip())
        if match is None or match["device"] != wanted:
            continue
        number = match["number"]
        if number.strip("0") == ":":
            return ""
        if re.fullmatch("[0-9a-f]{1,8}:0", number):
            return f"nfs-{number}@{match['server']}"
        return f"nfs-{number}"
    return ""


def _networks(nids: str) -> dict[str, set[str]]:
    """Return the addresses of NIDs by LNet network."""
    networks: dict[str, set[str]] = {}
    for nid in nids.split(","):
        address, _, network = nid.rpartition("@")
        if network == "tcp0":
            network = "tcp"
        networks.setdefault(network, set()).add(address)
    return networks


def differ(one: str, other: str) -> bool:
    """Return whether two names are of different file systems; an unknown one ("") never differs.

    A node may know only some NIDs of an MGS, or those of another network. So Lustre file systems of
    one name differ if they have a network in common, and no address on it.
    """
    if not one or not other or one == other:
        return False
    (fsname, at, nids), (fsname2, at2, nids2) = one.partition("@"), other.partition("@")
    if fsname == fsname2 and fsname.startswith("nfs-"):
        # Earlier versions did not name the server.
        return bool(nids and nids2)
    if at and at2 and fsname == fsname2:
        networks, networks2 = _networks(nids), _networks(nids2)
        common = networks.keys() & networks2.keys()
        return bool(common) and not any(networks[n] & networks2[n] for n in common)
    if one.startswith(_NUMBER) or other.startswith(_NUMBER):
        return folded(one) != folded(other)
    return True


def _asked(path: str, kind: str) -> str:
    """Return the UUID that the kernel gives for a file or directory; "" if it gives none."""
    for request, question, place in (_ANY, _OF_TYPE.get(kind, _ANY)):
        answer = asked(path, request, question)
        length = 16
        if answer and place == 1:
            length = answer[0]
        name = text_of(answer[place : place + length])
        if name:
            return name
    return ""


def _linked(device: int) -> str:
    """Return the UUID that udev knows for a device; "" if it knows none."""
    with contextlib.suppress(OSError), os.scandir(_BY_UUID) as links:
        for link in links:
            with contextlib.suppress(OSError):
                if link.stat().st_rdev == device:
                    return link.name
    return ""


def shows(mount: Mount, directory: str, root: str = "/") -> bool:
    """Return whether a mount shows a directory as its own: an overlay its upper one, a program of FUSE its source.

    Paths are below ``root``.
    """
    if not os.path.isabs(directory):
        return False
    places = [mount.point, f"{directory}/{mount.root}"]
    # Somebody may write meanwhile, and FUSE tells a time for a second.
    pauses_s = [0.0] * 3
    if mount.type.startswith("fuse"):
        pauses_s += [0.6, 0.6]
    for pause_s in pauses_s:
        time.sleep(pause_s)
        try:
            looks = [os.stat(os.path.join(root, place.lstrip("/"))) for place in places]
        except OSError:
            return False
        if len({(look.st_mtime_ns, look.st_ctime_ns) for look in looks}) == 1:
            return True
    return False


def upper_of(mount: Mount) -> str:
    """Return the upper directory of an overlay if it can be seen here; empty without one."""
    upper = upper_directory(mount)
    if not shows(mount, upper):
        return ""
    return upper


def _of_overlay(path: str, mount: Mount) -> str:
    """Return an overlay's own UUID (Linux 6.6), else ``upper-`` and that of its upper directory."""
    own, upper = _asked(path, mount.type), upper_of(mount)
    if own or not upper:
        return own
    name = uuid_of(upper, find_mount(upper))
    if not name:
        return ""
    return f"upper-{name}"


def uuid_of(path: str, mount: Mount) -> str:
    """Return the name of the file system at an existing path, from its mount; "" if it has none.

    Raises OSError if the path cannot be looked at.
    """
    if kind_of(mount.type).cache == "memory":
        return ""
    match mount.type:
        case "lustre":
            return lustre_name(mount.source)
        case "nfs" | "nfs4":
            return nfs_name(text(_NFS_VOLUMES), os.stat(path).st_dev)
        case "fuse.glusterfs":
            volume = mount.source.rpartition(":")[2].strip("/").partition("/")[0]
            return volume and f"glusterfs-{volume}"
        case "gpfs":
            return f"gpfs-{os.path.basename(mount.source)}"
        case "overlay":
            return _of_overlay(path, mount)
    name = _asked(path, mount.type)
    if not name and kind_of(mount.type).on_device:
        name = _linked(os.stat(path).st_dev)
    if not name and mount.type in _NUMBERED:
        number = os.statvfs(path).f_fsid
        if number:
            name = f"{_NUMBER}{number:016x}"
    return name
