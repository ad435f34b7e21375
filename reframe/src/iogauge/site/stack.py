"""The software stacks of Spack environments: what one installed, read without Spack, and which ones a site's settings name.

``ci/check_stack.py`` writes ``.spack-env/stack.json`` and ``activate.sh`` beside an environment's
view. Jobs source ``activate.sh``. A site's ReFrame environment names the stack by ``extras: {stack:
NAME}``. Its features follow from the variants that were built; until then they are those that the site declares.

``python -m iogauge.site.stack`` prints them for this host, one a line: a folder if it lies beside
the site's, else the name of one in environments/.
"""

import os
import shlex
import socket
import sys
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from iogauge.core import untrusted, vocabulary
from iogauge.core.text import visible_lines
from iogauge.core.yamlfile import load
from iogauge.site.folders import (
    SETTINGS,
    site_dirs,
    site_folders,
    sites_of_host,
    spack_environments,
)
from iogauge.site.mistakes import STACK

FACTS: Final = "stack.json"
#: Variants of ior, and the features that they give.
_FEATURE_OF_VARIANT: Final = {
    "hdf5": vocabulary.IOR_HDF5,
    "ncmpi": vocabulary.IOR_NCMPI,
}
#: The package of each tool whose output says a version.
_PACKAGE_OF_TOOL: Final = {
    "ior": "ior",
    "mdtest": "ior",
    "fio": "fio",
    "io500": "io500",
    "darshan": "darshan-runtime",
}
#: Packages of a stack, each with its feature.
_FEATURE_OF_PACKAGE: Final = {
    "fio": vocabulary.FIO,
    "io500": vocabulary.IO500,
    "darshan-runtime": vocabulary.DARSHAN,
}


class StackError(ValueError):
    """An environment's stack is missing or its facts are damaged; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Stack:
    """A stack's identity."""

    environment: str
    #: Equal if the benchmark programs are equal; empty of a stack that is not installed as a whole.
    fingerprint: str
    lock_sha256: str
    #: Spack's DAG hashes of ior, fio, mpi and darshan.
    hashes: dict[str, str]
    #: The versions that the tools of the stack say of themselves.
    versions: dict[str, str]
    features: tuple[str, ...]
    directory: str

    @property
    def darshan(self) -> str | None:
        """Return the path of Darshan's library, or None if the stack has none."""
        library = Path(self.directory) / "view" / "lib" / "libdarshan.so"
        if vocabulary.DARSHAN not in self.features:
            return None
        return str(library)

    @property
    def prepare_command(self) -> str:
        """Return the shell command that puts the programs on PATH; it starts no process."""
        return f". {shlex.quote(str(Path(self.directory) / 'activate.sh'))}"

    def to_record(self) -> dict[str, Any]:
        """Return the fields that a record keeps."""
        kept = asdict(self)
        del kept["features"], kept["directory"]
        return kept


def _features(
    packages: Collection[str], ior_variants: Collection[str]
) -> tuple[str, ...]:
    """Return the features that packages and variants of ior give, sorted."""
    found = list[str]()
    for package, feature in _FEATURE_OF_PACKAGE.items():
        if package in packages:
            found.append(feature)
    if "ior" in packages:
        found += [vocabulary.IOR, vocabulary.IOR_MPIIO, vocabulary.MDTEST]
        for variant in ior_variants:
            if variant in _FEATURE_OF_VARIANT:
                found.append(_FEATURE_OF_VARIANT[variant])
    return tuple(sorted(found))


def read(file: Path) -> Stack:
    """Return the stack that a facts file describes; raises :class:`StackError`."""
    environment = file.parent.parent
    install = f"spack -e {environment} install && ci/check_stack.py {environment}"
    try:
        facts = untrusted.read_json(file)
        packages: dict[str, dict[str, Any]] = facts["packages"]
        missing = facts.get("missing", [])
        here = {name: made for name, made in packages.items() if name not in missing}
        variants = here.get("ior", {}).get("variants", {})
        hashes, versions = {}, {}
        for tool, package in _PACKAGE_OF_TOOL.items():
            if "version" in packages.get(package, {}):
                versions[tool] = str(packages[package]["version"])
        for name in ("ior", "fio", "mpi", "darshan"):
            package = _PACKAGE_OF_TOOL.get(name, name)
            if package in here:
                hashes[name] = str(here[package]["hash"])
        return Stack(
            environment=str(facts["environment"]),
            fingerprint=str(facts["stack"]),
            lock_sha256=str(facts["lock_sha256"]),
            hashes=hashes,
            versions=versions,
            features=_features(here, [v for v, on in variants.items() if on is True]),
            directory=str(file.parent),
        )
    except OSError as error:
        raise StackError(_why_unread(file, error, install)) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StackError(
            f"{file}: not the facts of a stack ({error!r}): {install}"
        ) from error


def _why_unread(file: Path, error: OSError, install: str) -> str:
    folder = file.parents[1]
    if folder.is_dir():
        return f"{file}: {error.strerror}: install the stack: {install}"
    known = sorted(path.parent.name for path in folder.parent.glob("*/spack.yaml"))
    return (
        f"extras.stack names {folder.name}, and there is no {folder}. Known: {', '.join(known) or 'none'}. Name one of them, "
        "or make a folder for yours (docs/spack.md)"
    )


def of_environment(environments: Path, name: str) -> Stack:
    """Return the stack of a Spack environment by its folder's name; raises :class:`StackError`."""
    return read(environments / name / ".spack-env" / FACTS)


def planned(environments: Path, name: str, features: Sequence[str]) -> Stack:
    """Return the stack that an environment will install, with the features that its site declares; no hashes.

    For listing and dry runs without an installed stack.
    """
    folder = environments / name
    directory = str(folder / ".spack-env")
    return Stack(str(folder), "", "", {}, {}, tuple(features), directory)


def of_program(path: str) -> Stack | None:
    """Return the stack whose view holds a program (``.spack-env/view/bin/ior``), or None."""
    file = Path(path).parent.parent.parent / FACTS
    if Path(path).parent.parent.name != "view" or not file.exists():
        return None
    return read(file)


def stacks(folders: Sequence[Path], system: str, host: str) -> list[str]:
    """Return the stacks that the environments of the selected site name, each once.

    ``system`` is ``site`` or ``site:partition``. If it is empty, the host's name selects the site.
    Raises ValueError if the site does not exist or its settings cannot be read.
    """
    name = system.partition(":")[0]
    if name:
        found = [folder for folder in folders if folder.name == name]
        if not found:
            known = ", ".join(folder.name for folder in folders)
            raise ValueError(f"no site {name}; known: {known}")
    else:
        found = sites_of_host(folders, host)
    shown: dict[str, None] = {}
    for folder in found[:1]:
        data = load(folder / SETTINGS)
        try:
            for environment in data["environments"]:
                stack = environment.get("extras", {}).get(STACK)
                if stack:
                    place = spack_environments(folder, stack) / stack
                    if place.is_dir():
                        stack = str(place)
                    shown[stack] = None
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{folder / SETTINGS} has mistakes ({error!r}): iogauge check"
            ) from error
    return list(shown)


def main() -> int:
    """Print the stacks of the site that the environment variables or the host select."""
    system = os.environ.get("IOGAUGE_SYSTEM") or os.environ.get("RFM_SYSTEM") or ""
    here = site_folders(*site_dirs()), system, socket.gethostname()
    try:
        found = stacks(*here)
    except (ValueError, OSError) as error:
        print(visible_lines(f"environment: {error}"), file=sys.stderr)
        return 1
    print(visible_lines("".join(f"{name}\n" for name in found)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
