"""What is kept of a case: the form of a record."""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, Final

from iogauge.core import untrusted
from iogauge.core.text import digest
from iogauge.judge.verdict import Verdict

#: What says what is measured, beside the parameters; with the value where a record is older than the key.
_MEASURED: Final[Mapping[str, Any]] = {
    "system": None,
    "partition": None,
    "environment": None,
    "check": None,
    "variant": "sound",
    "tier": None,
    "nodes": None,
    "tasks_per_node": None,
    "overridden": {},
}

#: What whoever shows a record relies upon, and what may be there; other keys are as they are.
_Number = float | None
_Name = str | None

#: Keys without which nobody can say what a record is of.
CASE_KEYS: Final = (
    "session",
    "time",
    "system",
    "partition",
    "environment",
    "check",
    "case",
    "verdict",
)
_CASE: Final[Mapping[str, Any]] = {
    **dict.fromkeys(CASE_KEYS, str),
    "verdict": Verdict,
    "reason": str,
    "metrics": list,
    "findings": list,
}
_OF_CASE: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("hash", "tier", "line", "series"), _Name),
    "confirms": _Name,
    "parameters": dict,
    "overridden": dict,
    "fingerprint": dict,
}
_METRIC: Final[Mapping[str, Any]] = {
    "name": str,
    "unit": str,
    "median": float,
    "spread": _Number,
    "verdict": _CASE["verdict"],
    "reason": str,
    "reference": dict | None,
    "ceiling": _Number,
}
_FINDING: Final[Mapping[str, Any]] = {
    "guard": str,
    "outcome": str,
    "metric": _Name,
    "saw": str,
    "demands": str,
}

#: The largest figure that is believed, and the last moment: what is drawn and sorted stays finite.
_MOST: Final = 1e300
_LAST: Final = 200_000_000_000_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_PRICE: Final[Mapping[str, Any]] = {
    "source": str,
    "currency": str,
    "per_gb_month": float,
    "capacity": float,
}


def microseconds(text: object) -> int:
    """Microseconds since 1970 of a time such as 2026-01-31T12:00:00Z; raises ValueError, also for times before that."""
    try:
        moment = datetime.fromisoformat(str(text).replace("Z", "+00:00"))
        found = (moment - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, TypeError, OverflowError):
        found = -1
    if not 0 <= found < _LAST:
        raise ValueError(f"time is {text!r:.60}: expected UTC such as 2026-01-31T12:00:00Z")
    return found


def check_form(record: Mapping[str, Any]) -> None:
    """Raise TypeError for the first key that is missing or has another type than it must have."""

    def check(value: object, form: Mapping[str, Any], where: str) -> None:
        if not isinstance(value, Mapping):
            raise TypeError(f"{where.rstrip('.')} is {reprlib.repr(value)}: expected an object")
        for key, kind in form.items():
            if key not in value:
                raise TypeError(f"the key {where}{key} is missing")
            untrusted.build(kind, value[key], where + key)

    check(record, _CASE, "")
    for key in (*CASE_KEYS, "line", "series"):
        str(record.get(key)).encode()  # half a surrogate pair is no text
    check(record, {key: kind for key, kind in _OF_CASE.items() if key in record}, "")
    microseconds(record["time"])
    for number, metric in enumerate(record["metrics"]):
        where = f"metrics[{number}]."
        check(metric, _METRIC, where)
        metric["name"].encode()  # half a surrogate pair is no text
        if abs(metric["median"]) > _MOST:
            raise ValueError(f"{where}median is {metric['median']!r}: expected {_MOST:g} at most")
        if metric["reference"] is not None:
            check(metric["reference"], {"value": float, "lower": _Number}, f"{where}reference.")
            check({"upper": None, **metric["reference"]}, {"upper": _Number}, f"{where}reference.")
            if metric["reference"]["value"] <= 0:
                raise ValueError(f"{where}reference.value is not more than 0")
    for number, finding in enumerate(record["findings"]):
        check(finding, _FINDING, f"findings[{number}].")
    if record.get("target") is not None:
        check(record["target"], {"path": str}, "target.")
    if record.get("price") is not None:
        check(record["price"], _PRICE, "price.")


# What records have in common.
def line_of(record: Mapping[str, Any]) -> str:
    """Twelve hex digits that name what a record measured: where, which case, at which scale.

    A record that is older than ``parameters`` has them in the case's name.
    """
    parameters = record.get("parameters")
    if not isinstance(parameters, Mapping):
        parameters = dict(re.findall(r"%([\w.]+)=(\S+)", str(record.get("case"))))
    if pinned := record.get("pinned"):  # a line for each node
        parameters = {**parameters, ".nid": pinned}
    measured = {name: record.get(name, old) for name, old in _MEASURED.items()}
    return digest([measured, {name: _word(value) for name, value in parameters.items()}])


def series_of(line: str, subset: Mapping[str, Any]) -> str:
    """Twelve hex digits that name a series: a line, and what its fingerprint says where it matters."""
    return digest([line, dict(subset)])


def keys_of(record: Mapping[str, Any]) -> tuple[str, str]:
    """Line and series of a record.

    For a record that is older than these keys they are computed: the series from the tools and the stack's
    fingerprint, which is what such a record knows of the software.
    """
    line, series = record.get("line"), record.get("series")
    if not (isinstance(line, str) and line):
        line = line_of(record)
    if not (isinstance(series, str) and series):
        stack = record.get("stack")
        subset = {
            "tools": record.get("tools"),
            "stack": stack.get("fingerprint") if isinstance(stack, Mapping) else None,
        }
        series = series_of(line, {name: value for name, value in subset.items() if value})
    return line, series


def _word(value: object) -> str:
    """A parameter's value as text, so that 4 in a record is 4 in the name of a case."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def short_name(case: str) -> str:
    """A case's name without ReFrame's parameter names: ``IorPosix shared random direct``.

    The partition that ``--distribute`` adds is left out: it stands elsewhere.
    """
    return re.sub(r" %\.part=\S+|%[\w.]+=", "", case)
