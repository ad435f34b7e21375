"""The files of a new site, from what was seen and what was answered: settings, and a repository.

Nothing is invented: what was not found out is a comment in the file, and a line for the user.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from iogauge.cli.queues import Queue
from iogauge.core import commands
from iogauge.core.paths import project_root
from iogauge.core.units import format_bytes
from iogauge.core.words import Fingerprint, Tier
from iogauge.node.kinds import traits
from iogauge.site.folders import LOCAL
from iogauge.site.machine import QUICK_FILES, QUICK_FILES_LOCAL
from iogauge_extras.newsite.probe import NodeProbe
from iogauge_extras.newsite.scheduler import Modules, Slurm

#: What stands before the dash of a partition in a new file.
_INDENT: Final = "      "

#: Share of the free space that a case of the new site may take (max_of_free), and that it takes.
SHARE: Final = 0.1
USED: Final = 0.05

#: Seconds that a phase of tier daily shall last: G4 demands 30 s.
DAILY_SECONDS: Final = 45

#: Facts that stay as they are until somebody changes the storage, and those that are a client's.
_STAYS: Final[tuple[str, ...]] = ("lustre.osts", "lustre.mdts", "lustre.servers")
_TUNED: Final[tuple[str, ...]] = (
    "tunable.osc.checksums",
    "tunable.osc.max_pages_per_rpc",
    "cpu.governor",
)


#: Options of a mount that change what is measured.
_MOUNTED: Final = re.compile(
    r"noatime|relatime|lazytime|sync|dirsync|discard|nobarrier|flock|localflock|hard|soft"
    r"|(no)?checksum|(barrier|data|rsize|wsize|nconnect|vers|proto|compress(-force)?)=.*"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A target of the new site: what the user said, or left at its default, and what was found out.

    ``site`` is the site's name, ``partition`` that of the target's. ``ceiling`` is a bandwidth with its unit, of each
    client's network or of a local device; empty if nobody knows it. ``said`` is true if it is the user's own. ``stack``
    is the folder in environments/ whose programs the site can use: its own in a repository of its own, else ``local``.
    ``claimed`` is another site that has this host. ``speed_bytes_s`` is the expected bandwidth of a case, 0 if unknown.
    """

    site: str
    path: str
    partition: str
    queue: Queue | None
    nodes: int
    account: str
    ceiling: str
    said: bool
    stack: str = LOCAL
    claimed: str = ""
    seen: NodeProbe
    slurm: Slurm | None
    features: Sequence[str]
    mpirun: bool
    modules: Modules | None
    speed_bytes_s: float
    login: str
    day: str


@dataclass(frozen=True, slots=True)
class TierSizes:
    """TierSizes of a case in a tier."""

    case_bytes: int
    case_files: int
    phase_seconds: int
    tier: Tier


def sizes_of(target: Described) -> tuple[TierSizes, TierSizes]:
    """Return the sizes of usual cases and of quick ones.

    Usual cases are of tier daily if the speed is known and a twentieth of the free space suffices.
    """
    space, speed = target.seen.view.space, target.speed_bytes_s
    room = int(space.bytes_free * USED) >> 20 << 20
    files = QUICK_FILES if target.seen.remote else QUICK_FILES_LOCAL
    most = int(space.inodes_free * USED) if space.inodes_total else 1 << 40
    quick_bytes = max(min(int(2 * speed) or 1 << 30, room, 4 << 30), _stripes(target))
    quick_bytes = max(quick_bytes >> 20, 16) << 20
    quick = TierSizes(quick_bytes, max(min(files, most), 100), 2, "quick")
    usual_bytes = int(DAILY_SECONDS * speed) >> 20 << 20
    if not max(1, _stripes(target)) <= usual_bytes <= room:
        return quick, quick
    usual = TierSizes(
        usual_bytes, min(400_000 * target.nodes, most), DAILY_SECONDS, "daily"
    )
    return usual, quick


def _stripes(target: Described) -> int:
    """Return the bytes with which the shared file of a case has data in every stripe of the default layout (G23).

    Twice these: files are cut to whole requests of all tasks.
    """
    layout, most = target.seen.layout, 0
    counts = str(layout.get("layout.stripe_count", 0)).split(",")
    sizes = str(layout.get("layout.stripe_bytes", 0)).split(",")
    for count, size in zip(counts, sizes, strict=False):
        stripes = int(count) if int(count) >= 0 else len(target.seen.view.targets)
        most = max(most, stripes * int(size))
    return 2 * most


def host_pattern(host: str) -> str:
    """Return a pattern of a host's name and of those that differ in their numbers."""
    return re.sub(r"\d+", "[0-9]+", re.escape(host)).replace(r"\-", "-") + "$"


def partition_name(seen: NodeProbe) -> str:
    """Return a name for a partition, from the directory where the target is mounted."""
    point = seen.view.mount.point if seen.view.mount else ""
    name = (
        re.sub(r"[^A-Za-z0-9_-]", "_", os.path.basename(point)).strip("_-") or "target"
    )
    return name if name[0].isalpha() else f"t{name}"


def shown_bytes(size: int) -> str:
    """Return bytes as settings have them, rounded down: whole GiB, else whole MiB."""
    mebibytes = size >> 20
    return (
        f"{mebibytes} MiB"
        if not mebibytes or mebibytes % 1024
        else f"{mebibytes >> 10} GiB"
    )


@functools.cache
def _form(name: str) -> Any:
    """Return the form of settings.yaml, or that of its partitions."""
    forms = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    forms.filters["json"] = json.dumps
    used = (expected, format_bytes, host_pattern, sizes_of, traits)
    forms.globals |= {one.__name__: one for one in used}
    forms.globals |= {
        "shown": shown_bytes,
        "share": f"{SHARE:.0%}",
        "root": os.getuid() == 0,
    }
    return forms.get_template(f"{name}.jinja")


