"""A site's references: ReFrame's external reference file, read strictly.

ReFrame itself ignores a reference for a metric that does not exist. It only warns of a wrong unit,
and skips a test whose file is missing. Each of these is a named mistake here, found before anything
runs. The form (``$index``, ``$xfail``) is ReFrame's own; a key must fit the whole of a value.

An expected failure ends: its reason says ``until YYYY-MM-DD``, the last day (UTC) on which it is
expected.

The file has three keys beside ReFrame's. ``$sources`` maps every check to the source of its values. ``$published``
maps a check to the partitions whose references a document prints: their cases have the tag
``published-figure``. ``$recorded`` maps a check to metrics without a figure in the document. Such a
metric is recorded, and does not keep its case from a PASS by the others.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from iogauge.core.measurement import Metric, Reference
from iogauge.core.text import did_you_mean
from iogauge.core.units import UnitError, convert, dimension, with_unit
from iogauge.core.untrusted import is_number
from iogauge.core.yamlfile import Mistake, YamlError, load, located, show
from iogauge.site import reference_notes
from iogauge.site.doubts import loose, of_reference
from iogauge.site.folders import NO_REGEX, site_dir

FILE: Final = "references.yaml"
SOURCES: Final = "$sources"
XFAIL: Final = "$xfail"
_XFAIL_FORM: Final = "['$xfail', 'reason, until YYYY-MM-DD', [...]]"
_FORM: Final = f"[value, lower or null, upper or null, unit], or {_XFAIL_FORM}"
_LOWER: Final = "null or a share between -1 and 0 (-0.1: 10 % less)"
_UPPER: Final = "null or a share of 0 or more"
_UNTIL: Final = re.compile(r"\buntil (\d\S*?)[,:;.)]*(?=\s|$)")


class ReferencesError(ValueError):
    """Mistakes in a reference file that concern the current case; the message lists them."""


def last_day(reason: str) -> date:
    """Return the last day (UTC) of an expected failure, from the text of its reason.

    Raises ValueError if the text has no ``until YYYY-MM-DD``, more than one, or nothing else.
    """
    days = _UNTIL.findall(reason)
    if len(days) != 1 or not re.fullmatch(r"\d{4}-\d\d-\d\d", days[0], re.ASCII):
        raise ValueError("expected one 'until YYYY-MM-DD'")
    if not re.search(r"\w", _UNTIL.sub("", reason)):
        raise ValueError("expected a reason beside the day")
    return date.fromisoformat(days[0])


def _leaf(key: str, value: object) -> Iterator[Mistake]:
    if isinstance(value, list) and value[:1] == [XFAIL]:
        if len(value) != 3 or not isinstance(value[1], str) or not value[1].strip():
            yield Mistake(key, show(value), f"{_XFAIL_FORM} with a reason")
            return
        try:
            last_day(value[1])
        except ValueError as error:
            allowed = f"a reason and the last day (UTC) of it, such as 'ticket 42, until 2027-03-31': {error}"
            yield Mistake(f"{key} (reason)", show(value[1]), allowed)
            return
        value = value[2]
    if not isinstance(value, list) or len(value) != 4:
        allowed = _FORM
        if isinstance(value, list) and len(value) > 4:
            allowed += "; write decimals with a point: -0.1"
        yield Mistake(key, show(value), allowed)
        return
    number, lower, upper = value[:3]
    parts = [
        (is_number(number) and number > 0, "a finite number above 0"),
        (lower is None or (is_number(lower) and -1 <= lower <= 0), _LOWER),
        (upper is None or (is_number(upper) and upper >= 0), _UPPER),
    ]
    mistakes = []
    for part, (right, allowed) in enumerate(parts):
        if not right:
            found = show(value[part])
            mistakes.append(Mistake(of_reference(key, part), found, allowed))
    if lower in (None, -1) and upper is None:
        found = "neither an upper bound nor a lower bound above -1"
        mistakes.append(Mistake(key, found, "at least one: else nothing can fail"))
    try:
        dimension(str(value[3]))
    except UnitError as error:
        mistakes.append(Mistake(of_reference(key, 3), str(error)))
    yield from mistakes or loose(key, value)


def _walk(key: str, value: object, depth: int) -> Iterable[tuple[str, str, object]]:
    """Yield (key path, metric, leaf) ``depth`` mappings down; a wrong shape has the metric ''."""
    if depth < 0:
        yield key, key.rsplit(".", 1)[-1], value
    elif isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _walk(f"{key}.{name}", inner, depth - 1)
    else:
        yield key, "", value


def bare(leaf: list[Any]) -> list[Any]:
    """Return value, bounds and unit of a reference, whose failure may be expected."""
    if leaf[0] == XFAIL:
        return list(leaf[2])
    return list(leaf)


@dataclass(frozen=True, slots=True)
class References:
    """The reference file of a site; empty if the site has none."""

    file: Path
    data: dict[str, Any]
    mistakes: tuple[Mistake, ...]

    @staticmethod
    def of_site(site: str) -> References:
        """Return a site's references; never raises: the file's mistakes are in ``mistakes``."""
        return _read(site_dir(site) / FILE)

    @property
    def checks(self) -> list[str]:
        """Return the names of the checks that have references in the file."""
        checks = []
        for name in self.data:
            if isinstance(name, str) and not name.startswith("$"):
                checks.append(name)
        return checks

    def check(self, check: str, metrics: Sequence[Metric]) -> None:
        """Raise :class:`ReferencesError` for mistakes in the file, or in this check's entry: metrics that it does not have, and
        wrong units.
        """
        mistakes = list(self.mistakes)
        if check in self.checks and not mistakes:
            by_name = {metric.name: metric for metric in metrics}
            mistakes = located(self.file, self._against(check, by_name))
        if mistakes:
            raise ReferencesError("; ".join(map(str, mistakes)))

    def _against(self, check: str, by_name: Mapping[str, Metric]) -> Iterator[Mistake]:
        for name in sorted(reference_notes.recorded(self.data, check) - by_name.keys()):
            yield Mistake(
                f"{reference_notes.RECORDED}.{check}",
                f"metric {name!r}",
                ", ".join(by_name),
            )
        for key, name, leaf in leaves(check, self.data[check]):
            metric = by_name.get(name)
            if metric is None:
                found = f"metric {name!r}{did_you_mean(name, by_name)}"
                yield Mistake(
                    key, found, f"the metrics of {check}: {', '.join(by_name)}"
                )
                continue
            values = bare(leaf)
            least = 1 if metric.better == "more" else 2
            if values[least] is None:
                allowed = f"a share: else {name} cannot fail"
                yield Mistake(of_reference(key, least), "null", allowed)
            if values[3] != metric.unit:
                allowed = f"{metric.unit!r}, the metric's unit"
                with contextlib.suppress(UnitError):
                    same = convert(values[0], values[3], metric.unit)
                    allowed += f": {with_unit(same, metric.unit)}"
                yield Mistake(of_reference(key, 3), f"{values[3]!r}", allowed)

    def unfitting(
        self, check: str, cases: Sequence[Mapping[str, Sequence[object]]]
    ) -> list[Mistake]:
        """Return mistakes: keys of a check's references that fit no case of the check.

        A case has the values that a part of ``$index`` may have; any value fits a part that it does
        not have.
        """
        if check not in self.checks or self.mistakes or not cases:
            return []
        entry = self.data[check]
        return located(self.file, _unfitting(check, entry, _index(entry), cases))

    def unknown_checks(self, known: Iterable[str]) -> list[Mistake]:
        """Return mistakes: entries for checks that do not exist."""
        names, mistakes = sorted(known), []
        for name in self.checks:
            if name not in names:
                found = f"no check of that name{did_you_mean(name, names)}"
                mistakes.append(Mistake(name, found, ", ".join(names)))
        return located(self.file, mistakes)

    def _demand_known(self, check: Any, index: Sequence[str]) -> None:
        """Raise :class:`ReferencesError` if ``$index`` names what a check does not have."""
        for part in index:
            if not part.startswith("$") and not hasattr(check, part):
                parameters = sorted(type(check).param_space.params)
                wrong = Mistake(
                    f"{type(check).__name__}.$index",
                    f"{part!r}{did_you_mean(part, parameters)}",
                    "variables and parameters of the check, $system, $partition, $environ",
                )
                raise ReferencesError("; ".join(map(str, located(self.file, [wrong]))))

    def resolve(
        self, check: Any, metrics: Sequence[Metric], overridden: Mapping[str, object]
    ) -> tuple[dict[str, Reference], str]:
        """Return the references of a ReFrame test's metrics, and why some are missing.

        ``overridden`` holds the variables that this run sets otherwise than the site declares. The
        case is then compared only if ``$index`` names each of them. The text is empty if neither
        the file nor an override concerns the check. Only then may another reference replace it.
        """
        name = type(check).__name__
        entry = self.data.get(name, {})
        index = _index(entry)
        foreign = []
        for key, value in overridden.items():
            if key not in index:
                foreign.append(f"{key}={value}")
        if foreign:
            what = f"measured with {', '.join(foreign)}"
            return {}, f"{what}; references hold for what the site declares"
        if name not in self.checks:
            return {}, ""
        self._demand_known(check, index)
        values_of_case, sought = [], [check.current_partition.fullname]
        for part in index:
            value = _value_of(check, part)
            values_of_case.append(value)
            if not part.startswith("$"):
                sought.append(f"{part}={value!r}")
        found = reference_notes.look_up(entry, values_of_case)
        references = {}
        for metric in metrics:
            leaf = found.get(metric.name)
            if leaf is None:
                continue
            reason = until = None
            if leaf[0] == XFAIL:
                reason = leaf[1]
                until = last_day(reason)
            values = bare(leaf)
            references[metric.name] = Reference(
                value=values[0],
                lower=values[1],
                upper=values[2],
                unit=values[3],
                source=str(self.data[SOURCES][name]),
                xfail=reason,
                until=until,
            )
        # An entry that has another metric of this case is there: what it lacks is this one.
        none_for = ", ".join(sought)
        if references:
            none_for = f"this metric of {none_for}: write one, or name it in {reference_notes.RECORDED}"
        why = f"{self.file.name} has an entry for {name}, but none for {none_for}"
        return references, why


def _index(entry: Mapping[str, Any]) -> list[str]:
    """Return the parts of the index of a check's references."""
    return list(map(str, entry.get("$index") or ("$partition",)))


