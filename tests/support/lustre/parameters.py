"""Parameters of Lustre that the stand-in for ``lctl`` shows, among them the counters of its targets.

``osc.*.stats`` and ``mdc.*.stats`` count what went through a file system that slowfs.c mounted: it writes its reads and
writes down in ``LFS_IO``, and they are spread over the targets by the layouts of their files. What a page cache served is
no read there either.

What an ordinary user meets on 2.17.0 is kept (tests/data/lustre/bench.txt): a name of which nothing is visible gives
nothing, and exit status 2; so do statistics, with output, whose lines lack their last character. Before 2.17
(``LFS_VERSION``) statistics are in debugfs, for root. Of a pattern of several devices they are not covered.
"""

from __future__ import annotations

import fnmatch
import getopt
import os
import sys
import time

import standin
from standin import CLIENT, Refused, not_covered

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

#: First words of real parameters: what the stand-in lacks there may exist.
REAL = "osc mdc llite lov lmv ldlm obdfilter mdt mdd osd-ldiskfs osd-zfs ost mds mgc mgs nodemap sptlrpc osp lod fld seq"
#: Last words of those that are covered, or that no device has.
COVERED = [
    "stats",
    "import",
    "active",
    "ost_conn_uuid",
    "numobd",
    "checksums",
    "stripecount",
    "stripesize",
    "nosuch",
]

IMPORT = """
import:
    name: {name}
    target: {target}
    state: FULL
    connect_data:
       target_version: {version}
    connection:
       current_connection: "{nid}" """

#: What a file gets for which no directory has a layout.
OF_LOV = {"stripecount": "1", "stripesize": str(standin.DEFAULT_SIZE)}


# --- what is counted ------------------------------------------------------------------------------


def count(state: dict[str, Any], device: str, counter: str, value: int) -> None:
    """Let a counter of a device, ``osc 2`` or ``mdc 0``, grow: samples, least, most, their sum and that of squares."""
    grown = (
        state["stats"].setdefault(device, {}).setdefault(counter, [0, value, 0, 0, 0])
    )
    grown[:] = [
        grown[0] + 1,
        min(grown[1], value),
        max(grown[2], value),
        grown[3] + value,
        grown[4] + value * value,
    ]


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
            count(state, device, f"{operation}_bytes", length)


# --- how it is shown ------------------------------------------------------------------------------


def devices() -> dict[str, str]:
    """All devices of the client, and what the state calls them."""
    fs, found = standin.fsname(), {}
    for index in range(standin.ost_count()):
        found[f"osc.{fs}-OST{index:04x}-osc-{CLIENT}"] = f"osc {index}"
    for index in range(2):
        found[f"mdc.{fs}-MDT{index:04x}-mdc-{CLIENT}"] = f"mdc {index}"
    return found


def server(index: int) -> str:
    servers = int(os.environ.get("LFS_SERVERS", "0"))
    return f"10.0.0.{11 + index % servers}@tcp" if servers else "0@lo"


def connection(device: str) -> str:
    """What root sees of a device's connection to its server."""
    kind, name = device.split(".")
    index = int(name.removeprefix(f"{standin.fsname()}-")[3:7], 16)
    if kind == "osc" and index in standin._numbers("LFS_INACTIVE"):
        raise not_covered("the connection of a target that is switched off")
    target = f"{name.rsplit('-', 2)[0]}_UUID"
    version = os.environ.get("LFS_SERVER_VERSION", f"{standin.version()}.0")
    # Metadata servers are the first of the servers.
    return IMPORT.format(name=name, target=target, version=version, nid=server(index))


