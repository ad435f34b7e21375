"""A record is read, and written back with the same values; what it says of itself."""

import copy
import gzip
import json

import pytest

from iogauge.records import journal
from iogauge.records.journal import Damaged
from iogauge.records.record import (
    Record,
    decode,
)
from support import records
from support.project import DATA

FILES = sorted((DATA / "history").glob("*.jsonl.gz"))


# --- what is read is written back --------------------------------------------------------------------


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_recorded_lines_are_written_back_as_they_were(file):
    lines = gzip.decompress(file.read_bytes()).splitlines()
    assert len(lines) > 50
    for one in lines:
        record = Record.from_json(decode(one))
        assert record.to_json() == json.loads(one)
        assert (record.line, record.series) == (record.own_line, record.own_series)


# --- what is damaged ---------------------------------------------------------------------------------

REFERENCE = records.METRIC["reference"]
DAMAGES = [
    *(
        ({key: 5}, f"{key} is 5: expected")
        for key in ("session", "time", "check", "reason", "metrics")
    ),
    ({"verdict": "GOOD"}, "verdict is 'GOOD': expected 'PASS'"),
    ({"time": "1969-12-31T23:59:59Z"}, "time is '1969"),
    ({"fingerprint": []}, "fingerprint is []: expected a valid dictionary"),
    ({"target": {}}, "the key target.path is missing"),
    ({"metrics": [records.metric("half \ud800")]}, "not JSON"),
    (
        {"metrics": [records.metric(median=True)]},
        "metrics[0].median is True: expected a valid number",
    ),
    (
        {"metrics": [records.metric(spread="x")]},
        "metrics[0].spread is 'x': expected a valid number",
    ),
    (
        {"metrics": [records.metric(reference={**REFERENCE, "value": 0})]},
        "metrics[0].reference.value is 0: expected greater than 0",
    ),
]


@pytest.mark.parametrize(
    "change, problem", DAMAGES, ids=[problem for _, problem in DAMAGES]
)
def test_a_damaged_record_is_named_with_its_key(tmp_path, change, problem):
    file = tmp_path / "s.jsonl"
    records.append(file, records.RECORD)
    records.append(file, {**records.RECORD, **change})
    good, bad = journal.read_whole(file)
    assert isinstance(good, Record) and isinstance(bad, Damaged)
    assert bad.line == 2 and problem in bad.problem


#: Keys of a record, of a metric and of a finding that every version has written.
NEEDED = {
    "": "session time system partition environment check case verdict reason metrics findings",
    "metrics": "name unit median spread verdict reason reference ceiling",
    "findings": "guard outcome metric saw demands",
}


@pytest.mark.parametrize("where", NEEDED)
def test_keys_that_must_be_there(where):
    made = copy.deepcopy(dict(records.RECORD))
    place = made[where][0] if where else made
    for key in list(place):
        value = place.pop(key)
        if key in NEEDED[where].split():
            with pytest.raises(
                TypeError, match=rf"^the key {where}(\[0\]\.)?{key} is missing$"
            ):
                Record.from_json(made)
        else:
            assert Record.from_json(made).to_json() == made
        place[key] = value
