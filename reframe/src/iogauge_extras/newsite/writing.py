"""The files of a new site: settings, and a repository of its own.

Nothing is invented: what was not found out is a comment in the file, and a line for the user.
"""

import contextlib
import json
import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from iogauge.core import commands
from iogauge.core.paths import project_root
from iogauge.core.units import format_bytes
from iogauge.core.vocabulary import Tier
from iogauge.node.kinds import kind_of
from iogauge.site import machine
from iogauge_extras.newsite.found import Site, Target, expected

#: Share of the free space that a case of the new site may take (max_of_free), and that it takes.
SHARE: Final = 0.1
USED: Final = 0.05

#: Seconds that a phase of tier daily shall last: G4 demands 30 s.
DAILY_SECONDS: Final = 45

#: Minutes after which a job ends, unless the queue ends it before: storage that hangs must end.
TIME_LIMIT: Final = 240


@dataclass(frozen=True, slots=True)
class TierSizes:
    """Sizes of a case in a tier."""

    case_bytes: int
    case_files: int
    phase_seconds: int
    tier: Tier


def sizes_of(site: Site, target: Target) -> tuple[TierSizes, TierSizes]:
    """Return the sizes of usual cases and of quick ones.

    Usual cases are of tier daily if the speed is known and a twentieth of the free space suffices.
    """
    space = target.view.space
    speed = target.speed_bytes_s * site.nodes
    stripes = _stripes(target)
    quick_bytes = machine.quick_bytes(2 * speed or 1 << 30, space, 4 << 30)
    files = machine.quick_files(target.fstype, space)
    quick = TierSizes(max(quick_bytes, stripes), max(files, 100), 2, "quick")
    usual_bytes = int(DAILY_SECONDS * speed) >> 20 << 20
    if not max(1, stripes) <= usual_bytes <= space.bytes_free * USED:
        return quick, quick
    files = 400_000 * site.nodes
    if space.inodes_total:
        files = min(files, int(space.inodes_free * USED))
    return TierSizes(usual_bytes, files, DAILY_SECONDS, "daily"), quick


def _stripes(target: Target) -> int:
    """Return the bytes with which the shared file of a case has data in every stripe of the default layout (G23).

    Twice these: files are cut to whole requests of all tasks.
    """
    most = 0
    counts = str(target.layout.get("layout.stripe_count", 0)).split(",")
    sizes = str(target.layout.get("layout.stripe_bytes", 0)).split(",")
    for count, size in zip(counts, sizes, strict=False):
        stripes = int(count)
        if stripes < 0:
            stripes = len(target.view.targets)
        most = max(most, stripes * int(size))
    return 2 * most


def host_pattern(host: str) -> str:
    """Return a pattern of a host's name and of those that differ in their numbers."""
    return re.sub(r"\d+", "[0-9]+", re.escape(host)).replace(r"\-", "-") + "$"


def partition_name(target: Target, taken: Collection[str]) -> str:
    """Return a name for a partition that no other has, from the directory where the target is mounted."""
    point = os.path.basename(target.view.mount.point)
    stem = re.sub(r"[^A-Za-z0-9_-]", "_", point).strip("_-") or "target"
    if not stem[0].isalpha():
        stem = f"t{stem}"
    name = stem
    number = 2
    while name in taken:
        name = f"{stem}{number}"
        number += 1
    return name


def shown_bytes(size: int) -> str:
    """Return bytes as settings have them, rounded down: whole GiB, else whole MiB."""
    mebibytes = size >> 20
    if mebibytes and mebibytes % 1024 == 0:
        return f"{mebibytes >> 10} GiB"
    return f"{mebibytes} MiB"


def settings_text(site: Site) -> str:
    """Return the text of settings.yaml, with a partition for each target."""
    minutes = TIME_LIMIT
    if site.queue.limit_seconds:
        minutes = min(minutes, site.queue.limit_seconds // 60)
    # Other commands start without it.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    forms = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    forms.filters["json"] = json.dumps
    return forms.get_template("settings.jinja").render(
        site=site,
        root=os.getuid() == 0,
        share=f"{SHARE:.0%}",
        shown=shown_bytes,
        expected=expected,
        format_bytes=format_bytes,
        host_pattern=host_pattern,
        sizes_of=sizes_of,
        minutes=minutes,
        kind_of=kind_of,
    )


def _git(*words: str) -> str:
    """Return what git says of the clone; empty if it is none."""
    # In another folder git would answer for a repository around it.
    if (project_root() / ".git").exists():
        with contextlib.suppress(OSError):
            done = commands.run("git", "-C", str(project_root()), *words)
            return done.stdout.strip()
    return ""


def origin(url: str) -> tuple[str, str]:
    """Return the address of a remote without a password, and the project's path in its GitLab."""
    url = re.sub(r"^(https?://)[^/@]*@", r"\1", url)
    url = url or "https://gitlab.example/hpc/iogauge.git"
    path = re.sub(r"\.git/?$", "", url)
    return url, re.sub(r"^(\w+://[^/]+/|[^/:]+:|/)", "", path)


def write_repository(into: Path, site: str, partition: str, lustre: bool) -> None:
    """Write the files of a site's repository that are not there yet, as ci/repository has them.

    Its version of iogauge is the one that writes it, if that is a clone: a tag, else a commit.
    """
    source, project = origin(_git("config", "--get", "remote.origin.url"))
    tag = _git("describe", "--tags", "--exact-match")
    variant = "~lustre"
    if lustre:
        variant = "+lustre"
    words = {
        "SITE": site,
        "PARTITION": partition,
        "LUSTRE": variant,
        "VERSION": tag or _git("rev-parse", "HEAD") or "main",
        "SOURCE": source,
        "PROJECT": project,
        "HERE": str(into),
    }
    pattern = re.compile(rf"\b(?<!_)({'|'.join(words)})\b")

    def filled(text: str) -> str:
        return pattern.sub(lambda match: words[match[1]], text)

    forms = project_root() / "ci" / "repository"
    for form in sorted(forms.rglob("*")):
        file = into / filled(str(form.relative_to(forms)))
        if form.is_file() and not file.exists():
            text = filled(form.read_text(encoding="utf-8"))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            if text.startswith("#!"):
                file.chmod(0o755)
