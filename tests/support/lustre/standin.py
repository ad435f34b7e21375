"""Stand-ins for ``lfs`` and ``lctl`` that answer on an ordinary file system as Lustre 2.17.0 did.

They exist for tests: no byte goes to a storage target. Output, messages and exit statuses are those that a
real file system with four targets and two metadata servers gave (tests/data/lustre;
tests/unit/test_lustre_standin.py compares the two). What was never seen of the real program, or is not
needed, ends with status 70 and ``stand-in:`` on standard error, so that a test cannot rest on a guess.

Environment:

* ``LFS_STATE``: directory of what they remember (needed by lfs setstripe; lctl).
* ``LFS_MOUNT``: where Lustre is mounted; not set: everywhere, empty: nowhere. ``LFS_BELOW``: the directory
  that holds the files of that mount, if slowfs.c mounted it. ``LFS_IO``: what slowfs.c wrote down (parameters.py).
* ``LFS_FIRST``: where the first file without a start index begins (2); later ones follow round robin.
* ``LFS_OSTS``: number of targets (4).
* ``LFS_INACTIVE``: targets that this client has switched off, such as ``1 2``. As on the real one,
  ``lfs df`` hides them, ``lfs osts`` tells, and ``lfs setstripe`` still uses them.
* ``LFS_NO_CREATE``: targets that take no files; one that is asked for gives the next, and success.
  ``LFS_FULL``: targets that are full.
* ``LFS_LIE_COUNT``: number of stripes that every layout gets, whatever was asked.
* ``LFS_MDT_FULL``: metadata targets without room, of two.
* ``LFS_QUOTA``: answer to ``lfs quota``: kilobytes, their limit, files, their limit (``0 0 0 0``), and, if
  wanted, the soft limit of the kilobytes and its grace.
* ``LFS_SERVERS``: number of object storage servers; target k is on server k modulo that number (0: all
  on the client itself, ``0@lo``).
* ``LCTL_USER``: 1 is an ordinary user, 0 is root; not set: who runs the program. What a user may not do or
  see (lctl set_param, some of lctl get_param) is refused as the real one refuses it.

A file has the layout that ``lfs setstripe`` made it with; one that another program made takes, when it is
looked at first, the default of the nearest directory above that has one. Who removes a file and makes it
again loses its layout. Simplified against the real one: a directory inherits its default from above even
if it is older than the default; a target that is switched off still takes data.

Tests start these programs thousands of times: they import nothing that they do not need, and no site-packages.
"""

import contextlib
import fcntl
import functools
import getopt
import json
import os
import re
import sys

DEFAULT_SIZE = 4 << 20
CLIENT = "ffff888129458800"
FSNAME = "lustre"
MDTS = 2
#: Of each target, in 1K blocks: all, and used.
BLOCKS, RESERVED, USED, USED_FULL = 3833116, 226096, 1528, 3606012
MDT_LINE, MDT_LINE_FULL = (1160264, 2028, 1038656), (1160264, 1040620, 64)
#: Inodes: all, used and free.
MDT_INODES, OST_INODES = (838864, 309, 838555), (262144, 383, 261761)
#: Inodes of a metadata target that is full.
MDT_FULL = (838864, 838800, 64)


class Refused(Exception):
    """The program ends: exit status, and what it says on standard error."""

    def __init__(self, status, *lines):
        super().__init__(status, lines)
        self.status, self.lines = status, lines


def not_covered(what):
    return Refused(70, f"stand-in: {what}: what Lustre does here is not covered")


def _numbers(variable):
    return [
        int(number) for number in os.environ.get(variable, "").replace(",", " ").split()
    ]


def is_user():
    return os.environ.get("LCTL_USER", "01"[os.geteuid() != 0]) == "1"


def ost_count():
    return int(os.environ.get("LFS_OSTS", "4"))


def uuid(index):
    return f"{FSNAME}-OST{index:04x}_UUID"


def mount():
    """Where Lustre is mounted; None: nowhere."""
    place = os.environ.get("LFS_MOUNT", "/")
    return os.path.realpath(place) if place else None


def on_lustre(path):
    top = mount()
    return top is not None and os.path.commonpath([top, os.path.realpath(path)]) == top


