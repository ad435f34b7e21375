"""Parameters of Lustre that the stand-in for ``lctl`` shows, among them the counters of its devices.

``osc.*.stats``, ``mdc.*.stats`` and ``llite.*.stats`` count what tests say (the program ``moved``), and what
went through a file system that slowfs.c mounted: it writes its reads and writes down in ``LFS_IO``, and they
are spread over the targets by the layouts of their files. What a page cache served is no read there either.

What an ordinary user meets on 2.17.0 is kept, faults included (tests/data/lustre/bench.txt):

* a name of which nothing is visible gives nothing, and exit status 2; so do statistics, with output;
* of statistics the last character of each line is missing, and the elapsed time is wrong;
* a pattern that fits several devices gives each counter the name that the device before has in its place:
  lnet/utils/lnetconfig/liblnetconfig_netlink.c prints a key before it learns the new one;
* a pattern with a bracket ends the program (SIGSEGV).

Before 2.17 (``LFS_VERSION``) statistics are in debugfs, for root. What else differs there is not covered.
"""

from __future__ import annotations

import fnmatch
import getopt
import json
import os
import resource
import signal
import sys
import time

import standin
from standin import CLIENT, Refused, not_covered

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

#: Settings of each kind of device, for everybody. Those of osc in EVERY are of the metadata servers' too.
SETTINGS = {
    "llite": {
        "checksums": "1",
        "max_read_ahead_mb": "256",
        "max_read_ahead_per_file_mb": "64",
        "fast_read": "1",
        "hybrid_io": "1",
        "hybrid_io_read_threshold_bytes": "8388608",
        "hybrid_io_write_threshold_bytes": "2097152",
        "unaligned_dio": "1",
    },
    "osc": {
        "checksums": "1",
        "checksum_type": "adler t10ip512 [t10ip4K] t10crc512 t10crc4K ",
        "max_dirty_mb": "743",
    },
    "mdc": {"max_rpcs_in_flight": "8", "max_mod_rpcs_in_flight": "7"},
}
EVERY = {"max_rpcs_in_flight": "8"}

#: Of these the stand-in gives no value to root; a user sees nothing of them.
ROOT_ONLY = ("rpc_stats", "extents_stats", "read_ahead_stats", "offset_stats", "timeouts")
#: First words of real parameters: what the stand-in lacks there may exist.
REAL = "osc mdc llite lov lmv ldlm obdfilter mdt mdd osd-ldiskfs osd-zfs ost mds mgc mgs nodemap sptlrpc osp lod fld seq"

CACHED = """
users: 8
max_cached_mb: 2968
used_mb: 206
unused_mb: 2762
unevict_mb: 0
reclaim_count: 0
max_read_ahead_mb: 256
used_read_ahead_mb: 0"""

STATE = """
current_state: {state}
state_history:
 - [ 1795223141, CONNECTING ]
 - [ 1795223141, {state} ]"""

IMPORT = """
import:
    name: {name}
    target: {target}
    state: {state}
    connect_data:
       flags: 0xa0425af2e3440038
       instance: 1
       target_version: {version}
    import_flags: [ replayable, pingable, connect_tried ]
    connection:
       failover_nids: [ "{nid}" ]
       nids_stats:
          "{nid}": {{ connects: 1, replied: 1, uptodate: uptodate, sec_ago: 315 }}
       current_connection: "{nid}"
       connection_attempts: 1
       generation: 1
       in-progress_invalidations: 0
       idle: 3 sec
    rpcs:
       inflight: 0
       unregistering: 0
       timeouts: 0
       avg_waittime: 77860 usecs"""

#: What a file gets for which no directory has a layout.
OF_LOV = {"stripecount": "1", "stripesize": str(standin.DEFAULT_SIZE)}

#: Counters in the order in which a device shows them.
COUNTERS = {
    "llite": (
        "read_bytes write_bytes hybrid_read_bytes hybrid_write_bytes read write ioctl open close mmap page_fault "
        "seek fsync readdir setattr truncate flock getattr unlink mkdir rmdir mknod rename statfs setxattr getxattr "
        "getxattr_hits listxattr inode_permission opencount openclosetime hybrid_noswitch"
    ),
    "osc": (
        "req_waittime req_active ldlm_glimpse_enqueue ldlm_extent_enqueue read_bytes write_bytes ost_getattr "
        "ost_setattr ost_read ost_write ost_connect ost_disconnect ost_punch ost_statfs ost_sync ost_quotactl "
        "ost_fallocate ldlm_cancel obd_ping"
    ),
    "mdc": (
        "req_waittime req_active ldlm_flock_enqueue ldlm_ibits_enqueue read_bytes write_bytes ost_set_info "
        "mds_getattr mds_getattr_lock mds_close mds_readpage mds_connect mds_get_root mds_statfs mds_sync "
        "mds_quotactl mds_getxattr mds_batch ldlm_cancel obd_ping seq_query fld_query"
    ),
}
#: Counters without a sum, and those that count requests.
BARE = ("ioctl", "getxattr_hits", "hybrid_noswitch")
REQUESTS = ("req_active", "ldlm_glimpse_enqueue", "ldlm_extent_enqueue", "ldlm_flock_enqueue")
REQUESTS += ("ldlm_ibits_enqueue", "ost_set_info", "opencount")

