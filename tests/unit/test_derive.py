"""Formulas over points, and which records they are computed from."""

import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iogauge.core.measurement import Metric
from iogauge.records.record import Record
from iogauge_extras.derived import derive
from iogauge_extras.derived import derived_check as derived
from iogauge_extras.derived.derive import (
    LeftOut,
    NotComputable,
    NotMeasured,
    Point,
    Source,
)
from iogauge_extras.derived.derived_check import DerivedCheck
from support import records


def curve(values):
    return [
        Point(x=x, value=v, partition="p", session="s", case=f"C %n={x:g}", time="t")
        for x, v in values.items()
    ]


curves = st.dictionaries(
    st.integers(1, 1000), st.floats(1e-3, 1e9), min_size=2, max_size=12
).map(lambda values: curve({float(x): v for x, v in values.items()}))
_CURVE_FORMULAS = [
    derive.plateau,
    derive.linearity,
    derive.hold,
    derive.scale_out,
    derive.fit,
    derive.best_x,
]
#: 361 GB by one writer and by 144 (KAUST), bytes/s.
KAUST = {1: 361e9 / 674.26, 144: 361e9 / 10.35}


# --- curves ---------------------------------------------------------------------------------------


def test_from_95_percent_on_it_is_saturated():
    assert derive.saturation(curve({1: 50, 2: 95, 3: 100})) == 2
    assert derive.saturation(curve({1: 50, 2: 94.9, 3: 100})) == 3


@pytest.mark.parametrize(
    "v4, v8, efficiency", [(12900, 26000, 1.008), (12500, 27000, 1.08)]
)
def test_the_published_scale_out(v4, v8, efficiency):
    points = curve({4: v4, 8: v8})
    assert derive.scale_out(points).value == pytest.approx(efficiency, abs=5e-4)
    four, eight = points
    assert (
        derive.scale_out_against([eight, four], 8, 4).value
        == derive.scale_out(points).value
    )
    assert derive.fit(points).value > 0.98


def test_the_published_speedup():
    points = curve(KAUST)
    assert derive.speedup(points, 1).value == pytest.approx(65.1, abs=0.05)
    assert derive.best_x(points).value == 144
    assert [point.x for point in derive.speedup(points, 1).used] == [1, 144]


@pytest.mark.parametrize("formula", _CURVE_FORMULAS)
@pytest.mark.parametrize("values", [{}, {4: 100.0}])
def test_one_point_is_no_curve(formula, values):
    with pytest.raises(
        NotComputable, match=f"at least two valid points, has {len(values)}"
    ):
        formula(curve(values))


def test_what_a_sweep_is_too_short_for_is_said():
    with pytest.raises(
        NotComputable, match=r"first point, 1, is saturated.*smaller points"
    ):
        derive.linearity(curve({1: 100, 2: 100}))
    with pytest.raises(
        NotComputable, match=r"still rising at the largest point, 2.*larger points"
    ):
        derive.hold(curve({1: 50, 2: 100}))
    with pytest.raises(NotComputable, match="needs the point 1,"):
        derive.speedup(curve({2: 50, 4: 100}), 1)


@given(curves)
def test_ranges(points):
    values = [point.value for point in points]
    assert derive.plateau(points).value == max(values)
    assert derive.saturation(points) in {point.x for point in points}
    assert 0 <= derive.fit(points).value <= 1
    assert derive.speedup(points, points[0].x).value >= 1
    for formula in (derive.linearity, derive.hold):
        try:
            assert 0 <= formula(points).value <= 1
        except NotComputable:
            continue


# --- which records --------------------------------------------------------------------------------

WRITE, READ = Metric("write_bw", "MiB/s"), Metric("read_bw", "MiB/s")
NOW = 1_800_000_000.0
OLDEST = NOW - 30 * 86400
SOURCE = Source(
    check="TaskScaling",
    partition="disk",
    environment="env",
    tier="daily",
    varied="tasks",
    expected=(1, 2, 4),
    metrics=(WRITE, READ),
    alike=("nodes",),
)


def values(tasks=1, verdict="PASS", age=0, **change):
    """JSON of a record of a number of tasks, some days old; ``value`` is the median of both metrics."""
    value = change.pop("value", 100.0)
    plain = {
        "check": "TaskScaling",
        "partition": "disk",
        "environment": "env",
        "session": f"s{age:g}",
        "case": f"TaskScaling %tasks={tasks}",
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(NOW - age * 86400)),
        "parameters": {"tasks": tasks},
        "nodes": 4,
        "metrics": [
            records.metric(m.name, verdict, median=value) for m in (WRITE, READ)
        ],
    }
    return records.values(verdict, **plain | change)


