"""The software stack that a Spack environment installed, read without Spack.

``ci/check_stack.py`` writes ``.spack-env/stack.json`` and ``activate.sh`` beside an environment's
view. Jobs source ``activate.sh``. A site's ReFrame environment names the stack by ``extras: {stack:
NAME}``. Its features follow from the variants that were built.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from iogauge.core import untrusted, words
from iogauge.core.yamlfile import YamlError, load

FACTS: Final = "stack.json"
_FEATURE_OF_VARIANT: Final = {
    "hdf5": words.IOR_HDF5,
    "ncmpi": words.IOR_NCMPI,
    "lustre": words.IOR_LUSTRE,
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


def read(file: Path) -> Stack:
    """Return the stack that a facts file describes; raises :class:`StackError`."""
    environment = file.parent.parent
    install = f"spack -e {environment} install && ci/check_stack.py {environment}"
    try:
        facts = untrusted.read_json(file)
        packages: dict[str, dict[str, Any]] = facts["packages"]
        built: set[str] = set()
        if "ior" in packages:
            variants = packages["ior"].get("variants", {})
            built |= {words.IOR, words.IOR_MPIIO, words.MDTEST, words.MD_WORKBENCH}
            built |= {f for name, f in _FEATURE_OF_VARIANT.items() if variants.get(name) is True}
        others = (words.FIO, words.IO500, words.ELBENCHO)
        built |= {name for name in others if name in packages}
        if "darshan-runtime" in packages:
            built.add(words.DARSHAN)
        names = {"darshan": "darshan-runtime"}
        names |= {name: name for name in ("ior", "fio", "mpi", "elbencho")}
        return Stack(
            environment=str(facts["environment"]),
            fingerprint=str(facts["stack"]),
            lock_sha256=str(facts["lock_sha256"]),
            hashes={k: str(packages[p]["hash"]) for k, p in names.items() if p in packages},
            features=tuple(sorted(built)),
            directory=str(file.parent),
        )
    except OSError as error:
        raise StackError(f"{file}: {error.strerror}: install the stack: {install}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StackError(f"{file}: not the facts of a stack ({error!r}): {install}") from error


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
    chosen = set(re.findall(r"\+([a-z0-9]+)", "".join(m[1] for m in _SPEC.finditer(text))))
    if "iogauge-stack" not in text:
        raise StackError(f"{file}: no spec iogauge-stack in it")
    built = {words.IOR, words.IOR_MPIIO, words.MDTEST, words.MD_WORKBENCH, words.FIO}
    built |= {f for variant, f in _FEATURE_OF_VARIANT.items() if variant in chosen}
    built |= {name for name in (words.DARSHAN, words.IO500, words.ELBENCHO) if name in chosen}
    directory = str(folder / ".spack-env")
    return Stack(str(folder), "", "", {}, tuple(sorted(built)), directory)


def of_program(path: str) -> Stack | None:
    """Return the stack whose view holds a program (``.spack-env/view/bin/ior``), or None."""
    file = Path(path).parent.parent.parent / FACTS
    if Path(path).parent.parent.name != "view" or not file.exists():
        return None
    return read(file)