# --- what is remembered ---------------------------------------------------------------------------


@functools.cache
def _system():
    """The C library."""
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def below(path):
    """Where a file of the mount lies below it."""
    folder = os.environ.get("LFS_BELOW")
    if not folder:
        return path
    return os.path.join(folder, os.path.relpath(os.path.realpath(path), mount()))


def identity(path):
    """Names a file as long as it exists: an inode number alone may be given to the next file."""
    import ctypes

    path = below(path)
    found, info = os.stat(path), ctypes.create_string_buffer(256)
    if _system().statx(-100, os.fsencode(path), 0, 0x800, info) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
    # linux/stat.h: the second of the timestamps is the birth, seconds in eight bytes and nanoseconds in four.
    birth_s = int.from_bytes(info.raw[80:88], sys.byteorder, signed=True)
    birth_ns = int.from_bytes(info.raw[88:92], sys.byteorder)
    return f"{found.st_dev}:{found.st_ino}:{birth_s}.{birth_ns}"


@contextlib.contextmanager
def remembered():
    """All that the stand-ins remember; written back, one program at a time."""
    folder = os.environ["LFS_STATE"]
    os.makedirs(folder, exist_ok=True)
    file = os.path.join(folder, "state.json")
    with open(os.path.join(folder, "lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = {
            "files": {},
            "defaults": {},
            "next": int(os.environ.get("LFS_FIRST", "2")),
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


#: A layout as asked for: count 0 and size 0 are defaults, start -1 is the allocator's choice.
PLAIN = {"count": 0, "size": 0, "start": -1}


def allocate(state, layout):
    """Give a file its storage targets, unless it has them."""
    if "osts" in layout:
        return
    closed = _numbers("LFS_NO_CREATE")
    usable = [index for index in range(ost_count()) if index not in closed]
    start = layout["start"]
    free = start < 0
    if free:
        start = usable[state["next"] % len(usable)]
    while start in closed:
        start = (start + 1) % ost_count()
    ordered = sorted(usable, key=lambda index: (index - start) % ost_count())
    count = int(os.environ.get("LFS_LIE_COUNT") or layout["count"] or 1)
    layout["osts"] = ordered if count == -1 else ordered[:count]
    if free:
        state["next"] += len(layout["osts"])


def default_above(state, path):
    """The default that a directory has, or inherits."""
    path = os.path.realpath(path)
    top = mount()
    while True:
        found = state["defaults"].get(identity(path))
        if found or path in (top, "/"):
            return found
        path = os.path.dirname(path)


def layout_of(state, path):
    """The layout of a file; that of a new file is made up now."""
    return layout_at(state, identity(path), path)


def layout_at(state, key, path):
    """The layout of a file with an identity, which may be gone."""
    layout = state["files"].get(key)
    if layout is None:
        folder = os.path.dirname(os.path.realpath(path))
        while not os.path.exists(folder):
            folder = os.path.dirname(folder)
        layout = dict(default_above(state, folder) or PLAIN)
        state["files"][key] = layout
    allocate(state, layout)
    return layout


def stripe_size(layout):
    return int(layout["size"] or DEFAULT_SIZE)


# --- lfs setstripe, getdirstripe ------------------------------------------------------------------


def parse_size(text):
    """A stripe size in bytes, a multiple of 64 KiB."""
    match = re.fullmatch(r"(\d+)([kKmMgG]?)", text)
    if not match:
        raise not_covered(f"lfs setstripe -S {text}")
    size = int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[match[2].lower()]
    if size % 65536:
        raise not_covered(f"lfs setstripe -S {text}")
    return size


def setstripe(words):
    """``lfs setstripe [-c COUNT] [-S SIZE] [-i START] NAME...``: of new files, or the default of directories."""
    try:
        options, names = getopt.gnu_getopt(words, "c:S:i:")
    except getopt.GetoptError as error:
        raise not_covered(f"lfs setstripe {' '.join(words)}") from error
    request = dict(PLAIN)
    for option, value in options:
        if option == "-S":
            request["size"] = parse_size(value)
        else:
            request["count" if option == "-c" else "start"] = int(value)
    for name in names:
        new = not os.path.exists(name)
        if not on_lustre(name) or not (new or os.path.isdir(name)):
            raise not_covered(f"lfs setstripe {name}")
        if new:
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT, 0o644))
        with remembered() as state:
            state["files" if new else "defaults"][identity(name)] = dict(request)
            if new:
                layout_of(state, name)
    return 0


