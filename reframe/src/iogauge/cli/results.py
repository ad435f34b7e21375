"""Commands that show what was measured: explain and history.

All texts of ``iogauge explain`` are kept elsewhere. Its row in rules.ini explains a guard, and
:mod:`iogauge.judge.verdict` explains a verdict. A check is explained by its row in docs/checks.md, any other word by
docs/keys.md.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from iogauge.cli.planning import demand_known
from iogauge.cli.screen import Since, System, Until, Wide, say, show, slips
from iogauge.core import paths
from iogauge.core.paths import project_root
from iogauge.guards import rules
from iogauge.judge.verdict import Verdict
from iogauge.site.references import known_checks

if TYPE_CHECKING:
    from iogauge.report.history_table import RecordChoice


def explain_word(
    words: Annotated[list[str], typer.Argument(help="Guard, verdict, check, or other word.")],
    whole: Annotated[bool, typer.Option("--all", help="All of a guard, with examples.")] = False,
) -> None:
    """Say what G12, UNSTABLE or FioRandomRead means, and what to do."""
    with slips(ValueError):
        for line in explain(" ".join(words), whole):
            say(line)


def show_history(
    system: System = "",
    name: Annotated[
        str, typer.Option("-n", "--name", "--check", help="Case by its name; all if omitted.")
    ] = "",
    verdict: Annotated[
        list[Verdict] | None, typer.Option(case_sensitive=False, help="May be repeated.")
    ] = None,
    metric: Annotated[str, typer.Option(help="Metric; all if omitted.")] = "",
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(min=0, help="Newest records to show; 0 for all.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print each record as JSON.")] = False,
    export: Annotated[Path | None, typer.Option(help="Write what matches as .parquet.")] = None,
    site: Annotated[str, typer.Option(help="With --export: column 'site' of a .parquet.")] = "",
    damaged: Annotated[bool, typer.Option("--damaged", help="List lines without record.")] = False,
    wide: Wide = False,
) -> None:
    """Show the records, the newest first."""
    from iogauge.report import history_table  # imported here because polars starts slowly

    folder = paths.history_dir()
    verdicts = tuple(verdict or ())
    choice = history_table.RecordChoice(system, name, verdicts, metric, since, until, limit)
    demand_known(system, name)
    with slips(ValueError, OSError):
        if damaged:
            return _show_damaged(folder)
        if export:
            return _write_history(folder, replace(choice, limit=0), export, site)
        rows, matching = choice.of(folder)
        contents = list(history_table.records(folder, rows))
    if as_json:
        for record, _ in contents:
            typer.echo(json.dumps(record, separators=(",", ":")))
        return None
    if contents:
        show(history_table.table(contents, wide))
    say(f"{len(contents)} of {matching} record(s) in {folder}")
    return None


def _show_damaged(folder: Path) -> None:
    """Print the lines of a history that are no records."""
    from iogauge.records import query

    for line in query.damaged(folder):
        say(f"{line.file}:{line.line}: {line.problem}")


def _write_history(folder: Path, choice: RecordChoice, file: Path, site: str) -> None:
    """Write the chosen part of the history for other tools; raises ValueError for another name."""
    from iogauge.report import export

    if file.suffix != ".parquet":
        raise ValueError(f"{file}: expected a name that ends in .parquet")
    frame = export.rows(folder, choice)
    export.parquet(frame, file, site)
    say(f"{frame.height} row(s) in {file}")


def explain(word: str, whole: bool = False) -> list[str]:
    """Return the paragraphs about guards (``G12``, ``G8 contents``), verdicts, cases by their names, or another word.

    The words after a check are the parameters of a case. Raises ValueError with what was meant
    perhaps.
    """
    names = word.split() or [""]
    words = _glossary()
    checks = known_checks(project_root() / "checks")

    rows = rules.rows()
    numbers = sorted({row.number for row in rows.values()}, key=lambda number: int(number[1:]))

    def about(name: str) -> list[str]:
        if of_number := [row for row in rows.values() if row.number == name.upper()]:
            return [paragraph for row in of_number for paragraph in _guard(row, whole)]
        if name.upper() in Verdict.__members__:
            return _verdict(Verdict[name.upper()])
        return _check(name) if name in checks else []

    subject = f"{names[0].upper()} {' '.join(names[1:])}"
    if subject in rows:
        return [*_guard(rows[subject], whole)]
    if first := about(names[0]):
        return [*first, *(paragraph for name in names[1:] for paragraph in about(name))]
    low = word.strip().lower()
    spelled = (f"`{low}`", f"`_{low.rpartition('_')[2]}`")
    for term in (term for term in words if term.lower() == low):
        return [term, f"  {words[term]}", "See docs/keys.md."]
    for term, meaning in words.items():
        sentences = re.split(r"(?<=\.) ", meaning)
        said = [text for text in sentences if any(one in text.lower() for one in spelled)]
        if said:
            return [
                word.strip(),
                *(f"  {text}" for text in said),
                f"  See the word {term} in docs/keys.md.",
            ]
    every = [*numbers, *Verdict.__members__, *checks, *words]
    lower = {one.lower(): one for one in every}
    near = difflib.get_close_matches(names[0].lower(), lower, 3)
    meant = f" Did you mean {', '.join(lower[one] for one in near)}?" if near else ""
    raise ValueError(
        f"iogauge knows no word {word!r}.{meant} Name a guard (G1 to {numbers[-1]}), a verdict (UNSTABLE), "
        "a check (FioRandomRead) or a word of docs/keys.md"
    )


def _guard(row: rules.RuleText, whole: bool) -> Iterator[str]:
    """Yield what a rule demands, what follows, and what to do; the ``whole`` of it or 60 words at most."""
    yield row.name
    yield f"  {row['must'][:1].upper()}{row['must'][1:]}."
    if whole and row["more"]:
        yield f"  {row['more']}"
    yield f"  If it does not hold: {row['otherwise']}."
    if row["limit"]:
        limits = re.sub(r"\]\((.*?)\)", r": docs/\1]", row["limit"])
        yield f"  The site sets it by {limits}."
    if whole:
        yield f"  Seen on: {row['seen on']}."
    for remedy in row.remedies if whole else row.remedies[:1]:
        yield f"  What to do: {remedy}."


def _verdict(verdict: Verdict) -> list[str]:
    fails = "in every run" if verdict.fails_run else "in a gate" if verdict.is_trouble(True) else ""
    guards = sorted(
        {row.number for row in rules.rows().values() if verdict.value in row["otherwise"]},
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
    """Return what docs/checks.md says of a check: its row in the table."""
    page = project_root() / "docs" / "checks.md"
    for line in page.read_text(encoding="utf-8").splitlines() if page.exists() else ():
        cells = [
            re.sub(r"\[(.+?)\]\(.+?\)", r"\1", cell.strip()) for cell in line.strip("| ").split("|")
        ]
        if len(cells) == 4 and name in cells[0].split(", "):
            _, parameters, measures, tool = cells
            told = [f"  One case for each: {parameters}."] * bool(parameters)
            told += [f"  It is measured by {tool}."] * bool(tool)
            return [name, f"  It measures {measures}.", *told, "See docs/checks.md."]
    return [name, "See docs/checks.md."]


def _glossary() -> dict[str, str]:
    """Return the words of docs/keys.md and their meanings; empty without that page."""
    page = project_root() / "docs" / "keys.md"
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    return {
        term: re.sub(r"\[(.+?)\]\(.+?\)", r"\1", " ".join(meaning.split()))
        for term, meaning in re.findall(r"^\*\*(.+?)\*\*: (.+?)$(?=\n\n|\n*\Z)", text, re.M | re.S)
    }
