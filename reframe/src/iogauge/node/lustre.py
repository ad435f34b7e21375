"""Lustre's client on this node: parameters from the kernel's own files, storage targets, settings that
a case changes, and what a directory passes on to its files: layout, metadata targets, pool.

Settings are changed by ``lctl set_param``, only if the site grants the right, and only by root. The
old values are on disk before the first change, and are restored when the job ends. If a job is
killed before it restores them, the suite's next job on that node does. ``lctl``'s exit status says
nothing: for an ordinary user it prints data and exits with 2. So every change is read back.

``lctl get_param`` reads the same files for single values (cfs_get_param_paths, libcfs/libcfs/util/param.c). But it is a
program, and took up to 0.74 s on a busy node. Users may read sysfs, root alone debugfs; clients before Lustre 2.12 keep
some values in procfs. Counters (``stats``) are not read here: Lustre 2.17 shows them to users through netlink only.

The layouts come by getxattr(2) (:mod:`iogauge.node.layouts`), the metadata target of an ordinary
directory by ioctl(2). ``lfs`` is asked for striped directories and for pools.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Final, Literal

from iogauge.core import untrusted
from iogauge.core.paths import replace_file
from iogauge.core.words import Fingerprint
from iogauge.node import below, layouts
from iogauge.node.layouts import FileLayout, Layout, LustreError, Part, excerpt
from iogauge.node.mounts import (
    READ,
    Below,
    Mount,
    Quota,
    StorageTarget,
    View,
    cache_id,
    existing_parent,
    find_mount,
    fsname_of,
    parse_lfs_quotas,
    space_of,
    uuid_of,
)

#: Checksums of bulk data: one parameter for each storage target that this client is connected to.
#: The metadata servers' own connections, seen if client and server share a node, have none. A pattern
#: is sound for single values only, and lctl 2.17 dies of brackets in it.
_CHECKSUMS: Final = "osc.{fsname}-OST*-osc-*.checksums"
_IS_CHECKSUMS: Final = re.compile(r"osc\.[A-Za-z0-9_-]+\.checksums=[01]")


class TunableError(OSError):
    """A setting could not be read, changed or restored; the message names it and the remedy."""


def parse_params(text: str) -> dict[str, str]:
    """Parse ``lctl get_param`` output, ``name=value`` a line; other lines are left out."""
    lines = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, _, value in lines}


def _lctl(*words: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["lctl", *words], capture_output=True, text=True, timeout=60, check=False
        )
    except FileNotFoundError:
        raise TunableError(
            "lctl is not on PATH: checksums cannot be switched; remove lustre-checksums from extras.rights, or "
            "install the Lustre client's tools on this node"
        ) from None
    except subprocess.TimeoutExpired:
        raise TunableError(f"lctl {' '.join(words)} did not answer in 60 s") from None


def _read(pattern: str) -> dict[str, str]:
    values = parse_params(_lctl("get_param", pattern).stdout)
    if not values:
        raise TunableError(
            f"lctl get_param {pattern}: nothing found: no storage target of this file system is connected "
            "here"
        )
    return values


def _write(values: Mapping[str, str]) -> None:
    """Set parameters, and read them back to check; raises :class:`TunableError`."""
    done = _lctl("set_param", *(f"{name}={value}" for name, value in values.items()))
    found = parse_params(_lctl("get_param", *values).stdout)
    for name, value in values.items():
        now = found.get(name)
        if now != value:
            complaint = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise TunableError(
                f"{name} is {now!r} after lctl set_param {name}={value} ({complaint}): only root may set it"
            )


def _file(folder: Path, fsname: str) -> Path:
    return folder / f"{os.uname().nodename}.{fsname.replace('*', 'any')}.json"


def switch_checksums(on: bool, source: str, folder: Path) -> None:
    """Switch the checksums of a file system's bulk data; first save the old values in ``folder``.

    ``source`` is the mount's source. Raises :class:`TunableError`.
    """
    fsname = fsname_of(source)
    values = _read(_CHECKSUMS.format(fsname=fsname))
    file = _file(folder, fsname)
    if not file.exists():  # else a change is under way, and the file holds the values before it
        folder.mkdir(parents=True, exist_ok=True)
        kept = {"since": time.time(), "found": values}
        replace_file(file, json.dumps(kept).encode(), sync=True)
    _write(dict.fromkeys(values, "1" if on else "0"))


def restore(folder: Path) -> list[str]:
    """Restore what this node's jobs changed; return the restored values as text for people.

    A file is kept until all of its values are restored. Raises :class:`TunableError` on failure.
    """
    done = []
    for file in sorted(folder.glob(f"{os.uname().nodename}.*.json")):
        try:
            saved = untrusted.build(Mapping[str, str], untrusted.read_json(file)["found"])
            if wrong := [
                pair for pair in saved.items() if not _IS_CHECKSUMS.fullmatch("=".join(pair))
            ]:
                raise ValueError(
                    f"{'='.join(wrong[0])[:80]!r} is not a parameter that a case may change"
                )
        except (ValueError, KeyError, TypeError) as error:
            raise TunableError(
                f"{file}: not what this suite wrote ({error!r}): look at 'lctl get_param "
                "osc.*.checksums', set what your site wants, and remove the file"
            ) from error
        # A storage target that is gone needs no restoration.
        present = parse_params(_lctl("get_param", *saved).stdout)
        changed = {n: v for n, v in saved.items() if n in present and present[n] != v}
        if changed:
            _write(changed)
            done += [f"{name}={value}" for name, value in changed.items()]
        with contextlib.suppress(FileNotFoundError):
            file.unlink()
    return done


#: Directories of the parameters, below the root of the machine.
TOPS = ("sys/fs/lustre", "sys/kernel/debug/lustre", "proc/fs/lustre")

#: Parameters of the Lustre client that a fingerprint keeps, by the kind of device that has them.
TUNABLES: Final[dict[str, tuple[str, ...]]] = {
    "llite": (
        "checksums",
        "fast_read",
        "file_heat",
        "hybrid_io",
        "hybrid_io_read_threshold_bytes",
        "hybrid_io_write_threshold_bytes",
        "max_cached_mb",
        "max_read_ahead_mb",
        "max_read_ahead_per_file_mb",
        "max_read_ahead_whole_mb",
        "opencache_threshold_count",
        "parallel_dio",
        "statahead_max",
        "unaligned_dio",
    ),
    "osc": (
        "checksum_type",
        "checksums",
        "max_dirty_mb",
        "max_pages_per_rpc",
        "max_rpcs_in_flight",
        "resend_count",
        "short_io_bytes",
    ),
    "mdc": ("max_mod_rpcs_in_flight", "max_rpcs_in_flight"),
}

#: A client's devices by kind. The devices of metadata servers (``-osc-MDT0000``), seen if client
#: and server share a node, fit too, and are left out.
_DEVICES: Final = {
    "llite": "{fs}-*",
    "osc": "{fs}-OST*-osc-*",
    "mdc": "{fs}-MDT*-mdc-*",
    "lov": "{fs}-clilov-*",
    "lmv": "{fs}-clilmv-*",
    "obdfilter": "{fs}-*",
    "mdt": "{fs}-*",
}
_OF_SERVER: Final = "-osc-MDT"

#: What :func:`facts` reads of each kind of device.
_FACTS: Final[dict[str, tuple[str, ...]]] = {
    "": ("version",),
    **TUNABLES,
    "osc": (*TUNABLES["osc"], "ost_conn_uuid", "import"),
    "lov": ("numobd",),
    "lmv": ("numobd",),
}


def _text(path: str) -> str | None:
    """Return the content of a parameter's file; None if it is not there, or not for this user.

    A client of 1000 storage targets has 9000 of them: pathlib would triple the time.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        text = b"".join(iter(lambda: os.read(file, 1 << 16), b""))
    except OSError:
        return None
    finally:
        os.close(file)
    return text.decode("utf-8", "replace").strip("\n")


