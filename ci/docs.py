#!/usr/bin/env python3
"""Write the parts of the pages that are made from code.

    make docs

A part stands in its page between the comments `<!-- begin NAME: ... -->` and `<!-- end NAME -->`. Needs the
library: run it in a shell where `. ./activate` was done, or by make.
"""

from __future__ import annotations

import ast
import configparser
import importlib
import pkgutil
import re
from functools import partial
from pathlib import Path

import iogauge_extras
from iogauge.guards import catalogue
from iogauge.judge.verdict import Verdict
from iogauge.node import keys
from iogauge.node.kinds import KINDS, Kind

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = ROOT / "reframe" / "src" / "iogauge"


def guards() -> str:
    """The table of all guards, a line each."""
    lines = [
        "| guard | what must hold | otherwise | limit | against | seen on |",
        "|---|---|---|---|---|---|",
    ]
    for name, guard in catalogue.guards().items():
        seen_on = guard.seen_on or "recorded"
        cells = [name, guard.must, guard.follows, guard.limit, guard.against, seen_on]
        lines.append("|" + "".join(f" {cell} |" if cell else " |" for cell in cells))
    return "\n".join(lines)


def fingerprint() -> str:
    """The table of the keys of a fingerprint, a line each row of keys.ini."""
    lines = ["| key | meaning |", "|---|---|"]
    for row in filter(None, keys.rows().values()):
        names = [
            f"`{word.strip('+')}`{' *' * word.startswith('+')}"
            for word in row["keys"].split()
        ]
        lines.append(f"| {', '.join(names)} | {row['tells']} |")
    return "\n".join(lines)


def rooms() -> str:
    """The table of the library's rooms, the uppermost floor first, and of the extras, from their docstrings."""
    layers = configparser.ConfigParser()
    layers.read(ROOT / "reframe" / ".importlinter", encoding="utf-8")
    floors = layers["importlinter:contract:rooms"]["layers"].split("\n")[1:]
    rows = ["| floor | room | purpose | modules |", "|---|---|---|---|"]
    rooms = [
        (str(number), package, "iogauge.")
        for number, floor in zip(range(len(floors), 0, -1), floors, strict=True)
        for package in floor.split(" | ")
    ]
    extras = pkgutil.iter_modules(iogauge_extras.__path__)
    rooms += [
        ("extra", f"iogauge_extras.{extra.name}", "iogauge_extras.") for extra in extras
    ]
    for number, package, above in rooms:
        sentence, *modules = (
            importlib.import_module(package).__doc__ or ""
        ).splitlines()
        names = [
            line[2:].partition(":")[0] for line in modules if line.startswith("- ")
        ]
        purpose = sentence.removesuffix(".").replace("``", "`")
        room = package.removeprefix(above)
        rows.append(f"| {number} | `{room}/` | {purpose} | {', '.join(names)} |")
    return "\n".join(rows)


def verdicts() -> str:
    """The table of all verdicts: what each means, and whether it fails a run."""
    rows = ["| verdict | meaning | run fails |", "|---|---|---|"]
    for verdict in Verdict:
        fails = (
            "yes"
            if verdict.fails_run
            else "as a gate"
            if verdict.is_trouble(True)
            else "no"
        )
        rows.append(f"| {verdict.value} | {verdict.meaning} | {fails} |")
    return "\n".join(rows)


#: Where a case goes, from its scenario to its verdict: files of the library, or of the project.
WALK = (
    "checks/ior_posix.py",
    *("cases/ior_check.py", "cases/storage.py", "cases/judged.py"),
    *("plan/case.py", "plan/script.py", "job/job.sh", "job/opening.py"),
    *("plan/observations.py", "evidence/collect.py"),
    *("guards/catalogue.py", "guards/views.py", "judge/decide.py", "judge/verdict.py"),
)


def _first_sentence(file: Path) -> str:
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        text = ast.get_docstring(ast.parse(text)) or ""
    else:
        text = text.split("iogauge: ")[1]
    return " ".join(text.split()).partition(". ")[0].removesuffix(".")


def walk() -> str:
    """The table of a case's way through the library, from the first sentence of each file."""
    rows = ["| file | what it is |", "|---|---|"]
    for name in WALK:
        file = LIBRARY / name
        if not file.exists():
            file = ROOT / name
        rows.append(f"| `{name}` | {_first_sentence(file)} |")
    return "\n".join(rows)


#: What is added, an example that is there, and what finds it.
EXAMPLES = {
    "check": ("`IorHard`", r"\bIorHard\b"),
    "tool": ("`wrf_io`", r"\bWRF_IO\b|\bwrf_io\b"),
    "guard": ("G5", r"\bfigures\.tail\b|\bG5 tail\b"),
    "key": ("`limits.queue_wait`", r"\bqueue_wait\b"),
    "type": ("`gpfs`", r"\bgpfs\b"),
}


def example(kind: str) -> str:
    """The files in which an example of what is added stands."""
    name, pattern = EXAMPLES[kind]
    files = [ROOT / "CHANGELOG.md"]
    for place, ending in (
        *(
            ("checks", "py"),
            ("reframe/src", "py"),
            ("tests/unit", "py"),
            ("docs", "md"),
        ),
        ("site-configs", "yaml"),
    ):
        files += sorted((ROOT / place).rglob(f"*.{ending}"))
    found = []
    for file in files:
        if re.search(pattern, file.read_text(encoding="utf-8")):
            path = str(file.relative_to(ROOT)).removeprefix("reframe/src/iogauge/")
            found.append(f"`{path.removeprefix('reframe/src/')}`")
    return f"{name} stands in {', '.join(found)}."


def kinds() -> str:
    """The table of file-system types, a line for those of which the same is known."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for name, kind in {**KINDS, "`fuse.*` and all others": Kind()}.items():
        o_direct = "honoured" if kind.honours_o_direct else "not known to be"
        syncs = "honoured" if kind.syncs else "not known to"
        alike.setdefault((kind.cache, o_direct, syncs), []).append(name)
    rows = [
        "| `target.type` | cache of the client | O_DIRECT | fsync |",
        "|---|---|---|---|",
    ]
    for promises, names in alike.items():
        rows.append(f"| {', '.join(names)} | {' | '.join(promises)} |")
    return "\n".join(rows)


#: Page, name of the part, what makes it.
PARTS = (
    ("CONTRIBUTING.md", "walk", walk),
    *(("CONTRIBUTING.md", kind, partial(example, kind)) for kind in EXAMPLES),
    ("docs/guards.md", "guards", guards),
    ("docs/guards.md", "kinds", kinds),
    ("docs/guards.md", "fingerprint", fingerprint),
    ("docs/design.md", "rooms", rooms),
    ("README.md", "verdicts", verdicts),
)


def filled(page: str, name: str, content: str) -> str:
    """The text of a page with new content of one part; raises ValueError if the page lacks its comments."""
    pattern = rf"(<!-- begin {name}\b[^\n]*-->\n).*?(<!-- end {name} -->)"
    text, count = re.subn(
        pattern, lambda found: f"{found[1]}{content}\n{found[2]}", page, flags=re.DOTALL
    )
    if count != 1:
        raise ValueError(f"{count} parts {name!r} between comments, 1 expected")
    return text


def main() -> None:
    for page, name, make in PARTS:
        file = ROOT / page
        file.write_text(
            filled(file.read_text(encoding="utf-8"), name, make()), encoding="utf-8"
        )
        print(f"docs: {page}: {name}")


if __name__ == "__main__":
    main()
