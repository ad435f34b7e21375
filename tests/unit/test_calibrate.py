"""References from runs: the statistics, where an entry stands, and that nothing else of a file changes."""

import math
import random
from contextlib import closing
from datetime import date, datetime, timedelta, timezone
from statistics import NormalDist

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from iogauge.judge.verdict import Verdict
from iogauge.records import query
from iogauge.site.references import find_mistakes
from iogauge_extras.history import proposal as calibrating
from iogauge_extras.history.position import FilePosition, position_of
from iogauge_extras.history.proposal import Proposal, follow, propose
from iogauge_extras.history.runs import (
    Refused,
    Runs,
    SeriesSummary,
    runs_of,
    summary_of,
)
from iogauge_extras.history.statistics import bound
from iogauge_extras.history.yamledit import put
from support import records

START = datetime(2026, 9, 1, 3, 0, tzinfo=timezone.utc)
TODAY = date(2026, 11, 21)


def noisy(count, level=1000.0, spread=0.03):
    """Log-normal values whose quantiles are exact, in a shuffled order."""
    normal = NormalDist(0, spread)
    values = [level * math.exp(normal.inv_cdf((n + 0.5) / count)) for n in range(count)]
    random.Random(1).shuffle(values)
    return values


def days(count):
    return [START + timedelta(days=n) for n in range(count)]


def judged(values, **given):
    words = {"better": "more", "max_spread": 0.1} | given
    return summary_of(days(len(values)), values, **words)


# --- statistics -----------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", [1, -1])
def test_a_bound_lies_half_as_far_again_as_the_worst_run(sign):
    values = [1000 * 1.1 ** (sign * step) for step in (0, 0, 0, 1, -1)]
    assert bound(values, sign) == pytest.approx(1000 * 1.1 ** (-1.5 * sign))
    assert bound([1000.0] * 20, sign) == pytest.approx(1000 * math.exp(-0.03 * sign))


# --- a baseline -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (noisy(19), ["19 valid run(s), 20 are needed: 1 more"]),
        (
            noisy(30, spread=0.13),
            ["noise is too large", "the site allows 10%", "max_spread", "30"],
        ),
        (
            [*noisy(20), *noisy(10, 850.0)],
            [
                "level changes on 2026-09-21",
                "1000",
                "850",
                "-15.0%",
                "--since 2026-09-21T03:00:00",
            ],
        ),
        (
            [v * (0.7 if n % 5 == 2 else 1) for n, v in enumerate(noisy(40))],
            ["8 of 40 runs are worse than", "two populations"],
        ),
    ],
)
def test_runs_that_prove_nothing_are_refused(values, words):
    with pytest.raises(Refused) as refused:
        judged(values)
    for word in words:
        assert word in str(refused.value)


# --- a reference that follows ---------------------------------------------------------------------

HERE = SeriesSummary(runs=30, median=1000.0, spread=0.02, bound=930.0)


def following(old, **given):
    words = {
        "unit": "MiB/s",
        "better": "more",
        "calibrated": False,
        "lower": None,
    } | given
    return follow(words.pop("baseline", HERE), old, **words)


@pytest.mark.parametrize(
    ("old", "given", "new"),
    [
        (None, {}, [1000, -0.07, None, "MiB/s"]),
        ([800, -0.1, None, "MiB/s"], {}, [1000, -0.07, None, "MiB/s"]),
        ([800, -0.1, 0.5, "MiB/s"], {}, [1000, -0.07, 0.5, "MiB/s"]),
        (
            [960, 0, None, "MiB/s"],
            {},
            [1000, -0.04, None, "MiB/s"],
        ),  # the bound stays at 960
        ([1000, -0.15, None, "MiB/s"], {}, [1000, -0.07, None, "MiB/s"]),
        ([1000, -0.15, None, "MiB/s"], {"calibrated": True}, None),
        ([1002, -0.01, None, "MiB/s"], {}, None),
        (
            [1002, -0.01, None, "MiB/s"],
            {"lower": "old disks"},
            [1000, -0.07, None, "MiB/s"],
        ),
        (
            [2000, -0.01, None, "MiB/s"],
            {"lower": "old disks"},
            [1000, -0.07, None, "MiB/s"],
        ),
        ([800, -1, 0.5, "MiB/s"], {}, [1000, -0.07, 0.5, "MiB/s"]),
    ],
)
def test_what_becomes_of_a_reference(old, given, new):
    assert following(old, **given) == new