def read_parameters(
    fsname: str, wanted: Mapping[str, Sequence[str]], root: Path = Path("/")
) -> dict[str, str]:
    """Return the wanted parameters of a file system by name, as ``lctl get_param`` names them.

    ``wanted`` lists parameters by the kind of device, and those of the whole node by "". What this
    user may not read is left out.
    """
    found: dict[str, str] = {}
    for name, top in product(wanted.get("", ()), TOPS):
        if (value := _text(os.path.join(root, top, name))) is not None:
            found.setdefault(name, value)
    for kind in filter(None, wanted):
        names, pattern = wanted[kind], _DEVICES[kind].format(fs=fsname)
        for top in (os.path.join(root, top, kind) for top in TOPS):
            devices: list[str] = []
            with contextlib.suppress(OSError):
                devices = sorted(os.listdir(top))
            for device in devices:
                if fnmatchcase(device, pattern) and _OF_SERVER not in device:
                    for name in names:
                        if (value := _text(f"{top}/{device}/{name}")) is not None:
                            found.setdefault(f"{kind}.{device}.{name}", value)
    return found


def facts_of(parameters: Mapping[str, str]) -> Fingerprint:
    """Return versions, counts and tunables from parameters.

    If a value differs between devices, all values are given, sorted and separated by commas.
    """
    facts: Fingerprint = {}
    values: dict[str, set[str]] = {}
    client_servers: dict[str, set[str]] = {"versions": set(), "addresses": set()}
    for name, value in parameters.items():
        first, last = name.split(".")[0], name.split(".")[-1]
        if name == "version":
            facts["lustre.client"] = value.strip()
        elif last == "numobd" and "-cli" in name and re.fullmatch("[0-9]{1,9}", value):
            facts["lustre.mdts" if first == "lmv" else "lustre.osts"] = int(value)
        elif last == "ost_conn_uuid" and "@" in value:
            client_servers["addresses"].add(value.strip())
        elif last == "import" and (match := re.search(r"target_version:\s*([\d.]+)", value)):
            client_servers["versions"].add(match[1])
        elif last in TUNABLES.get(first, ()) and _OF_SERVER not in name:
            # The type in use stands in brackets; a value of many lines begins with its own name.
            pattern = r"\[(\S+)\]" if last == "checksum_type" else rf"(?m)^{last}:\s*(\S+)"
            if match := re.search(pattern, value):
                value = match[1]
            values.setdefault(f"tunable.{first}.{last}", set()).add(" ".join(value.split()))
    if client_servers["versions"]:
        facts["lustre.server"] = ",".join(sorted(client_servers["versions"]))
    if client_servers["addresses"]:
        facts["lustre.servers"] = len(client_servers["addresses"])
    return facts | {key: ",".join(sorted(different)) for key, different in values.items()}


