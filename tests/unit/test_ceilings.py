"""Ceilings that were measured: which hold, which are named and not used, and how they limit a figure."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from iogauge.core.units import format_value
from iogauge.guards import figures, nodes
from iogauge.guards.finding import Outcome
from iogauge.plan.bounds import NOTHING_MEASURED, MeasuredCeiling
from iogauge.records.record import MetricRecord, Record
from iogauge.site.extras import Ceilings
from iogauge_extras.ceilings import measured as ceilings
from iogauge_extras.ceilings import table as report
from iogauge_extras.ceilings.iperf3 import Wire
from support import records
from support.extras import extras
from support.records import METRIC, RECORD
from support.whole import data

MIB = 2**20
DECLARED = Ceilings(network="tcp", devices=("/dev/sdb",))
#: 2027-01-31T12:00:00Z, the time of the records, and a day in seconds.
NOW, DAY = 1801396800.0, 86400.0


def record(check: str, **metrics: Any) -> Record:
    """A record of a check on three nodes: samples by the names of metrics."""
    found = []
    for name, samples in metrics.items():
        more = {
            "samples": samples,
            "median": samples[0],
            "verdict": "UNREFERENCED",
            "reference": None,
        }
        found.append({**METRIC, "name": name, **more})
    values = {
        **RECORD,
        "check": check,
        "case": check,
        "nodes": 3,
        "metrics": found,
        "verdict": "UNREFERENCED",
    }
    return Record.from_json(json.loads(json.dumps(values)))


NETWORK = record("NetworkCeiling", pair_median=[90.0, 100.0])
DEVICES = record("DeviceCeiling", devices_bw=[500.0])


def figure(
    mib_s: float, nodes: int = 3, time: str = "2027-01-30T12:00:00Z"
) -> ceilings.Figure:
    return ceilings.Figure(
        case="IorPosix", time=time, nodes=nodes, samples=3, bytes_s=mib_s * MIB
    )


def look(
    *others: tuple[ceilings.Way, ceilings.Figure], now: float = NOW
) -> dict[tuple[str, str], ceilings.Layer]:
    seen = ceilings.look([NETWORK, DEVICES], others, DECLARED, now)
    return {(layer.name, layer.direction): layer for layer in seen.layers}


def test_the_best_figure_of_each_direction_is_the_ceiling():
    """A pair stands for both ways."""
    found = look()
    best = {key: layer.best.bytes_s / MIB for key, layer in found.items() if layer.best}
    assert best == {
        ("client network", "read"): 100.0,
        ("client network", "write"): 100.0,
        ("devices", "read"): 500.0,
    }
    write = found["client network", "write"]
    assert write.best
    assert write.best.source == "measured 2027-01-31 on 3 node(s), best of 2 sample(s)"
    seen = ceilings.look([NETWORK], (), DECLARED, NOW)
    assert [layer.problem for layer in seen.layers] == [
        "devices, read: not measured",
        "",
        "",
    ]


@pytest.mark.parametrize(("days", "holds"), [(89, True), (91, False)])
def test_what_is_too_old_is_named_and_not_used(days, holds):
    layer = look(now=NOW + days * DAY)["devices", "read"]
    assert (layer.best is not None) == holds
    assert ("more than 90 days ago" in layer.problem) != holds


@pytest.mark.parametrize(
    ("mib_s", "nodes", "holds"), [(305, 3, True), (307, 3, False), (103, 1, False)]
)
def test_a_valid_figure_above_it_contradicts_it(mib_s, nodes, holds):
    """Up to 102 % of 3 x 100 MiB/s."""
    layer = look(("read", figure(mib_s, nodes)))["client network", "read"]
    assert (layer.problem == "") == holds
    if not holds:
        assert f"IorPosix reached {mib_s} MiB/s on 2027-01-30" in layer.problem
        assert "the measurement was low" in layer.problem
    assert look(("write", figure(mib_s, nodes)))["client network", "read"].problem == ""


MEASURED = MeasuredCeiling(
    layer="client network",
    direction="read",
    bytes_s=100 * MIB,
    of_each_client=True,
    source="measured today",
)


@pytest.mark.parametrize(
    ("problems", "outcome"),
    [((), Outcome.OK), (("devices: not measured",), Outcome.WARN)],
)
def test_g6_names_what_was_not_measured(problems, outcome):
    measured = replace(NOTHING_MEASURED, usable=[MEASURED], problems=problems)
    seen = data().declared(ceilings={"network": "tcp"}).seen()
    found = figures.measured_ceilings(replace(seen, measured=measured))
    assert found and found.outcome is outcome
    assert figures.measured_ceilings(seen) is None


@pytest.mark.parametrize(
    ("counted", "beside", "cores", "outcome", "words"),
    [
        (100, 0, 0.95, Outcome.OK, "1 end(s)"),
        (98, 0, 0.5, Outcome.OK, ""),
        (97, 0, 0.5, Outcome.INVALID, "took another way"),
        (114, 0, 0.5, Outcome.OK, ""),
        (116, 0, 0.5, Outcome.CONTAMINATED, "others used it"),
        # A slow link loses what is sent to it: the sender repeats half of it.
        (164, 50, 0.5, Outcome.OK, ""),
        (166, 50, 0.5, Outcome.CONTAMINATED, "others used it"),
        (100, 0, 0.96, Outcome.INVALID, "may be the limit of a core"),
    ],
)
def test_g26(counted, beside, cores, outcome, words):
    wire = Wire("n1 to n2", "n1", "sent", 100, counted, beside)
    whole = data()
    for at, (used, wires) in enumerate([(0.1, []), (cores, [wire])]):
        told = {"cores": used, "wires": wires}
        whole = whole.output("read", at, tool="iperf3", parameters=told)
    found = nodes.streams(whole.phase("read"))
    assert found and (found.guard, found.outcome) == ("G26", outcome)
    assert words in found.saw


# --- iogauge site ceilings -----------------------------------------------------------------------------


def shown(*others: tuple[ceilings.Way, ceilings.Figure]) -> report.Shown:
    site = extras(
        topology={
            "source": "data sheet",
            "clients": {"nic": "200 MiB/s"},
            "servers": {"count": 2, "nic": "200 MiB/s"},
            "devices": {"count": 1, "read": "600 MiB/s"},
        },
        ceilings={"network": "tcp", "devices": ["/dev/sdb"]},
    )
    declared = site.ceilings
    assert declared
    return report.Shown(
        "s:p", site, ceilings.look([NETWORK, DEVICES], others, declared, NOW)
    )


def test_each_layer_loses_what_it_takes_from_those_below():
    (read, write) = shown(("read", figure(270))).chains
    rows = {
        row.name: (row.carries and row.carries / MIB, row.loss) for row in read.rows
    }
    assert rows["devices"] == (500.0, None)
    assert rows["server network"] == (400.0, pytest.approx(0.2))
    assert rows["client network"] == (300.0, pytest.approx(0.25))
    assert read.limit
    assert read.limit.name == "client network"
    assert read.lost_above == pytest.approx(0.1)
    assert write.reached is None
    assert write.lost_above is None
    # Five clients could get 500 MiB/s, of which the servers let 400 through.
    assert [row.carries for row in shown().rows("read", 5)] == [
        500 * MIB,
        400 * MIB,
        400 * MIB,
    ]


def test_what_limits_is_said_with_its_source():
    said = list(report.remarks(shown(("read", figure(270)))))
    assert said[0].startswith(
        "read: limited by client network (measured), 300 MiB/s; reached 270 MiB/s"
    )


def test_a_contradicted_measurement_carries_nothing():
    """The declared figure stands in, and the command says why."""
    found = shown(("read", figure(390)))
    network = next(row for row in found.chains[0].rows if row.name == "client network")
    assert (network.measured, network.carries) == (300 * MIB, 400 * MIB)
    assert network.when.endswith("not used")
    assert any("the measurement was low" in problem for problem in found.problems)


def test_a_contradicted_measurement_is_no_ceiling_beside_a_metric():
    assert shown().lowest("read", 3) == (400 * MIB, 300 * MIB)
    contradicted = shown(("read", figure(390)))
    assert contradicted.lowest("read", 3) == (400 * MIB, 500 * MIB)


def test_more_than_declared_is_named():
    site = extras(
        topology={"source": "data sheet", "clients": {"nic": "50 MiB/s"}},
        ceilings={"network": "tcp"},
    )
    assert site.ceilings
    found = report.Shown("s:p", site, ceilings.look([NETWORK], (), site.ceilings, NOW))
    assert [problem for problem in found.problems if "correct the topology" in problem]


def test_a_metric_has_its_declared_and_its_measured_ceiling_beside_it(tmp_path):
    layers = shown()
    declared, measured = layers.lowest("read", 2)
    metric = MetricRecord.from_json(
        records.metric("read_bw", ceiling=None, ceiling_from=None)
    )
    found = report.beside(layers, 2, metric)
    assert found["held"] == ""
    assert declared
    assert measured
    assert found["declared"].startswith(format_value(declared / MIB))
    assert found["measured"].startswith(format_value(measured / MIB))
    # What the record was held against stays what it was.
    old = replace(
        metric,
        ceiling=7.0,
        ceiling_from="client network, measured 2026-01-01 on 2 node(s)",
    )
    assert report.beside(layers, 2, old)["measured"] == f"7.000 {metric.unit}"
    assert report.beside(layers, 2, old)["held"] == "measured"
    assert report.beside(None, 2, metric) == {
        "declared": "",
        "measured": "",
        "held": "",
    }


def test_a_derived_figure_limits_and_contradicts_nothing(tmp_path, monkeypatch):
    """It is of several cases, and so of no number of nodes."""
    monkeypatch.setattr(ceilings.time, "time", lambda: NOW)
    fast = [metric_of("write_plateau", 9000.0)]
    found = {
        "NetworkCeiling": {"nodes": 2, "metrics": [metric_of("pair_median", 100.0)]},
        "IorPosix": {"nodes": 2, "metrics": [metric_of("write_bw", 150.0)]},
        "TaskScalingCurve": {"nodes": None, "metrics": fast},
    }
    for check, values in found.items():
        records.append(
            tmp_path / "mysite" / f"{check}.jsonl",
            records.values(
                "UNREFERENCED", session=check, check=check, case=check, **values
            ),
        )
    seen = ceilings.of_history(tmp_path, "mysite", "lustre", DECLARED)
    assert seen.reached["write"].case == "IorPosix"
    problems = {
        layer.name: layer.problem for layer in seen.layers if layer.direction == "write"
    }
    assert problems == {ceilings.NETWORK: ""}


def metric_of(name: str, mib_s: float) -> dict[str, Any]:
    """A valid metric of one sample without reference."""
    return records.metric(
        name, "UNREFERENCED", samples=[mib_s], median=mib_s, reference=None
    )