@given(
    median=st.floats(0.01, 1e7),
    spread=st.floats(0.01, 0.2),
    runs=st.integers(20, 200),
    factor=st.floats(0.5, 2),
    share=st.floats(0, 0.6),
    better=st.sampled_from(["more", "less"]),
    calibrated=st.booleans(),
)
def test_no_demand_ever_becomes_softer(
    median, spread, runs, factor, share, better, calibrated
):
    sign, side = (1, 1) if better == "more" else (-1, 2)
    here = SeriesSummary(
        runs=runs,
        median=median,
        spread=spread,
        bound=median * math.exp(-sign * 3 * spread),
    )
    old = [median * factor, None, None, "s"]
    old[side] = -sign * share
    try:
        new = following(
            old, baseline=here, unit="s", better=better, calibrated=calibrated
        )
    except Refused:
        assert sign * math.log(factor) > 0
        return
    if new is None:
        return
    assert sign * new[0] >= sign * old[0]
    was, now = old[0] * (1 + old[side]), new[0] * (1 + new[side])
    assert sign * now >= sign * was * (1 - sign * 1e-6)
    assert not list(find_mistakes({"$sources": {"A": "x"}, "A": {"d": {"m": new}}}))


# --- where an entry stands ------------------------------------------------------------------------


def record(**given):
    base = {
        "system": "here",
        "partition": "disk",
        "environment": "gnu",
        "check": "Ior",
        "case": "Ior %files=shared",
        "parameters": {"files": "shared"},
        "nodes": 4,
    }
    return records.record(**base | given)


@pytest.mark.parametrize(
    ("entry", "place"),
    [
        (
            None,
            FilePosition(
                keys=("here:disk", "shared", "bw"), index=("$partition", "files")
            ),
        ),
        (
            {"$index": ["files", "nodes"], "shared": {4: {"bw": []}}},
            FilePosition(keys=("shared", 4, "bw"), index=("files", "nodes")),
        ),
        (
            {
                "$index": ["$partition", "variant"],
                "here:.*": {"published": {}, "sound|x": {}},
            },
            FilePosition(
                keys=("here:.*", "sound|x", "bw"),
                index=("$partition", "variant"),
            ),
        ),
        (
            {"here:disk": {"x": []}, "here": {"bw": []}},
            FilePosition(keys=("here", "bw")),
        ),
        ({"*": {"bw": []}}, FilePosition(keys=("*", "bw"))),
    ],
)
def test_an_entry_is_found_or_made(entry, place):
    assert position_of(entry, record(), "bw") == place


# --- text that stays ------------------------------------------------------------------------------


def leaves(data, path=()):
    if isinstance(data, dict):
        for key, value in data.items():
            yield from leaves(value, (*path, key))
    elif isinstance(data, list) and "$index" not in path:
        yield path, data


def changed_lines(before, after):
    proposal = Proposal(before, after, [])
    lines = proposal.diff("f", "f").splitlines()[2:]
    return [x[1:] for x in lines if x[0] == "-"], [x[1:] for x in lines if x[0] == "+"]


@pytest.mark.parametrize("key", ["n", "o"])
def test_a_new_key_stands_above_the_comments_of_what_follows(key):
    text = "A:\n  d:\n    m: [1, 0, 0, s]  # own\n\n# The second.\nB:\n  d: {m: [1, 0, 0, s]}\n"
    new = put(text, ("A", "d", key), [2, 0, 0, "s"])
    assert changed_lines(text, new) == ([], [f"    {key}: [2, 0, 0, s]"])
    assert new.index(f" {key}:") < new.index("# The second.")