STARTED = 1795223141.39
UPTIME = 312.6


# --- what is counted ------------------------------------------------------------------------------


def count(state: dict[str, Any], device: str, counter: str, value: int, times: int = 1) -> None:
    """Let a counter of a device grow: ``llite``, ``osc 2`` or ``mdc 0``."""
    if counter not in COUNTERS[device.split()[0]].split():
        raise Refused(2, f"stand-in: {device} has no counter {counter}")
    grown = (
        state["stats"].setdefault(device, fresh(device)).setdefault(counter, [0, value, 0, 0, 0])
    )
    grown[:] = [
        grown[0] + times,
        min(grown[1], value),
        max(grown[2], value),
        grown[3] + value * times,
        grown[4] + value * value * times,
    ]


def fresh(device: str) -> dict[str, list[int]]:
    """Counters of a device after mounting; those of one device are others than those of the next."""
    kind, *number = device.split()
    once = {
        "llite": ["getattr", "statfs", "inode_permission"],
        "osc": ["ost_connect", "ost_statfs"],
    }
    names = [*once.get(kind, ["mds_connect", "mds_get_root", "mds_statfs"])]
    if kind != "llite":
        names += ["req_waittime", "req_active", "obd_ping"]
        if int(number[0]) % 2:
            names += {"osc": ["ldlm_glimpse_enqueue", "ost_setattr"]}.get(kind, ["mds_sync"])
    return {
        name: [2, 1, 1, 2, 2] if name in REQUESTS else [2, 900, 1300, 2200, 2500000]
        for name in names
    }


def transfer(state: dict[str, Any], device: str, operation: str, size: int, times: int = 1) -> None:
    """Count reads or writes of a size each: bytes, and what comes with them."""
    kind = device.split()[0]
    count(state, device, f"{operation}_bytes", size, times)
    if kind == "llite":
        count(state, device, operation, 1663, times)
    else:
        count(state, device, "req_waittime", 9391, times)
        count(state, device, "req_active", 1, times)
        if kind == "osc":
            count(state, device, f"ost_{operation}", 9378, times)


def pieces(layout: dict[str, Any], offset: int, size: int) -> Iterator[tuple[str, int]]:
    """Devices of a file's bytes, and how many each has."""
    end = offset + size
    while offset < end:
        begin = 0
        for part in layout["parts"]:
            if part["end"] is None or offset < part["end"]:
                break
            begin = part["end"]
        unit, objects = standin.stripe_size(part), part["objects"]
        length = min(end, part["end"] or end) - offset
        if not objects:
            yield "mdc 0", length
        else:
            length = min(length, unit - (offset - begin) % unit)
            yield f"osc {objects[(offset - begin) // unit % len(objects)][0]}", length
        offset += length


def took_place(state: dict[str, Any]) -> None:
    """Count what slowfs.c wrote down since the last look."""
    log = os.environ.get("LFS_IO")
    if not log or not os.path.exists(log):
        return
    with open(log, "rb") as file:
        file.seek(state["io"])
        data = file.read()
    whole = data[: data.rfind(b"\n") + 1]
    state["io"] += len(whole)
    for line in whole.decode().splitlines():
        operation, key, offset, size, path = line.split(" ", 4)
        place = f"{standin.mount()}{path}"
        layout = standin.layout_at(state, key, place, int(offset) + int(size))
        for device, length in pieces(layout, int(offset), int(size)):
            transfer(state, device, operation, length)


# --- how it is shown ------------------------------------------------------------------------------


def stats_lines(device: str, counters: dict[str, list[int]]) -> list[tuple[str, str]]:
    """Names and values of all counters that are not zero."""
    found = []
    for name in COUNTERS[device.split()[0]].split():
        if name in counters:
            unit = (
                "bytes"
                if name.endswith("_bytes")
                else "reqs"
                if name in (*BARE, *REQUESTS)
                else "usecs"
            )
            numbers = "" if name in BARE else " " + " ".join(map(str, counters[name][1:]))
            found.append((name, f"{counters[name][0]} samples [{unit}]{numbers}"))
    return found


