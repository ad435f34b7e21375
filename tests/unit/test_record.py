"""A record is read, and written back byte for byte; what it says of itself."""

import copy
import gzip
import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iogauge.core.measurement import Metric, Reference
from iogauge.guards.finding import Finding, Outcome
from iogauge.judge.verdict import MetricVerdict, Verdict
from iogauge.records import journal
from iogauge.records.journal import Damaged
from iogauge.records.record import (
    FindingRecord,
    MetricRecord,
    PriceRecord,
    Record,
    ReferenceRecord,
    decode,
    line_of,
    series_of,
)
from support import records

FILES = sorted((Path(__file__).parents[1] / "data" / "history").glob("*.jsonl.gz"))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=8,
)


def line(made):
    return json.dumps(made, separators=(",", ":")).encode()


# --- what is read is written back --------------------------------------------------------------------


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_recorded_lines_are_written_back_as_they_were(file):
    lines = gzip.decompress(file.read_bytes()).splitlines()
    assert len(lines) > 50
    for one in lines:
        record = Record.from_json(decode(one))
        assert record.to_line() == one
        assert (record.line, record.series) == (record.own_line, record.own_series)


def objects(value):
    """The objects of a record that have a form."""
    yield value
    yield from value["metrics"]
    yield from value["findings"]
    yield from (m["reference"] for m in value["metrics"] if m["reference"])
    yield value["price"]


#: Keys whose value may be anything.
UNCHECKED = [
    "gate",
    "expected",
    "variant",
    "nodes",
    "tasks_per_node",
    "repetitions",
    "tools",
    "stack",
]
#: Keys that a form has; an object may lack some of them.
KNOWN = {
    field.name
    for form in (Record, MetricRecord, FindingRecord, ReferenceRecord, PriceRecord)
    for field in fields(form)
}
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(-1e300, 1e300)


@settings(deadline=None)
@given(data=st.data())
def test_any_record_is_written_back_as_it_was(data):
    made = copy.deepcopy(dict(records.RECORD))
    made["metrics"].append(
        records.metric("read_bw", median=data.draw(NUMBERS), reference=None)
    )
    made |= data.draw(st.dictionaries(st.sampled_from(UNCHECKED), JSON))
    for key in data.draw(
        st.sets(st.sampled_from(["line", "price", "hash", "parameters", "tools"]))
    ):
        del made[key]
    made.setdefault("price", {**records.RECORD["price"]})
    for one in objects(made):
        new = data.draw(st.dictionaries(st.text(), JSON, max_size=2))
        one |= {key: value for key, value in new.items() if key not in {*one, *KNOWN}}
        order = data.draw(st.permutations(list(one)))
        for key in order:
            one[key] = one.pop(key)
    record = Record.from_json(decode(line(made)))
    assert record.to_line() == line(made)
    assert Record.from_json(record.to_json()) == record


def test_a_new_record_has_its_keys_in_one_order_and_is_what_is_read_of_it():
    reference = Reference(500.0, -0.1, None, "MiB/s", "acceptance")
    decided = MetricVerdict(
        Metric("write_bw", "MiB/s"), (540, 541.5), Verdict.PASS, "fine", reference
    )
    finding = Finding("G4", Outcome.WARN, "1 s", "30 s", "more", "write_bw")
    plain = {
        name: getattr(records.record(), name)
        for name in ("session", "time", "partition", "case")
    }
    new = Record(
        **plain,
        system="s",
        environment="e",
        check="C",
        verdict=Verdict.PASS,
        reason="",
        confirms="earlier",
        metrics=(
            MetricRecord.of(
                decided,
                ceiling=None,
                ceiling_from=None,
                cold=9.0,
                probes={"a": 1.0},
                rounds=[{"a": 1.0}],
            ),
        ),
        findings=(FindingRecord.of(finding),),
    )
    record = new.with_fingerprint({"kernel": "6.1", "nodes": "n1"})
    read = Record.from_json(decode(record.to_line()))
    assert read.to_line() == record.to_line()
    assert ",".join(record.to_json()) == (
        "schema,session,time,gate,system,partition,environment,check,case,hash,verdict,reason,confirms,"
        "expected,tier,variant,nodes,tasks_per_node,repetitions,parameters,overridden,price,target,tools,"
        "stack,commands,metrics,findings,line,series,fingerprint"
    )
    assert ",".join(record.to_json()["metrics"][0]) == (
        "name,unit,better,samples,median,spread,verdict,reason,cold,probes,rounds,ceiling,ceiling_from,reference"
    )
    assert record.line == line_of(new.to_json())
    assert record.series == series_of(record.line, {"kernel": "6.1"})
    assert record.to_json()["metrics"][0]["median"] == 540.75
    assert (
        replace(record.metrics[0], probes=None).to_json().keys()
        & {"probes", "derived_from"}
        == set()
    )


# --- what is damaged ---------------------------------------------------------------------------------

REFERENCE = records.METRIC["reference"]
DAMAGES = [
    *(
        ({key: 5}, f"{key} is 5: expected")
        for key in ("session", "time", "check", "reason", "metrics")
    ),
    ({"verdict": "GOOD"}, "verdict is 'GOOD': expected Verdict"),
    ({"time": "1969-12-31T23:59:59Z"}, "time is '1969"),
    ({"fingerprint": []}, "fingerprint is []: expected Mapping"),
    ({"target": {}}, "the key target.path is missing"),
    (
        {"price": {**records.RECORD["price"], "capacity": None}},
        "price.capacity is None: expected float",
    ),
    ({"metrics": [records.metric("half \ud800")]}, "not JSON"),
    (
        {"metrics": [records.metric(median=True)]},
        "metrics[0].median is True: expected float",
    ),
    (
        {"metrics": [records.metric(spread="x")]},
        "metrics[0].spread is 'x': expected float | None",
    ),
    (
        {"metrics": [records.metric(reference={**REFERENCE, "value": 0})]},
        "reference.value is not more than 0",
    ),
]


@pytest.mark.parametrize(
    ("change", "problem"), DAMAGES, ids=[problem for _, problem in DAMAGES]
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


# --- what a record says of itself ----------------------------------------------------------------------
