"""Commands that show what was measured: explain and history.

All texts of ``iogauge explain`` are kept elsewhere. A guard has its words beside its function, and
:mod:`iogauge.judge.verdict` explains a verdict. A check is explained by its row in docs/checks.md, any other word by
docs/keys.md.
"""

import re
from collections.abc import Iterator
from typing import Annotated

import typer

from iogauge.cli.planning import demand_known
from iogauge.cli.reporting import warn_of
from iogauge.cli.screen import Since, System, Until, say, show, slips
from iogauge.core import paths
from iogauge.core.paths import project_root
from iogauge.core.text import did_you_mean
from iogauge.guards import catalogue
from iogauge.guards.finding import Guard
from iogauge.judge.verdict import Verdict
from iogauge.records import query


def explain_word(
    words: Annotated[
        list[str], typer.Argument(help="Guard, verdict, check, or other word.")
    ],
) -> None:
    """Say what G12, UNSTABLE or FioRandomRead means, and what to do."""
    with slips(ValueError):
        for line in explain(" ".join(words)):
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
    from iogauge.report import history_table, outcome

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
        show(outcome.table(found.records, dated=True))
    say(f"{len(found.records)} of {found.matching} record(s) in {folder}")
    warn_of(found.damaged)


def explain(asked: str) -> list[str]:
    """Return the paragraphs about guards (``G12``, ``G8 contents``), verdicts, cases by their names, or another word.

    The words after a check are the parameters of a case. Raises ValueError with what was meant
    perhaps.
    """
    texts = _texts()
    names = {name.lower(): name for name in texts}
    low = asked.strip().lower()
    words = low.split() or [""]
    if low in names:
        words = [low]
    if words[0] not in names:
        raise ValueError(
            f"iogauge knows no word {asked!r}{did_you_mean(words[0], texts)}. Name a guard (G12), a verdict (UNSTABLE), "
            "a check (FioRandomRead) or a word of docs/keys.md"
        )
    found: list[str] = []
    for word in words:
        found += texts.get(names.get(word, ""), [])
    return found


def _texts() -> dict[str, list[str]]:
    """Return the paragraphs about each guard, by its number and by its name, each verdict, check and word."""
    found: dict[str, list[str]] = {}
    for name, guard in catalogue.guards().items():
        text = list(_guard(guard))
        found[name] = text
        found.setdefault(guard.number, []).extend(text)
    for verdict in Verdict:
        text = [verdict.value, f"  {verdict.meaning}."]
        if verdict.advice:
            text.append(f"  What to do: {verdict.advice}.")
        found[verdict.value] = text
    words = r"^\*\*(.+?)\*\*: (.+?)$(?=\n\n|\n*\Z)"
    for term, meaning in re.findall(words, _page("keys.md"), re.M | re.S):
        text = [term, f"  {' '.join(meaning.split())}"]
        found.setdefault(term, [*text, "See docs/keys.md."])
    for row in re.findall(r"^\| (.+) \|$", _page("checks.md"), re.M):
        named, *cells = row.split("|")
        text = [f"  {cell.strip()}" for cell in cells if cell.strip()]
        for name in named.strip().split(", "):
            found.setdefault(name, [name, *text, "See docs/checks.md."])
    return found


def _guard(guard: Guard) -> Iterator[str]:
    """Yield what a guard demands, what follows, and what to do."""
    yield guard.name
    yield f"  {guard.must[:1].upper()}{guard.must[1:]}."
    if guard.more:
        yield f"  {guard.more}"
    yield f"  If it does not hold: {guard.follows}."
    if guard.limit:
        yield f"  The site sets it by {guard.limit}."
    yield f"  Against {guard.against.partition(': ')[2]}."
    yield f"  Seen on: {guard.seen_on or 'recorded output only'}."
    yield f"  What to do: {guard.remedy}."


def _page(name: str) -> str:
    """Return the text of a page of docs, with links as their words; empty without that page."""
    page = project_root() / "docs" / name
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    return re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text)