def show_stats(names: dict[str, str], state: dict[str, Any], bare: bool) -> Iterator[str]:
    """Statistics of the devices that one pattern fits, as a user or as root sees them."""
    user, before = standin.is_user(), dict[int, str]()
    for name, device in names.items():
        if not bare:
            yield f"{name}="
        now = time.time()
        yield f"{'snapshot_time':<25} {now:.9f} secs.nsecs"
        yield f"{'start_time':<25} {STARTED:.9f} secs.nsecs"
        yield f"{'elapsed_time':<25} {now - (UPTIME if user else STARTED):.9f} secs.nsecs"
        counters = state["stats"].get(device) or fresh(device)
        for place, (counter, value) in enumerate(stats_lines(device, counters)):
            shown = before.get(place, counter) if user else counter
            before[place] = counter
            yield f"{shown:<25} {value[:-1] if user else value}"


def devices() -> dict[str, str]:
    """All devices of the client, and what the state calls them."""
    fs, found = standin.fsname(), {}
    for index in range(standin.ost_count()):
        found[f"osc.{fs}-OST{index:04x}-osc-{CLIENT}"] = f"osc {index}"
    for index in range(2):
        found[f"mdc.{fs}-MDT{index:04x}-mdc-{CLIENT}"] = f"mdc {index}"
    return found | {f"llite.{fs}-{CLIENT}": "llite"}


def server(index: int) -> str:
    servers = int(os.environ.get("LFS_SERVERS", "0"))
    if not servers:
        return "0@lo"
    return f"10.0.0.{11 + index % servers}@tcp"


def connection(device: str) -> dict[str, str]:
    """What root sees of a device's connection to its server."""
    kind, name = device.split(".")
    index = int(name.removeprefix(f"{standin.fsname()}-")[3:7], 16)
    if kind == "osc" and index in standin._numbers("LFS_INACTIVE"):
        raise not_covered("the connection of a target that is switched off")
    # Metadata servers are the first of the servers.
    words = {
        "name": name,
        "target": f"{name.rsplit('-', 2)[0]}_UUID",
        "state": "FULL",
        "version": os.environ.get("LFS_SERVER_VERSION", f"{standin.version()}.0"),
        "nid": server(index),
    }
    return {"state": STATE.format(**words), "import": IMPORT.format(**words)}


def parameters(last: str) -> dict[str, str]:
    """Parameters with a last word, but statistics, in the order in which the real one shows them."""
    with standin.remembered() as state:
        changed = state["checksums"]
    if last == "version":
        return {"version": standin.version()}
    if standin.mount() is None:
        return {}
    fs, every, found = standin.fsname(), dict[str, list[str]](), {}
    for device in devices():
        every.setdefault(device.split(".")[0], []).append(device)
    for kind, ours in every.items():
        for device in ours:
            if last in SETTINGS[kind]:
                name = f"{device}.{last}"
                found[name] = changed.get(name, SETTINGS[kind][last])
            if last in ("import", "state") and kind != "llite" and not standin.is_user():
                found[f"{device}.{last}"] = connection(device)[last]
            if last == "max_cached_mb" and kind == "llite" and not standin.is_user():
                found[f"{device}.{last}"] = CACHED
    if last in ("active", "ost_conn_uuid", *EVERY):
        for index in range(standin.ost_count()):
            for client in ("MDT0000", "MDT0001", CLIENT):
                off = not client.startswith("MDT") and index in standin._numbers("LFS_INACTIVE")
                values = {"active": "0" if off else "1", "ost_conn_uuid": server(index), **EVERY}
                found[f"osc.{fs}-OST{index:04x}-osc-{client}.{last}"] = values[last]
    if last in OF_LOV:
        found[f"lov.{fs}-clilov-{CLIENT}.{last}"] = OF_LOV[last]
    if last == "numobd":
        osts = str(standin.ost_count())
        found |= {f"lov.{fs}-MDT{index:04x}-mdtlov.numobd": osts for index in range(2)}
        found[f"lov.{fs}-clilov-{CLIENT}.numobd"] = osts
        found[f"lmv.{fs}-clilmv-{CLIENT}.numobd"] = "2"
    return found


def sysfs() -> str:
    """The directory, in ``LFS_STATE``, of the files that show the servers' addresses, which targets are on, and defaults."""
    folder = os.path.join(os.environ["LFS_STATE"], "sysfs")
    shown = {}
    for last in ("ost_conn_uuid", "active", *OF_LOV):
        shown |= parameters(last)
    for name, value in shown.items():
        file = os.path.join(folder, *name.split("."))
        os.makedirs(os.path.dirname(file), exist_ok=True)
        with open(f"{file}.{os.uname().nodename}.{os.getpid()}", "w", encoding="ascii") as text:
            text.write(f"{value}\n")
        os.replace(text.name, file)
    return folder


