"""The cases that ReFrame's options select, what keeps some of them from running, and what a session should have measured
and did not.

ReFrame leaves out a case without a word if no partition and environment has the features that it
asks for. So a listing that ignores features is compared with what each check asks for. While
ReFrame loads checks and partitions, they call :func:`note`, which writes a line into the file that
``$IOGAUGE_LISTING`` names.

If a site has lost a tool, or a feature or pattern is misspelt, ReFrame selects fewer cases and
passes. So a run keeps beside its records what it did not measure (:class:`Unmeasured`). A gate also
compares itself with earlier gates of the same selection, which is the words on its command line.
"""

import json
import os
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from pydantic import ConfigDict

from iogauge.core import untrusted, vocabulary
from iogauge.core.form import Form
from iogauge.core.paths import replace_file
from iogauge.core.text import did_you_mean
from iogauge.core.units import UnitError, parse_bytes
from iogauge.records import query
from iogauge.records.names import pattern_of
from iogauge.records.record import Record, short_name

#: Variable with the path of the file for the notes of a listing; unset in any other run.
LISTING = "IOGAUGE_LISTING"

#: Why a partition lacks a feature, and what brings it.
_PARTITION_LACKS = {
    vocabulary.O_DIRECT: "its target is not known to honour O_DIRECT. If it does, declare "
    "target.honours_o_direct: true",
    vocabulary.CHECKSUMS: "its cases may not switch Lustre's checksums. If they may, declare "
    f"rights: [{vocabulary.CHECKSUMS}]",
}


#: Variables that ``-S`` sets in checks of this suite; the last two in bytes.
_VARIABLES = (
    *("nodes", "tasks_per_node", "repetitions", "tier", "variant"),
    *("transfer_bytes", "total_bytes"),
)


def with_variables(arguments: Sequence[str]) -> list[str]:
    """Return ReFrame's arguments with the sizes of ``-S`` in bytes: ReFrame takes no units.

    Raises ValueError for a slip in ``-S`` that ReFrame would only warn of, or end with a traceback.
    """
    settled = list(arguments)
    for place, word in enumerate(arguments):
        start = ""
        if word.startswith("--setvar="):
            start = "--setvar="
        if start or (place and arguments[place - 1] in ("-S", "--setvar")):
            settled[place] = start + _with_bytes(word.removeprefix(start))
    return settled


def _with_bytes(setting: str) -> str:
    path, equals, value = setting.partition("=")
    check, dot, name = path.rpartition(".")
    hint = did_you_mean(name, _VARIABLES)
    if equals and name not in _VARIABLES and hint:
        raise ValueError(f"-S {setting}: no check has the variable {name!r}{hint}")
    if name == "tier" and value not in get_args(vocabulary.Tier):
        allowed = ", ".join(get_args(vocabulary.Tier))
        raise ValueError(f"-S {setting}: found {value!r}; allowed: {allowed}")
    if name.endswith("_bytes") and not value.isdecimal():
        try:
            value = str(parse_bytes(value))
        except UnitError as error:
            raise ValueError(f"-S {setting}: {error}") from error
    elif name in ("nodes", "tasks_per_node", "repetitions") and not value.isdecimal():
        raise ValueError(f"-S {setting}: found {value!r}; allowed: a whole number")
    return f"{check}{dot}{name}{equals}{value}"


class _Note(Form):
    model_config = ConfigDict(strict=False)


class NotedEnvironment(_Note):
    """An environment as the listing knows it; ``why`` says why it lacks a feature, by feature."""

    name: str
    features: tuple[str, ...]
    why: Mapping[str, str]


class NotedPlace(_Note):
    """A partition, as ``system:partition``, with its environments."""

    place: str
    features: tuple[str, ...]
    environments: tuple[NotedEnvironment, ...]


class NotedCase(_Note):
    """A case, what it asks for in ReFrame's words, and the partitions that it can run on.

    ``values`` are the values that its parameters and variables may have.
    """

    hash: str
    case: str
    check: str
    derived: bool
    systems: tuple[str, ...]
    environments: tuple[str, ...]
    runs_on: tuple[str, ...]
    values: Mapping[str, tuple[str | int | float | bool | None, ...]]


class UnrunCase(_Note):
    """A selected case that cannot run on a partition, the missing feature, and why it is missing."""

    check: str
    case: str
    place: str
    holder: str
    feature: str
    why: str


@dataclass(frozen=True, slots=True)
class Selected:
    """What the options select.

    ``listed`` and ``runnable`` are ReFrame's names, each followed by its hash. ``mixes_derived`` says whether a part of the runnable
    cases is computed from records. ``unfit`` are checks of which no partition asks for any case: it declares no points, hosts or
    targets for them.
    """

    listed: tuple[str, ...] = ()
    runnable: tuple[str, ...] = ()
    mixes_derived: bool = False
    left_out: tuple[UnrunCase, ...] = ()
    unfit: tuple[str, ...] = ()
    systems: tuple[str, ...] = ()


