"""Series and the file system: records without its UUID go on, another UUID begins a new series."""

from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iogauge.records import query
from iogauge.records.series import Measured, series_of_line
from support import records
from support.records import append

KNOWN = {"kernel": "6.1"}


def with_uuid(uuid, **more):
    """A fingerprint as a case leaves it, or as it was before there was a UUID."""
    return {**KNOWN, **more} | ({"fs.uuid": uuid} if uuid else {})


def seen(names, own=()):
    """The series of records with these file systems, in order of time."""
    own = own or ["s"] * len(names)
    return series_of_line(
        [Measured(name, with_uuid(uuid)) for uuid, name in zip(names, own, strict=True)]
    )


@given(
    st.lists(st.tuples(st.sampled_from("st"), st.sampled_from(["A", "B", "C", None])))
)
def test_records_are_of_one_series_if_they_are_of_one_file_system(rows):
    found = seen([name for _, name in rows], [series for series, _ in rows])
    known = [(row, own) for row, own in zip(rows, found, strict=True) if row[1]]
    assert (
        len(set(known))
        == len({row for row, _ in known})
        == len({own for _, own in known})
    )
    for number, (series, name) in enumerate(rows):
        earlier = [k for k in range(number) if rows[k][0] == series]
        if name is None and earlier:
            assert found[number] == found[earlier[-1]]


def days(folder, prints, begin=0):
    """A record a day of a case with these fingerprints."""
    for day, print_ in enumerate(prints, begin):
        time = f"2026-{1 + day // 28:02}-{1 + day % 28:02}T12:00:00Z"
        session = time.replace("-", "").replace(":", "")[:15] + "-n1-1"
        made = records.record(session=session, time=time).with_fingerprint(print_)
        append(folder / "mysite" / f"{session}.jsonl", made.to_json())


# --- what was not answered ------------------------------------------------------------------------

LUSTRE = {
    "kernel": "6.1",
    "mount.type": "lustre",
    "lustre.client": "2.17.0",
    "lustre.osts": 4,
}
SILENT = {"kernel": "6.1", "mount.type": "lustre", "unanswered.lustre": True}
BEFORE = {"kernel": "6.1", "mount.type": "lustre"}
NEWER = {**LUSTRE, "lustre.client": "2.18.0"}


@pytest.mark.parametrize(
    ("prints", "expected"),
    [
        ([LUSTRE, SILENT, LUSTRE], "aaa"),
        ([LUSTRE, BEFORE, LUSTRE], "aaa"),
        ([LUSTRE, {**SILENT, "kernel": "6.2"}, {**NEWER, "kernel": "6.2"}], "abb"),
        ([LUSTRE, {**SILENT, "kernel": "6.3"}, {**LUSTRE, "kernel": "6.2"}], "abc"),
        ([SILENT, SILENT], "aa"),
        # Records of before know no settings: the first that are known go on with them.
        ([KNOWN, {**KNOWN, "settings": "1"}, {**KNOWN, "settings": "2"}], "aab"),
        ([{**KNOWN, "settings": "1"}, {**KNOWN, "settings": "1"}], "aa"),
    ],
)
def test_a_record_without_an_answer_is_of_its_neighbours_series(
    tmp_path, prints, expected
):
    for count in range(1, len(prints) + 1):
        days(tmp_path / "history", prints[count - 1 : count], begin=count - 1)
        with closing(query.connect(tmp_path / "history")) as history:
            everything = query.Condition("1")
            rows = query.rows(history, "series", everything, "ORDER BY time")
        found = [row["series"] for row in rows]
    names = {series: "abc"[n] for n, series in enumerate(dict.fromkeys(found))}
    assert "".join(names[series] for series in found) == expected
