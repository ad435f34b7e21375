"""Storage targets of a Lustre file system, from its programs' output."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import struct
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from iogauge.node import below, lustre_client
from iogauge.node.layouts import LustreError, excerpt
from iogauge.node.mounts import (
    Below,
    Quota,
    StorageTarget,
    View,
    cache_id,
    existing_parent,
    find_mount,
    fsname_of,
    parse_lfs_quotas,
    space_of,
)
from iogauge.node.uuids import READ, uuid_of

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
    osts = lustre_client.targets(fsname) or parse_osts(run_lfs("osts", path))
    return join_targets(osts=osts, shown=shown, servers=lustre_client.servers(fsname))


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


def quotas_of(path: str) -> tuple[tuple[Quota, ...], tuple[str, ...]]:
    """Return the quotas on Lustre of user, group and project, and whose quota was not answered.

    ``lfs`` applies the default quota itself. A program that is not there has nothing to tell.
    """
    from shutil import which  # brings the compressors

    if which("lfs") is None:
        return (), ()
    project = project_of(path)
    questions: list[tuple[list[str], str]] = [([], "user and group")]
    questions += [(["-p", str(project)], f"project {project}")] if project else []
    quotas: list[Quota] = []
    unanswered = []
    for words, owner in questions:
        try:
            done = _run("lfs", "quota", *words, path, seconds=QUOTA_SECONDS)
            quotas += parse_lfs_quotas(done.stdout)
        except LustreError:
            unanswered.append(owner)
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


def with_lustre(view: View, striped: bool) -> View:
    """Return a view with what Lustre's programs say: the quotas, and the storage targets if striped.

    ``striped`` means that Lustre lays out the files, whatever the mount's type. Elsewhere nothing is
    asked. Raises :class:`LustreError` if the storage targets cannot be found out.
    """
    if not striped and (view.mount is None or view.mount.type != "lustre"):
        return view
    targets = storage_targets(view.path) if striped else ()
    quotas, unanswered = quotas_of(view.path)
    return replace(view, quotas=quotas, targets=targets, unanswered=unanswered)


_DF_LINE: Final = re.compile(
    r"(?P<uuid>\S+)[ ]+(?P<blocks>[0-9]{1,18})[ ]+(?P<used>[0-9]{1,18})[ ]+(?P<available>[0-9]{1,18})[ ]+\S+[ ]+"
    r"\S.*\[OST:(?P<index>[0-9]{1,9})\](?:[ ]+(?P<flags>[A-Za-z]+))?\s*"
)
_OSTS_LINE: Final = re.compile(r"([0-9]{1,9}): (\S+) (ACTIVE|INACTIVE)\s*")


def parse_df(text: str) -> dict[str, StorageTarget]:
    """Return targets by UUID from ``lfs df PATH`` (1K blocks), which omits inactive targets."""
    targets = {}
    for line in text.splitlines():
        match = _DF_LINE.fullmatch(line)
        if match:
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