def matching(pattern: str, names: Sequence[str]) -> list[str]:
    """Names that fit a pattern, whose ``*`` stays between two dots."""
    ours = pattern.replace("[^", "[!").split(".")
    return [
        name
        for name in names
        for theirs in [name.split(".")]
        if len(ours) == len(theirs)
        and all(fnmatch.fnmatchcase(their, our) for our, their in zip(ours, theirs, strict=True))
    ]


def missing(pattern: str, command: str) -> Refused:
    """What is said of a name that nothing fits; a user is told nothing by lctl get_param."""
    first, last = pattern.split(".")[0], pattern.split(".")[-1]
    known = {
        "stats",
        "state",
        "import",
        "max_cached_mb",
        "active",
        "ost_conn_uuid",
        "numobd",
        *OF_LOV,
        "nosuch",
    }
    known |= {*EVERY, *(name for settings in SETTINGS.values() for name in settings)}
    hidden = last in ROOT_ONLY and standin.is_user()
    if first in REAL.split() and last not in known and not hidden and standin.mount() is not None:
        return not_covered(f"lctl {command} {pattern}")
    if standin.is_user() and command == "get_param":
        return Refused(2)
    return Refused(
        2, f"error: {command}: param_path '{pattern.replace('.', '/')}': No such file or directory"
    )


def get_stats(pattern: str, bare: bool) -> Iterator[str]:
    """Lines of ``*.stats``, for root or a user; raises Refused with the status after them."""
    user = standin.is_user()
    if user and tuple(map(int, standin.version().split(".")[:2])) < (2, 17):
        raise Refused(2)
    if user and "[" in pattern:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.kill(os.getpid(), signal.SIGSEGV)
    known = devices() if standin.mount() is not None else {}
    found = matching(pattern.removesuffix(".stats"), list(known))
    if not found:
        raise missing(pattern, "get_param")
    with standin.remembered() as state:
        took_place(state)
        shown = json.loads(json.dumps(state))
    if not user and pattern.startswith("osc") and not int(os.environ.get("LFS_SERVERS", "0")):
        # Root sees the devices of the metadata servers too, which count nothing here.
        fs = standin.fsname()
        theirs = {
            f"osc.{fs}-OST{index:04x}-osc-MDT{mdt:04x}": "osc 0"
            for index in range(standin.ost_count())
            for mdt in range(2)
        }
        for name in matching(pattern.removesuffix(".stats"), list(theirs)):
            yield from show_stats({f"{name}.stats": "osc 0"}, {"stats": {}}, bare)
    yield from show_stats({f"{name}.stats": known[name] for name in found}, shown, bare)
    if user:
        raise Refused(2)


def get_param(words: list[str]) -> int:
    options, patterns = getopt.gnu_getopt(words, "n")
    status = 0
    for pattern in patterns:
        last = pattern.split(".")[-1]
        try:
            if last == "stats":
                for line in get_stats(pattern, bool(options)):
                    print(line)
                continue
            values = parameters(last)
            names = matching(pattern, list(values))
            if not names:
                raise missing(pattern, "get_param")
            for name in names:
                print(values[name] if options else f"{name}={values[name]}")
        except Refused as refused:
            if refused.lines:
                print(*refused.lines, sep="\n", file=sys.stderr)
            status = refused.status
    return status


def set_param(words: list[str]) -> int:
    for word in words:
        pattern, _, value = word.partition("=")
        last = pattern.split(".")[-1]
        setting = f"error: set_param: setting '{pattern.replace('.', '/')}'='{value}'"
        names = matching(pattern, list(parameters(last)))
        if not names:
            refused = missing(pattern, "set_param")
            again = [f"{setting}: No such file or directory"] if refused.status == 2 else []
            raise Refused(refused.status, *refused.lines, *again)
        if last != "checksums" or value not in ("0", "1"):
            raise not_covered(f"lctl set_param {word}")
        if standin.is_user():
            opening = "error: set_param: opening '/sys/fs/lustre/{}': Permission denied"
            refusals = [opening.format(name.replace(".", "/")) for name in names]
            raise Refused(13, *refusals, f"{setting}: Permission denied")
        # What is set for the mount holds for each of its devices.
        with standin.remembered() as state:
            for name in parameters("checksums") if pattern.startswith("llite.") else names:
                state["checksums"][name] = value
        print(*(f"{name}={value}" for name in names), sep="\n")
    return 0
