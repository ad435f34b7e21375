"""One name for a case: every form of it that is printed can be given back."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iogauge.records import names
from iogauge.records.record import short_name

words = st.sampled_from(["shared", "4KiB", "64KiB", "a.b", "a+b", "(x)"])
cases = st.lists(
    st.builds(
        lambda check, values: " ".join(
            [check, *(f"%p{n}={value}" for n, value in enumerate(values))]
        ),
        st.sampled_from(["IorPosix", "Ior", "FioRandomRead"]),
        st.lists(words, max_size=3),
    ),
    min_size=1,
    max_size=6,
    unique=True,
)


@given(cases)
def test_the_tables_name_selects_the_cases_that_have_it_in_reframe_and_in_the_history(
    every,
):
    for case in every:
        name = short_name(case)
        same = {other for other in every if short_name(other) == name}
        assert set(names.chosen(name, every)) == same
        if " " in name:
            find = re.compile(names.pattern_of(name)).search
            assert {one for one in every if find(one.replace(" ", ""))} == same


@pytest.mark.parametrize(
    "typed, meant",
    [
        (
            "run -n IorPosix shared direct -t quick",
            ["-n", "IorPosix shared direct", "-t", "quick"],
        ),
        ("run -n A b -n C", ["-n", "A b", "-n", "C"]),
        ("report -n A b 20261126T221928-vm-1", ["-n", "A b", "20261126T221928-vm-1"]),
        ("site allow --replace", ["allow", "--replace"]),
    ],
)
def test_a_name_needs_no_quotes(typed, meant):
    assert names.joined(typed.split())[1:] == meant


def test_a_repetition_is_no_case_of_its_own():
    runs = [f"FioRandomRead %block=4KiB %.repeat_no={n}" for n in range(3)]
    assert names.chosen("FioRandomRead 4KiB", runs) == runs
    assert (
        names.chosen("%block=4KiB", runs)
        == names.chosen("FioRandomRead%block", runs)
        == runs
    )


@pytest.mark.parametrize(
    "slip, said",
    [
        ("FioRandomRed", "did you mean FioRandomRead?"),
        ("FioRandomRead 4KB", "did you mean FioRandomRead 4KiB?"),
        ("(", "no regular expression"),
    ],
)
def test_a_slip_is_an_error_that_says_what_was_meant(slip, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        names.chosen(slip, ["FioRandomRead %block=4KiB"])
