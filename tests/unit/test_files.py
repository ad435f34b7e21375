"""A file is there whole or not at all, and nothing lies beside it afterwards."""

import os

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
