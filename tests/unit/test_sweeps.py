"""Which records make a curve over a parameter, and the figures of it: what each shows and names."""

import re
from itertools import permutations
from xml.etree import ElementTree

import pytest

from iogauge.records.record import MetricRecord
from iogauge.report.endings import SessionRecords
from iogauge_extras.page import bars, charts, news, page, sweeps
from support import records
from support.records import metric


def point(x, value, name="tasks", verdict="PASS", **more):
    reference = {**metric()["reference"], "value": more.pop("published", value)}
    measured = metric(
        median=value,
        samples=[value, value * 0.99],
        verdict=verdict,
        ceiling=more.pop("ceiling", 1300.0),
        reference=reference,
        **more.pop("metric", {}),
    )
    more.setdefault("parameters", {name: x})
    values = {"check": "TaskScaling", "case": f"TaskScaling %{name}={x}", **more}
    return records.record(verdict, metrics=[measured], **values)


def drawn(plot):
    several = len({dot.x for dot in plot.dots}) > 1
    return ElementTree.fromstring(
        (charts.sweep if several else bars.beside)(plot, lambda _: "r1")
    )


def texts(figure, *names):
    return ["".join(found.itertext()) for name in names for found in figure.iter(name)]


def shapes(figure, kind):
    return [found for found in figure.iter() if kind in found.get("class", "").split()]


def test_a_scaling_curve_has_its_ideal_its_published_points_and_its_ceiling():
    found = [point(32, 1200.0, published=1250.0), point(1, 100.0), point(16, 1190.0)]
    (plot,) = sweeps.plots(found)
    assert [dot.x for dot in plot.dots] == [1, 16, 32]
    assert plot.proportional and plot.ceilings == {1300.0: "1 device(s)"}
    figure = drawn(plot)
    # Each with one in the legend.
    assert len(shapes(figure, "ideal")) == 2
    assert len(shapes(figure, "published")) == 4
    assert len(shapes(figure, "dot")) == 4
    words = " ".join(texts(figure, "text", "title", "li"))
    for said in (
        "tasks",
        "reference 1250 MiB/s: acceptance",
        "ceiling 1300 MiB/s: 1 device(s)",
    ):
        assert said in words
    assert (
        "n = 3 medians of 2 samples; MiB/s; 2027-01-31; 1 node; ior 4.0.0"
        in plot.caption
    )


@pytest.mark.parametrize(
    "found",
    [
        [point(1, 100.0)],
        [point("shared", 100.0, "files"), point("per-process", 90.0, "files")],
        [point(1, 100.0), point(2, 200.0, environment="other")],
        [point(1, 100.0), point(2, 200.0, tier="quick")],
    ],
    ids=["a single point", "no number", "another environment", "another tier"],
)
def test_what_cannot_be_compared_makes_no_curve(found):
    assert sweeps.plots(found) == []


def test_an_invalid_point_is_hollow_and_an_outlier_is_beyond_the_axis():
    found = [
        point(1, 100.0),
        point(2, 200.0),
        point(4, 9000.0, verdict="INVALID", ceiling=None),
    ]
    found[2] = point(4, 9000.0, verdict="INVALID", ceiling=None, published=400.0)
    (plot,) = sweeps.plots(found)
    (clipped,) = shapes(drawn(plot), "clip")
    assert "off" in clipped.get("class", "") and "beyond" in texts(clipped, "title")[0]


def test_a_needle_is_ranked_and_its_outlier_named():
    probes = {f"OST{n:04}": 100.0 + n for n in range(60)} | {"OST0030": 40.0}
    needle = MetricRecord.from_json(
        metric("target_median", median=129.0, probes=probes)
    )
    figure = ElementTree.fromstring(bars.ranking("t", needle, ["OST0030"]))
    (slow,) = shapes(figure, "slow")
    assert texts(slow, "title") == ["OST0030: 40.00 MiB/s, -69.0% against the median"]
    assert any(text.startswith("OST0030") for text in texts(figure, "text")[:3])
    assert texts(figure, "p") == ["t, and 28 more"]


