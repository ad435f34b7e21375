"""Storage targets of a Lustre file system, from its programs' output."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from iogauge.node import below
from iogauge.node.layouts import LustreError, excerpt
from iogauge.node.mounts import (
    Below,
    Quota,
    StorageTarget,
    View,
    cache_id,
    existing_parent,
    find_mount,
    parse_lfs_quota,
    space_of,
)

#: Names on one command line, seconds for one program.
NAMES_PER_COMMAND: Final = 200
PROGRAM_SECONDS: Final = 120


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a program, whatever its status; raises :class:`LustreError` if it cannot run or hangs."""
    try:
        return subprocess.run(
            words,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROGRAM_SECONDS,
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
    osts = parse_osts(run_lfs("osts", path))
    checked = _run("lfs", "check", "osts")
    failed = parse_check(checked.stdout + checked.stderr)
    # Without an answer the servers are unknown.
    servers = parse_servers(ask_lctl("osc.*.ost_conn_uuid"))
    return join_targets(osts=osts, shown=shown, servers=servers, failed=failed)


def _lustre_quotas(path: str) -> tuple[Quota, ...]:
    """Return user and group quota on Lustre; empty if ``lfs`` is missing or does not answer."""
    from shutil import which  # brings the compressors

    if which("lfs") is None:
        return ()
    quotas = []
    for flag, number, owner in (("-u", os.getuid(), "user"), ("-g", os.getgid(), "group")):
        try:
            done = _run("lfs", "quota", "-q", flag, str(number), path)
        except LustreError:
            continue
        quota = parse_lfs_quota(done.stdout, f"{owner} {number}")
        if quota:
            quotas.append(quota)
    return tuple(quotas)


def look(path: str, striped: bool = False) -> View:
    """Return this host's view of a path; raises OSError if it cannot be looked at.

    ``striped`` means that Lustre lays out its files: then look at the storage targets too. Raises
    :class:`LustreError` if that fails.
    """
    from iogauge.node.uuids import uuid_of

    mount = find_mount(path)
    on_lustre = striped or (mount is not None and mount.type == "lustre")
    return View(
        host=os.uname().nodename,
        path=path,
        mount=mount,
        space=space_of(path),
        quotas=_lustre_quotas(path) if on_lustre else (),
        cache_id=cache_id(path),
        below=below.resolve(path, mount) if mount else Below(),
        targets=storage_targets(path) if striped else (),
        uuid=uuid_of(existing_parent(path), mount),
    )


_DF_LINE: Final = re.compile(
    r"(?P<uuid>\S+)[ ]+(?P<blocks>[0-9]{1,18})[ ]+(?P<used>[0-9]{1,18})[ ]+(?P<available>[0-9]{1,18})[ ]+\S+[ ]+"
    r"\S.*\[OST:(?P<index>[0-9]{1,9})\](?:[ ]+(?P<flags>[A-Za-z]+))?\s*"
)
_OSTS_LINE: Final = re.compile(r"([0-9]{1,9}): (\S+) (ACTIVE|INACTIVE)\s*")

#: A client's device of a target. Devices of metadata servers (``-osc-MDT0000``) match ``osc.*``
#: too.
_DEVICE: Final = r"(\S+-OST[0-9a-f]{4})-osc-(?!MDT)[^\s.']+"


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


def parse_servers(text: str) -> dict[str, str]:
    """Return each target's server address, by UUID, from ``lctl get_param osc.*.ost_conn_uuid``.

    Devices of metadata servers and targets without a connection are left out. lctl's exit status
    says nothing about its answer.
    """
    servers: dict[str, str] = {}
    for line in text.splitlines():
        match = re.fullmatch(rf"osc\.{_DEVICE}\.ost_conn_uuid=(\S+@\S+)\s*", line)
        if match:
            servers.setdefault(f"{match[1]}_UUID", match[2])
    return servers


def parse_check(text: str) -> dict[str, str]:
    """Return problems of targets, by UUID, from the output of ``lfs check osts`` (it exits with 0).

    A refusal (errors 1 and 13) says nothing about the target and is left out.
    """
    problems: dict[str, str] = {}
    for line in text.splitlines():
        match = re.search(rf"error: check '{_DEVICE}': (.*\((\d+)\))\s*$", line)
        if match and match[3] not in ("1", "13"):
            problems.setdefault(f"{match[1]}_UUID", match[2])
    return problems


def join_targets(
    *,
    osts: Mapping[str, tuple[int, bool]],
    shown: Mapping[str, StorageTarget],
    servers: Mapping[str, str],
    failed: Collection[str],
) -> tuple[StorageTarget, ...]:
    """Join the results of the parsers above to all targets, in order of index.

    A target is active if ``lfs osts`` calls it active, ``lfs df`` shows it, and ``lfs check`` does
    not complain. Raises :class:`LustreError` if ``lfs df`` and ``lfs osts`` disagree on the
    targets.
    """
    joined = []
    for uuid, target in shown.items():
        if uuid not in osts or osts[uuid][0] != target.index:
            raise LustreError(f"lfs df shows {uuid} as OST {target.index}, lfs osts does not")
    for uuid, (index, active) in osts.items():
        target = shown.get(uuid) or StorageTarget(index=index, uuid=uuid, active=False)
        healthy = active and target.active and uuid not in failed
        joined.append(replace(target, active=healthy, server=servers.get(uuid)))
    return tuple(sorted(joined, key=lambda target: target.index))