def note(fact: NotedPlace | NotedCase) -> None:
    """Append a fact to the notes of the listing, if this process makes a listing."""
    file = os.environ.get(LISTING)
    if file:
        with open(file, "a", encoding="utf-8") as notes:
            notes.write(json.dumps(fact.to_json()) + "\n")


def noted(notes: str) -> tuple[dict[str, NotedPlace], dict[str, NotedCase]]:
    """Return the partitions and the cases of the notes, by place and by hash.

    Raises ValueError or TypeError for notes of another form.
    """
    places: dict[str, NotedPlace] = {}
    cases: dict[str, NotedCase] = {}
    for line in notes.splitlines():
        fact = untrusted.parse_json(line)
        # ReFrame imports the package of the checks, which notes the places, more than once.
        if "place" in fact:
            places[fact["place"]] = NotedPlace.from_json(fact)
        if "hash" in fact:
            cases[fact["hash"]] = NotedCase.from_json(fact)
    return places, cases


def select(listed: Sequence[str], notes: str) -> Selected:
    """Return what is selected: ``listed`` are the names and hashes of a listing without features.

    A case without a note counts as one that can run. Raises what :func:`noted` raises.
    """
    places, cases = noted(notes)
    runnable: list[str] = []
    left_out: list[UnrunCase] = []
    unfit: dict[str, None] = {}
    fit: set[str] = set()
    derived = 0
    for name in listed:
        case = cases.get(name.rpartition("/")[2])
        if case is None:
            runnable.append(name)
            continue
        if case.runs_on:
            runnable.append(name)
            derived += case.derived
        before = len(left_out)
        for place in places.values():
            left_out += _lacking(case, place)
        if case.runs_on or len(left_out) > before:
            fit.add(case.check)
        else:
            unfit[case.check] = None
    systems = dict.fromkeys(place.partition(":")[0] for place in places)
    return Selected(
        listed=tuple(listed),
        runnable=tuple(runnable),
        mixes_derived=0 < derived < len(runnable),
        left_out=tuple(left_out),
        unfit=tuple(check for check in unfit if check not in fit),
        systems=tuple(systems),
    )


def _lacking(case: NotedCase, place: NotedPlace) -> Iterable[UnrunCase]:
    """Yield the reason why a case cannot run on a partition that it was made for."""
    if place.place in case.runs_on:
        return
    system = place.place.partition(":")[0]
    missing = _missing(case.systems, {place.place, system}, place.features)
    if missing is None:
        return
    holder = f"partition {place.place}"
    why: Mapping[str, str] = _PARTITION_LACKS
    if not missing:
        nearest: NotedEnvironment | None = None
        for environment in place.environments:
            names = {environment.name}
            lacks = _missing(case.environments, names, environment.features)
            if lacks and (nearest is None or len(lacks) < len(missing)):
                missing, nearest = lacks, environment
        if nearest is None:
            return
        holder, why = f"environment {nearest.name}", nearest.why
    none = f"{place.place} declares none"
    reasons = dict.fromkeys(why.get(name, none) for name in missing)
    yield UnrunCase(
        check=case.check,
        case=case.case,
        place=place.place,
        holder=holder,
        feature=", ".join(missing),
        why="; ".join(reasons),
    )


def _missing(
    asked: Sequence[str], names: Collection[str], features: Collection[str]
) -> list[str] | None:
    """Return the features that are missing, empty if all are there; None if it is not asked for.

    ``asked`` are alternatives in ReFrame's words: ``*``, a name, or ``+feature +feature``.
    """
    if "*" in asked or set(asked) & set(names):
        return []
    fewest: list[str] | None = None
    for spec in asked:
        if not spec.startswith("+"):
            continue
        lacks = []
        for word in spec.split():
            if word[1:] not in features:
                lacks.append(word[1:])
        if fewest is None or len(lacks) < len(fewest):
            fewest = lacks
    return fewest


#: Most sessions of a selection to look back at; a run with derived checks has two.
_SESSIONS = 30

CaseKey = tuple[str, str, str]


class Unmeasured(_Note):
    """What a session was asked for and did not measure; the default says that nothing is known.

    ``unmatched`` and ``gone`` are sentences: of each name or tag that fits no case, and of each case
    that earlier gates recorded. ``nothing`` holds the
    words on the command line if they select no case at all.
    """

    gate: bool = False
    left_out: tuple[UnrunCase, ...] = ()
    unfit: tuple[str, ...] = ()
    unmatched: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    nothing: str = ""


def joined_unmeasured(lacks: Sequence[Unmeasured]) -> Unmeasured:
    """Return what several sessions did not measure, as if they were one session."""
    joined = Unmeasured()
    for lack in lacks:
        joined = Unmeasured(
            gate=joined.gate or lack.gate,
            left_out=joined.left_out + lack.left_out,
            unfit=joined.unfit + lack.unfit,
            unmatched=joined.unmatched + lack.unmatched,
            gone=joined.gone + lack.gone,
            nothing=joined.nothing or lack.nothing,
        )
    return joined


