"""A cold walk on a node: the tree of a software stack, handled by the programs that users call.

Each task has a tree of its own, in three parts: one is listed, one imported, one cloned. So no part was seen before by the
node that reads it: tasks work on the tree of the task on the next node. The sizes of the files are those of a stack of
compiled packages and Python: half of them up to 1 KiB, one in fifty half a MiB. A directory has 20 files and up to eight
directories.
"""

from __future__ import annotations

import io
import json
import os
import socket
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from iogauge.core.commands import output
from iogauge.core.paths import expand
from iogauge.core.text import visible
from iogauge.core.untrusted import Plain

#: Version of the reports.
VERSION: Final = "1"
PARTS: Final = ("list", "import", "clone")
FILES_OF_DIRECTORY: Final = 20
_BRANCHES: Final = 8
#: How many files of a hundred have so many bytes.
SIZES: Final = (
    (12, 0),
    (38, 1 << 10),
    (28, 4 << 10),
    (14, 16 << 10),
    (6, 64 << 10),
    (2, 512 << 10),
)
#: What an archive holds beside each file.
HEADER_BYTES: Final = tarfile.BLOCKSIZE
#: The module that imports all others.
_ALL: Final = "everything"


@dataclass(frozen=True, slots=True, kw_only=True)
class Walked(Plain):
    """What a task says of a phase: its words and number, the files that it handled, and when, in seconds."""

    walk: str = VERSION
    words: tuple[str, ...]
    rank: int
    host: str
    files: int
    seconds: float
    began: float
    ended: float


#: Variables in which launchers tell a task its number.
_RANKS: Final = (
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "SLURM_PROCID",
    "FLUX_TASK_RANK",
)


def size_of(number: int) -> int:
    """Return the bytes of a file by its number: the distribution, in an order without long runs."""
    left = number * 37 % 100
    for share, size in SIZES:
        left -= share
        if left < 0:
            return size
    raise ValueError("the shares of the sizes do not add up to 100")


def bytes_of(files: int) -> int:
    """Return the bytes of the first files."""
    return sum(map(size_of, range(files)))


def directories_of(files: int) -> int:
    """Return the directories of a part with so many files."""
    return -(-files // FILES_OF_DIRECTORY)


def _names(number: int) -> list[str]:
    """Return the names on the way to a file: each directory lies in one with a smaller number."""
    at, names = number // FILES_OF_DIRECTORY, ["stack"]
    while at:
        at, digit = divmod(at - 1, _BRANCHES)
        names.append(f"p{digit}")
    last = number % FILES_OF_DIRECTORY
    return [*names, f"m{last}.py" if last else "__init__.py"]


def _members(part: str, files: int) -> Iterator[tuple[str, bytes]]:
    for number in range(files):
        size = size_of(number)
        yield (
            "/".join([part, *_names(number)]),
            b"#" * max(size - 1, 0) + b"\n" * (size > 0),
        )
    if part == "import":
        modules = (
            ".".join(_names(number)).removesuffix(".py") for number in range(files)
        )
        text = "".join(f"import {name.removesuffix('.__init__')}\n" for name in modules)
        yield f"{part}/{_ALL}.py", text.encode()


def _pack(archive: Path, files: int) -> None:
    with tarfile.open(archive, "x", format=tarfile.GNU_FORMAT) as packed:
        for part in PARTS:
            for name, content in _members(part, files):
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(content), 0o644
                packed.addfile(member, io.BytesIO(content))


def _walk(phase: str, own: Path, next_one: Path, files: int) -> int:
    """Do a phase; return the files that it handled, as the program says if it says so."""
    match phase:
        case "unpack":
            archive = own.parent.parent / "pack" / f"{own.name}.tar"
            output("tar", "-xf", str(archive), "-C", str(own))
            return len(PARTS) * files
        case "list":
            # Its first lines are the part itself, and the other directories.
            lines = output("find", str(next_one / "list"), "-ls").count("\n")
            return max(0, lines - 1 - directories_of(files))
        case "import":
            counted = "sum(name.startswith('stack') for name in sys.modules)"
            words = (
                sys.executable,
                "-S",
                "-B",
                "-c",
                f"import sys, {_ALL}; print({counted})",
            )
            path = os.environ | {"PYTHONPATH": str(next_one / "import")}
            return int(output(*words, environment=path))
        case "clone":
            output("cp", "-a", str(next_one / "clone"), str(own / "again"))
            return files
        case "remove":
            output("rm", "-r", str(next_one))
            return (len(PARTS) + 1) * files
    raise ValueError(f"phase {phase!r}: expected unpack, list, import, clone or remove")


def _left(phase: str, own: Path, next_one: Path, handled: int) -> int:
    """Return the files that a phase handled, by what it left: cp and rm say nothing of what they did."""
    if phase == "clone":
        made = own / "again"
        files = () if made.is_symlink() else made.rglob("*.py")
        return sum(path.is_file() and not path.is_symlink() for path in files)
    return 0 if phase == "remove" and next_one.exists() else handled


def _change(directory: Path, files: int, done: threading.Event) -> None:
    """Change the times of all files of a directory in turn, until the other is done."""
    paths = [directory.joinpath(*_names(number)) for number in range(files)]
    while paths and not done.is_set():
        for path in paths:
            os.utime(path)
            if done.is_set():
                return


def _rank() -> int:
    for name in _RANKS:
        if os.environ.get(name, "").isdecimal():
            return int(os.environ[name])
    raise ValueError(
        f"the launcher tells a task no number: none of {', '.join(_RANKS)} is set"
    )


def command(words: list[str]) -> int | None:
    """``walk PHASE DIR TREE FILES TASKS``: do a phase of a task, and print its report as a line of JSON."""
    match words:
        case [phase, directory, tree, number, tasks]:
            files, rank, place = int(number), _rank(), Path(expand(directory))
        case _:
            return None
    own, next_one = (place / tree / str(r % int(tasks)) for r in (rank, rank + 1))
    if phase == "pack":
        own.parent.mkdir(exist_ok=True)
        _pack(own.with_suffix(".tar"), files)
        return 0
    doing = phase.removesuffix("-changed")
    if doing == "unpack":
        own.mkdir(parents=True)
    print(visible(f"walk {phase}"), flush=True)
    done = threading.Event()
    changing = threading.Thread(target=_change, args=(own / "list", files, done))
    if doing != phase:
        changing.start()
    began, start = time.time(), time.monotonic()
    try:
        handled = _walk(doing, own, next_one, files)
        seconds, ended = time.monotonic() - start, time.time()
        handled = _left(doing, own, next_one, handled)
    finally:
        done.set()
        if doing != phase:
            changing.join()
    report = Walked(
        words=("walk", *words),
        rank=rank,
        host=socket.gethostname(),
        files=handled,
        seconds=seconds,
        began=began,
        ended=ended,
    )
    print(json.dumps(report.to_json()))
    return 0
