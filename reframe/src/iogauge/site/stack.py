"""The software stacks of Spack environments: what one installed, read without Spack, and which ones a site's settings name.

``ci/check_stack.py`` writes ``.spack-env/stack.json`` and ``activate.sh`` beside an environment's
view. Jobs source ``activate.sh``. A site's ReFrame environment names the stack by ``extras: {stack:
NAME}``. Its features follow from the variants that were built.

``python -m iogauge.site.stack`` prints them for this host, one a line: a folder if it lies beside
the site's, else the name of one in environments/. With ``--local`` its exit status says whether the
site's jobs run where it is called.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import sys
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from iogauge.core import untrusted, words
from iogauge.core.text import visible_lines
from iogauge.core.yamlfile import YamlError, load
from iogauge.site.folders import (
    SETTINGS,
    site_dirs,
    site_folders,
    sites_of_host,
    spack_environments,
)
from iogauge.site.mistakes import STACK

FACTS: Final = "stack.json"
_FEATURE_OF_VARIANT: Final = {
    "hdf5": words.IOR_HDF5,
    "ncmpi": words.IOR_NCMPI,
}


class StackError(ValueError):
    """An environment's stack is missing or its facts are damaged; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Stack:
    """A stack's identity: ``fingerprint`` is equal if the benchmark programs are equal.

    ``hashes`` are Spack's DAG hashes of ior, fio, mpi and darshan. ``lock_sha256`` is the hash of
    the lock file.
    """

    environment: str
    fingerprint: str
    lock_sha256: str
    hashes: dict[str, str]
    features: tuple[str, ...]
    directory: str

    @property
    def darshan(self) -> str | None:
        """Return the path of Darshan's library, or None if the stack has none."""
        library = Path(self.directory) / "view" / "lib" / "libdarshan.so"
        return str(library) if words.DARSHAN in self.features else None

    @property
    def prepare_command(self) -> str:
        """Return the shell command that puts the programs on PATH; it starts no process."""
        return f". {shlex.quote(str(Path(self.directory) / 'activate.sh'))}"

    def to_record(self) -> dict[str, Any]:
        """Return the fields that a record keeps."""
        kept = asdict(self)
        del kept["features"], kept["directory"]
        return kept


def _features(built: Collection[str]) -> tuple[str, ...]:
    """Return the features that programs give, and variants of ior, by their names."""
    others = (words.FIO, words.IO500, words.DARSHAN)
    found = [name for name in others if name in built]
    if "ior" in built:
        found += [words.IOR, words.IOR_MPIIO, words.MDTEST]
        found += [f for name, f in _FEATURE_OF_VARIANT.items() if name in built]
    return tuple(sorted(found))


