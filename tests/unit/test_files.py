"""A file is there whole or not at all, and nothing lies beside it afterwards."""

import os
import stat

import pytest

from iogauge.core.paths import replace_file


@pytest.mark.parametrize("call", ["rename", "fsync"])
def test_what_fails_leaves_the_old_file(call, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError("not here")

    file = tmp_path / "f"
    file.write_text("old")
    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(OSError, match="not here"):
        replace_file(file, b"new", sync=True)
    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == ["f"]


def test_in_an_open_directory_and_with_the_mode_that_was_asked_for(tmp_path):
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        replace_file("f", b"x", mode=0o600, dir_fd=fd)
    finally:
        os.close(fd)
    assert (tmp_path / "f").read_bytes() == b"x"
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o600