def test_what_an_anchor_shares_is_not_touched():
    text = "A:\n  d: &x {m: [1, 0, 0, s]}\n  e: *x\n"
    for key in ("d", "e"):
        with pytest.raises(
            Refused, match=f"A.{key}.m: setting it would change other values"
        ):
            put(text, ("A", key, "m"), [2, 0, 0, "s"])


@pytest.mark.parametrize(
    ("text", "gone", "new"),
    [
        ("A:\n  d:    {m:  [1,0,0,s]}\n", ["  d:    {m:  [1,0,0,s]}"], ["  d:    {m: [2, 0, 0, s]}"]),
        ("A:\n    d:\n        m:\n        - 1\n        - s\n\n# next\nB:   1\n",
         ["        m:", "        - 1", "        - s"], ["        m: [2, 0, 0, s]"]),
        ("A: {d: {m: [1, 0,\n  0, s] }, e: {}}", ["A: {d: {m: [1, 0,", "  0, s] }, e: {}}"], ["A: {d: {m: [2, 0, 0, s] }, e: {}}"]),
        ("A: {d: {}}  # own\nB: >-\n  a\n", ["A: {d: {}}  # own"], ["A: {d: {m: [2, 0, 0, s]}}  # own"]),
        ("# head\nB: |\n  a\n\n  b\n", [], ["A:", "  d:", "    m: [2, 0, 0, s]"]),
        ("", [], ["A:", "  d:", "    m: [2, 0, 0, s]"]),
    ],
)  # fmt: skip
def test_only_the_lines_of_a_value_change(text, gone, new):
    assert changed_lines(text, put(text, ("A", "d", "m"), [2, 0, 0, "s"])) == (
        gone,
        new,
    )


KEYS = st.text(st.sampled_from("ab|.* -#'\""), min_size=1, max_size=4) | st.integers(
    0, 3
)


@given(
    st.dictionaries(
        KEYS,
        st.dictionaries(KEYS, st.builds(lambda: [1, 0, 0.5, "s"]), max_size=3),
        max_size=3,
    ),
    KEYS,
    KEYS,
    st.sampled_from([None, True, False]),
)
def test_any_key_can_be_set_in_any_file(data, one, two, style):
    text = yaml.safe_dump(data, default_flow_style=style, sort_keys=False, width=10**9)
    expected = {**data, one: {**data.get(one, {}), two: [2, 0, None, "1"]}}
    after = put(
        text, (one, two), [2, 0, None, "1"], f"{one}.{two}: why", f"{one}.{two}:"
    )
    assert yaml.safe_load(after) == expected


# --- proposals ------------------------------------------------------------------------------------


def runs(values, **given):
    words = {
        "metric": "bw",
        "unit": "MiB/s",
        "better": "more",
        "series": "5e71e5000001",
        "times": tuple(days(len(values))),
        "record": record(),
    } | given
    return Runs(values=tuple(values), **words)


def proposal(text, *all_runs, lower=None):
    return propose(text, all_runs, lambda *_: 0.1, lower, TODAY)


def state(found):
    return [outcome.state for outcome in found.outcomes]


def test_the_reference_moves_up_alone_and_down_for_a_reason():
    first = proposal("# head\n$accepted: {}\n", runs(noisy(24))).after
    assert first.startswith("# head\n$accepted: {}\n")
    second = proposal(first, runs(noisy(24, 1200.0)))
    assert state(second) == ["proposed"]
    data = yaml.safe_load(second.after)
    assert data["Ior"]["here:disk"]["shared"]["bw"][0] == pytest.approx(1200, rel=0.005)
    assert second.after.count("calibrated 2026-11-21") == 1
    third = proposal(second.after, runs(noisy(24, 900.0)))
    assert (state(third), third.after) == (["refused"], second.after)
    assert "would lower" in third.outcomes[0].text
    fourth = proposal(
        second.after, runs(noisy(24, 900.0)), lower="half the  disks are gone"
    )
    data = yaml.safe_load(fourth.after)
    assert data["Ior"]["here:disk"]["shared"]["bw"][0] == pytest.approx(900, rel=0.005)
    assert "half the disks are gone" in " ".join(fourth.after.replace("#", " ").split())
    assert state(proposal(first, runs(noisy(60)))) == ["holds"]


