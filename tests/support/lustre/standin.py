"""Stand-ins for ``lfs`` and ``lctl`` that answer on an ordinary file system as Lustre 2.17.0 did.

They exist for tests: no byte goes to a storage target. Output, messages and exit statuses are those that a
real file system with four targets and two metadata servers gave (tests/data/lustre;
tests/unit/test_lustre_standin.py compares the two). What was never seen of the real program, or is not
needed, ends with status 70 and ``stand-in:`` on standard error, so that a test cannot rest on a guess.

Environment:

* ``LFS_STATE``: directory of what they remember (needed by lfs getstripe, setstripe; lctl).
* ``LFS_MOUNT``: where Lustre is mounted; not set: everywhere, empty: nowhere. ``LFS_BELOW``: the directory
  that holds the files of that mount, if slowfs.c mounted it. ``LFS_IO``: what slowfs.c wrote down (parameters.py).
* ``LFS_FSNAME``: name of the file system (``lustre``). ``LFS_VERSION``: version of the client (2.17.0); before
  2.17 the statistics are for root. ``LFS_SERVER_VERSION``: that of the servers.
* ``LFS_FIRST``: where the first file without a start index begins (2); later ones follow round robin.
* ``LFS_OSTS``: number of targets (4). ``LFS_POOLS``: pools, such as ``flash:0,1 slow:2,3``.
* ``LFS_INACTIVE``: targets that this client has switched off, such as ``1 2``. As on the real one,
  ``lfs df`` hides them, ``lfs osts`` tells, and ``lfs setstripe`` still uses them.
* ``LFS_DEGRADED``: targets that the allocator avoids unless asked for. ``LFS_NO_CREATE``: targets that
  take no files; one that is asked for gives the next, and success. ``LFS_FULL``: targets that are full.
* ``LFS_LIE_COUNT``: number of stripes that every layout gets, whatever was asked.
* ``LFS_MDTS``: number of metadata targets (2). ``LFS_LIE_MDTS``: number of them that new directories get by a default,
  whatever was asked. ``LFS_MDT_FULL``: metadata targets without room.
* ``LFS_QUOTA``: answer to ``lfs quota``: kilobytes, their limit, files, their limit (``0 0 0 0``), and, if
  wanted, the soft limit of the kilobytes and its grace.
* ``LFS_SERVERS``: number of object storage servers; target k is on server k modulo that number (0: all
  on the client itself, ``0@lo``).
* ``LCTL_USER``: 1 is an ordinary user, 0 is root; not set: who runs the program. What a user may not do or
  see (lctl set_param, lfs mkdir -c and -i, most of lctl get_param) is refused as the real one refuses it.

A file has the layout that ``lfs setstripe`` made it with; one that another program made takes, when it is
looked at first, the default of the nearest directory above that has one. Who removes a file and makes it
again loses its layout. Simplified against the real one: a directory inherits its default from above even
if it is older than the default; a target that is switched off still takes data.

Tests start these programs thousands of times: they import nothing that they do not need, and no site-packages.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import getopt
import json
import os
import re
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

#: The real one: in an agent attributes.py takes its place.
_getxattr = os.getxattr
DEFAULT_SIZE = 4 << 20
CLIENT = "ffff888129458800"
#: Of each target, in 1K blocks: all, and used.
BLOCKS, RESERVED, USED, USED_FULL = 3833116, 226096, 1528, 3606012
MDT_LINE, MDT_LINE_FULL = (1160264, 2028, 1038656), (1160264, 1040620, 64)
#: Inodes: all, used and free.
MDT_INODES, OST_INODES = (838864, 309, 838555), (262144, 383, 261761)
#: Inodes of a metadata target that is full.
MDT_FULL = (838864, 838800, 64)


class Refused(Exception):
    """The program ends: exit status, and what it says on standard error."""

    def __init__(self, status: int, *lines: str) -> None:
        super().__init__(status, lines)
        self.status, self.lines = status, lines


def not_covered(what: str) -> Refused:
    return Refused(70, f"stand-in: {what}: what Lustre does here is not covered")


def mdt_count() -> int:
    return int(os.environ.get("LFS_MDTS", "2"))


def _numbers(variable: str) -> list[int]:
    return [
        int(number) for number in os.environ.get(variable, "").replace(",", " ").split()
    ]


def is_user() -> bool:
    return os.environ.get("LCTL_USER", "01"[os.geteuid() != 0]) == "1"


def version() -> str:
    return os.environ.get("LFS_VERSION", "2.17.0")


def fsname() -> str:
    return os.environ.get("LFS_FSNAME", "lustre")


def ost_count() -> int:
    return int(os.environ.get("LFS_OSTS", "4"))


def uuid(index: int) -> str:
    return f"{fsname()}-OST{index:04x}_UUID"


def pools() -> dict[str, list[int]]:
    pairs = (word.partition(":") for word in os.environ.get("LFS_POOLS", "").split())
    return {name: [int(i) for i in members.split(",")] for name, _, members in pairs}


def mount() -> str | None:
    """Where Lustre is mounted; None: nowhere."""
    place = os.environ.get("LFS_MOUNT", "/")
    return os.path.realpath(place) if place else None


def on_lustre(path: str) -> bool:
    top = mount()
    return top is not None and os.path.commonpath([top, os.path.realpath(path)]) == top


# --- what is remembered ---------------------------------------------------------------------------


@functools.cache
def _system() -> Any:
    """The C library."""
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def below(path: str) -> str:
    """Where a file of the mount lies below it."""
    folder = os.environ.get("LFS_BELOW")
    return (
        os.path.join(folder, os.path.relpath(os.path.realpath(path), mount()))
        if folder
        else path
    )


def identity(path: str) -> str:
    """Names a file as long as it exists: an inode number alone may be given to the next file."""
    import ctypes

    path = below(path)
    found, info = os.stat(path), ctypes.create_string_buffer(256)
    status = _system().statx(-100, os.fsencode(path), 0, 0x800, info)
    if status != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
    # linux/stat.h: the second of the timestamps is the birth, seconds in eight bytes and nanoseconds in four.
    birth_s = int.from_bytes(info.raw[80:88], sys.byteorder, signed=True)
    birth_ns = int.from_bytes(info.raw[88:92], sys.byteorder)
    return f"{found.st_dev}:{found.st_ino}:{birth_s}.{birth_ns}"


@contextlib.contextmanager
def remembered() -> Iterator[dict[str, Any]]:
    """All that the stand-ins remember; written back, one program at a time."""
    folder = os.environ.get("LFS_STATE")
    if not folder:
        raise Refused(
            70, "stand-in: LFS_STATE must name a directory to remember layouts in"
        )
    os.makedirs(folder, exist_ok=True)
    file = os.path.join(folder, "state.json")
    with open(os.path.join(folder, "lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state: dict[str, Any] = {
            "files": {},
            "defaults": {},
            "next": int(os.environ.get("LFS_FIRST", "2")),
            "object": 2,
            "checksums": {},
            "stats": {},
            "io": 0,
        }
        with (
            contextlib.suppress(FileNotFoundError),
            open(file, encoding="ascii") as text,
        ):
            state = json.load(text)
        before = json.dumps(state)
        yield state
        after = json.dumps(state)
        if after != before:
            with open(file + ".new", "w", encoding="ascii") as text:
                text.write(after)
            os.replace(file + ".new", file)


# --- layouts --------------------------------------------------------------------------------------


def new_part() -> dict[str, Any]:
    """One part of a layout, as asked for: end None is the end of the file, count 0 and size 0 defaults."""
    return {
        "end": None,
        "count": 0,
        "size": 0,
        "start": -1,
        "pool": "",
        "osts": [],
        "pattern": "raid0",
    }


PLAIN: dict[str, Any] = {"composite": False, "parts": [new_part()]}


def allocate(state: dict[str, Any], part: dict[str, Any]) -> None:
    """Give a part its objects."""
    wanted: list[int]
    if part["pattern"] == "mdt":
        wanted = []
    elif part["osts"]:
        wanted = part["osts"]
    else:
        members = pools()[part["pool"]] if part["pool"] else list(range(ost_count()))
        closed, degraded = _numbers("LFS_NO_CREATE"), _numbers("LFS_DEGRADED")
        usable = [i for i in members if i not in closed and i not in degraded]
        start = part["start"]
        free = start < 0
        if free:
            start = usable[state["next"] % len(usable)]
        while start in closed:
            start = (start + 1) % ost_count()
        ordered = sorted({*usable, start}, key=lambda i: (i - start) % ost_count())
        count = part["count"] or 1
        lie = os.environ.get("LFS_LIE_COUNT")
        count = int(lie) if lie else len(ordered) if count == -1 else count
        wanted = ordered[:count]
        state["next"] += len(wanted) if free else 0
    part["objects"] = []
    for index in wanted:
        part["objects"].append([index, state["object"]])
        state["object"] += 1


def default_above(state: dict[str, Any], path: str) -> dict[str, Any] | None:
    """The default that a directory has, or inherits."""
    path = os.path.realpath(path)
    top = mount()
    while True:
        found = state["defaults"].get(identity(path))
        if found or path in (top, "/"):
            return found  # type: ignore[no-any-return]
        path = os.path.dirname(path)


def layout_of(state: dict[str, Any], path: str) -> dict[str, Any]:
    """The layout of a file, instantiated as far as its size asks for; that of a new file is made up now."""
    return layout_at(state, identity(path), path, os.stat(path).st_size)


def layout_at(state: dict[str, Any], key: str, path: str, size: int) -> dict[str, Any]:
    """The layout of a file with an identity, which may be gone; one without bytes may have none."""
    layout: dict[str, Any] | None = state["files"].get(key)
    if layout and not layout["parts"] and not size:
        return layout
    if not layout or not layout["parts"]:
        folder = os.path.dirname(os.path.realpath(path))
        while not os.path.exists(folder):
            folder = os.path.dirname(folder)
        layout = asked_of_kernel(path) or json.loads(
            json.dumps(default_above(state, folder) or PLAIN)
        )
        state["files"][key] = layout
    begin = 0
    for number, part in enumerate(layout["parts"]):
        if "objects" not in part and (
            number == 0 or begin < size or part["pattern"] == "mdt"
        ):
            allocate(state, part)
        begin = part["end"] or begin
    return layout


def asked_of_kernel(path: str) -> dict[str, Any] | None:
    """The layout that a program gave a file with setxattr(2): slowfs.c keeps it, in the form of lov_user_md_v3."""
    try:
        data = _getxattr(below(path), "user.lustre.lov")
    except OSError:
        return None
    size, count = struct.unpack_from("=24xIH", data)
    osts = [
        target for (target,) in struct.iter_unpack("=20xI", data[48 : 48 + 24 * count])
    ]
    return {
        "composite": False,
        "parts": [new_part() | {"count": count, "size": size, "osts": osts}],
    }


def fid(index: int, number: int) -> str:
    return f"0x{0x280000400 + index * 0x40000000:x}:0x{number:x}:0x0"


def stripe_size(part: dict[str, Any]) -> int:
    return int(part["size"] or min(DEFAULT_SIZE, part["end"] or DEFAULT_SIZE))


# --- lfs setstripe --------------------------------------------------------------------------------


def parse_size(text: str) -> int:
    """A stripe size in bytes, a multiple of 64 KiB."""
    match = re.fullmatch(r"(\d+)([kKmMgG]?)", text)
    size = (
        int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[match[2].lower()]
        if match
        else 1
    )
    if size % 65536 or size >= 1 << 32:
        raise not_covered(f"lfs setstripe -S {text}")
    return size


def parse_end(text: str) -> int | None:
    if text in ("-1", "eof", "EOF"):
        return None
    match = re.fullmatch(r"(\d+)([kKmMgGtT])", text)
    if not match:
        raise not_covered(f"lfs setstripe -E {text}")
    return int(match[1]) << {"k": 10, "m": 20, "g": 30, "t": 40}[match[2].lower()]


def parse_request(words: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Layout asked for, and the names."""
    try:
        options, names = getopt.gnu_getopt(words, "c:S:i:p:E:L:")
    except getopt.GetoptError as error:
        raise not_covered(f"lfs setstripe {' '.join(words)}") from error
    parts: list[dict[str, Any]] = []
    part = new_part()
    for option, value in options:
        if option == "-E":
            pool = part["pool"]
            part = new_part() | {"end": parse_end(value), "pool": pool}
            parts.append(part)
        elif option == "-c":
            part["count"] = int(value)
        elif option == "-S":
            part["size"] = parse_size(value)
        elif option == "-i":
            part["start"] = int(value)
        elif option == "-p":
            value = value.removeprefix(f"{fsname()}.")
            if value not in pools():
                said = f"pool '{value} fsname {fsname()}' does not exist: No such file or directory (2)"
                raise Refused(22, f"lfs setstripe: {said}")
            part["pool"] = value
        elif value == "mdt" and len(parts) == 1:
            part["pattern"] = value
        else:
            raise not_covered(f"lfs setstripe {' '.join(words)}")
    if not names:
        raise not_covered(f"lfs setstripe {' '.join(words)}")
    return {"composite": bool(parts), "parts": parts or [part]}, names