def parameters(last: str) -> dict[str, str]:
    """Parameters with a last word, but statistics, in the order in which the real one shows them."""
    if last == "version":
        return {"version": standin.version()}
    if standin.mount() is None:
        return {}
    fs, found, osts = standin.fsname(), {}, range(standin.ost_count())
    if last == "checksums":
        with standin.remembered() as state:
            changed = state["checksums"]
        found = {
            f"{device}.{last}": "1" for device in devices() if device.startswith("osc.")
        }
        found |= {f"llite.{fs}-{CLIENT}.{last}": "1"} | changed
    if last == "import" and not standin.is_user():
        found = {f"{device}.{last}": connection(device) for device in devices()}
    if last in ("active", "ost_conn_uuid"):
        for index in osts:
            for client in ("MDT0000", "MDT0001", CLIENT):
                off = not client.startswith("MDT") and index in standin._numbers(
                    "LFS_INACTIVE"
                )
                value = server(index) if last == "ost_conn_uuid" else "01"[not off]
                found[f"osc.{fs}-OST{index:04x}-osc-{client}.{last}"] = value
    if last in OF_LOV:
        found[f"lov.{fs}-clilov-{CLIENT}.{last}"] = OF_LOV[last]
    if last == "numobd":
        found = {
            f"lov.{fs}-MDT{index:04x}-mdtlov.numobd": str(len(osts))
            for index in range(2)
        }
        found[f"lov.{fs}-clilov-{CLIENT}.numobd"] = str(len(osts))
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
        with open(
            f"{file}.{os.uname().nodename}.{os.getpid()}", "w", encoding="ascii"
        ) as text:
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
        and all(
            fnmatch.fnmatchcase(their, our)
            for our, their in zip(ours, theirs, strict=True)
        )
    ]


def missing(pattern: str, command: str) -> Refused:
    """What is said of a name that nothing fits; a user is told nothing by lctl get_param."""
    first, last = pattern.split(".")[0], pattern.split(".")[-1]
    if first in REAL.split() and last not in COVERED and standin.mount() is not None:
        return not_covered(f"lctl {command} {pattern}")
    if standin.is_user() and command == "get_param":
        return Refused(2)
    return Refused(
        2,
        f"error: {command}: param_path '{pattern.replace('.', '/')}': No such file or directory",
    )


def show_stats(pattern: str) -> None:
    """Print the ``stats`` of a device, for root or a user; raises Refused with the status after them."""
    user = standin.is_user()
    if user and tuple(map(int, standin.version().split(".")[:2])) < (2, 17):
        raise Refused(2)
    known = devices() if standin.mount() is not None else {}
    name = pattern.removesuffix(".stats")
    if known and "*" in name:
        raise not_covered(f"lctl get_param {pattern}")
    if name not in known:
        raise missing(pattern, "get_param")
    with standin.remembered() as state:
        took_place(state)
        counters = state["stats"].get(known[name], {})
    print(
        f"{pattern}=", f"{'snapshot_time':<25} {time.time():.9f} secs.nsecs", sep="\n"
    )
    for counter, (samples, *numbers) in counters.items():
        line = f"{counter:<25} {samples} samples [bytes] {' '.join(map(str, numbers))}"
        print(line[:-1] if user else line)
    if user:
        raise Refused(2)


def get_param(words: list[str]) -> int:
    options, patterns = getopt.gnu_getopt(words, "n")
    status = 0
    for pattern in patterns:
        last = pattern.split(".")[-1]
        try:
            if last == "stats":
                show_stats(pattern)
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
            again = (
                [f"{setting}: No such file or directory"] if refused.status == 2 else []
            )
            raise Refused(refused.status, *refused.lines, *again)
        if last != "checksums" or value not in ("0", "1"):
            raise not_covered(f"lctl set_param {word}")
        if standin.is_user():
            opening = "error: set_param: opening '/sys/fs/lustre/{}': Permission denied"
            refusals = [opening.format(name.replace(".", "/")) for name in names]
            raise Refused(13, *refusals, f"{setting}: Permission denied")
        # What is set for the mount holds for each of its devices.
        with standin.remembered() as state:
            for name in (
                parameters("checksums") if pattern.startswith("llite.") else names
            ):
                state["checksums"][name] = value
        print(*(f"{name}={value}" for name in names), sep="\n")
    return 0
