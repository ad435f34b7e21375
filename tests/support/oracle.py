"""Verdicts and outcomes that the judge and the guards gave to evidence, and those that they give now.

The cases lie in ``tests/data/oracle.jsonl.xz`` as JSON that names classes and fields, but no module. ``TEST_ORACLE=DIR``
lets the tests write each call into DIR; ``python tests/support/oracle.py DIR`` chooses among these calls.
``python tests/support/oracle.py`` without a folder writes down what is said of the same evidence now: for a change on purpose.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import json
import lzma
import pkgutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

import iogauge
import iogauge_extras
from iogauge.guards.views import CaseView
from iogauge.judge import decide

FILE = Path(__file__).parents[1] / "data" / "oracle.jsonl.xz"
#: Cases of one outcome that are kept, and cases in all.
ALIKE, MOST = 12, 400


class Heard:
    """A function of the plan that computes a metric, as what it answered."""

    def __init__(
        self, compute: Callable[..., Any] | None = None, rows: Any = ()
    ) -> None:
        self.compute, self.rows = compute, dict(rows)

    def __call__(self, *sources: Any) -> Any:
        if self.compute:
            self.rows[sources] = self.compute(*sources)
        return self.rows[sources]


def encode(value: Any) -> Any:
    """A value as JSON; a field that has its default is left out, what parses output is not called any more."""
    if isinstance(value, Heard):
        return {"": "Heard", "rows": encode(list(value.rows.items()))}
    if isinstance(value, Enum):
        return {"": type(value).__name__, "name": value.name}
    if dataclasses.is_dataclass(value):
        given = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        plain = {
            f.name for f in dataclasses.fields(value) if given[f.name] == f.default
        }
        kept = {name: encode(one) for name, one in given.items() if name not in plain}
        return {"": type(value).__name__, **kept}
    if hasattr(value, "_asdict"):
        return {"": type(value).__name__, **encode(value._asdict())}
    if hasattr(value, "model_fields_set"):
        named = {
            name: encode(getattr(value, name))
            for name in sorted(value.model_fields_set)
        }
        return {"": type(value).__name__, **named}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and key for key in value):
            return {key: encode(one) for key, one in value.items()}
        return {"": "Mapping", "items": encode(list(value.items()))}
    if isinstance(value, (list, tuple, set, frozenset)):
        listed = [encode(one) for one in value]
        sets = isinstance(value, (set, frozenset))
        return {"": "Set", "items": sorted(listed, key=str)} if sets else listed
    return None if callable(value) else value


@functools.cache
def _classes() -> dict[str, type]:
    rooms = [
        importlib.import_module(room.name)
        for package in (iogauge, iogauge_extras)
        for room in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        if not room.name.endswith("__main__")
    ]
    found = [
        one for room in rooms for one in vars(room).values() if isinstance(one, type)
    ]
    return {kind.__name__: kind for kind in found}


def decode(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(decode(one) for one in value)
    if not isinstance(value, dict):
        return value
    fields = {key: decode(one) for key, one in value.items() if key}
    if "testimony" in fields:
        fields["task_counters"] = fields.pop("testimony")
    match value.get(""):
        case None:
            return fields
        case "Heard":
            return Heard(rows=fields["rows"])
        case "Mapping":
            return dict(fields["items"])
        case "Set":
            return frozenset(fields["items"])
        case name:
            kind = _classes()[name]
    if issubclass(kind, Enum):
        return kind[fields["name"]]
    if hasattr(kind, "model_construct"):
        return kind.model_construct(**fields)
    return kind(**fields)


def said(name: str, call: Mapping[str, Any]) -> Any:
    """Verdicts of the case and of its metrics and the outcomes of all guards, as JSON; of an error its words."""
    try:
        answer = getattr(decide, name)(**decode(call))
    except ValueError as error:
        return {"": type(error).__name__, "text": str(error)}
    findings = answer if isinstance(answer, list) else answer.findings
    outcomes = [[one.guard, one.outcome.name, one.metric] for one in findings]
    if isinstance(answer, list):
        return outcomes
    metrics = [[one.metric.name, one.verdict.name] for one in answer.metrics]
    return {"verdict": answer.verdict.name, "metrics": metrics, "findings": outcomes}


def cases() -> list[dict[str, Any]]:
    return [json.loads(line) for line in lzma.open(FILE, "rt")]


def write(chosen: list[dict[str, Any]]) -> None:
    text = "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in chosen)
    FILE.write_bytes(lzma.compress(text.encode(), preset=9))


def record(folder: str) -> None:
    """Let each later call of the judge, and each case that is made beside it, write itself into a folder."""
    judge, init = decide.judge, CaseView.__init__
    names = judge.__code__.co_varnames[: judge.__code__.co_argcount]
    inside: list[bool] = []

    def keep(ask: str, given: Mapping[str, Any]) -> None:
        text = json.dumps({"ask": ask, "of": encode(given)}, default=repr)
        Path(folder, hashlib.sha256(text.encode()).hexdigest()).write_text(text)

    @functools.wraps(judge)
    def judged(*words: Any, **options: Any) -> Any:
        given = dict(zip(names, words, strict=False)) | options
        plan, inside[:] = given["plan"], [True]
        computed = {
            n: replace(o, compute=Heard(o.compute)) for n, o in plan.computed.items()
        }
        given["plan"] = replace(plan, computed=computed) if computed else plan
        try:
            return judge(**given)
        finally:
            inside.clear()
            keep("judge", given)

    def made(seen: CaseView, *words: Any, **options: Any) -> None:
        init(seen, *words, **options)
        if not inside:
            keep("findings_of", {"case": seen})

    decide.judge, CaseView.__init__ = judged, made  # type: ignore[method-assign]
    if storage := sys.modules.get("iogauge.cases.storage"):
        storage.judge = judged  # type: ignore[attr-defined]


def chosen(folder: Path) -> Iterator[dict[str, Any]]:
    """The shortest calls of each outcome that give the same answer from their JSON as when they were recorded."""
    alike: Counter[str] = Counter()
    files = sorted(folder.iterdir(), key=lambda file: file.stat().st_size)
    for file in files:
        one = json.loads(file.read_text())
        try:
            one["said"] = said(one["ask"], one["of"])
        except (LookupError, TypeError, AttributeError) as error:
            print(file.name, repr(error)[:200])
            continue
        outcome = _outcome(one)
        alike[outcome] += 1
        if alike[outcome] <= ALIKE:
            yield one


def _outcome(one: Mapping[str, Any]) -> str:
    answer = one["said"]
    findings = answer if isinstance(answer, list) else answer.get("findings", ())
    told = sorted({f"{guard} {outcome}" for guard, outcome, _ in findings})
    verdict = (
        "" if isinstance(answer, list) else answer.get("verdict") or answer["text"][:30]
    )
    return f"{one['ask']} {verdict} {told}"


if __name__ == "__main__":
    if sys.argv[1:]:
        write(list(chosen(Path(sys.argv[1])))[:MOST])
    else:
        write([one | {"said": said(one["ask"], one["of"])} for one in cases()])
