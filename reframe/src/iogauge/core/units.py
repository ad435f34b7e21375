"""Sizes, rates and durations: text to numbers and back, always with the unit.

A number that leaves this module carries its unit in its name: ``bytes``, ``bytes_s`` (bytes per
second), ``seconds``. Text that enters it names its unit: ``4 GiB``, ``12.5 GB/s``, ``100 Gbit/s``.
Decimal prefixes are powers of 1000, binary prefixes (KiB, MiB, ...) are powers of 1024. ``b`` alone
is never accepted, because it means a bit to one reader and a byte to the next.
"""

import math
import re
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from statistics import median

_DECIMAL = {
    "": 1,
    "k": 10**3,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}

#: Bytes in each unit of size.
SIZE_UNITS: dict[str, int] = {f"{p}B": f for p, f in (_DECIMAL | _BINARY).items()}

#: Bytes per second in each unit of bandwidth; network rates are in bits.
BANDWIDTH_UNITS: dict[str, float] = {
    f"{u}/s": float(f) for u, f in SIZE_UNITS.items()
} | {f"{p}bit/s": f / 8 for p, f in _DECIMAL.items()}

#: Operations per second in each unit of operation rate.
OPERATION_UNITS: dict[str, float] = {"ops/s": 1.0, "kops/s": 1e3}

#: Seconds in each unit of time.
TIME_UNITS: dict[str, float] = {
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}

#: Every unit that a metric may have, by dimension. A ratio is a plain number.
DIMENSIONS: dict[str, dict[str, float]] = {
    "bandwidth": BANDWIDTH_UNITS,
    "operations": OPERATION_UNITS,
    "time": TIME_UNITS,
    "ratio": {"1": 1.0, "%": 0.01},
    "score": {"points": 1.0},
}

_QUANTITY = re.compile(
    r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-z%/]*)\s*"
)

#: Parts of a name: a number with its unit of size, or what is no number.
_PARTS = re.compile(r"(\d{1,18})([KMGTP]iB)?|(\D+)")


class UnitError(ValueError):
    """Text is not a quantity, or its unit does not fit. The message says what is allowed."""


def _parse(
    text: str | float | int, units: dict[str, float], what: str, example: str
) -> float:
    match = None
    if isinstance(text, str) and len(text) < 100:
        match = _QUANTITY.fullmatch(text)
    if match is None or match[2] not in units:
        allowed = ", ".join(units)
        raise UnitError(
            f"{repr(text)[:120]} is not a {what}: expected a number and a unit, such as {example!r} "
            f"(units: {allowed})"
        )
    value = float(match[1]) * units[match[2]]
    if not math.isfinite(value) or value < 0:
        raise UnitError(f"{text!r} is not a {what}: it must be finite and not negative")
    return value


def parse_bytes(text: str | float | int) -> int:
    """Return the bytes of a size such as ``'4 GiB'``; raises :class:`UnitError`."""
    value = _parse(text, {u: float(f) for u, f in SIZE_UNITS.items()}, "size", "4 GiB")
    if value != int(value):
        raise UnitError(f"{text!r} is not a whole number of bytes")
    return int(value)


def parse_bandwidth(text: str | float | int) -> float:
    """Return the bytes per second of text such as ``'12.5 GB/s'`` or ``'100 Gbit/s'``."""
    return _parse(text, BANDWIDTH_UNITS, "bandwidth", "12.5 GB/s")


def parse_seconds(text: str | float | int) -> float:
    """Return the seconds of text such as ``'30 s'``, ``'5 min'``, ``'1.5 h'``."""
    return _parse(text, TIME_UNITS, "duration", "30 s")


def parse_fraction(text: str | float | int) -> float:
    """Return the fraction of ``'85 %'`` (0.85), or a plain number between 0 and 1."""
    if isinstance(text, bool) or not isinstance(text, (str, int, float)):
        raise UnitError(f"{text!r} is not a share: write '85 %' or 0.85")
    if isinstance(text, str):
        value: float = _parse(text, {"%": 0.01, "": 1.0}, "share", "85 %")
    else:
        value = text
    if not 0 <= value <= 1:
        raise UnitError(
            f"{text!r:.40} is not a share: it must lie between 0 % and 100 %"
        )
    return float(value)


