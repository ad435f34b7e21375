"""What the default run leaves out is kept by tests that the default run has."""

from __future__ import annotations

import ast

import pytest

from support.depth import FULL
from support.nightly import TESTS, calls, moved, names


def test_every_moved_test_names_tests_that_keep_its_promise() -> None:
    known, gone = names(), {one.test for one in moved() if not one.places}
    assert moved()
    for one in moved():
        assert one.keepers, f"{one.test}: nightly() names no test that keeps its promise"
        for keeper in one.keepers:
            assert keeper in known, f"{one.test}: {keeper} is no test"
            assert keeper not in gone, f"{one.test}: {keeper} is itself left to the nightly run"


def test_every_mark_belongs_to_a_test() -> None:
    """A mark that no test uses is forgotten; the page of the tests would not show it."""
    seen = {one.keepers for one in moved()}
    for file in TESTS.rglob("test_*.py"):
        if file.name != "test_nightly.py":
            text = file.read_text(encoding="utf-8")
            for keepers in calls(ast.parse(text)) if "mark.nightly" in text else ():
                assert keepers in seen, f"{file.name}: nightly{keepers} belongs to no test"


@pytest.mark.nightly("unit/test_nightly.py::test_a_skipped_test_says_who_keeps_its_promise")
def test_only_the_full_run_has_this_test() -> None:
    assert FULL


def test_a_skipped_test_says_who_keeps_its_promise(request: pytest.FixtureRequest) -> None:
    for item in request.session.items:
        mark, skip = item.get_closest_marker("nightly"), item.get_closest_marker("skip")
        if mark and not FULL:
            assert skip, f"{item.nodeid} runs every day"
            reasons = {one.kwargs["reason"] for one in item.iter_markers("skip")}
            assert f"kept by {', '.join(mark.args)}; IOGAUGE_TEST_FULL=1 runs it" in reasons
        elif mark and skip:
            assert "IOGAUGE_TEST_FULL" not in skip.kwargs["reason"], item.nodeid
