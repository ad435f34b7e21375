"""Storage targets of a Lustre file system, as its programs print them."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from iogauge.node.layouts import LustreError, excerpt
from iogauge.node.mounts import (
    Quota,
    StorageTarget,
    View,
    cache_id,
    cached_below,
    find_mount,
    parse_lfs_quota,
    space_of,
)

_T = TypeVar("_T")

#: Programs that run at a time, names on one command line, seconds that one program may take.
_WORKERS: Final = 16
NAMES_PER_COMMAND: Final = 200
PROGRAM_SECONDS: Final = 120


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    """A finished program, whatever its status; raises :class:`LustreError` where it cannot run or hangs."""
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
    """What ``lfs`` prints; raises :class:`LustreError` with its complaint where it fails."""
    done = _run("lfs", *words)
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "it printed nothing").splitlines()
        shown = " ".join(["lfs", *words[:6], *(["..."] if len(words) > 6 else [])])
        raise LustreError(f"{shown}: exit status {done.returncode}: {said[0]}")
    return done.stdout


def in_parallel(work: Callable[[str], _T], items: Sequence[str]) -> list[_T]:
    """``work`` on every item, several at a time; the answers in the order of the items."""
    from concurrent.futures import ThreadPoolExecutor  # a tenth of an agent's start

    with ThreadPoolExecutor(_WORKERS) as pool:
        return list(pool.map(work, items))


def storage_targets(path: str) -> tuple[StorageTarget, ...]:
    """Storage targets behind a path on Lustre; raises :class:`LustreError` where ``lfs`` does not tell."""
    room = parse_df(run_lfs("df", path))
    osts = parse_osts(run_lfs("osts", path))
    checked = _run("lfs", "check", "osts")
    failed = parse_check(checked.stdout + checked.stderr)
    named = ""
    # Without an answer, which the exit status of lctl says nothing about, the servers are not known.
    with contextlib.suppress(LustreError):
        named = _run("lctl", "get_param", "osc.*.ost_conn_uuid").stdout
    return join_targets(osts=osts, room=room, servers=parse_servers(named), failed=failed)


def _lustre_quotas(path: str) -> tuple[Quota, ...]:
    """Quota of the user and the group on Lustre; empty where ``lfs`` is missing or does not answer."""
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
    """What this host sees of a path; raises OSError where it cannot be looked at.

    ``striped``: Lustre lays its files out, whose storage targets are looked at too. Raises
    :class:`LustreError` where they cannot be.
    """
    mount = find_mount(path)
    on_lustre = striped or (mount is not None and mount.type == "lustre")
    return View(
        host=os.uname().nodename,
        path=path,
        mount=mount,
        space=space_of(path),
        quotas=_lustre_quotas(path) if on_lustre else (),
        cache_id=cache_id(path),
        cached_below=mount is not None and cached_below(mount),
        targets=storage_targets(path) if striped else (),
    )


_DF_LINE: Final = re.compile(
    r"(?P<uuid>\S+)[ ]+(?P<blocks>[0-9]{1,18})[ ]+(?P<used>[0-9]{1,18})[ ]+(?P<available>[0-9]{1,18})[ ]+\S+[ ]+"
    r"\S.*\[OST:(?P<index>[0-9]{1,9})\](?:[ ]+(?P<flags>[A-Za-z]+))?\s*"
)
_OSTS_LINE: Final = re.compile(r"([0-9]{1,9}): (\S+) (ACTIVE|INACTIVE)\s*")

#: A client's device of a target. The devices of metadata servers (``-osc-MDT0000``) match ``osc.*`` too.
_DEVICE: Final = r"(\S+-OST[0-9a-f]{4})-osc-(?!MDT)[^\s.']+"


def parse_df(text: str) -> dict[str, StorageTarget]:
    """Targets by UUID from ``lfs df PATH`` (1K blocks); one that is inactive is missing there."""
    found = {}
    for line in text.splitlines():
        match = _DF_LINE.fullmatch(line)
        if match:
            used, free = int(match["used"]) * 1024, int(match["available"]) * 1024
            found[match["uuid"]] = StorageTarget(
                index=int(match["index"]),
                uuid=match["uuid"],
                active=True,
                flags=match["flags"] or "",
                bytes_total=used + free,
                bytes_free=free,
            )
    return found


def parse_osts(text: str) -> dict[str, tuple[int, bool]]:
    """Index and activity of every target, by UUID, from ``lfs osts PATH``.

    Raises :class:`LustreError` where there is none (``lfs osts`` succeeds without a word where no Lustre is
    mounted), or where one stands twice.
    """
    found: dict[str, tuple[int, bool]] = {}
    for line in text.splitlines():
        match = _OSTS_LINE.fullmatch(line)
        if match and match[2] in found:
            raise LustreError(f"lfs osts: {match[2]} stands there twice")
        if match:
            found[match[2]] = int(match[1]), match[3] == "ACTIVE"
    if not found:
        raise LustreError(f"lfs osts: no storage target in {excerpt(text)}")
    return found


def parse_servers(text: str) -> dict[str, str]:
    """Address of the server of each target, by UUID, from ``lctl get_param osc.*.ost_conn_uuid``.

    Devices of metadata servers and targets without a connection are left out. The exit status of lctl says
    nothing about its answer.
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = re.fullmatch(rf"osc\.{_DEVICE}\.ost_conn_uuid=(\S+@\S+)\s*", line)
        if match:
            found.setdefault(f"{match[1]}_UUID", match[2])
    return found


def parse_check(text: str) -> dict[str, str]:
    """What is wrong with targets, by UUID, from all that ``lfs check osts`` prints (it exits with 0).

    Being refused (errors 1 and 13) is no answer, and left out.
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = re.search(rf"error: check '{_DEVICE}': (.*\((\d+)\))\s*$", line)
        if match and match[3] not in ("1", "13"):
            found.setdefault(f"{match[1]}_UUID", match[2])
    return found


def join_targets(
    *,
    osts: Mapping[str, tuple[int, bool]],
    room: Mapping[str, StorageTarget],
    servers: Mapping[str, str],
    failed: Collection[str],
) -> tuple[StorageTarget, ...]:
    """All targets in order of their index, from what the parsers above found.

    Active is one that ``lfs osts`` calls so, that ``lfs df`` shows and that ``lfs check`` has no complaint
    about. Raises :class:`LustreError` where ``lfs df`` and ``lfs osts`` disagree on what there is.
    """
    joined = []
    for uuid, seen in room.items():
        if uuid not in osts or osts[uuid][0] != seen.index:
            raise LustreError(f"lfs df shows {uuid} as OST {seen.index}, lfs osts does not")
    for uuid, (index, active) in osts.items():
        known = room.get(uuid) or StorageTarget(index=index, uuid=uuid, active=False)
        healthy = active and known.active and uuid not in failed
        joined.append(replace(known, active=healthy, server=servers.get(uuid)))
    return tuple(sorted(joined, key=lambda target: target.index))
