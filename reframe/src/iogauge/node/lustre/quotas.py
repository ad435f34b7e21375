"""What user, group and project may still use on Lustre."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from iogauge.node.kernel import asked
from iogauge.node.lustre.programs import LustreError, run
from iogauge.node.mounts import READ


@dataclass(frozen=True, slots=True)
class Quota:
    """Bytes and files that a quota still allows; None means no limit.

    ``over`` says by how much a soft limit is exceeded whose grace is not over yet, else it is empty.
    After the grace the soft limit is a hard one.
    """

    owner: str
    bytes_left: int | None
    files_left: int | None
    over: str = ""


#: The owners of quotas, by the first letter of their number's name.
_OWNERS: Final = {"u": "user", "g": "group", "p": "project"}

#: How Lustre says that the grace is over: 2.17 and 2.12.
_NO_GRACE: Final = ("expired", "none")


def parse_lfs_quotas(text: str) -> tuple[Quota, ...]:
    """Parse ``lfs quota PATH``: the quotas that follow a line such as ``Disk quotas for usr x (uid 7):``."""
    parts = re.split(
        r"^Disk quotas for .* \(([ugp])id ([0-9]{1,10})\):\s*$",
        text,
        flags=re.MULTILINE,
    )
    found = (
        parse_lfs_quota(answer, f"{_OWNERS[letter]} {number}")
        for letter, number, answer in zip(
            parts[1::3], parts[2::3], parts[3::3], strict=True
        )
    )
    return tuple(quota for quota in found if quota)


def parse_lfs_quota(text: str, owner: str) -> Quota | None:
    """Parse one answer of ``lfs quota``.

    Its fields are kbytes, quota, limit, grace, files, quota, limit, grace. A value over quota
    carries a ``*`` (Lustre 2.17). The path may have a line of its own. A limit of 0 means no limit.
    Returns None if the text has no such line (quota not enforced, not Lustre).
    """
    fields = text.split()
    numbers = [f.rstrip("*").strip("[]") for f in fields]
    for start in range(len(fields) - 7):
        window = numbers[start : start + 8]
        if all(re.fullmatch("[0-9]{1,18}", window[i]) for i in (0, 1, 2, 4, 5, 6)):
            kilobytes, over = _left(window[:4], "KiB")
            files, over_files = _left(window[4:], "files")
            return Quota(
                owner,
                None if kilobytes is None else kilobytes * 1024,
                files,
                ", ".join(filter(None, [over, over_files])),
            )
    return None


def _left(columns: Sequence[str], unit: str) -> tuple[int | None, str]:
    """Return what a limit still allows, and by how much a soft limit is exceeded within its grace."""
    *counts, grace = columns
    used, soft, hard = map(int, counts)
    over = soft and used > soft
    if over and grace in _NO_GRACE:
        return 0, ""
    left = max(0, hard - used) if hard else None
    return left, f"{used} {unit} of {soft}, grace {grace}" if over else ""


#: Seconds for a question about a quota, which may remain without an answer.
QUOTA_SECONDS: Final = 30

#: Request for a file's attributes, and the flag that what is made in a directory joins its project
#: (linux/fs.h: FS_IOC_FSGETXATTR, struct fsxattr, FS_XFLAG_PROJINHERIT).
_ATTRIBUTES: Final = struct.Struct("5I8x")
_GET_ATTRIBUTES: Final = READ | _ATTRIBUTES.size << 16 | ord("X") << 8 | 31
_INHERITS_PROJECT: Final = 0x200


def project_of(path: str) -> int:
    """Return the project of what is made in a directory; 0 if it has none, or none can be seen."""
    answer = asked(path, _GET_ATTRIBUTES, bytes(_ATTRIBUTES.size))
    flags, _, _, project, _ = _ATTRIBUTES.unpack(answer) if answer else (0,) * 5
    return project if flags & _INHERITS_PROJECT else 0


def quotas_of(
    path: str, pool: str | None = None
) -> tuple[tuple[Quota, ...], tuple[str, ...]]:
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
        of = {
            "-u": os.getuid(),
            "-g": os.getgid(),
            **({"-p": project} if project else {}),
        }
        questions += [
            ([o, str(n), "--pool", pool], f"the pool {pool}") for o, n in of.items()
        ]
    quotas: list[Quota] = []
    unanswered = []
    for words, owner in questions:
        try:
            done = run("lfs", "quota", *words, path, seconds=QUOTA_SECONDS)
        except LustreError:
            unanswered.append(owner)
            continue
        where = f" in the pool {pool}" if "--pool" in words else ""
        quotas += [
            replace(one, owner=one.owner + where)
            for one in parse_lfs_quotas(done.stdout)
        ]
    return tuple(quotas), tuple(unanswered)