def test_nodes_against_targets_and_nodes_against_nodes_are_a_map():
    """Two nodes have measured the same four targets, and three nodes each other: n2 is slow."""
    names = [f"ost000{n}" for n in range(4)]
    found = [
        records.record(
            check="TargetNeedle",
            fingerprint={"nodes": node},
            metrics=[metric("write_median", probes=dict.fromkeys(names, rate))],
        )
        for node, rate in (("n1", 100.0), ("n2", 40.0))
    ]
    pairs = {
        f"{a} to {b}": 50.0 if "n2" in (a, b) else 100.0
        for a, b in permutations(["n1", "n2", "n3"], 2)
    }
    found.append(
        records.record(
            check="NetworkCeiling", metrics=[metric("pair_median", probes=pairs)]
        )
    )
    targets, nodes = (
        ElementTree.fromstring(bars.cells_map(title, unit, cells, {"n2"}))
        for title, _, unit, cells, _ in bars.maps(found)
    )
    assert len(shapes(targets, "cell")) == 8 and len(shapes(nodes, "cell")) == 6
    slow = shapes(targets, "slow")
    assert [texts(one, "title")[0] for one in slow[:1]] == [
        "n2, ost0000: 40.00 MiB/s, 40% of the faster half's median"
    ]
    assert len(slow) == len(shapes(nodes, "slow")) == 4
    assert {"n1", "n2"} < {*texts(targets, "text")}
    assert not [*bars.maps(found[:1])]  # one node is a ranking


def test_what_is_proportional_is_straight_over_a_wide_range():
    """Ideal and curve are the same line if twice of the parameter carries twice as much."""
    (plot,) = sweeps.plots([point(x, 10.0 * x, ceiling=None) for x in (1, 8, 144)])
    figure = drawn(plot)
    assert "tasks; both axes logarithmic" in texts(figure, "text")
    (ideal,) = shapes(figure, "ideal")[:1]
    ends = [tuple(map(float, p.split(","))) for p in str(ideal.get("points")).split()]
    (x0, y0), (x1, y1) = ends[0], ends[-1]
    for x, y in ends:
        assert y == pytest.approx(y0 + (y1 - y0) * (x - x0) / (x1 - x0), abs=0.2)
    (curve,) = (t for t in shapes(figure, "trace") if t.get("points"))
    middle = tuple(map(float, str(curve.get("points")).split()[1].split(",")))
    assert middle[1] == pytest.approx(
        y0 + (y1 - y0) * (middle[0] - x0) / (x1 - x0), abs=0.2
    )


def test_one_value_of_two_partitions_is_drawn_as_bars():
    found = [point(2, 100.0, partition="block"), point(2, 200.0, partition="nvme")]
    (plot,) = sweeps.plots(found)
    figure = drawn(plot)
    widths = [bar.get("width", "").rstrip("%") for bar in shapes(figure, "bar")]
    block, nvme = map(float, widths)
    assert nvme == pytest.approx(2 * block, rel=0.01)
    assert {"block", "nvme"} <= {*texts(figure, "text")}
    assert "mark: reference" in texts(figure, "p")[0]


def test_only_what_a_failure_of_the_same_direction_names_is_red(tmp_path):
    """The slowest of the reads passed, so nobody accuses it, though its metric names it."""
    probes = {"ost0000": 100.0, "ost0001": 100.0, "ost0002": 10.0}
    metrics = [
        metric("write_slowest", "FAIL", reason="ost0002: 10% of the others"),
        metric("read_slowest", reason="slowest is ost0000: 100% of the median"),
        metric("write_median", probes=probes),
        metric("read_median", probes=probes | {"ost0002": 100.0}),
    ]
    found = [records.record("FAIL", check="TargetNeedle", metrics=metrics)]
    text = page.page(news.collect(tmp_path, SessionRecords(found), gate=False), found)
    assert re.findall("Outliers: <b>(.*?)</b>", text) == ["ost0002", "none"]