def save_unmeasured(file: Path, unmeasured: Unmeasured) -> None:
    """Write what a session did not measure; raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, json.dumps(unmeasured.to_json()).encode())


def load_unmeasured(file: Path) -> Unmeasured:
    """Read what :func:`save_unmeasured` wrote; raises OSError, TypeError or ValueError."""
    return Unmeasured.from_json(untrusted.read_json(file))


def selection(arguments: Sequence[str]) -> str:
    """Return the name of a selection: the words that were typed, quoted for a shell."""
    return shlex.join(arguments)


def seen_before(
    history: Path, system: str, chosen: str, mine: Collection[str] = ()
) -> dict[CaseKey, str]:
    """Return the cases that gates of a selection recorded on a system, with the newest session of each.

    ``mine`` are the sessions to compare with them. Cases pinned to a node are left out, since nodes come and go.
    """
    place = 'partition, environment, "case"'
    known = query.Condition("system = ? AND selection = ?", (system, chosen))
    with closing(query.connect(history)) as index:
        newest = "GROUP BY session ORDER BY session DESC"
        sessions = []
        for row in query.rows(index, "session", known, newest):
            if row["session"] not in mine:
                sessions.append(row["session"])
        recent = query.among("session", sessions[:_SESSIONS])
        free = query.Condition("pinned IS NULL")
        every = query.every(known, recent, free)
        found = query.rows(index, f"{place}, max(session)", every, f"GROUP BY {place}")
    return {tuple(key): session for *key, session in found}


def gone(
    before: Mapping[CaseKey, str], records: Iterable[Record], system: str
) -> list[str]:
    """Return a line for each case that was recorded before and is not now."""
    now = set()
    for record in records:
        if record.system == system:
            now.add((record.partition, record.environment, record.case))
    lines = []
    for key, session in sorted(before.items()):
        if key not in now:
            partition, environment, name = key
            where = f"{system}:{partition}, {environment}"
            lines.append(
                f"{short_name(name)} ({where}) was recorded in {session}, and is gone"
            )
    return lines


def without_match(
    arguments: Sequence[str],
    runnable: Iterable[str],
    listed: Iterable[str] = (),
    checks: Collection[str] = (),
) -> list[str]:
    """Return a sentence for each tag that no check has, and each name that fits no case which can run.

    ``runnable`` and ``listed`` are ReFrame's names, each followed by its hash; ``listed`` holds
    those that cannot run, too. ``checks`` are the names of all checks. Several ``-n`` are
    alternatives, so ReFrame does not report a value without a match.
    """
    unknown = _unknown_tags(arguments, "-t", "--tag", "selects")
    excluded = _unknown_tags(arguments, "-T", "--exclude-tag", "excludes")
    for pattern in values(arguments, "-x", "--exclude"):
        hint = _hint(pattern, checks)
        if hint and not any(re.search(pattern_of(pattern), check) for check in checks):
            excluded.append(f"-x {pattern} excludes no case{hint}")
    if unknown:  # nothing is listed then, whatever the names are
        return [*unknown, *excluded]

    def fits(pattern: str, names: Iterable[str]) -> bool:
        cases = [name.rpartition(" /") for name in names]
        if pattern.startswith("/"):
            return any(pattern[1:] == case[2] for case in cases)
        test = pattern_of(pattern.rpartition("@")[0] or pattern)
        return any(re.search(test, case[0].replace(" ", "")) for case in cases)

    def why(pattern: str) -> str:
        if fits(pattern, listed):
            return " that can run here"
        if pattern in checks:
            return (
                ": it exists, and the other options (-t, -T, -x, --mode) leave it out"
            )
        return _hint(pattern, checks)

    named = []
    for pattern in values(arguments, "-n", "--name"):
        if not fits(pattern, runnable):
            named.append(f"-n {pattern} selects no case{why(pattern)}")
    return [*named, *excluded]


def values(arguments: Sequence[str], short: str, long: str) -> list[str]:
    """Return the values of an option of ReFrame on its command line, in their order."""
    found = []
    for word, after in zip(arguments, [*arguments, ""][1:], strict=True):
        if word in (short, long):
            found.append(after)
        elif word.startswith(f"{long}="):
            found.append(word.partition("=")[2])
    return found


def _unknown_tags(
    arguments: Sequence[str], short: str, long: str, does: str
) -> list[str]:
    """Return a sentence for each value of ``-t`` or ``-T`` that fits no tag; ReFrame says nothing."""
    sentences, tags = [], sorted(vocabulary.TAGS)
    for pattern in values(arguments, short, long):
        if any(re.search(pattern, tag) for tag in tags):
            continue
        hint = did_you_mean(pattern.strip("^$"), tags)
        sentences.append(
            f"{short} {pattern} {does} no case{hint} (tags: {', '.join(tags)})"
        )
    return sentences


def _hint(pattern: str, checks: Collection[str]) -> str:
    """Return what may have been meant by a name that fits no case."""
    if " " in pattern:
        return did_you_mean(pattern, checks)
    check = re.split(r"[^\w]", pattern.lstrip("^"))[0]
    if check in checks:
        return ""
    return did_you_mean(check, checks)