def record(tasks=1, verdict="PASS", age=0, **change):
    return Record.from_json(values(tasks, verdict, age, **change))


def newest(*records, source=SOURCE):
    return derive.newest_points(records, source, OLDEST)


def left(found, metric="write_bw"):
    return [str(one) for one in found.of(metric)[1]]


@pytest.mark.parametrize("verdict", ["INVALID", "UNSTABLE", "CONTAMINATED", "ERROR"])
def test_a_point_that_is_not_valid_is_named_with_its_verdict(verdict):
    found = newest(record(1, verdict), record(2), record(4))
    assert [p.x for p in found.of("write_bw")[0]] == [2, 4]
    assert found.of("write_bw")[1] == [LeftOut("tasks=1", f"{verdict} in s0", True)]


@pytest.mark.parametrize(
    "change",
    [
        {"check": "Other"},
        {"partition": "other"},
        {"environment": "other"},
        {"tier": "quick"},
        {"overridden": {"nodes": 2}},
        {"pinned": "n17"},
        {"age": 30.1},
        {"tasks": 3},
    ],
)
def test_what_belongs_to_another_case_is_no_point(change):
    found = newest(record(**{"tasks": 1, **change}))
    assert found.of("write_bw")[0] == []
    assert left(found) == [f"tasks={x} (not measured)" for x in (1, 2, 4)]


@pytest.mark.parametrize(
    "other, is_at",
    [
        ({"nodes": 8}, "nodes=8, fs.uuid=unknown"),
        ({"fingerprint": {"fs.uuid": "B"}}, "nodes=4, fs.uuid=B"),
    ],
)
def test_points_of_another_scale_or_file_system_than_the_newest_are_left_out(
    other, is_at
):
    found = newest(record(1), record(2, age=1, **other), record(4, age=2))
    assert [p.x for p in found.of("write_bw")[0]] == [1, 4]
    assert left(found) == [
        f"tasks=2 (with {is_at} in s1, newer points with nodes=4, fs.uuid=unknown)"
    ]


def test_points_of_another_file_system_than_todays_are_left_out():
    old = [record(n, fingerprint={"fs.uuid": "A"}) for n in (1, 2)]
    assert len(newest(*old).of("write_bw")[0]) == 2
    found = derive.newest_points(old, SOURCE, OLDEST, uuid="B")
    assert not found.of("write_bw")[0]
    assert "tasks=1 (of another file system, A, in s0)" in left(found)


def test_a_value_in_another_unit_is_no_point():
    odd = records.metric("write_bw", unit="GB/s")
    assert (
        left(newest(record(metrics=[odd])))[0] == "tasks=1 (in GB/s, not MiB/s, in s0)"
    )


@given(
    st.lists(
        st.tuples(
            st.sampled_from([1, 2, 4, 8]),
            st.sampled_from(
                ["PASS", "FAIL", "UNREFERENCED", "INVALID", "UNSTABLE", "ERROR"]
            ),
            st.sampled_from(["daily", "quick"]),
        ),
        max_size=20,
    )
)
def test_against_a_search_through_all(drawn):
    all_records = [
        record(tasks, verdict, age=age, tier=tier, value=age + 1.0)
        for age, (tasks, verdict, tier) in enumerate(drawn)
    ]
    found = newest(*all_records)
    expected = {}
    for x in (1, 2, 4):
        valid = [
            r.metrics[0].median
            for r, (tasks, verdict, tier) in zip(all_records, drawn, strict=True)
            if tasks == x
            and tier == "daily"
            and verdict in ("PASS", "FAIL", "UNREFERENCED")
        ]
        expected |= {x: valid[0]} if valid else {}
    assert {p.x: p.value for p in found.of("write_bw")[0]} == expected
    assert {one.point for one in found.of("write_bw")[1]} == {
        f"tasks={x}" for x in (1, 2, 4) if x not in expected
    }


# --- reading the history --------------------------------------------------------------------------


def test_operands_that_this_run_has_not_decided_are_waited_for(monkeypatch):
    run = SimpleNamespace(
        open_cases={("TaskScaling", "disk", "env", "TaskScaling %tasks=2")}
    )
    monkeypatch.setattr(derived, "current", lambda: run)
    check = None
    with pytest.raises(
        NotMeasured, match=r"TaskScaling %tasks=2 yet: run again with -t derived"
    ):
        DerivedCheck._await(check, [SOURCE])
    DerivedCheck._await(
        check, [replace(SOURCE, partition="other"), replace(SOURCE, check="Ior")]
    )
