"""A target that is filled up to a level: how much is taken, and what is refused. Space is that of a directory of the test."""

import os

import pytest

from iogauge.node.mounts import Space
from iogauge_extras.loads import filling

MIB = 1 << 20


@pytest.fixture
def target(tmp_path, monkeypatch):
    """A directory that counts as a target of 100 MiB, of which 10 MiB are taken by others."""

    def space(path):
        held = sum(
            512 * file.stat().st_blocks
            for file in tmp_path.rglob("*")
            if file.is_file()
        )
        return Space(100 * MIB, 90 * MIB - held, 0, 0)

    monkeypatch.setattr(filling, "space_of", space)
    monkeypatch.setattr(filling, "FILE_BYTES", 16 * MIB)
    return tmp_path


def test_files_are_made_until_the_level_is_reached(target):
    done, objection = filling.fill(50, 60 * MIB, 8 * MIB, str(target / "fill"))
    assert objection == ""
    assert done.bytes == pytest.approx(40 * MIB, rel=0.01)
    assert done.fill == pytest.approx(0.5, abs=0.01)
    sizes = sorted(os.path.getsize(file) for file in (target / "fill").iterdir())
    assert sizes[-2:] == [16 * MIB, 16 * MIB] and len(sizes) == 3


@pytest.mark.parametrize(
    ("level", "most", "need", "words"),
    [
        (50, 39 * MIB, MIB, "40 MiB are missing, and limits.fill_bytes allows 39 MiB"),
        (5, 90 * MIB, MIB, "the target is 10.0% full already"),
        (95, 90 * MIB, 5 * MIB, "5 MiB would be left, and the case needs 1.2 x 5 MiB"),
    ],
)
def test_nothing_is_made_if_the_level_cannot_be(target, level, most, need, words):
    done, objection = filling.fill(level, most, need, str(target / "fill"))
    assert words in objection and f"fill level {level} %" in objection
    assert done.bytes == 0
    assert not (target / "fill").exists()


def test_what_others_write_meanwhile_is_not_filled_again(target, monkeypatch):
    whole = filling.space_of

    def busy(path):
        """Others have written 20 MiB as soon as the first file is there."""
        space = whole(path)
        others = 20 * MIB if (target / "fill" / "000000").exists() else 0
        return Space(space.bytes_total, space.bytes_free - others, 0, 0)

    monkeypatch.setattr(filling, "space_of", busy)
    done, objection = filling.fill(50, 60 * MIB, 8 * MIB, str(target / "fill"))
    assert (objection, done.fill) == ("", pytest.approx(0.5, abs=0.01))
    assert done.bytes == pytest.approx(20 * MIB, rel=0.01)


def test_a_file_without_blocks_fills_nothing(target, monkeypatch):
    def sparse(fd, offset, size):
        """As a target that compresses zeros."""
        os.ftruncate(fd, offset + size)

    monkeypatch.setattr(os, "posix_fallocate", sparse)
    with pytest.raises(
        OSError, match="0 B on storage for 16 MiB: a target that compresses"
    ):
        filling.fill(50, 60 * MIB, 8 * MIB, str(target / "fill"))
