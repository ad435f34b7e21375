"""What user, group and project may still use on Lustre."""

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from iogauge.core import commands
from iogauge.node.kernel import asked
from iogauge.node.lustre.lfs import LustreError, excerpt, run
from iogauge.node.mounts import READ


@dataclass(frozen=True, slots=True)
class Quota:
    """Bytes and files that a quota still allows; None means no limit.

    After its grace a soft limit is a hard one.
    """

    owner: str
    bytes_left: int | None
    files_left: int | None


#: The owners of quotas, by the first letter of their number's name.
_OWNERS = {"u": "user", "g": "group", "p": "project"}

#: How Lustre says that the grace is over: 2.17 and 2.12.
_NO_GRACE = ("expired", "none")


def parse_lfs_quotas(text: str) -> tuple[Quota, ...]:
    """Parse ``lfs quota PATH``: the quotas that follow a line such as ``Disk quotas for usr x (uid 7):``.

    Raises LustreError for one that it cannot read.
    """
    head = r"(?m)^Disk quotas for .* \(([ugp])id ([0-9]{1,10})\):\s*$"
    parts = re.split(head, text)
    quotas = []
    for letter, number, answer in zip(
        parts[1::3], parts[2::3], parts[3::3], strict=True
    ):
        quotas.append(parse_lfs_quota(answer, f"{_OWNERS[letter]} {number}"))
    return tuple(quotas)


def parse_lfs_quota(text: str, owner: str) -> Quota:
    """Parse one answer of ``lfs quota``.

    Its fields are kbytes, quota, limit, grace, files, quota, limit, grace. A value over quota
    carries a ``*`` (Lustre 2.17). The path may have a line of its own. A limit of 0 means no limit.
    Raises LustreError if the text has no such line.
    """
    fields = [field.rstrip("*").strip("[]") for field in text.split()]
    while len(fields) >= 8:
        numbers = fields[:3] + fields[4:7]
        if all(re.fullmatch("[0-9]{1,18}", number) for number in numbers):
            kilobytes, files = _left(fields[:4]), _left(fields[4:8])
            if kilobytes is not None:
                kilobytes *= 1024
            return Quota(owner, kilobytes, files)
        fields.pop(0)
    raise LustreError(f"lfs quota says {excerpt(text)}")


def _left(columns: Sequence[str]) -> int | None:
    """Return what a limit still allows; None without one."""
    *counts, grace = columns
    used, soft, hard = map(int, counts)
    if soft and used > soft and grace in _NO_GRACE:
        return 0
    if hard:
        return max(0, hard - used)
    return None


#: How ``lfs`` says that no quota holds, with an exit status of its own.
_NO_QUOTAS = "quotas are not enabled.\n"

#: Seconds for a question about a quota, which may remain without an answer.
QUOTA_SECONDS = 30

#: Request for a file's attributes, and the flag that what is made in a directory joins its project
#: (linux/fs.h: FS_IOC_FSGETXATTR, struct fsxattr, FS_XFLAG_PROJINHERIT).
_ATTRIBUTES = struct.Struct("I8xI12x")
_GET_ATTRIBUTES = READ | _ATTRIBUTES.size << 16 | ord("X") << 8 | 31
_INHERITS_PROJECT = 0x200


def project_of(path: str) -> int:
    """Return the project of what is made in a directory; 0 if it has none, or none can be seen."""
    nothing = bytes(_ATTRIBUTES.size)
    answer = asked(path, _GET_ATTRIBUTES, nothing) or nothing
    flags, project = _ATTRIBUTES.unpack(answer)
    if not flags & _INHERITS_PROJECT:
        return 0
    return int(project)


def quotas_of(path: str) -> tuple[tuple[Quota, ...], tuple[str, ...]]:
    """Return the quotas on Lustre of user, group and project, and what was not found out of whom.

    ``lfs`` applies the default quota itself. A program that is not there has nothing to tell.
    """
    from shutil import which  # brings the compressors

    if which("lfs") is None:
        return (), ()
    questions: dict[str, Sequence[str]] = {"user and group": ()}
    project = project_of(path)
    if project:
        questions[f"project {project}"] = ("-p", str(project))
    quotas: list[Quota] = []
    unanswered = []
    for owner, words in questions.items():
        try:
            done = run("lfs", "quota", *words, path, seconds=QUOTA_SECONDS)
            if not done.stderr.endswith(_NO_QUOTAS):
                quotas += parse_lfs_quotas(commands.whole(done))
        except (OSError, LustreError) as error:
            unanswered.append(f"{owner}: {error}")
    return tuple(quotas), tuple(unanswered)