def getdirstripe(words):
    """``lfs getdirstripe -y DIR``: all directories lie on the first metadata target."""
    if words[:1] != ["-y"] or len(words) != 2 or not on_lustre(words[1]):
        raise not_covered(f"lfs getdirstripe {' '.join(words)}")
    print("lmv_stripe_count:  0\nlmv_stripe_offset: 0\nlmv_hash_type:     none")
    print("lmv_objects:\n      - l_mdt_idx: 0\n        l_fid:     0x280000400:0x4:0x0")
    return 0


# --- lfs df, osts, quota --------------------------------------------------------------------------


def df_line(name, total, used, free, where):
    percent = -(-100 * used // (used + free))
    return f"{name:<20} {total:>11} {used:>11} {free:>11} {percent:>3}%  {where}"


def df(words):
    inodes = "-i" in words
    words = [word for word in words if word != "-i"]
    for path in words:
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
    for index in range(MDTS):
        full = index in _numbers("LFS_MDT_FULL")
        few, many = (MDT_FULL, MDT_INODES) if inodes else (MDT_LINE_FULL, MDT_LINE)
        numbers = few if full else many
        name = f"{FSNAME}-MDT{index:04x}_UUID"
        print(df_line(name, *numbers, f"{where}[MDT:{index}]"))
    total = used = free = 0
    closed = _numbers("LFS_NO_CREATE")
    for index in range(ost_count()):
        if index in _numbers("LFS_INACTIVE"):
            continue
        mine = USED_FULL if index in _numbers("LFS_FULL") else USED
        left = BLOCKS - RESERVED - mine
        place = f"{where}[OST:{index}]{' N' if index in closed else ''}"
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


def osts(words):
    if mount() is None or not all(map(on_lustre, words)):
        return 0
    print("OBDS:")
    for index in range(ost_count()):
        state = "INACTIVE" if index in _numbers("LFS_INACTIVE") else "ACTIVE"
        print(f"{index}: {uuid(index)} {state}")
    return 0


def quota(words):
    """``lfs quota PATH``: of the user and the group."""
    if len(words) != 1 or words[0].startswith("-"):
        raise not_covered(f"lfs quota {' '.join(words)}")
    given = os.environ.get("LFS_QUOTA", "0 0 0 0").split()
    used, limit, files, file_limit, soft, grace = [*given, "0", "-"][:6]

    def shown(value, *limits):
        return f"{value}{'*' if any(int(most) and int(value) > int(most) for most in limits) else ''}"

    of_bytes = (shown(used, limit, soft), soft, limit, grace)
    columns = (*of_bytes, shown(files, file_limit), 0, file_limit, "-")
    for title in _quota_titles():
        print(title)
        print(f"{words[0]:>15}" + "".join(f"{column:>8}" for column in columns) + " ")
    return 0


def _quota_titles():
    import grp
    import pwd

    columns = "     Filesystem  kbytes  bquota  blimit  bgrace   files  iquota  ilimit  igrace "
    user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(os.getegid())
    yield f"Disk quotas for usr {user.pw_name} (uid {user.pw_uid}):\n{columns}"
    yield f"Disk quotas for grp {group.gr_name} (gid {group.gr_gid}):\n{columns}"


def lfs(argv):
    """The program ``lfs``."""
    commands = {
        "setstripe": setstripe,
        "getdirstripe": getdirstripe,
        "df": df,
        "osts": osts,
        "quota": quota,
    }
    return _run("lfs", commands, argv)


def lctl(argv):
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


def _run(program, commands, argv):
    try:
        if not argv or argv[0] not in commands:
            raise not_covered(f"{program} {' '.join(argv)}")
        return int(commands[argv[0]](argv[1:]))
    except Refused as refused:
        print(*refused.lines, sep="\n", file=sys.stderr)
        return refused.status
