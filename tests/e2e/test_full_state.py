"""The state directory is full, read-only or taken: what cannot be recorded never passes, and nothing is lost."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.rig import Rig, Run, mounted
from e2e.test_values import GENEROUS, RANDOM_READ
from iogauge.records import journal
from support.records import RECORD, append

pytestmark = [pytest.mark.needs_loop, pytest.mark.needs_fio]

#: Fills what a directory lies on to the last byte, once fio has done its work.
FILL = (
    '"$real" "$@"; rc=$?; '
    # A large write is made whole or not at all; small ones take the rest.
    'for size in 128k 512; do dd if=/dev/zero bs=$size >>"{place}/filler" 2>/dev/null; done; exit $rc'
)
EARLIER = {key: value for key, value in RECORD.items() if key != "schema"} | {"verdict": "FAIL"}


@pytest.fixture
def rig(make_rig: Callable[..., Rig]) -> Rig:
    rig = make_rig()
    rig.write_references(GENEROUS)
    return rig


def run(rig: Rig, *words: str) -> Run:
    """The literal command; what was recorded before stays."""
    return rig.finish(rig.start([*(words or ("reframe", "-c", "checks/", "-r")), *RANDOM_READ]))


def earlier(rig: Rig) -> Path:
    """A session's file with a record, from before."""
    file = rig.home / "history" / "rig" / "20270131T120000-n1-1.jsonl"
    append(file, EARLIER)
    return file


def whole(rig: Rig) -> list[str]:
    """Verdicts of all records that can be read."""
    files = sorted((rig.home / "history").rglob("*.jsonl"), key=lambda file: file.stat().st_mtime)
    found = [record for file in files for record in journal.read(file)]
    return [record["verdict"] for record in found if isinstance(record, dict)]


@pytest.fixture
def place(rig: Rig, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A small file system at the directory below the state directory that the test names."""
    below, options = request.param
    context = mounted(
        rig.home / below, "tmpfs" if options else "ext4", 16 << 20, tmp_path / "image", options
    )
    try:
        point = context.__enter__()
    except OSError as error:
        pytest.skip(f"nothing can be mounted here: {error}")
    yield point
    context.__exit__(None, None, None)


def full(place: Path) -> None:
    with open(place / "filler", "wb") as file:
        try:
            while True:
                file.write(bytes(1 << 16))
                file.flush()
        except OSError:
            pass


@pytest.mark.parametrize("place", [("history", ",mode=755")], indirect=True)
def test_a_case_that_cannot_be_recorded_does_not_pass(rig: Rig, place: Path) -> None:
    before = earlier(rig)
    text = before.read_bytes()
    rig.program("fio", FILL.format(place=place))
    found = run(rig)
    found.never_passed("a record was not written: No space left on device", re.escape(str(place)))
    assert before.read_bytes() == text
    # With room again, everything that was recorded is there, and new cases join it.
    (place / "filler").unlink()
    (rig.bin / "fio").unlink()
    assert run(rig).rc == 0
    assert whole(rig) == ["FAIL", "PASS"]


@pytest.mark.parametrize("place", [(".", ",mode=755")], indirect=True)
def test_a_state_directory_that_is_read_only(rig: Rig, place: Path) -> None:
    earlier(rig)
    subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True, timeout=60)
    found = run(rig)
    found.never_passed("Read-only file system", re.escape(str(rig.home)))
    assert whole(rig) == ["FAIL"]
    rig.assert_clean()