def set_layout(name: str, request: dict[str, Any]) -> None:
    if not on_lustre(name):
        raise not_covered("lfs setstripe where there is no Lustre")
    if any(part["start"] >= ost_count() for part in request["parts"]):
        raise Refused(
            22, f"lfs setstripe: setstripe error for '{name}': Invalid argument"
        )
    if os.path.isdir(name):
        with remembered() as state:
            state["defaults"][identity(name)] = request
        return
    if os.path.exists(name):
        raise Refused(
            17, f"lfs setstripe: setstripe error for '{name}': stripe already set"
        )
    os.close(os.open(name, os.O_WRONLY | os.O_CREAT, 0o644))
    with remembered() as state:
        state["files"][identity(name)] = request
        layout_of(state, name)


def setstripe(words: list[str]) -> int:
    request, names = parse_request(words)
    for name in names:
        set_layout(name, json.loads(json.dumps(request)))
    return 0


# --- lfs getstripe, mkdir -------------------------------------------------------------------------


def getstripe(words: list[str]) -> int:
    """``lfs getstripe -d DIR``: what a directory hands on; pattern 0 where it has no default."""
    if words[:1] != ["-d"] or len(words) != 2 or not on_lustre(words[1]):
        raise not_covered(f"lfs getstripe {' '.join(words)}")
    with remembered() as state:
        default = default_above(state, words[1])
    if default and default["composite"]:
        raise not_covered("lfs getstripe of a default of several parts")
    part = (default or PLAIN)["parts"][0]
    values = [
        f"stripe_count:  {part['count'] or 1}",
        f"stripe_size:   {part['size'] or DEFAULT_SIZE}",
        f"pattern:       {'raid0' if default else 0}",
        f"stripe_offset: {part['start']}",
        *([f"pool:          {part['pool']}"] if part["pool"] else []),
    ]
    print(" ".join(values), end="\n\n")
    return 0


