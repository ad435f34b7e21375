"""What benchmarks/kills.py demands of records: a session that loses one, or writes one twice or anew, is noticed."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest

from e2e.rig import Rig, Run
from iogauge.workspace import directory
from support import programs

pytestmark = pytest.mark.needs_fio


@pytest.fixture(scope="module")
def session(make_module_rig: Callable[..., Rig]) -> tuple[str, bytes]:
    """What ReFrame printed of a real session of two cases, and its file of records."""
    rig = make_module_rig(limits={"case_bytes": "16 MiB"})
    run: Run = rig.run("-n", "FioRandomRead%block=4KiB", "-n", "FioRandomRead%block=32KiB")
    (file,) = (rig.home / "history").rglob("*.jsonl")
    return run.out, file.read_bytes()


def first(text: bytes) -> bytes:
    return text[: text.index(b"\n") + 1]


def other(text: bytes) -> bytes:
    return re.sub(rb'"verdict":"\w+"', b'"verdict":"PASS"', text, count=1)


def unread(said: str) -> str:
    """In words that the program does not know."""
    return re.sub(r"(?m)^\[ +\w+ +\] \(", "[     DONE ] (", said)


@pytest.mark.parametrize(
    ("planted", "told"),
    [
        (lambda said, text: (said, text), None),
        (lambda said, text: (said, first(text)), "ended and not recorded"),
        (lambda said, text: (said, text + first(text)), "recorded twice"),
        (lambda said, text: (said, other(text)), "recorded as PASS, ended with (SKIP|FAIL)"),
        (lambda said, text: (said, text[:-10]), "damaged"),
        (lambda said, text: (unread(said), text), "2 cases ended, 0 were read"),
    ],
)
def test_the_records_of_a_session(session, planted, told, tmp_path):
    kills = programs.load("kills")
    said, text = planted(*session)
    (tmp_path / "session.jsonl").write_bytes(text)
    records = kills.Records(tmp_path)
    if told is None:
        assert len(records.of_session(said, set())) == 2
        return
    with pytest.raises(kills.Broken, match=told):
        records.of_session(said, set())


@pytest.mark.parametrize(
    "planted", [lambda text: text.replace(b'"time":"2', b'"time":"1'), first, lambda _: None]
)
def test_a_record_that_is_written_anew_or_taken_away(session, planted, tmp_path):
    kills = programs.load("kills")
    file = tmp_path / "session.jsonl"
    file.write_bytes(session[1])
    records = kills.Records(tmp_path)
    records.look()
    file.write_bytes(session[1] * 2)
    records.look()  # what is appended is no change
    text = planted(session[1])
    file.unlink() if text is None else file.write_bytes(text)
    with pytest.raises(kills.Broken, match="was rewritten"):
        records.look()


def test_what_lies_on_the_target(tmp_path):
    """Of others it is as it was; of a session nothing is left after the janitor."""
    kills = programs.load("kills")
    worker = kills.Worker(tmp_path / "rig", tmp_path / "target", random.Random(1))
    worker.look("", set(), cleaned=True)
    left = worker.rig.target / "iogauge" / directory.user_name() / "session"
    left.mkdir()
    worker.look("", set(), cleaned=False)
    with pytest.raises(kills.Broken, match="left after iogauge clean"):
        worker.look("", set(), cleaned=True)
    (worker.rig.target / "data" / "file0").write_bytes(b"")
    with pytest.raises(kills.Broken, match="foreign, and not as it was"):
        worker.look("", set(), cleaned=False)
