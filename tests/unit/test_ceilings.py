"""Layers below the file system: what is declared, what is left of it, and what was reached."""

import pytest

from iogauge_extras.ceilings import table
from support import records
from support.extras import extras

MIB = 2**20
#: 2027-01-31T12:00:00Z, the time of the records.
NOW = 1801396800.0


def figure(mib_s):
    return table.Figure(case="IorPosix", day="2027-01-30", nodes=3, bytes_s=mib_s * MIB)


def shown(**reached):
    site = extras(
        topology={
            "source": "data sheet",
            "clients": {"nic": "100 MiB/s"},
            "servers": {"count": 2, "nic": "200 MiB/s"},
            "devices": {"count": 1, "read": "500 MiB/s"},
        }
    )
    return table.Shown("s:p", site, reached)


def test_each_layer_loses_what_it_takes_from_those_below():
    (read, write) = shown(read=figure(270)).chains
    rows = {
        row.name: (row.carries and row.carries / MIB, row.loss) for row in read.rows
    }
    assert rows["devices"] == (500.0, None)
    assert rows["server network"] == (400.0, pytest.approx(0.2))
    assert rows["client network"] == (300.0, pytest.approx(0.25))
    assert read.lost_above == pytest.approx(0.1)
    assert write.reached is None
    assert write.lost_above is None
    # Five clients could get 500 MiB/s, of which the servers let 400 through.
    assert [row.carries for row in shown().rows("read", 5)] == [
        500 * MIB,
        400 * MIB,
        400 * MIB,
    ]


def test_a_derived_figure_and_one_that_is_too_old_are_not_reached(
    tmp_path, monkeypatch
):
    """The derived one is of several cases, and so of no number of nodes."""
    monkeypatch.setattr(table.time, "time", lambda: NOW)
    found = {
        "IorPosix": {"nodes": 2, "metrics": [metric_of("write_bw", 150.0)]},
        "TaskScalingCurve": {
            "nodes": None,
            "metrics": [metric_of("write_plateau", 9000.0)],
        },
    }
    for check, values in found.items():
        records.append(
            tmp_path / "mysite" / f"{check}.jsonl",
            records.values(
                "UNREFERENCED", session=check, check=check, case=check, **values
            ),
        )
    reached = table.reached_by(tmp_path, "mysite", "lustre")
    assert {way: one.case for way, one in reached.items()} == {"write": "IorPosix"}
    monkeypatch.setattr(table.time, "time", lambda: NOW + 91 * 86400)
    assert table.reached_by(tmp_path, "mysite", "lustre") == {}


def metric_of(name, mib_s):
    """A valid metric of one sample without reference."""
    return records.metric(
        name, "UNREFERENCED", samples=[mib_s], median=mib_s, reference=None
    )