def mkdir(words: list[str]) -> int:
    options, names = getopt.gnu_getopt(words, "c:i:")
    of = dict(options)
    first, count = int(of.get("-i", "0")), min(mdt_count(), int(of.get("-c", "1")))
    for name in names:
        if (
            not on_lustre(os.path.dirname(os.path.abspath(name)))
            or first >= mdt_count()
        ):
            raise not_covered(f"lfs mkdir {' '.join(words)}")
        if is_user():
            raise Refused(
                1,
                f"lfs mkdir: dirstripe error on '{name}': Operation not permitted",
                f"lfs setdirstripe: cannot create dir '{name}': Operation not permitted",
            )
        os.mkdir(name)
        with remembered() as state:
            kept = state.setdefault("metadata", {})
            kept[identity(name)] = [(first + n) % mdt_count() for n in range(count)]
    return 0


def setdirstripe(words: list[str]) -> int:
    """``lfs setdirstripe -D -c N [-i INDEX] DIR``: where new directories in one lie. From Lustre's sources, not from a run."""
    options, names = getopt.gnu_getopt(words, "Dc:i:")
    of = dict(options)
    if "-D" not in of or "-c" not in of or len(names) != 1 or not on_lustre(names[0]):
        raise not_covered(f"lfs setdirstripe {' '.join(words)}")
    if is_user():
        raise Refused(
            1,
            f"lfs setdirstripe: cannot set default dirstripe on '{names[0]}': Operation not permitted",
        )
    with remembered() as state:
        kept = state.setdefault("directory_defaults", {})
        kept[identity(names[0])] = [int(of["-c"]), int(of.get("-i", "-1"))]
    return 0