def read(file: Path) -> Stack:
    """Return the stack that a facts file describes; raises :class:`StackError`."""
    environment = file.parent.parent
    install = f"spack -e {environment} install && ci/check_stack.py {environment}"
    try:
        facts = untrusted.read_json(file)
        packages: dict[str, dict[str, Any]] = facts["packages"]
        variants = packages.get("ior", {}).get("variants", {})
        built = {name for name in _FEATURE_OF_VARIANT if variants.get(name) is True}
        built |= {name.removesuffix("-runtime") for name in packages} - {
            *_FEATURE_OF_VARIANT
        }
        names = {"darshan": "darshan-runtime"}
        names |= {name: name for name in ("ior", "fio", "mpi")}
        return Stack(
            environment=str(facts["environment"]),
            fingerprint=str(facts["stack"]),
            lock_sha256=str(facts["lock_sha256"]),
            hashes={
                k: str(packages[p]["hash"]) for k, p in names.items() if p in packages
            },
            features=_features(built),
            directory=str(file.parent),
        )
    except OSError as error:
        folder = file.parents[1]
        if not folder.is_dir():
            known = ", ".join(
                sorted(
                    one.name
                    for one in folder.parent.glob("*/")
                    if (one / "spack.yaml").exists()
                )
            )
            raise StackError(
                f"extras.stack names {folder.name}, and there is no {folder}. Known: {known or 'none'}. Name one of them, "
                "or make a folder for yours (docs/spack.md)"
            ) from error
        raise StackError(
            f"{file}: {error.strerror}: install the stack: {install}"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StackError(
            f"{file}: not the facts of a stack ({error!r}): {install}"
        ) from error


def of_environment(environments: Path, name: str) -> Stack:
    """Return the stack of a Spack environment by its folder's name; raises :class:`StackError`."""
    return read(environments / name / ".spack-env" / FACTS)


_SPEC = re.compile(r"iogauge-stack\b\S*((?:\s*[+~][a-z0-9]+)*)")


def planned(environments: Path, name: str) -> Stack:
    """Return the stack that an environment will install, by the specs in its ``spack.yaml``; no
    hashes.

    For listing and dry runs without an installed stack. Raises :class:`StackError`.
    """
    folder = environments / name
    file = folder / "spack.yaml"
    try:
        text = "\n".join(load(file)["spack"]["specs"])
    except (OSError, YamlError, KeyError, TypeError) as error:
        raise StackError(f"{file}: no specs can be read there ({error})") from error
    chosen = set(
        re.findall(r"\+([a-z0-9]+)", "".join(m[1] for m in _SPEC.finditer(text)))
    )
    if "iogauge-stack" not in text:
        raise StackError(f"{file}: no spec iogauge-stack in it")
    directory = str(folder / ".spack-env")
    return Stack(str(folder), "", "", {}, _features({"ior", "fio", *chosen}), directory)


def of_program(path: str) -> Stack | None:
    """Return the stack whose view holds a program (``.spack-env/view/bin/ior``), or None."""
    file = Path(path).parent.parent.parent / FACTS
    if Path(path).parent.parent.name != "view" or not file.exists():
        return None
    return read(file)


def _selected(
    folders: Sequence[Path], system: str, host: str
) -> tuple[Path, dict[str, Any]] | None:
    """Return the folder and the settings of the site that is selected, or None."""
    name = system.partition(":")[0]
    found = (
        [f for f in folders if f.name == name] if name else sites_of_host(folders, host)
    )
    if found:
        data = load(found[0] / SETTINGS)
        return found[0], data if isinstance(data, dict) else {}
    if name:
        raise ValueError(f"no site {name}; known: {', '.join(f.name for f in folders)}")
    return None


def stacks(folders: Sequence[Path], system: str, host: str) -> list[str]:
    """Return the stacks that the selected site names, each once, in the order of its settings.

    ``system`` is ``site`` or ``site:partition``. If it is empty, the host's name selects the site.
    Raises ValueError if the site does not exist or its settings cannot be read.
    """
    partition = system.partition(":")[2]
    if (site := _selected(folders, system, host)) is None:
        return []
    folder, data = site
    try:
        known = {
            p["name"]: p for system in data["systems"] for p in system["partitions"]
        }
        if partition and partition not in known:
            raise ValueError(
                f"no partition {partition}; known: {', '.join(sorted(known))}"
            )
        chosen = [known[partition]] if partition else known.values()
        used = {name for one in chosen for name in one.get("environs", [])}
        named = [
            environment["extras"][STACK]
            for environment in data.get("environments", [])
            if environment["name"] in used and STACK in environment.get("extras", {})
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{folder / SETTINGS} has mistakes ({error!r}): iogauge check"
        ) from error
    places = [spack_environments(folder, one) / one for one in named]
    return [str(p) if p.is_dir() else p.name for p in dict.fromkeys(places)]


def runs_here(folders: Sequence[Path], system: str, host: str) -> bool:
    """Return whether all jobs of the selected site run where they are submitted."""
    site = _selected(folders, system, host)
    partitions = [
        p for s in (site[1]["systems"] if site else ()) for p in s["partitions"]
    ]
    return all(partition.get("scheduler") == "local" for partition in partitions)


def main() -> int:
    """Print the stacks of the site that the environment variables or the host select."""
    system = os.environ.get("IOGAUGE_SYSTEM") or os.environ.get("RFM_SYSTEM") or ""
    here = site_folders(*site_dirs()), system, socket.gethostname()
    try:
        if sys.argv[1:] == ["--local"]:
            return 0 if runs_here(*here) else 1
        found = stacks(*here)
    except (ValueError, OSError) as error:
        print(visible_lines(f"environment: {error}"), file=sys.stderr)
        return 1
    print(visible_lines("".join(f"{name}\n" for name in found)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