def _value_of(check: Any, part: str) -> object:
    """Return the value of a part of ``$index`` for a ReFrame test; None if it has no such part."""
    if part == "$partition":
        return check.current_partition.fullname
    if part == "$system":
        return check.current_system.name
    if part == "$environ":
        return check.current_environ.name
    return getattr(check, part, None)


def _may_fit(case: Mapping[str, Sequence[object]], part: str, name: object) -> bool:
    if part not in case:
        return True
    return any(reference_notes.fits(name, value) for value in case[part])


def _unfitting(
    key: str,
    entry: Mapping[Any, Any],
    index: Sequence[str],
    cases: Sequence[Mapping[str, Sequence[object]]],
) -> Iterable[Mistake]:
    """Yield the keys of an entry, and of those below it, that fit none of the cases."""
    if not index:
        return
    part, *inner_index = index
    known: dict[str, None] = {}
    for case in cases:
        known |= dict.fromkeys(map(str, case.get(part, ())))
    for name, inner in entry.items():
        if name == "$index":
            continue
        fitting = [case for case in cases if _may_fit(case, part, name)]
        if fitting:
            yield from _unfitting(f"{key}.{name}", inner, inner_index, fitting)
        else:
            what = f"{part.removeprefix('$')} {str(name)!r}{did_you_mean(name, known)}, which no case has"
            yield Mistake(f"{key}.{name}", what, ", ".join(known))