def dimension(unit: str) -> str:
    """Return the name of the dimension of a metric's unit; raises :class:`UnitError`."""
    known: list[str] = []
    for name, units in DIMENSIONS.items():
        if unit in units:
            return name
        known += units
    raise UnitError(f"unknown unit {unit!r} (known: {', '.join(known)})")


def convert(value: float, unit: str, to: str) -> float:
    """Convert a value to another unit; raises :class:`UnitError` across dimensions."""
    if unit == to:
        return value
    if dimension(unit) != dimension(to):
        raise UnitError(
            f"cannot convert {unit} ({dimension(unit)}) to {to} ({dimension(to)})"
        )
    units = DIMENSIONS[dimension(unit)]
    return value * units[unit] / units[to]


def tool_size(size_bytes: int) -> str:
    """Return a size as IOR, mdtest and fio read it: ``4m``, ``1g``, ``47008`` (binary suffixes)."""
    for suffix, factor in (("t", 2**40), ("g", 2**30), ("m", 2**20), ("k", 2**10)):
        if size_bytes >= factor and size_bytes % factor == 0:
            return f"{size_bytes // factor}{suffix}"
    return str(size_bytes)


def format_bytes(size_bytes: float) -> str:
    """Return a size for people, three significant digits: ``3.75 TiB``."""
    for unit in ("PiB", "TiB", "GiB", "MiB", "KiB"):
        factor = SIZE_UNITS[unit]
        if abs(size_bytes) >= 999.5 * factor:
            return f"{size_bytes / factor:.0f} {unit}"
        if abs(size_bytes) >= factor:
            return f"{size_bytes / factor:.3g} {unit}"
    return f"{size_bytes:.0f} B"


def format_seconds(seconds: float) -> str:
    """Return a duration for people: ``4.21 ms``, ``0.42 s``, ``95 s``, ``12 min``, ``3.5 h``."""
    if 0 < seconds < 0.1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def duration(seconds: float) -> str:
    """Return a duration for people: ``45 s``, ``12 min``, ``3 h 20 min``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def format_value(value: float) -> str:
    """Return a value for people: four significant digits, no exponent from 0.001 to a billion."""
    if 1e-3 <= abs(value) < 1e9:
        digits = max(0, 3 - math.floor(math.log10(abs(value))))
        return f"{value:.{min(digits, 6)}f}"
    return f"{value:.4g}"


def with_unit(value: float, unit: str) -> str:
    """Return a value with its unit; a ratio, whose unit is 1, stands alone."""
    figure = format_value(value)
    if unit in ("1", ""):
        return figure
    return f"{figure} {unit}"


def of_runs(values: Sequence[float], unit: str) -> str:
    """Return what several runs measured: ``20 runs: 314.1 to 320.4, median 318.0 ops/s``."""
    least, most = format_value(min(values)), format_value(max(values))
    return f"{len(values)} runs: {least} to {most}, median {with_unit(median(values), unit)}"


def in_order(name: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts names as people do: oss4 before oss12, and 4KiB before 1MiB."""
    key = []
    for number, unit, rest in _PARTS.findall(name):
        if number:
            key.append((0, int(number) * SIZE_UNITS.get(unit, 1), unit))
        else:
            key.append((1, 0, rest))
    return key


def moment(text: str, *, end: bool = False) -> datetime:
    """Return a time: 2027-03-31, 2027-03-31T12:00 (UTC unless it has a zone), or 12h, 7d, 4w ago.

    A day is its begin, with ``end`` its end. Raises ValueError.
    """
    ago = re.fullmatch(r"(\d{1,5})([hdw])", text)
    if ago:
        hours = int(ago[1]) * {"h": 1, "d": 24, "w": 168}[ago[2]]
        return datetime.now(timezone.utc) - timedelta(hours=hours)
    try:
        time = datetime.fromisoformat(re.sub("Z$", "+00:00", text))
        if end and re.fullmatch(r"[\d-]+", text):
            time = time.replace(hour=23, minute=59, second=59, microsecond=999_999)
        zone = time.tzinfo or timezone.utc
        return time.replace(tzinfo=zone).astimezone(timezone.utc)
    except (ValueError, OverflowError) as error:
        message = (
            f"{text!r} is no time: expected 2027-03-31, 2027-03-31T12:00, 12h, 7d or 4w"
        )
        raise ValueError(message) from error