def default_mdts(state: dict[str, Any], path: str) -> list[int] | None:
    """Where a directory lies by the default of the nearest one above it. A new directory takes it; an older one keeps its own."""
    kept = state.get("directory_defaults", {})
    while path not in (mount(), "/"):
        path = os.path.dirname(path)
        if identity(path) in kept:
            count, first = kept[identity(path)]
            lie = os.environ.get("LFS_LIE_MDTS")
            count = (
                int(lie)
                if lie
                else mdt_count()
                if count == -1
                else min(count, mdt_count())
            )
            return [(max(first, 0) + n) % mdt_count() for n in range(count)]
    return None


def getdirstripe(words: list[str]) -> int:
    """``lfs getdirstripe -y DIR``: a directory without a layout of its own lies where that above it lies."""
    if words[:1] != ["-y"] or len(words) != 2 or not on_lustre(words[1]):
        raise not_covered(f"lfs getdirstripe {' '.join(words)}")
    path = os.path.realpath(words[1])
    with remembered() as state:
        kept = state.setdefault("metadata", {})
        mdts = kept.get(identity(path)) or default_mdts(state, path)
    while mdts is None and path not in (mount(), "/"):
        path = os.path.dirname(path)
        mdts = kept.get(identity(path), [])[:1] or None
    mdts = mdts or [0]
    print(f"lmv_stripe_count:  {len(mdts) if len(mdts) > 1 else 0}")
    print(f"lmv_stripe_offset: {mdts[0]}")
    print(f"lmv_hash_type:     {'fnv_1a_64' if len(mdts) > 1 else 'none'}")
    print("lmv_objects:")
    for index in mdts:
        print(f"      - l_mdt_idx: {index}\n        l_fid:     {fid(index, 4)}")
    return 0