def _pattern_mistakes(key: str, value: object) -> Iterator[Mistake]:
    """Yield mistakes: keys that ReFrame takes for regular expressions, but that are invalid."""
    if not isinstance(value, dict):
        return
    for name, inner in value.items():
        pattern = f"^{name}$" if isinstance(name, str) else ""
        try:
            re.compile(pattern)
        except NO_REGEX as error:
            yield Mistake(
                f"{key}.{name}", f"the key {name!r}", f"a regular expression ({error})"
            )
        yield from _pattern_mistakes(f"{key}.{name}", inner)


def leaves(check: str, entry: dict[str, Any]) -> list[tuple[str, str, Any]]:
    """Return key, metric and value of every reference of a check."""
    index = entry.get("$index")
    depth = len(index) if isinstance(index, list) else 1
    body = dict(entry)
    body.pop("$index", None)
    return list(_walk(check, body, depth))


def find_mistakes(data: object) -> Iterator[Mistake]:
    """Yield every mistake in the form of a reference file's content."""
    if not isinstance(data, dict):
        yield Mistake("", show(data), "a mapping from check to references")
        return
    sources = data.get(SOURCES, {})
    if not isinstance(sources, dict):
        yield Mistake(SOURCES, show(sources), "a mapping from check to its source")
        sources = {}
    for name, entry in data.items():
        if not isinstance(name, str):
            yield Mistake(show(name), "this key", "the name of a check")
        elif name in reference_notes.MARKS:
            yield from reference_notes.mark_mistakes(name, entry, data)
        elif not name.startswith("$"):
            yield from _check_mistakes(name, entry, sources.get(name))
        elif name not in (SOURCES, reference_notes.ACCEPTED):
            allowed = ", ".join([SOURCES, *reference_notes.MARKS])
            yield Mistake(name, "this key", f"{allowed} and names of checks")
    for name in sources:
        if name not in data:
            yield Mistake(f"{SOURCES}.{name}", "this check has no references here")