def facts(fsname: str, root: Path = Path("/")) -> Fingerprint:
    """Return what a node's Lustre client says of itself, of a file system and of its servers."""
    return facts_of(read_parameters(fsname, _FACTS, root))


def client_targets(fsname: str, root: Path = Path("/")) -> dict[str, tuple[int, bool]]:
    """Return index and activity of every storage target, by UUID; empty if the kernel shows none.

    These are the answers of ``lfs osts``. A name ends in the index: ``scratch-OST001f`` is the
    target 31. Of a file system that is mounted twice, each mount must call the target active.
    """
    found: dict[str, tuple[int, bool]] = {}
    for name, value in read_parameters(fsname, {"osc": ("active",)}, root).items():
        target = name.split(".")[1].partition("-osc-")[0]
        if index := re.search(r"-OST([0-9a-f]{4})\Z", target):
            _, active = found.get(f"{target}_UUID", (0, True))
            found[f"{target}_UUID"] = int(index[1], 16), active and value.strip() == "1"
    return found


def client_servers(fsname: str, root: Path = Path("/")) -> dict[str, str]:
    """Return the address of the server of each storage target, by the target's UUID.

    Targets without a connection are left out.
    """
    found = read_parameters(fsname, {"osc": ("ost_conn_uuid",)}, root)
    pairs = ((name.split(".")[1].partition("-osc-")[0], value) for name, value in found.items())
    return {f"{target}_UUID": value.strip() for target, value in pairs if "@" in value}


