"""What a guard, a verdict, a check or a word of the glossary means; all texts are kept elsewhere.

A guard is explained by the docstring of its rule, a verdict by :mod:`iogauge.judge.verdict`, a check
by its class and its row in docs/checks.md, any other word by docs/glossary.md.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from iogauge.core.paths import project_root
from iogauge.guards import catalogue
from iogauge.judge.verdict import Verdict
from iogauge.site.references import known_checks


def explain(word: str) -> list[str]:
    """Return the paragraphs about a guard (``G12``), a verdict, a case's name or another word.

    Raises LookupError with what was meant perhaps.
    """
    name = word.split()[0] if word.split() else ""
    words = _glossary()
    checks = known_checks(project_root() / "checks")
    if numbers := [entry for entry in catalogue.ALL if entry.number == name.upper()]:
        return [paragraph for entry in numbers for paragraph in _guard(entry)]
    if name.upper() in Verdict.__members__:
        return _verdict(Verdict[name.upper()])
    if name in checks:
        return _check(name)
    if known := {term.lower(): term for term in words}.get(word.strip().lower()):
        return [known, f"  {words[known]}", "See docs/glossary.md."]
    every = [*{entry.number for entry in catalogue.ALL}, *Verdict.__members__, *checks, *words]
    lower = {one.lower(): one for one in every}
    near = difflib.get_close_matches(name.lower(), lower, 3)
    meant = f" Did you mean {', '.join(lower[one] for one in near)}?" if near else ""
    raise LookupError(
        f"nothing is known of {word!r}.{meant} Name a guard (G1 to G24), a verdict (UNSTABLE), "
        "a check (FioRandomRead) or a word of docs/glossary.md"
    )


def _guard(entry: catalogue.Entry) -> Iterator[str]:
    first, *more = _paragraphs(entry.rule)
    yield f"{entry.number} {entry.name}"
    yield f"  {first.removeprefix(f'{entry.number}: ')}"
    for paragraph in more:
        yield f"  {paragraph}"
    yield f"  If it does not hold: {entry.otherwise}."
    if entry.limits:
        limits = re.sub(r"\]\((.*?)\)", r": docs/\1]", entry.limits)
        yield f"  The site sets it by {limits}."
    for remedy in _remedies(entry.rule):
        yield f"  What to do: {remedy}."


def _paragraphs(thing: object) -> list[str]:
    text = (inspect.getdoc(thing) or "").replace("``", "`")
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n") if paragraph]


def _remedies(rule: Callable[..., Any]) -> list[str]:
    """Return what a rule's findings say is to be done, as its source has it; ``…`` is a figure."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(rule)))
    assigned: dict[str, list[ast.AST]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            assigned.setdefault(ast.unparse(node.targets[0]), []).append(node.value)
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Rule" and len(node.args) > 2:
            remedy = node.args[2]
            if isinstance(remedy, ast.Call) and (chosen := _function(rule, remedy)):
                found += _choices(chosen)
            else:
                found += map(_text, assigned.get(ast.unparse(remedy), [remedy]))
    return [text for text in dict.fromkeys(found) if text.strip("…")]


def _function(rule: Callable[..., Any], call: ast.Call) -> Callable[..., Any] | None:
    """Return the function that a rule calls, if it stands beside the rule."""
    found: Callable[..., Any] | None = inspect.unwrap(rule).__globals__.get(ast.unparse(call.func))
    return found


def _choices(chosen: Callable[..., Any]) -> Iterator[str]:
    """Yield the texts among which a function chooses: sentences or parts of one."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(chosen)))
    (function,) = tree.body
    assert isinstance(function, ast.FunctionDef)
    for statement in function.body[1:]:  # without the docstring
        for node in ast.walk(statement):
            whole = isinstance(node, ast.JoinedStr | ast.Constant)
            if whole and (text := _text(node)).strip() == text and len(text.split()) > 1:
                yield text[0].upper() + text[1:]


def _text(node: ast.AST) -> str:
    """Return the text that an expression makes; computed parts become ``…``."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text, node.values))
    if isinstance(node, ast.BinOp):
        return _text(node.left) + _text(node.right)
    if isinstance(node, ast.IfExp):
        return _text(node.body) or _text(node.orelse)
    return "…"


def _verdict(verdict: Verdict) -> list[str]:
    fails = "in every run" if verdict.fails_run else "in a gate" if verdict.is_trouble(True) else ""
    guards = sorted(
        {entry.number for entry in catalogue.ALL if entry.otherwise.startswith(verdict.value)},
        key=lambda number: int(number[1:]),
    )
    return [
        verdict.value,
        f"  {verdict.meaning}.",
        f"  It fails {fails}." if fails else "  It never fails a run.",
        *([f"  Guards that say so: {', '.join(guards)}."] if guards else []),
        *([f"  What to do: {verdict.advice}."] if verdict.advice else []),
    ]


def _check(name: str) -> list[str]:
    """Return what is known of a check without ReFrame's pipeline: its class, and its row in the docs."""
    folder = project_root() / "checks"
    for file in sorted(folder.rglob("*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                return [name, *_class(node, file.relative_to(folder.parent)), *_row(name)]
    raise LookupError(name)


def _class(node: ast.ClassDef, file: Path) -> Iterator[str]:
    values = {
        ast.unparse(one.targets[0]): one.value for one in node.body if isinstance(one, ast.Assign)
    }
    if "descr" in values:
        yield f"  {_text(values['descr'])}."
    library = importlib.import_module("iogauge.check")  # with ReFrame, which starts slowly
    base = getattr(library, ast.unparse(node.bases[0]), None)
    own = ast.get_docstring(node)
    for paragraph in [" ".join(own.split())] if own else _paragraphs(base):
        yield f"  {paragraph}"
    if "tags" in values:
        yield f"  Selected by -t: {', '.join(sorted(ast.literal_eval(values['tags'])))}."
    for variable, value in values.items():
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "parameter":
            yield f"  One case for each {variable}: {ast.unparse(value.args[0])}."
    yield f"  Source: {file}."


def _row(name: str) -> list[str]:
    """Return the cells about a check in the table of docs/checks.md."""
    page = project_root() / "docs" / "checks.md"
    for line in page.read_text(encoding="utf-8").splitlines() if page.exists() else ():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("|") and name in cells[0].split(", ") and len(cells) > 2:
            return [f"  It measures {cells[2]}.", "See docs/checks.md."]
    return []


def _glossary() -> dict[str, str]:
    """Return the words of docs/glossary.md and their meanings; empty without that page."""
    page = project_root() / "docs" / "glossary.md"
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    return {
        term: " ".join(meaning.split())
        for term, meaning in re.findall(r"^\*\*(.+?)\*\*: (.+?)$(?=\n\n|\n*\Z)", text, re.M | re.S)
    }
