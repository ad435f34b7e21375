"""Asking in a child process: answers, exceptions, silence."""

import os
import signal
import time

import pytest

from e2e.rig import wait_for
from iogauge.core import processes
from iogauge.core.processes import NoAnswer


def test_what_is_returned_comes_back():
    assert processes.call_in_time("/t", lambda: {"a": [1, "x" * 200_000]}) == {
        "a": [1, "x" * 200_000]
    }


def test_silence_ends_and_names_the_place():
    start = time.monotonic()
    with pytest.raises(
        NoAnswer, match=r"/t has not answered for 1 s: .*iogauge clean --target /t"
    ):
        processes.call_in_time("/t", lambda: time.sleep(60), 1.0)
    assert time.monotonic() - start >= 1


def test_a_site_may_say_how_long_it_waits(monkeypatch):
    monkeypatch.setenv("IOGAUGE_SILENCE_S", "1")
    with pytest.raises(NoAnswer, match="/t has not answered for 1 s: "):
        processes.call_in_time("/t", lambda: time.sleep(60))
    # The seconds that a caller gives are a part of its own promise.
    with pytest.raises(NoAnswer, match="/t has not answered for 2 s: "):
        processes.call_in_time("/t", lambda: time.sleep(60), 2.0)


@pytest.mark.parametrize("text", ["0", "30 s", "1e3", "٣"])
def test_seconds_that_are_none_are_named(text, monkeypatch):
    monkeypatch.setenv("IOGAUGE_SILENCE_S", text)
    with pytest.raises(
        NoAnswer, match=r"/t was not asked: IOGAUGE_SILENCE_S is .*: expected seconds"
    ):
        processes.call_in_time("/t", lambda: None)


def test_who_is_getting_on_may_take_longer():
    def work(tell):
        for count in range(4):
            time.sleep(1)
            tell(count)
        return "done"

    heard = []
    assert processes.watch("/t", work, heard.append, 3) == "done"
    assert heard == [0, 1, 2, 3]


def test_a_child_that_is_killed_is_no_answer():
    with pytest.raises(NoAnswer, match="was killed"):
        processes.call_in_time("/t", lambda: os.kill(os.getpid(), signal.SIGKILL))


def test_a_child_ends_with_the_process_that_asked(tmp_path):
    """Or it would make a directory, once the storage is back, that nobody knows of."""
    file = tmp_path / "pid"

    def work():
        file.write_text(str(os.getpid()))
        time.sleep(60)

    asking = os.fork()
    if asking == 0:
        try:
            processes.call_in_time("/t", work)
        finally:
            os._exit(0)
    while not file.exists() or not file.read_text():
        time.sleep(0.01)
    os.kill(asking, signal.SIGKILL)
    os.waitpid(asking, 0)
    child = f"/proc/{file.read_text()}/exe"
    wait_for(lambda: not os.path.exists(child), 10, "the child's end")
