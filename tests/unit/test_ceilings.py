"""Layers below the file system: what is declared, what is left of it, and what was reached."""

from iogauge_extras.ceilings import table
from support import records
from support.extras import extras

MIB = 2**20
#: 2027-01-31T12:00:00Z, the time of the records.
NOW = 1801396800.0


def figure(mib_s):
    return table.Figure(case="IorPosix", day="2027-01-30", nodes=3, bytes_s=mib_s * MIB)


def blocks(**reached):
    site = extras(
        topology={
            "source": "data sheet",
            "clients": {"nic": "100 MiB/s"},
            "servers": {"count": 2, "nic": "200 MiB/s"},
            "devices": {"count": 1, "read": "500 MiB/s"},
        },
        scale={"nodes": 5, "tasks_per_node": 2},
    )
    return table.table("s:p", site, reached).blocks


def test_each_layer_loses_what_it_takes_from_those_below():
    found = blocks(read=figure(270))
    assert found["s:p, read, 3 node(s)"] == [
        ("devices", "500 MiB/s", "500 MiB/s", ""),
        ("server network", "400 MiB/s", "400 MiB/s", "20.0%"),
        ("client network", "300 MiB/s", "300 MiB/s", "25.0%"),
        ("reached on 2027-01-30: IorPosix", "", "270 MiB/s", "10.0%"),
    ]
    # Nothing was written, and the devices' rate of writes is not declared.
    (devices, *others) = found["s:p, write, 5 node(s)"]
    assert devices == ("devices", "", "", "")
    assert [row[0] for row in others] == ["server network", "client network"]
    # Five clients could get 500 MiB/s, of which the servers let 400 through.
    carried = [row[2] for row in blocks()["s:p, read, 5 node(s)"]]
    assert carried == ["500 MiB/s", "400 MiB/s", "400 MiB/s"]


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