def pool_list(words: list[str]) -> int:
    """``lfs pool_list FSNAME[.POOL]``; what a missing pool gives is from Lustre's sources, not from a run."""
    top, _, name = words[0].partition(".")
    if len(words) != 1 or top != fsname():
        raise not_covered(f"lfs pool_list {' '.join(words)}")
    if not name:
        print(
            f"Pools from {fsname()}:",
            *(f"{fsname()}.{pool}" for pool in pools()),
            sep="\n",
        )
        return 0
    print(f"Pool: {fsname()}.{name}")
    if name not in pools():
        place = f"/proc/fs/lustre/lov/{fsname()}-clilov-{CLIENT}/pools/{name}"
        raise Refused(
            2, f"lfs pool_list: cannot open {place}: No such file or directory (2)"
        )
    print(
        *(uuid(index) for index in pools()[name]),
        sep="\n",
        end="\n" if pools()[name] else "",
    )
    return 0


# --- lfs df, osts, quota --------------------------------------------------------------------------


def df_line(name: str, total: int, used: int, free: int, where: str) -> str:
    percent = -(-100 * used // (used + free))
    return f"{name:<20} {total:>11} {used:>11} {free:>11} {percent:>3}%  {where}"


def df(words: list[str]) -> int:
    inodes = "-i" in words
    words = [word for word in words if word != "-i"]
    if any(word.startswith("-") for word in words):
        raise not_covered(f"lfs df {' '.join(words)}")
    for path in words:
        if not os.path.exists(path):
            raise Refused(2, f"error: invalid path '{path}': No such file or directory")
        if not on_lustre(path):
            print(f"df:{path} Not a Lustre filesystem")
            return 95
    where = mount()
    if where is None:
        return 0
    columns = "1K-blocks        Used   Available Use%"
    if inodes:
        columns = "   Inodes       IUsed       IFree IUse%"
    print(f"UUID                   {columns}  Mounted on")
    for index in range(mdt_count()):
        full = index in _numbers("LFS_MDT_FULL")
        few, many = (MDT_FULL, MDT_INODES) if inodes else (MDT_LINE_FULL, MDT_LINE)
        numbers = few if full else many
        print(
            df_line(
                f"{fsname()}-MDT{index:04x}_UUID", *numbers, f"{where}[MDT:{index}]"
            )
        )
    total = used = free = 0
    flags = {"D": _numbers("LFS_DEGRADED"), "N": _numbers("LFS_NO_CREATE")}
    for index in range(ost_count()):
        if index in _numbers("LFS_INACTIVE"):
            continue
        mine = USED_FULL if index in _numbers("LFS_FULL") else USED
        left = BLOCKS - RESERVED - mine
        shown = "".join(flag for flag, members in flags.items() if index in members)
        place = f"{where}[OST:{index}]{' ' + shown if shown else ''}"
        line = OST_INODES if inodes else (BLOCKS, mine, left)
        print(df_line(uuid(index), *line, place))
        total, used, free = total + line[0], used + line[1], free + line[2]
    if inodes:
        # Files are counted where their names are; as many fit as there are objects, or names.
        used, free = 2 * MDT_INODES[1], min(2 * MDT_INODES[2], free)
        total = used + free
    print()
    print(df_line("filesystem_summary:", total, used, free, where), end="\n\n")
    return 0


def osts(words: list[str]) -> int:
    for path in words:
        if not os.path.exists(path):
            raise Refused(2, f"error: invalid path '{path}': No such file or directory")
        if not on_lustre(path):
            return 0
    if mount() is None:
        return 0
    print("OBDS:")
    for index in range(ost_count()):
        state = "INACTIVE" if index in _numbers("LFS_INACTIVE") else "ACTIVE"
        print(f"{index}: {uuid(index)} {state}")
    return 0


def quota(words: list[str]) -> int:
    """``lfs quota PATH``: of the user and the group."""
    if len(words) != 1 or words[0].startswith("-"):
        raise not_covered(f"lfs quota {' '.join(words)}")
    given = os.environ.get("LFS_QUOTA", "0 0 0 0").split()
    used, limit, files, file_limit, soft, grace = [*given, "0", "-"][:6]

    def shown(value: str, *limits: str) -> str:
        return f"{value}{'*' if any(int(most) and int(value) > int(most) for most in limits) else ''}"

    of_bytes = (shown(used, limit, soft), soft, limit, grace)
    columns = (*of_bytes, shown(files, file_limit), 0, file_limit, "-")
    for title in _quota_titles():
        print(title)
        print(f"{words[0]:>15}" + "".join(f"{column:>8}" for column in columns) + " ")
    return 0


def _quota_titles() -> Iterator[str]:
    import grp
    import pwd

    columns = "     Filesystem  kbytes  bquota  blimit  bgrace   files  iquota  ilimit  igrace "
    user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(os.getegid())
    yield f"Disk quotas for usr {user.pw_name} (uid {user.pw_uid}):\n{columns}"
    yield f"Disk quotas for grp {group.gr_name} (gid {group.gr_gid}):\n{columns}"


def lfs(argv: list[str]) -> int:
    """The program ``lfs``."""
    commands = {
        "setstripe": setstripe,
        "getstripe": getstripe,
        "mkdir": mkdir,
        "getdirstripe": getdirstripe,
        "setdirstripe": setdirstripe,
        "pool_list": pool_list,
        "df": df,
        "osts": osts,
        "quota": quota,
    }
    return _run("lfs", commands, argv)


def lctl(argv: list[str]) -> int:
    """The program ``lctl``; without words it reads its commands."""
    import parameters

    commands = {"get_param": parameters.get_param, "set_param": parameters.set_param}
    if argv:
        return _run("lctl", commands, argv)
    ignores = False
    for line in iter(sys.stdin.readline, ""):
        words = line.split()
        status = 0
        if words == ["ignore_errors"]:
            ignores = True
        elif words:
            status = _run("lctl", commands, words)
        sys.stdout.flush()
        if status and not ignores:
            return status
    return 0


def _run(program: str, commands: dict[str, Any], argv: list[str]) -> int:
    try:
        if argv == ["--version"]:
            print(f"{program} {version()}")
            return 0
        if not argv or argv[0] not in commands:
            raise not_covered(f"{program} {' '.join(argv)}")
        return int(commands[argv[0]](argv[1:]))
    except Refused as refused:
        print(*refused.lines, sep="\n", file=sys.stderr)
        return refused.status