def _check_mistakes(name: str, entry: object, source: object) -> Iterator[Mistake]:
    """Yield every mistake in the entry of a check."""
    if not isinstance(source, str) or not source.strip():
        allowed = "text that says where the values come from"
        yield Mistake(f"{SOURCES}.{name}", show(source), allowed)
    if not isinstance(entry, dict) or not entry:
        yield Mistake(name, show(entry), "a mapping from partition to metrics")
        return
    index = entry.get("$index")
    if index is not None and not (
        isinstance(index, list)
        and index
        and all(isinstance(part, str) for part in index)
    ):
        yield Mistake(f"{name}.$index", show(index), "a list of names")
        return
    yield from _pattern_mistakes(name, entry)
    for key, metric, leaf in leaves(name, entry):
        if metric:
            yield from _leaf(key, leaf)
        else:
            levels = ", then ".join([*(index or ["$partition"]), "the metric"])
            yield Mistake(key, show(leaf), f"a key for each level of $index: {levels}")


@lru_cache(maxsize=32)
def _parsed(path: Path, stamp: tuple[int, int]) -> References:
    try:
        data = load(path)
    except YamlError as error:
        return References(path, {}, tuple(located(path, [Mistake.of_yaml(error)])))
    if data is None:
        data = {}
    mistakes = tuple(located(path, find_mistakes(data)))
    if not isinstance(data, dict):
        data = {}
    return References(path, data, mistakes)


def _read(path: Path) -> References:
    try:
        info = path.stat()
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not path.is_symlink():
            return References(path, {}, ())
        # Behind a broken link the site wants references.
        return References(
            path, {}, (Mistake("", str(error), "a readable file", file=str(path)),)
        )
    return _parsed(path, (info.st_mtime_ns, info.st_size))


def known_checks(folder: Path) -> list[str]:
    """Return the names of a folder's checks, read from their source without running them."""
    names: list[str] = []
    for file in sorted(folder.rglob("*.py")):
        info = file.stat()
        names += _checks_in(file, (info.st_mtime_ns, info.st_size))
    return names


@lru_cache(maxsize=256)
def _checks_in(file: Path, stamp: tuple[int, int]) -> tuple[str, ...]:
    names = []
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            for decorator in map(ast.unparse, node.decorator_list):
                if "simple_test" in decorator:
                    names.append(node.name)
    return tuple(names)
