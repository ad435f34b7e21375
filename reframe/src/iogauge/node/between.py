"""What stands between a tool and the kernel: its version, preloaded libraries, wrappers."""

import contextlib
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from iogauge.core import commands
from iogauge.core.text import text_digest
from iogauge.core.untrusted import read_bytes
from iogauge.core.vocabulary import FIO, IOR, MDTEST, Fingerprint
from iogauge.node.kernel import text

#: Variables whose libraries the loader puts in front of all others (ld.so(8)), and its file.
_VARIABLES = ("LD_PRELOAD", "LD_AUDIT")
_FILE = "ld.so.preload"
#: Before the names of the variables under which agent.sh hands them to an agent, which is started without them.
_HANDED_ON = "IOG_"

#: First words of the keys of :func:`preloaded` and :func:`script`.
PRELOAD = "preload."
SCRIPT = "script."

#: Libraries that make a figure untrue, by name, and what they do.
_LYING = (
    (r"eatmydata", "makes fsync, sync and O_SYNC do nothing"),
    (r"nof?sync", "makes fsync and sync do nothing"),
    (r"faketime(?:MT)?|datefudge", "tells the tool another time"),
    (r"fiu\w*|fiu_\w+_preload", "makes I/O fail that did not"),
    (r"fakechroot", "leads paths to other files"),
    (
        r"unifyfs\w*|gkfs\w*|burstfs\w*|plfs\w*",
        "keeps files in a file system of its own",
    ),
    (r"hermes\w*|pmemfile", "keeps data in memory"),
)
#: Darshan counts calls and passes them on; a scenario preloads it to count writers.
_HARMLESS = r"darshan"

#: Seconds for a program to tell its version.
PROGRAM_SECONDS = 20.0


def version(path: str) -> str:
    """Return the version of IOR or mdtest in a program's file, empty if it is not certain.

    Neither prints its version before it runs. Raises OSError.
    """
    found = re.findall(
        rb"\0([0-9]\.[0-9]{1,2}\.[0-9]{1,2}[+a-z0-9]{0,12})\0", read_bytes(path)
    )
    if len(set(found)) != 1:
        return ""
    return str(found[0], "ascii")


def versions() -> dict[str, str]:
    """Return the versions of IOR, mdtest and fio on PATH, as far as they are certain."""
    found = {}
    with contextlib.suppress(OSError, ValueError):
        said = commands.run(FIO, "--version", seconds=PROGRAM_SECONDS)
        found[FIO] = said.stdout.strip().removeprefix("fio-")
    # Their files hold the version as a text of its own.
    for tool in (IOR, MDTEST):
        with contextlib.suppress(OSError):
            found[tool] = version(shutil.which(tool) or "")
    return dict(filter(all, found.items()))


def _is(name: str, library: str) -> bool:
    return bool(re.fullmatch(rf"(?:lib)?(?:{name})(?:[-_.].*)?", library))


def lie_of(library: str) -> str:
    """Return what a library does that makes figures untrue; empty if it is not known to."""
    for name, lie in _LYING:
        if _is(name, library):
            return lie
    return ""


def is_harmless(library: str) -> bool:
    """Return whether a library is known to make no figure untrue."""
    return _is(_HARMLESS, library)


def handed_on(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what an agent's caller had preloaded, under the loader's own names of the variables."""
    return {name: environ.get(_HANDED_ON + name, "") for name in _VARIABLES}


def preloaded(environ: Mapping[str, str], root: Path = Path("/")) -> Fingerprint:
    """Return the names of the libraries that are preloaded in an environment, by source.

    The keys are ``preload.LD_PRELOAD``, ``preload.LD_AUDIT`` and ``preload.ld.so.preload``, the
    values names joined by colons. A source without a library gets no key.
    """
    texts = {name: environ.get(name, "") for name in _VARIABLES}
    lines = text(root, "etc", _FILE).splitlines()
    texts[_FILE] = " ".join(line.partition("#")[0] for line in lines)
    facts: Fingerprint = {}
    for source, paths in texts.items():
        names = [os.path.basename(path) for path in re.split(r"[\s:]+", paths) if path]
        if names:
            facts[PRELOAD + source] = ":".join(dict.fromkeys(names))
    return facts


def libraries(nodes: Iterable[Mapping[str, object]]) -> list[tuple[str, str]]:
    """Return (library, source), each once, from the facts of nodes."""
    found: dict[tuple[str, str], None] = {}
    for facts in nodes:
        for key in facts:
            if key.startswith(PRELOAD):
                # Looks that differ are joined.
                for library in re.split(r"[:| ]+", str(facts[key])):
                    found[library, key.removeprefix(PRELOAD)] = None
    return list(found)


def of_processes(pids: Iterable[int]) -> Fingerprint:
    """Return what is preloaded in processes, as :func:`preloaded`, without those that are gone or another user's."""
    found = []
    for pid in pids:
        environ = {}
        for entry in text(f"/proc/{pid}/environ").split("\0"):
            name, _, value = entry.partition("=")
            environ[name] = value
        # A container has files of its own.
        found.append(preloaded(environ, Path(f"/proc/{pid}/root")))
    return joined(found)


def joined(several: Iterable[Fingerprint]) -> Fingerprint:
    """Return several answers of :func:`preloaded` as one."""
    names: dict[str, dict[str, None]] = {}
    for facts in several:
        for source, libraries in facts.items():
            names.setdefault(source, {})[str(libraries)] = None
    return {source: ":".join(libraries) for source, libraries in names.items()}


def script(tool: str, environ: Mapping[str, str]) -> Fingerprint:
    """Return ``script.<tool>`` if the tool on PATH is a script: its first line and a digest."""
    path = shutil.which(tool, path=environ.get("PATH"))
    if path is None:
        return {}
    with open(path, "rb") as file:
        if file.read(2) != b"#!":
            return {}
        content = "#!" + file.read(1 << 20).decode("utf-8", "replace")
    first = content.splitlines()[0][:80]
    return {f"{SCRIPT}{tool}": f"{first} ({text_digest(content)})"}
