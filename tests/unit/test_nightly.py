"""What the default run leaves out is kept by tests that the default run has."""

from __future__ import annotations

from support.nightly import moved, names


def test_every_moved_test_names_tests_that_keep_its_promise() -> None:
    known, gone = names(), {one.test for one in moved() if not one.places}
    assert moved()
    for one in moved():
        assert one.keepers, f"{one.test}: nightly() names no test that keeps its promise"
        for keeper in one.keepers:
            assert keeper in known, f"{one.test}: {keeper} is no test"
            assert keeper not in gone, f"{one.test}: {keeper} is itself left to the nightly run"
