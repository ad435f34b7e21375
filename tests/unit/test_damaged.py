"""A record that is none: every command that reads the history names it, and shows all others."""

import copy
import random

import pytest
from typer.testing import CliRunner

from iogauge.cli.app import app
from iogauge.records.record import Record
from support import records

#: Values that a key may have by accident.
ODD = [None, True, -1, 2**70, 1e308, "", "x", "\n", [], [1], {}, {"a": 1}]
COMMANDS = (
    [],
    ["status"],
    ["history"],
    ["history", "--json"],
    ["report"],
    ["report", "--since", "2020-01-01"],
    ["alarm"],
    ["calibrate"],
    ["compare", "system=mysite", "system=mysite"],
)


def places(value, path=()):
    """Where a value of JSON can be changed."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            yield from places(inner, (*path, key))
    if isinstance(value, list):
        for number, inner in enumerate(value):
            yield from places(inner, (*path, number))


def changed(path, remove, odd):
    """A record with one of its values odd or gone."""
    made = copy.deepcopy(dict(records.RECORD))
    place = made
    for key in path[:-1]:
        place = place[key]
    if remove:
        del place[path[-1]]
    else:
        place[path[-1]] = odd
    return made


def is_record(values):
    """Whether a reader takes a line for a record."""
    try:
        Record.from_json(values)
    except (TypeError, ValueError):
        return False
    return values.get("schema") == 1


def run(*words):
    """The status and the output of a command, which must not end with a traceback."""
    done = CliRunner().invoke(app, list(words))
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, " ".join(done.output.split())


PLACES = list(places(dict(records.RECORD)))
EARLIER = "2027-01-30T12:00:00Z"


@pytest.mark.parametrize("seed", range(12))
def test_an_odd_newest_record_blinds_no_command(tmp_path, monkeypatch, seed):
    monkeypatch.setenv("IOGAUGE_HOME", str(tmp_path))
    folder = tmp_path / "history" / "mysite"
    chance = random.Random(seed)
    made = changed(chance.choice(PLACES), chance.random() < 0.3, chance.choice(ODD))
    good = records.values(time=EARLIER, case="Sound", check="Sound")
    records.append(folder / "20270130T120000-n1-1.jsonl", good)
    records.append(folder / "20270131T120000-n1-1.jsonl", made)
    found = {tuple(words): run(*words) for words in COMMANDS}
    for words in (["status"], ["history"], ["report", "--since", "2020-01-01"]):
        assert "Sound" in found[tuple(words)][1], (words, made)
    for words in ([], ["status"], ["history"]):
        assert found[tuple(words)][0] in (0, 1), (words, made)
    for words in (["status"], ["history"]):
        named = "20270131T120000-n1-1.jsonl:1: skipped" in found[tuple(words)][1]
        assert named is not is_record(made)