#: Names on one command line, seconds for one program.
NAMES_PER_COMMAND: Final = 200
PROGRAM_SECONDS: Final = 120
#: Seconds for a question about a quota, which may remain without an answer.
QUOTA_SECONDS: Final = 30

#: Request for a file's attributes, and the flag that what is made in a directory joins its project
#: (linux/fs.h: FS_IOC_FSGETXATTR, struct fsxattr, FS_XFLAG_PROJINHERIT).
_ATTRIBUTES: Final = struct.Struct("5I8x")
_GET_ATTRIBUTES: Final = READ | _ATTRIBUTES.size << 16 | ord("X") << 8 | 31
_INHERITS_PROJECT: Final = 0x200


def _run(*words: str, seconds: float = PROGRAM_SECONDS) -> subprocess.CompletedProcess[str]:
    """Run a program, whatever its status; raises :class:`LustreError` if it cannot run or hangs."""
    try:
        return subprocess.run(
            words,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LustreError(
            f"{words[0]} cannot be run on {os.uname().nodename} ({error}): a target that Lustre stripes "
            "needs it on every node"
        ) from error


def run_lfs(*words: str) -> str:
    """Return the output of ``lfs``; raises :class:`LustreError` with its complaint if it fails."""
    done = _run("lfs", *words)
    if done.returncode != 0:
        complaint = (
            done.stderr.strip() or done.stdout.strip() or "it printed nothing"
        ).splitlines()
        shown = " ".join(["lfs", *words[:6], *(["..."] if len(words) > 6 else [])])
        raise LustreError(f"{shown}: exit status {done.returncode}: {complaint[0]}")
    return done.stdout


def ask_lctl(*parameters: str) -> str:
    """Return what ``lctl get_param`` prints, whose exit status says nothing; empty if it cannot run."""
    try:
        return _run("lctl", "get_param", *parameters).stdout
    except LustreError:
        return ""


def storage_targets(path: str) -> tuple[StorageTarget, ...]:
    """Return the storage targets of a path on Lustre; raises :class:`LustreError` if unknown."""
    shown = parse_df(run_lfs("df", path))
    mount = find_mount(path)
    fsname = fsname_of(mount.source if mount else "")
    # A container may hide the kernel's files.
    osts = client_targets(fsname) or parse_osts(run_lfs("osts", path))
    return join_targets(osts=osts, shown=shown, servers=client_servers(fsname))


def project_of(path: str) -> int:
    """Return the project of what is made in a directory; 0 if it has none, or none can be seen."""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            answer = fcntl.ioctl(fd, _GET_ATTRIBUTES, bytes(_ATTRIBUTES.size))
        finally:
            os.close(fd)
        flags, _, _, project, _ = _ATTRIBUTES.unpack(answer)
        return project if flags & _INHERITS_PROJECT else 0
    return 0


def quotas_of(path: str, pool: str | None = None) -> tuple[tuple[Quota, ...], tuple[str, ...]]:
    """Return the quotas on Lustre of user, group and project, also in a pool, and whose quota was not answered.

    ``lfs`` applies the default quota itself. A program that is not there has nothing to tell.
    """
    from shutil import which  # brings the compressors

    if which("lfs") is None:
        return (), ()
    project = project_of(path)
    questions: list[tuple[list[str], str]] = [([], "user and group")]
    questions += [(["-p", str(project)], f"project {project}")] if project else []
    if pool is not None:
        of = {"-u": os.getuid(), "-g": os.getgid(), **({"-p": project} if project else {})}
        questions += [([o, str(n), "--pool", pool], f"the pool {pool}") for o, n in of.items()]
    quotas: list[Quota] = []
    unanswered = []
    for words, owner in questions:
        try:
            done = _run("lfs", "quota", *words, path, seconds=QUOTA_SECONDS)
        except LustreError:
            unanswered.append(owner)
            continue
        where = f" in the pool {pool}" if "--pool" in words else ""
        quotas += [replace(one, owner=one.owner + where) for one in parse_lfs_quotas(done.stdout)]
    return tuple(quotas), tuple(unanswered)


def look(path: str) -> View:
    """Return this host's view of a path, as its kernel sees it; raises OSError if it cannot be looked at."""
    mount = find_mount(path)
    return View(
        host=os.uname().nodename,
        path=path,
        mount=mount,
        space=space_of(path),
        cache_id=cache_id(path),
        below=below.resolve(path, mount) if mount else Below(),
        uuid=uuid_of(existing_parent(path), mount),
    )


def with_lustre(view: View, striped: bool, pool: str | None = None) -> View:
    """Return a view with what Lustre's programs say: the quotas, and the storage targets if striped.

    ``striped`` means that Lustre lays out the files, whatever the mount's type. Elsewhere nothing is
    asked. Raises :class:`LustreError` if the storage targets cannot be found out.
    """
    if not striped and (view.mount is None or view.mount.type != "lustre"):
        return view
    targets = storage_targets(view.path) if striped else ()
    quotas, unanswered = quotas_of(view.path, pool)
    return replace(view, quotas=quotas, targets=targets, unanswered=unanswered)


_DF_LINE: Final = re.compile(
    r"(?P<uuid>\S+)[ ]+(?P<blocks>[0-9]{1,18})[ ]+(?P<used>[0-9]{1,18})[ ]+(?P<available>[0-9]{1,18})[ ]+\S+[ ]+"
    r"\S.*\[(?P<kind>OST|MDT):(?P<index>[0-9]{1,9})\](?:[ ]+(?P<flags>[A-Za-z]+))?\s*"
)
_OSTS_LINE: Final = re.compile(r"([0-9]{1,9}): (\S+) (ACTIVE|INACTIVE)\s*")


def parse_df(text: str, kind: Literal["OST", "MDT"] = "OST") -> dict[str, StorageTarget]:
    """Return targets by UUID from ``lfs df PATH`` (1K blocks), which omits inactive targets."""
    targets = {}
    for line in text.splitlines():
        match = _DF_LINE.fullmatch(line)
        if match and match["kind"] == kind:
            used, free = int(match["used"]) * 1024, int(match["available"]) * 1024
            targets[match["uuid"]] = StorageTarget(
                index=int(match["index"]),
                uuid=match["uuid"],
                active=True,
                flags=match["flags"] or "",
                bytes_total=used + free,
                bytes_free=free,
            )
    return targets


def parse_osts(text: str) -> dict[str, tuple[int, bool]]:
    """Return index and activity of every target, by UUID, from ``lfs osts PATH``.

    Raises :class:`LustreError` if no target or a repeated one is listed. Without a mounted Lustre
    ``lfs osts`` succeeds and prints nothing.
    """
    targets: dict[str, tuple[int, bool]] = {}
    for line in text.splitlines():
        match = _OSTS_LINE.fullmatch(line)
        if match and match[2] in targets:
            raise LustreError(f"lfs osts: {match[2]} stands there twice")
        if match:
            targets[match[2]] = int(match[1]), match[3] == "ACTIVE"
    if not targets:
        raise LustreError(f"lfs osts: no storage target in {excerpt(text)}")
    return targets


def join_targets(
    *,
    osts: Mapping[str, tuple[int, bool]],
    shown: Mapping[str, StorageTarget],
    servers: Mapping[str, str],
) -> tuple[StorageTarget, ...]:
    """Join what was found out to all targets, in order of index.

    A target is active if the client calls it active and ``lfs df``, which asks its server, shows it.
    Raises :class:`LustreError` if ``lfs df`` shows a target that the client does not have.
    """
    joined = []
    for uuid, target in shown.items():
        if uuid not in osts or osts[uuid][0] != target.index:
            raise LustreError(
                f"lfs df shows {uuid} as OST {target.index}, the client does not have it"
            )
    for uuid, (index, active) in osts.items():
        target = shown.get(uuid) or StorageTarget(index=index, uuid=uuid, active=False)
        joined.append(replace(target, active=active and target.active, server=servers.get(uuid)))
    return tuple(sorted(joined, key=lambda target: target.index))


#: Size of a file that reaches every component.
_NO_END: Final = 1 << 62

#: Requests for a directory's stripes and for its metadata target (lustre_user.h: LL_IOC_LMV_GETSTRIPE,
#: struct lmv_user_md_v1 of 48 bytes, LL_IOC_GET_MDTIDX), and the magic number of the first
#: (lustre_idl.h: LMV_MAGIC_V1). Both directions together are the same two bits on every machine.
_GET_STRIPES: Final = 3 << 30 | 48 << 16 | ord("f") << 8 | 241
_GET_INDEX: Final = READ | 4 << 16 | ord("f") << 8 | 175
_STRIPES: Final = struct.Struct("=I44x").pack(0x0CD20CD0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataTarget:
    """One metadata target (MDT): its index, all its inodes, and the free ones."""

    index: int
    inodes_total: int
    inodes_free: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """What a directory passes on, as the first node saw it before the first byte.

    ``default`` is the layout of new files, ``of_root`` that of the file system's root, which fills
    what others leave open. Either is None if it is unknown. ``mdts`` are the metadata targets that
    the directory lies on: several if it is striped, then ``hash`` says how names go to them.
    ``metadata`` tells the inodes on all metadata targets, and ``metadata_space`` the bytes.
    ``pool`` are the storage targets of the declared pool, ``pool_problem`` says why it has none.
    ``unanswered`` says what else Lustre did not answer.
    """

    default: FileLayout | None = None
    of_root: FileLayout | None = None
    mdts: tuple[int, ...] = ()
    hash: str = ""
    metadata: tuple[MetadataTarget, ...] = ()
    metadata_space: tuple[StorageTarget, ...] = ()
    pool: tuple[int, ...] = ()
    pool_problem: str = ""
    unanswered: tuple[str, ...] = ()

    def at(self, other: Directory) -> Directory:
        """Return what another directory of the same file system passes on."""
        unanswered = tuple(dict.fromkeys(self.unanswered + other.unanswered))
        return replace(
            self, default=other.default, mdts=other.mdts, hash=other.hash, unanswered=unanswered
        )

    @property
    def facts(self) -> Mapping[str, str]:
        """Return the facts of the fingerprint; what was not answered has no key."""
        facts = {"layout.default": str(self.default)} if self.default else {}
        if self.mdts:
            over = f"striped over MDT {', '.join(map(str, self.mdts))} by {self.hash}"
            facts["layout.directory"] = over if self.hash else f"on MDT {self.mdts[0]}"
        return facts

    def usable(self, targets: Sequence[StorageTarget]) -> tuple[StorageTarget, ...]:
        """Return the storage targets that files may lie on: those of the declared pool, or all."""
        return tuple(t for t in targets if not self.pool or t.index in self.pool)

    def parts_of(
        self, request: Layout | None, targets: Sequence[StorageTarget]
    ) -> tuple[Part, ...]:
        """Return the parts that a file of a request will have; empty if a size is not known.

        -1 stands for as many active targets as there are, in the pool if one is declared.
        """
        active = [target for target in self.usable(targets) if target.active]
        root = self.of_root.parts[0] if self.of_root and not self.of_root.composite else None
        known = []
        for part in _requested(request) if request else self.default.parts if self.default else ():
            size = part.stripe_bytes or (min(root.stripe_bytes, part.holds(_NO_END)) if root else 0)
            count = part.stripe_count or (root.stripe_count if root else 0)
            count = len(active) if count == -1 else min(count, len(active))
            if part.pattern != "mdt" and (not size or not count):
                return ()
            known.append(replace(part, stripe_bytes=size, stripe_count=count))
        return tuple(known)


def _requested(request: Layout) -> tuple[Part, ...]:
    if not request.components:
        return (
            Part(
                stripe_count=request.stripe_count or 0,
                stripe_bytes=request.stripe_bytes or 0,
                pool=request.pool,
            ),
        )
    begin, parts = 0, []
    for component in request.components:
        part = Part(
            stripe_count=component.stripe_count,
            stripe_bytes=component.stripe_bytes or 0,
            pool=request.pool,
        )
        parts.append(part.within(begin, component.end_bytes))
        begin = component.end_bytes or begin
    return tuple(parts)


def look_at_directory(view: View, pool: str | None = None) -> Directory:
    """Return what the directory of a view on Lustre passes on.

    What Lustre does not answer is named in the answer; a pool that cannot be listed has no storage targets.
    """
    found = passed_on(view.path, view.mount)
    unanswered = [*found.unanswered]
    try:
        found = replace(found, metadata=parse_df_inodes(run_lfs("df", "-i", view.path)))
        space = parse_df(run_lfs("df", view.path), "MDT")
        found = replace(found, metadata_space=tuple(space.values()))
    except LustreError as error:
        unanswered.append(str(error))
    if pool is not None:
        try:
            name = f"{file_system(view.targets)}.{pool}"
            members = parse_pool(run_lfs("pool_list", name), view.targets)
            found = replace(found, pool=members)
        except LustreError as error:
            found = replace(found, pool_problem=str(error))
    return replace(found, unanswered=tuple(unanswered))


def passed_on(path: str, mount: Mount | None) -> Directory:
    """Return the layout of new files in a directory, and the metadata targets that it lies on."""
    unanswered: list[str] = []
    found = Directory()
    try:
        default, of_root = default_layouts(path, mount)
        found = replace(found, default=default, of_root=of_root)
    except LustreError as error:
        unanswered.append(str(error))
    try:
        mdts, name = metadata_targets(path)
        found = replace(found, mdts=mdts, hash=name)
    except LustreError as error:
        unanswered.append(str(error))
    return replace(found, unanswered=tuple(unanswered))


def default_layouts(
    path: str, mount: Mount | None, root: Path = Path("/")
) -> tuple[FileLayout | None, FileLayout | None]:
    """Return the layouts of new files in a directory and in the file system's root; None if unknown.

    If no directory has one, the file system's own holds: the client shows its count and size to any user (2.17:
    /sys/fs/lustre/lov/FS-clilov-*/stripecount, stripesize). Raises :class:`LustreError`.
    """
    of_root = layouts.read_default_lov(mount.point) if mount else None
    if of_root is None:
        fsname = fsname_of(mount.source if mount else "")
        told = read_parameters(fsname, {"lov": ("stripecount", "stripesize")}, root)
        values = {name.rpartition(".")[2]: value for name, value in told.items()}
        if len(values) == 2 and all(re.fullmatch("-?[0-9]{1,10}", v) for v in values.values()):
            count, size = int(values["stripecount"]), int(values["stripesize"])
            part = Part(stripe_count=count, stripe_bytes=size)
            of_root = FileLayout(path=path, parts=(part,))
    return layouts.read_default_lov(path) or of_root, of_root


def stripe_facts(default: FileLayout | None) -> Fingerprint:
    """Return stripe count and size of a default layout; nothing if they are unknown, or there are several."""
    if default is None or len(default.parts) != 1:
        return {}
    (part,) = default.parts
    return {
        **({"layout.stripe_count": part.stripe_count} if part.stripe_count else {}),
        **({"layout.stripe_bytes": part.stripe_bytes} if part.stripe_bytes else {}),
    }


def metadata_targets(path: str) -> tuple[tuple[int, ...], str]:
    """Return the metadata targets of a directory on Lustre, and the hash of a striped directory.

    Raises :class:`LustreError` if Lustre does not answer.
    """
    index = _ordinary(path)
    if index is not None:
        return (index,), ""
    return parse_getdirstripe(run_lfs("getdirstripe", "-y", path))


def _ordinary(path: str) -> int | None:
    """Return the metadata target of an ordinary directory; None if the kernel does not call it so.

    The kernel has no stripes of an ordinary directory, and more than fit here of a striped one.
    """
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.ioctl(fd, _GET_STRIPES, _STRIPES)
        except OSError as error:
            if error.errno == errno.ENODATA:
                return int.from_bytes(fcntl.ioctl(fd, _GET_INDEX, bytes(4)), sys.byteorder)
        finally:
            os.close(fd)
    return None


def of_metadata_targets(count: int) -> tuple[str, ...]:
    """Return the name of a directory for each metadata target, with the index in hexadecimal."""
    return tuple(f"mdt{index:04x}" for index in range(count))


def file_system(targets: Sequence[StorageTarget]) -> str:
    """Return the name of the file system of storage targets; raises :class:`LustreError`."""
    names = {target.uuid.rpartition("-OST")[0] for target in targets}
    if len(names) != 1 or "" in names:
        raise LustreError(f"no file system has the storage targets {sorted(names)}")
    return names.pop()


def parse_getdirstripe(text: str) -> tuple[tuple[int, ...], str]:
    """Return a directory's metadata targets and hash from ``lfs getdirstripe -y DIR``.

    An ordinary directory lies on one metadata target and has no hash. Raises :class:`LustreError`
    if the answer is damaged.
    """
    values = {
        key: re.findall(rf"(?m)^[ -]*{key}:\s*(\S+)\s*$", text)
        for key in ("lmv_stripe_count", "lmv_stripe_offset", "lmv_hash_type", "l_mdt_idx")
    }
    (count, offset, name), mdts = (values[key] for key in list(values)[:3]), values["l_mdt_idx"]
    numbers = [*count, *offset, *mdts]
    if not (
        [len(count), len(offset), len(name)] == [1, 1, 1]
        and all(re.fullmatch("[0-9]{1,9}", number) for number in numbers)
        and len(mdts) == max(1, int(count[0]))
        and mdts[0] == offset[0]
    ):
        raise LustreError(f"lfs getdirstripe -y: no layout of a directory in {excerpt(text)}")
    indices = tuple(dict.fromkeys(map(int, mdts)))
    return indices, name[0] if int(count[0]) else ""


_INODES_LINE: Final = re.compile(
    r"\S+[ ]+([0-9]{1,18})[ ]+[0-9]{1,18}[ ]+([0-9]{1,18})[ ]+\S+[ ]+\S.*\[MDT:([0-9]{1,9})\].*"
)


def parse_df_inodes(text: str) -> tuple[MetadataTarget, ...]:
    """Return the metadata targets from ``lfs df -i PATH``; raises LustreError if there are none."""
    matches = map(_INODES_LINE.fullmatch, text.splitlines())
    found = tuple(
        MetadataTarget(index=int(m[3]), inodes_total=int(m[1]), inodes_free=int(m[2]))
        for m in matches
        if m
    )
    if not found:
        raise LustreError(f"lfs df -i: no metadata target in {excerpt(text)}")
    return found


def parse_pool(text: str, targets: Sequence[StorageTarget]) -> tuple[int, ...]:
    """Return the indices of a pool's storage targets from ``lfs pool_list FSNAME.POOL``.

    Raises :class:`LustreError` for a name that is none of ``targets``.
    """
    known = {target.uuid: target.index for target in targets}
    names = [line.strip() for line in text.splitlines() if line.strip()]
    if names[:1] and not names[0].startswith("Pool:"):
        raise LustreError(f"lfs pool_list: no pool in {excerpt(text)}")
    if unknown := [name for name in names[1:] if name not in known]:
        raise LustreError(f"lfs pool_list: {unknown[0]} is no storage target of the file system")
    return tuple(known[name] for name in names[1:])
