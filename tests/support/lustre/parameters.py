"""Parameters of Lustre that the stand-in for ``lctl`` shows, among them the counters of its targets.

``osc.*.stats`` and ``mdc.*.stats`` count what went through a file system that slowfs.c mounted: it writes its reads and
writes down in ``LFS_IO``, and they are spread over the targets by the layouts of their files. What a page cache served is
no read there either.

What an ordinary user meets on 2.17.0 is kept (tests/data/lustre/bench.txt): statistics have exit status 2, and lines
that lack their last character. Of a pattern of several devices they are not covered.
"""

import fnmatch
import os
import sys
import time

import standin
from standin import CLIENT, FSNAME, Refused, not_covered

#: What a file gets for which no directory has a layout.
OF_LOV = {"stripecount": "1", "stripesize": str(standin.DEFAULT_SIZE)}


# --- what is counted ------------------------------------------------------------------------------


def count(state, device, counter, value):
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


def pieces(layout, offset, size):
    """Devices of a file's bytes, and how many each has."""
    end, unit, osts = offset + size, standin.stripe_size(layout), layout["osts"]
    while offset < end:
        length = min(end - offset, unit - offset % unit)
        yield f"osc {osts[offset // unit % len(osts)]}", length
        offset += length


def took_place(state):
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
        layout = standin.layout_at(state, key, place)
        for device, length in pieces(layout, int(offset), int(size)):
            count(state, device, f"{operation}_bytes", length)


# --- how it is shown ------------------------------------------------------------------------------


def devices():
    """All devices of the client, and what the state calls them."""
    found = {}
    for index in range(standin.ost_count()):
        found[f"osc.{FSNAME}-OST{index:04x}-osc-{CLIENT}"] = f"osc {index}"
    for index in range(standin.MDTS):
        found[f"mdc.{FSNAME}-MDT{index:04x}-mdc-{CLIENT}"] = f"mdc {index}"
    return found


def server(index):
    servers = int(os.environ.get("LFS_SERVERS", "0"))
    return f"10.0.0.{11 + index % servers}@tcp" if servers else "0@lo"


def checksums():
    """Whether the mount and each of its devices checks what it sends."""
    with standin.remembered() as state:
        changed = state["checksums"]
    names = [name for name in devices() if name.startswith("osc.")]
    found = {f"{name}.checksums": "1" for name in names}
    return found | {f"llite.{FSNAME}-{CLIENT}.checksums": "1"} | changed


def sysfs():
    """The directory, in ``LFS_STATE``, of the files that show the servers' addresses, which targets are on, and defaults."""
    folder = os.path.join(os.environ["LFS_STATE"], "sysfs")
    shown = {f"lov.{FSNAME}-clilov-{CLIENT}.{name}": of for name, of in OF_LOV.items()}
    for index in range(standin.ost_count()):
        device = f"osc.{FSNAME}-OST{index:04x}-osc-{CLIENT}"
        shown[f"{device}.ost_conn_uuid"] = server(index)
        shown[f"{device}.active"] = "01"[index not in standin._numbers("LFS_INACTIVE")]
    for name, value in shown.items():
        file = os.path.join(folder, *name.split("."))
        os.makedirs(os.path.dirname(file), exist_ok=True)
        with open(
            f"{file}.{os.uname().nodename}.{os.getpid()}", "w", encoding="ascii"
        ) as text:
            text.write(f"{value}\n")
        os.replace(text.name, file)
    return folder


def matching(pattern):
    """Names of checksums that fit a pattern."""
    names = fnmatch.filter(checksums(), pattern.replace("[^", "[!"))
    if not names:
        raise not_covered(f"lctl: {pattern}")
    return names


def show_stats(pattern):
    """Print the ``stats`` of a device, for root or a user; raises Refused with the status after them."""
    known = devices()
    name = pattern.removesuffix(".stats")
    if name not in known:
        raise not_covered(f"lctl get_param {pattern}")
    user = standin.is_user()
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


def get_param(words):
    status = 0
    for pattern in words:
        try:
            if pattern.endswith(".stats"):
                show_stats(pattern)
                continue
            values = checksums()
            print(*(f"{name}={values[name]}" for name in matching(pattern)), sep="\n")
        except Refused as refused:
            print(*refused.lines, sep="\n", end="", file=sys.stderr)
            status = refused.status
    return status


def set_param(words):
    for word in words:
        pattern, _, value = word.partition("=")
        names = matching(pattern)
        if standin.is_user():
            opening = "error: set_param: opening '/sys/fs/lustre/{}': Permission denied"
            refusals = [opening.format(name.replace(".", "/")) for name in names]
            setting = f"setting '{pattern.replace('.', '/')}'='{value}'"
            raise Refused(
                13, *refusals, f"error: set_param: {setting}: Permission denied"
            )
        # What is set for the mount holds for each of its devices.
        known = checksums()
        with standin.remembered() as state:
            for name in known if pattern.startswith("llite.") else names:
                state["checksums"][name] = value
        print(*(f"{name}={value}" for name in names), sep="\n")
    return 0
