"""Old records in an archive: what stays decides the same, and no way of ending loses a record."""

import json
import os
import tarfile
from contextlib import closing
from datetime import datetime, timedelta, timezone

import pytest
from typer.testing import CliRunner

from iogauge.cli.app import app
from iogauge.records import query
from iogauge_extras.history import prune, states
from support import records

BEGIN = datetime(2024, 1, 1, tzinfo=timezone.utc)
RUNS = 460
BEFORE = BEGIN + timedelta(days=400)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A run a day of one case; the last fifty are slower."""
    monkeypatch.setenv("IOGAUGE_HOME", str(tmp_path))
    folder = tmp_path / "history"
    (folder / "site").mkdir(parents=True)
    for day in range(RUNS):
        value = (800.0 if day >= RUNS - 50 else 1000.0) + day % 7
        time = BEGIN + timedelta(days=day)
        made = records.record(
            session=f"s{day:03}",
            system="site",
            time=f"{time:%Y-%m-%dT%H:%M:%SZ}",
            metrics=[records.metric(median=value, samples=[value])],
        )
        line = json.dumps(made.to_json()) + "\n"
        (folder / "site" / f"s{day:03}.jsonl").write_text(line)
    (folder / "site" / "s040.json").write_text("{}")
    return folder


def judged(folder):
    with closing(query.connect(folder)) as history:
        return states.states_of(history, query.Choice())


def names(folder):
    return sorted(path.name for path in (folder / "site").iterdir())


def test_levels_and_alarms_stay_and_the_archive_can_be_put_back(folder):
    before, whole = judged(folder), names(folder)
    assert before[0].change
    done = CliRunner().invoke(app, ["history", "prune", f"{BEFORE:%Y-%m-%d}"])
    assert done.exit_code == 0, done.output
    # 30 runs are the baseline, and the newest 365 of the 430 after it stay.
    moved = [f"s{day:03}.jsonl" for day in range(30, RUNS - 365)]
    assert sorted(set(whole) - set(names(folder))) == sorted([*moved, "s040.json"])
    assert judged(folder) == before
    (file,) = folder.parent.glob("history-*.tar.gz")
    again = CliRunner().invoke(app, ["history", "prune", f"{BEFORE:%Y-%m-%d}"])
    assert again.exit_code == 0 and "nothing to archive" in again.output
    with tarfile.open(file) as tar:
        tar.extractall(folder, filter="data")
    assert (names(folder), judged(folder)) == (whole, before)


def test_what_is_damaged_or_cannot_be_read_stays(folder):
    bad = folder / "site" / "s050.jsonl"
    bad.write_bytes(bad.read_bytes() + b"no record\n")
    free = prune.old_files(folder, BEFORE).free
    assert "site/s050.jsonl" not in free and "site/s051.jsonl" in free


@pytest.mark.parametrize("ends", ["link", "unlink"])
def test_an_interruption_loses_nothing(folder, monkeypatch, ends):
    whole, before = names(folder), judged(folder)
    called = []

    def interrupted(*words, **options):
        called.append(words)
        if len(called) == 4 or ends == "link":
            raise KeyboardInterrupt
        return real(*words, **options)

    real = getattr(os, ends)
    free = prune.old_files(folder, BEFORE).free
    into = folder.parent / "a.tar.gz"
    with monkeypatch.context() as patch:
        patch.setattr(os, ends, interrupted)
        with pytest.raises(KeyboardInterrupt):
            prune.archive(folder, free, into)
    if ends == "link":
        assert (names(folder), into.exists()) == (whole, False)
        return
    assert judged(folder) == before
    with tarfile.open(into) as tar:
        tar.extractall(folder, filter="data")
    assert (names(folder), judged(folder)) == (whole, before)


def test_a_file_that_is_written_to_meanwhile_stays(folder, monkeypatch):
    free, whole = prune.old_files(folder, BEFORE).free, names(folder)

    def synced(_):
        with open(folder / free[0], "ab") as file:
            file.write(b"more\n")

    monkeypatch.setattr(os, "fsync", synced)
    into = folder.parent / "a.tar.gz"
    with pytest.raises(prune.PruneError, match="changed meanwhile"):
        prune.archive(folder, free, into)
    assert (names(folder), into.exists()) == (whole, False)
