"""Sizes, rates and durations: text to numbers and back."""

import contextlib
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iogauge.core import units
from iogauge.core.units import UnitError

ANYTHING = st.one_of(
    st.text(),
    st.from_regex(r"[-+]?[0-9.]*([eE][0-9]*)? ?[KMGT]?i?[Bbs%]?(/s)?", fullmatch=True),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.just(10**400),
    st.none(),
)
PARSERS = [
    units.parse_bytes,
    units.parse_bandwidth,
    units.parse_seconds,
    units.parse_fraction,
]
ALL_UNITS = [unit for table in units.DIMENSIONS.values() for unit in table]


@pytest.mark.parametrize(
    "text", ["4", "4 b", "4 GB/s", "1.5 B", "4 gib", "nan B", "1e999 B", True]
)
def test_no_size(text):
    with pytest.raises(UnitError, match=re.escape(repr(text))):
        units.parse_bytes(text)


@pytest.mark.parametrize("parse", PARSERS)
@given(text=ANYTHING)
def test_a_parser_raises_nothing_but_unit_errors(parse, text):
    with contextlib.suppress(UnitError):
        value = parse(text)
        assert math.isfinite(value)
        assert value >= 0


@pytest.mark.parametrize(
    "value, unit, to, expected",
    [
        (1, "GiB/s", "MiB/s", 1024),
        (1, "GB/s", "Gbit/s", 8),
        (1, "MiB/s", "MB/s", 1.048576),
        (2, "kops/s", "ops/s", 2000),
        (1500, "us", "ms", 1.5),
        (50, "%", "1", 0.5),
        (3, "MiB/s", "MiB/s", 3),
    ],
)
def test_conversion(value, unit, to, expected):
    assert units.convert(value, unit, to) == pytest.approx(expected)


@given(st.text())
def test_a_unit_has_a_dimension_or_is_refused(unit):
    if unit in ALL_UNITS:
        assert unit in units.DIMENSIONS[units.dimension(unit)]
    else:
        with pytest.raises(UnitError, match="unknown unit"):
            units.dimension(unit)


@given(st.integers(0, 2**60))
def test_tool_size_is_exact(size):
    text = units.tool_size(size)
    factor = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}.get(text[-1])
    assert (int(text[:-1]) * factor if factor else int(text)) == size


@pytest.mark.parametrize(
    "size, text",
    [
        (0, "0 B"),
        (1024, "1 KiB"),
        (3.75 * 2**40, "3.75 TiB"),
        (1023 * 2**20, "1023 MiB"),
        (5000 * 2**50, "5000 PiB"),
    ],
)
def test_format_bytes(size, text):
    assert units.format_bytes(size) == text


@given(st.floats(0, 1e18))
def test_a_formatted_size_is_near_the_size_and_has_no_exponent(size):
    number, unit = units.format_bytes(size).split()
    assert "e" not in number
    assert float(number) * units.SIZE_UNITS[unit] == pytest.approx(
        size, rel=0.006, abs=0.51
    )


@pytest.mark.parametrize(
    "seconds, text",
    [(0, "0.00 s"), (0.42, "0.42 s"), (95, "95 s"), (720, "12 min"), (12600, "3.5 h")],
)
def test_format_seconds(seconds, text):
    assert units.format_seconds(seconds) == text


@given(st.floats(1e-3, 1e15))
def test_a_formatted_value_is_the_value_to_four_digits(value):
    assert float(units.format_value(value)) == pytest.approx(value, rel=6e-4)