HEAD = "$sources: {Ior: run 1}\nIor:\n  here:disk: "


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            HEAD + "{bw: [$xfail, 'bug, until 2027-01-01', [9, -0.1, null, MiB/s]]}\n",
            "is expected",
        ),
        (
            HEAD + "{bw: [9, -0.1, null, GiB/s]}\n",
            "in 'GiB/s', the records are in 'MiB/s'",
        ),
    ],
)
def test_an_entry_that_cannot_follow_is_refused(text, message):
    found = proposal(text, runs(noisy(24), record=record(parameters={})))
    assert (state(found), found.after) == (["refused"], text)
    assert message in found.outcomes[0].text


def test_one_entry_for_two_kinds_of_runs_is_refused():
    text = HEAD + "{bw: [9, -0.1, null, MiB/s]}\n"
    kinds = [
        runs(noisy(24, level), record=record(parameters={}, environment=name))
        for level, name in ((1000.0, "gnu"), (2000.0, "intel"))
    ]
    found = proposal(text, *kinds)
    assert (state(found), found.after) == (["refused", "refused"], text)
    assert "environment=intel" in found.outcomes[0].text


# --- the choice of runs ---------------------------------------------------------------------------


def test_only_proven_values_are_runs(tmp_path):
    verdicts = [verdict.value for verdict in Verdict]
    for day, verdict in enumerate(verdicts, 1):
        made = records.values(
            verdict,
            time=f"2026-09-{day:02}T00:00:00Z",
            metrics=[records.metric(verdict=verdict, median=float(day))],
            confirms="earlier" if day == 1 else None,
            busy="n1: a load of 9 on 4 cores" if day == 2 else None,
        )
        records.append(tmp_path / "here" / f"{day}.jsonl", made)
    with closing(query.connect(tmp_path)) as history:
        (found,) = runs_of(tmp_path, history, query.Condition("1"))
    # The seconds until a bandwidth comes back that never did: too many, and nobody knows how many.
    open_figure = records.metric(verdict="FAIL", median=9.0, open=True)
    made = records.values("FAIL", time="2026-10-01T00:00:00Z", metrics=[open_figure])
    records.append(tmp_path / "here" / "open.jsonl", made)
    with closing(query.connect(tmp_path)) as history:
        (again,) = runs_of(tmp_path, history, query.Condition("1"))
    assert again.values == found.values
    valid = [n for n, name in enumerate(verdicts, 1) if Verdict(name).is_valid]
    assert found.values == tuple(float(day) for day in valid if day > 2)
    assert found.left_out == (" (1 on busy nodes left out)" if 2 in valid else "")


def test_only_the_newest_series_counts(tmp_path):
    for day in range(1, 6):
        target = "A" if day < 3 else "B"
        measured = records.metric(verdict="PASS", median=float(day))
        made = records.values(
            time=f"2026-09-{day:02}T00:00:00Z",
            metrics=[measured],
            fingerprint={"fs.uuid": target},
        )
        records.append(tmp_path / "here" / f"{day}.jsonl", made)
    with closing(query.connect(tmp_path)) as history:
        (found,) = runs_of(tmp_path, history, query.Condition("1"))
    assert found.values == (3.0, 4.0, 5.0)
    assert found.left_out == " (2 of earlier series left out)"


def test_a_file_is_replaced_whole_and_keeps_its_mode(tmp_path):
    file = tmp_path / "references.yaml"
    file.write_bytes(b"a: 1\r\n")
    file.chmod(0o640)
    text = calibrating.read_text(file)
    calibrating.write_text(file, text + "b: 2\r\n")
    assert file.read_bytes() == b"a: 1\r\nb: 2\r\n"
    assert file.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["references.yaml"]
    assert calibrating.read_text(tmp_path / "none") == ""
