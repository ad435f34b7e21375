"""One reader for every counter of a node: what a kernel writes of it, and what is missing."""

import pytest

from iogauge.node import counters
from iogauge.node.counters import Reading


def test_clients_of_networks_count_for_themselves_of_networks(tmp_path):
    """Lines as a kernel's client of NFS and Lustre 2.17 write them; several clients are added up."""
    mountstats = tmp_path / "mountstats"
    mountstats.write_text(
        "device /dev/vda mounted on / with fstype ext4\n"
        "device server:/x mounted on /a\\040b with fstype nfs4 statvers=1.1\n"
        "\tage:\t5\n\tbytes:\t1 2 3 4 50 60 7 8\n"
        "device server:/y mounted on /c with fstype nfs4 statvers=1.1\n\tbytes:\t1 2 3 4 5 6 7 8\n"
    )
    assert counters.of_nfs("/a b", str(mountstats)) == Reading(50, 60, None)
    with pytest.raises(ValueError, match="no mount of NFS at /z"):
        counters.of_nfs("/z", str(mountstats))
    for client in ("ffff1", "ffff2"):
        device = tmp_path / f"sys/kernel/debug/lustre/llite/lustre-{client}"
        device.mkdir(parents=True)
        (device / "stats").write_text(
            "snapshot_time 1.2 secs.nsecs\nread_bytes  2 samples [bytes] 4096 8192 12288 83886080\n"
            "write_bytes 1 samples [bytes] 4096 4096 4096 16777216\nopen 3 samples [usecs] 1 2 3\n"
        )
    assert counters.of_lustre("lustre", tmp_path) == Reading(24576, 8192, 6)
    with pytest.raises(ValueError, match="root alone"):
        counters.of_lustre("other", tmp_path)


OSC = "sys/fs/lustre/osc"
STATS = "sys/kernel/debug/lustre/osc"
#: As debugfs of Lustre 2.17 gives it to root.
TOLD = """\
snapshot_time             1795000000.1 secs.nsecs
req_waittime              7 samples [usecs] 1 9 30 200
read_bytes                3 samples [bytes] 4096 1048576 2101248 2199040000000
write_bytes               2 samples [bytes] 1048576 1048576 2097152 2199023255552
"""


def made(root, name, text):
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_a_target_has_a_device_for_each_mount_and_one_that_is_silent_spoils_it(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("PATH", str(tmp_path))
    for client in ("ffff1", "ffff2"):
        for number in (0, 1):
            name = f"rig-OST000{number}-osc-{client}"
            (tmp_path / OSC / name).mkdir(parents=True)
            if (number, client) != (1, "ffff2"):
                made(tmp_path, f"{STATS}/{name}/stats", TOLD)
    # A metadata server has devices of its own for the storage targets.
    (tmp_path / OSC / "rig-OST0000-osc-MDT0000").mkdir()
    assert counters.read_all(tmp_path) == {
        "rig-OST0000": Reading(2 * 2101248, 2 * 2097152, 10),
        "rig-OST0001": None,
    }
    assert counters.read_all(tmp_path, lustre=False) == {}


@pytest.mark.parametrize("line", ["read_bytes", "read_bytes 3 samples [pages] 1 2 3 4"])
def test_a_damaged_line_of_a_device_tells_nothing(tmp_path, monkeypatch, line):
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / OSC / "rig-OST0000-osc-ffff1").mkdir(parents=True)
    made(tmp_path, f"{STATS}/rig-OST0000-osc-ffff1/stats", f"{TOLD}{line} \n")
    assert counters.read_all(tmp_path) == {"rig-OST0000": None}


def test_what_the_kernel_does_not_show_is_missing(tmp_path):
    """As in a container: no disk and no network is not one that moved nothing."""
    assert counters.read_all(tmp_path) == {}
    made(tmp_path, "proc/diskstats", "")
    made(
        tmp_path,
        "proc/net/dev",
        "Inter-|   Receive\n face |bytes\n    lo: 7 1 0 0 0 0 0 0 9 1 0 0\n",
    )
    assert counters.read_all(tmp_path) == {"net": Reading(7, 9, None)}
    made(tmp_path, "proc/diskstats", "   8       0 sda 5 0 40 1 2 0 16 0 0 1 1\n")
    assert counters.read_all(tmp_path)["8:0"] == Reading(40 * 512, 16 * 512, 7)


def test_what_the_kernel_says_it_does_not_count_is_silent(tmp_path):
    """Device-mapper before Linux 6.5 counts, though the kernel says that it does not."""
    names = {"sda": "8:0", "sdb": "8:16", "dm-0": "252:0", "dm-1": "252:1"}
    lines = []
    for name, number in names.items():
        moved = 0 if name == "dm-1" else 7
        lines.append(f"{number.replace(':', ' ')} {name} {moved} 0 {moved} 0 0 0 0 0\n")
        counted = "1" if name == "sda" else "0"
        made(tmp_path, f"sys/devices/{name}/queue/iostats", f"{counted}\n")
        place = tmp_path / "sys/dev/block" / number
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(tmp_path / "sys/devices" / name)
    made(tmp_path, "proc/diskstats", "".join(lines))
    assert counters.silent(tmp_path) == ("8:16", "252:1")


def test_ports_of_infiniband_count_for_their_interfaces(tmp_path):
    """They count words of four bytes. One that counts no further is left out. IP over InfiniBand passes the ports, too."""
    for name, count in {"mlx5_0": 1000, "mlx4_0": 2**32 - 1}.items():
        for way in ("port_rcv_data", "port_xmit_data"):
            port = f"sys/class/infiniband/{name}/ports/1/counters/{way}"
            made(tmp_path, port, f"{count}\n")
    made(tmp_path, "sys/class/net/ib0/type", "32\n")
    made(tmp_path, "proc/net/dev", "head\nhead\n   ib0: 7 1 0 0 0 0 0 0 9 1 0 0\n")
    assert counters.read_all(tmp_path) == {"net": Reading(4000, 4000, None)}