def settings_text(targets: Sequence[Described], time_limit: str) -> str:
    """Return the text of settings.yaml, with a partition for each target."""
    descr = ", ".join(f"{one.seen.fstype} at {one.path}" for one in targets)
    return str(
        _form("settings").render(targets=targets, descr=descr, time_limit=time_limit)
    )


def partition_lines(target: Described, time_limit: str) -> list[str]:
    """Return the lines of a target's partition."""
    return str(_form("partition").module.partition(target, time_limit)).splitlines()


def with_partition(text: str, lines: Sequence[str]) -> str:
    """Return the text of settings.yaml with one more partition of its system."""
    root: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    systems = next(value for key, value in root.value if key.value == "systems")
    (system,) = systems.value
    partitions = next(value for key, value in system.value if key.value == "partitions")
    shift = partitions.value[0].start_mark.column - 2 - len(_INDENT)
    moved = [" " * shift + line if shift > 0 else line[-shift:] for line in lines]
    before = text.splitlines()
    last = partitions.end_mark.line
    while before[last - 1].lstrip().startswith("#") or not before[last - 1].strip():
        last -= 1  # what stands above the next key belongs to it
    return "\n".join([*before[:last], *moved, *before[last:]]) + "\n"


def expected(seen: NodeProbe) -> Fingerprint:
    """Return the settings that the new site expects of every node: those that it has now."""
    facts = {key: seen.facts[key] for key in (*_STAYS, *_TUNED) if key in seen.facts}
    options = str(seen.facts.get("mount.options", "")).split(",")
    kept = ",".join(option for option in options if _MOUNTED.fullmatch(option))
    return {**facts, **({"mount.options": kept} if kept else {}), **seen.layout}


def unknown(target: Described) -> Iterator[str]:
    """Yield what could not be found out, each with what to do about it."""
    seen = target.seen
    key = "topology.clients.nic" if target.seen.remote else "topology.devices"
    if not target.ceiling:
        yield f"the ceiling: no interface or device tells its rate. Write {key}, or run again with --ceiling"
    if target.seen.remote:
        yield "the network of the storage servers: write topology.servers, from the offer"
    yield "what a healthy target reaches: after 20 runs `iogauge calibrate` proposes references; before, topology.efficiency"
    if not target.speed_bytes_s:
        yield "the speed of the target: cases are of tier quick. Raise limits.case_bytes until a phase lasts 30 s"
    if not expected(seen):
        yield "settings to expect: iogauge can read no setting here that a site may expect (docs/keys.md, expect)"
    if target.modules and not target.modules.system:
        names = ", ".join(target.modules.loaded)
        yield f"the system of the modules that are loaded ({names}): write modules_system, and modules of the environment"
    if not seen.view.uuid:
        yield f"the identity of the file system: {target.seen.fstype} shows no UUID"
    yield from seen.troubles


#: Files of a repository by their templates in ci/repository, with their permissions.
_REPOSITORY: Final = {
    "gitlab-ci.yml": (".gitlab-ci.yml", 0o644),
    "gitignore": (".gitignore", 0o644),
    "README.md": ("README.md", 0o644),
    "activate.sh": ("activate", 0o644),
    "setup.sh": ("setup", 0o755),
    "spack.yaml": ("environments/{site}/spack.yaml", 0o644),
}


def _git(*words: str) -> str:
    """Return what git says of the clone; empty if it is none."""
    if not (
        project_root() / ".git"
    ).exists():  # git would answer for a repository around it
        return ""
    with contextlib.suppress(OSError):
        return commands.run("git", "-C", str(project_root()), *words).stdout.strip()
    return ""


def origin(url: str) -> tuple[str, str]:
    """Return the address of a remote without a password, and the project's path in its GitLab."""
    url = (
        re.sub(r"^(https?://)[^/@]*@", r"\1", url)
        or "https://gitlab.example/hpc/iogauge.git"
    )
    path = re.sub(r"\.git/?$", "", url)
    if below := re.match(r"(?:https?|ssh|git)://[^/]+/(.+)|[^/:]+:(?!//)(.+)", path):
        return url, (below[1] or below[2]).strip("/")
    return url, "/".join(path.split("/")[-2:])


def version() -> str:
    """Return the version of iogauge that a repository names: a tag, else a commit's id, else ``main``."""
    return (
        _git("describe", "--tags", "--exact-match")
        or _git("rev-parse", "HEAD")
        or "main"
    )


def write_repository(into: Path, site: str, partition: str, lustre: bool) -> list[Path]:
    """Write the files of a site's repository that are not there yet; return them.

    Its version of iogauge is the one that writes it, if that is a clone.
    """
    source, project = origin(_git("config", "--get", "remote.origin.url"))
    words = {
        "SITE": site,
        "PARTITION": partition,
        "LUSTRE": "+lustre" if lustre else "~lustre",
        "VERSION": version(),
        "SOURCE": source,
        "PROJECT": project,
    }
    written = []
    for template, (name, mode) in _REPOSITORY.items():
        file = into / name.format(site=site)
        if file.exists():
            continue
        text = (project_root() / "ci" / "repository" / template).read_text(
            encoding="utf-8"
        )
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(
            re.sub(
                rf"\b(?<!_)({'|'.join(words)})\b", lambda match: words[match[1]], text
            ),
            encoding="utf-8",
        )
        file.chmod(mode)
        written.append(file)
    return written
