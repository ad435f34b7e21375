"""Commands that show what was measured: explain and history.

All texts of ``iogauge explain`` are kept elsewhere. A guard has its words beside its function, and
:mod:`iogauge.judge.verdict` explains a verdict. A check is explained by its row in docs/checks.md, any other word by
docs/keys.md.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from iogauge.cli.planning import demand_known
from iogauge.cli.screen import Since, System, Until, Wide, say, show, slips
from iogauge.core import paths
from iogauge.core.paths import project_root
from iogauge.guards import catalogue
from iogauge.guards.finding import Guard
from iogauge.judge.verdict import Verdict
from iogauge.site.references import known_checks

if TYPE_CHECKING:
    pass


def explain_word(
    words: Annotated[
        list[str], typer.Argument(help="Guard, verdict, check, or other word.")
    ],
    whole: Annotated[
        bool, typer.Option("--all", help="All of a guard, with examples.")
    ] = False,
) -> None:
    """Say what G12, UNSTABLE or FioRandomRead means, and what to do."""
    with slips(ValueError):
        for line in explain(" ".join(words), whole):
            say(line)


def show_history(
    system: System = "",
    name: Annotated[
        str,
        typer.Option(
            "-n", "--name", "--check", help="Case by its name; all if omitted."
        ),
    ] = "",
    verdict: Annotated[
        list[Verdict] | None,
        typer.Option(case_sensitive=False, help="May be repeated."),
    ] = None,
    metric: Annotated[str, typer.Option(help="Metric; all if omitted.")] = "",
    since: Since = None,
    until: Until = None,
    limit: Annotated[
        int, typer.Option(min=0, help="Newest records to show; 0 for all.")
    ] = 20,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each record as JSON.")
    ] = False,
    damaged: Annotated[
        bool, typer.Option("--damaged", help="List lines without record.")
    ] = False,
    wide: Wide = False,
) -> None:
    """Show the records, the newest first."""
    from iogauge.report import (
        history_table,
    )

    folder = paths.history_dir()
    verdicts = tuple(verdict or ())
    choice = history_table.RecordChoice(
        system=system,
        name=name,
        verdicts=verdicts,
        metric=metric,
        since=since,
        until=until,
        limit=limit,
    )
    demand_known(system, name)
    with slips(ValueError, OSError):
        if damaged:
            return _show_damaged(folder)
        found = history_table.chosen(folder, choice)
    if as_json:
        for record, _ in found.records:
            typer.echo(record.to_line().decode())
        return None
    if found.records:
        show(history_table.table(found.records, wide))
    say(f"{len(found.records)} of {found.matching} record(s) in {folder}")
    return None


def _show_damaged(folder: Path) -> None:
    """Print the lines of a history that are no records."""
    from iogauge.records import query

    for line in query.damaged(folder):
        say(f"{line.file}:{line.line}: {line.problem}")


def explain(word: str, whole: bool = False) -> list[str]:
    """Return the paragraphs about guards (``G12``, ``G8 contents``), verdicts, cases by their names, or another word.

    The words after a check are the parameters of a case. Raises ValueError with what was meant
    perhaps.
    """
    words, known = _glossary(), _known(whole)
    lower = {name.lower(): name for name in (*words, *known)}
    low = word.strip().lower()
    asked = [low] if low in lower else low.split() or [""]
    if lower.get(asked[0]) in known:
        told = (known.get(lower.get(name, ""), []) for name in asked)
        return [paragraph for of_name in told for paragraph in of_name]
    if low in lower:
        return [lower[low], f"  {words[lower[low]]}", "See docs/keys.md."]
    spelled = (f"`{low}`", f"`_{low.rpartition('_')[2]}`")
    for term, meaning in words.items():
        sentences = re.split(r"(?<=\.) ", meaning)
        said = [
            f"  {text}"
            for text in sentences
            if any(one in text.lower() for one in spelled)
        ]
        if said:
            return [word.strip(), *said, f"  See the word {term} in docs/keys.md."]
    near = difflib.get_close_matches(asked[0], lower, 3)
    meant = f" Did you mean {', '.join(lower[one] for one in near)}?" if near else ""
    last = [*catalogue.guards().values()][-1].number
    raise ValueError(
        f"iogauge knows no word {word!r}.{meant} Name a guard (G1 to {last}), a verdict (UNSTABLE), "
        "a check (FioRandomRead) or a word of docs/keys.md"
    )


def _known(whole: bool) -> dict[str, list[str]]:
    """Return the paragraphs about each guard, by its number and by its name, each verdict and each check."""
    found: dict[str, list[str]] = {}
    for name, guard in catalogue.guards().items():
        text = list(_guard(guard, whole))
        found[name] = text
        found.setdefault(guard.number, []).extend(text)
    return found | {one.value: _verdict(one) for one in Verdict} | _checks()


def _guard(guard: Guard, whole: bool) -> Iterator[str]:
    """Yield what a rule demands, what follows, and what to do; the ``whole`` of it or 60 words at most."""
    yield guard.name
    yield f"  {guard.must[:1].upper()}{guard.must[1:]}."
    if whole and guard.more:
        yield f"  {guard.more}"
    yield f"  If it does not hold: {guard.follows}."
    if guard.limit:
        limits = re.sub(r"\]\((.*?)\)", r": docs/\1]", guard.limit)
        yield f"  The site sets it by {limits}."
    if whole:
        letter, _, situation = guard.against.partition(": ")
        whom = {"a": "accident", "b": "somebody's environment"}[letter]
        yield f"  Against {whom}: {situation}."
        yield f"  Seen on: {guard.seen_on or 'recorded output only'}."
    yield f"  What to do: {guard.remedy}."


def _verdict(verdict: Verdict) -> list[str]:
    fails = (
        "in every run"
        if verdict.fails_run
        else "in a gate"
        if verdict.is_trouble(True)
        else ""
    )
    guards = dict.fromkeys(
        guard.number
        for guard in catalogue.guards().values()
        if verdict.value in guard.follows
    )
    return [
        verdict.value,
        f"  {verdict.meaning}.",
        f"  It fails {fails}." if fails else "  It never fails a run.",
        *([f"  Guards that say so: {', '.join(guards)}."] if guards else []),
        *([f"  What to do: {verdict.advice}."] if verdict.advice else []),
    ]


def _page(name: str) -> str:
    """Return the text of a page of docs, with links as their words; empty without that page."""
    page = project_root() / "docs" / name
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    return re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text)


def _checks() -> dict[str, list[str]]:
    """Return what docs/checks.md says of each check: its row in the table."""
    found = {name: [name] for name in known_checks(project_root() / "checks")}
    for line in _page("checks.md").splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        for name in cells[0].split(", ") if len(cells) == 4 else ():
            if found.get(name) == [name]:
                _, parameters, measures, tool = cells
                found[name] += [f"  It measures {measures}."]
                found[name] += [f"  One case for each: {parameters}."] * bool(
                    parameters
                )
                found[name] += [f"  It is measured by {tool}."] * bool(tool)
    return {name: [*told, "See docs/checks.md."] for name, told in found.items()}


def _glossary() -> dict[str, str]:
    """Return the words of docs/keys.md and their meanings; empty without that page."""
    found = re.findall(
        r"^\*\*(.+?)\*\*: (.+?)$(?=\n\n|\n*\Z)", _page("keys.md"), re.M | re.S
    )
    return {term: " ".join(meaning.split()) for term, meaning in found}
