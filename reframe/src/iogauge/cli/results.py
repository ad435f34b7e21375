"""Commands that show what was measured: explain and history.

All texts of ``iogauge explain`` are kept elsewhere. A guard has its words beside its function, and
:mod:`iogauge.judge.verdict` explains a verdict. A check is explained by its row in docs/checks.md, any other word by
docs/keys.md.
"""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Iterator
from typing import Annotated

import typer

from iogauge.cli.planning import demand_known
from iogauge.cli.reporting import warn_of
from iogauge.cli.screen import Since, System, Until, say, show, slips
from iogauge.core import paths, registry
from iogauge.core.paths import project_root
from iogauge.guards import catalogue
from iogauge.guards.finding import Guard
from iogauge.judge.verdict import Verdict
from iogauge.records import query
from iogauge.site.references import known_checks


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
    context: typer.Context,
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
    since: Since = None,
    until: Until = None,
    limit: Annotated[
        int, typer.Option(min=0, help="Newest records to show; 0 for all.")
    ] = 20,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each record as JSON.")
    ] = False,
) -> None:
    """Show the records, the newest first. ``prune`` archives old ones."""
    if context.invoked_subcommand:
        return
    from iogauge.report import history_table

    folder = paths.history_dir()
    choice = query.Choice(system=system, name=name, since=since, until=until)
    demand_known(system, name)
    with slips(ValueError, OSError):
        found = history_table.chosen(folder, choice, verdict or (), limit)
    if as_json:
        for record in found.records:
            typer.echo(record.to_line().decode())
        return
    if found.records:
        show(history_table.table(found.records))
    say(f"{len(found.records)} of {found.matching} record(s) in {folder}")
    with contextlib.suppress(registry.Missing):
        for line in registry.load("iogauge_answers", "page.notices")():
            say(line)
    warn_of(found.damaged)


def explain(word: str, whole: bool = False) -> list[str]:
    """Return the paragraphs about guards (``G12``, ``G8 contents``), verdicts, cases by their names, or another word.

    The words after a check are the parameters of a case. Raises ValueError with what was meant
    perhaps.
    """
    words = _glossary()
    texts = _known(whole)
    for term, meaning in words.items():
        texts.setdefault(term, [term, f"  {meaning}", "See docs/keys.md."])
    lower = {name.lower(): name for name in texts}
    low = word.strip().lower()
    asked = [low] if low in lower else low.split() or [""]
    if asked[0] in lower:
        found: list[str] = []
        for name in asked:
            found += texts.get(lower.get(name, ""), [])
        return found
    spelled = re.escape(f"`{low}`") + "|" + re.escape(f"`_{low.rpartition('_')[2]}`")
    for term, meaning in words.items():
        sentences = []
        for sentence in re.split(r"(?<=\.) ", meaning):
            if re.search(spelled, sentence.lower()):
                sentences.append(f"  {sentence}")
        if sentences:
            return [word.strip(), *sentences, f"  See the word {term} in docs/keys.md."]
    meant = ""
    near = [lower[name] for name in difflib.get_close_matches(asked[0], lower, 3)]
    if near:
        meant = f" Did you mean {', '.join(near)}?"
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
    for verdict in Verdict:
        found[verdict.value] = list(_verdict(verdict))
    return found | _checks()


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


def _verdict(verdict: Verdict) -> Iterator[str]:
    """Yield what a verdict means, when it fails, which guards say so, and what to do."""
    yield verdict.value
    yield f"  {verdict.meaning}."
    if verdict.fails_run:
        yield "  It fails in every run."
    elif verdict.is_trouble(True):
        yield "  It fails in a gate."
    else:
        yield "  It never fails a run."
    numbers: dict[str, None] = {}
    for guard in catalogue.guards().values():
        if verdict.value in guard.follows:
            numbers[guard.number] = None
    if numbers:
        yield f"  Guards that say so: {', '.join(numbers)}."
    if verdict.advice:
        yield f"  What to do: {verdict.advice}."


def _page(name: str) -> str:
    """Return the text of a page of docs, with links as their words; empty without that page."""
    page = project_root() / "docs" / name
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    return re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text)


def _checks() -> dict[str, list[str]]:
    """Return what docs/checks.md says of each check: its row in the table."""
    names = known_checks(project_root() / "checks")
    found: dict[str, list[str]] = {}
    for line in _page("checks.md").splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        if len(cells) != 4:
            continue
        named, parameters, measures, tool = cells
        text = [f"  It measures {measures}."]
        if parameters:
            text.append(f"  One case for each: {parameters}.")
        if tool:
            text.append(f"  It is measured by {tool}.")
        for name in named.split(", "):
            found.setdefault(name, [name, *text, "See docs/checks.md."])
    return {name: found.get(name, [name, "See docs/checks.md."]) for name in names}


def _glossary() -> dict[str, str]:
    """Return the words of docs/keys.md and their meanings; empty without that page."""
    found = re.findall(
        r"^\*\*(.+?)\*\*: (.+?)$(?=\n\n|\n*\Z)", _page("keys.md"), re.M | re.S
    )
    return {term: " ".join(meaning.split()) for term, meaning in found}
