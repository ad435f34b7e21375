"""A site's reference file: every mistake is reported with file, key, found and allowed."""

import textwrap
from datetime import date
from types import SimpleNamespace

import pytest

from iogauge.core.measurement import Metric, Reference
from iogauge.site.references import References, ReferencesError, last_day

METRICS = [
    Metric("write_bw", "MiB/s"),
    Metric("read_bw", "MiB/s"),
    Metric("open_rate", "kops/s"),
]


@pytest.fixture
def sites(tmp_path, monkeypatch):
    monkeypatch.setenv("IOGAUGE_CONFIGURATION", str(tmp_path))
    (tmp_path / "here").mkdir()
    return tmp_path


def write(sites, text):
    file = sites / "here" / "references.yaml"
    file.write_text(textwrap.dedent(text))
    return file


# --- expected failures end ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reason",
    [
        "ticket 42 (until 2027-03-31)",
        "until 2027-03-31: ticket 42",
        "Until the fix comes: expected until 2027-03-31.",
    ],
)
def test_the_last_day_of_an_expected_failure_is_read(reason):
    assert last_day(reason) == date(2027, 3, 31)


# --- against a check ------------------------------------------------------------------------------


def against(sites, body):
    write(sites, "$sources: {Ior: run 1}\nIor:\n  disk:\n    " + body)
    with pytest.raises(ReferencesError) as caught:
        References.of_site("here").check("Ior", METRICS)
    return [str(caught.value)]


def test_a_misspelt_metric_is_named_with_a_suggestion(sites):
    (mistake,) = against(sites, "writ_bw: [1, 0, 0, MiB/s]")
    assert mistake == (
        f"{sites}/here/references.yaml:4: Ior.disk.writ_bw: found metric 'writ_bw' "
        "(did you mean write_bw?); allowed: the metrics of Ior: write_bw, read_bw, open_rate"
    )


@pytest.mark.parametrize(
    "body, unit, better",
    [
        (
            "write_bw: [2, 0, 0, GiB/s]",
            "'GiB/s'",
            "'MiB/s', the metric's unit: 2048 MiB/s",
        ),
        ("write_bw: [2, 0, 0, s]", "'s'", "'MiB/s', the metric's unit"),
        (
            "write_bw: [$xfail, 'why, until 2027-01-01', [1, 0, 0, GiB/s]]",
            "'GiB/s'",
            "1024 MiB/s",
        ),
    ],
)
def test_a_wrong_unit_is_named_with_the_converted_value(sites, body, unit, better):
    (mistake,) = against(sites, body)
    assert f" (unit): found {unit}; allowed: " in mistake
    assert mistake.endswith(better)


def test_a_broken_file_refuses_every_check(sites):
    write(sites, "Other: 5\n")
    with pytest.raises(ReferencesError, match="Other: found 5"):
        References.of_site("here").check("Ior", METRICS)


# --- what a case gets -----------------------------------------------------------------------------


class Ior(SimpleNamespace):
    """A check as far as the look-up sees it."""


def here(partition, **values):
    return Ior(current_partition=SimpleNamespace(fullname=partition), **values)


def test_references_of_a_case(sites):
    write(
        sites,
        """
        $sources: {Ior: run 1}
        Ior:
          here:disk:
            write_bw: [100, -0.1, null, MiB/s]
            open_rate: [$xfail, "bug, until 2027-01-01", [5, null, 0.1, kops/s]]
        """,
    )
    assert References.of_site("here").resolve(here("here:disk"), METRICS, {})[0] == {
        "write_bw": Reference(100, -0.1, None, "MiB/s", "run 1"),
        "open_rate": Reference(
            5, None, 0.1, "kops/s", "run 1", "bug, until 2027-01-01", date(2027, 1, 1)
        ),
    }


def test_what_a_run_sets_otherwise_has_no_reference(sites):
    found, why = References.of_site("here").resolve(Ior(), METRICS, {"tier": "quick"})
    assert found == {}
    assert why == "measured with tier=quick; references hold for what the site declares"


@pytest.mark.parametrize(
    "key, partition, fits",
    [
        ("here:disk|here:other", "here:disk2", False),
        ("here:disk|here:other", "here:disk", True),
        ("here:.*", "here:disk2", True),
        ("here:other", "here:disk", False),
    ],
)
def test_a_key_fits_the_whole_of_a_name_or_nothing(sites, key, partition, fits):
    """ReFrame's own look-up takes ``here:disk2`` for the first: ``^a|b$``."""
    write(
        sites,
        f"""
        $sources: {{Ior: run 1}}
        Ior:
          $index: [$partition, tier]
          {key}:
            quick|daily: {{write_bw: [1, 0, 0, MiB/s]}}
        """,
    )
    check = here(partition, tier="daily")
    assert bool(References.of_site("here").resolve(check, METRICS, {})[0]) is fits


CASES = {
    "$partition": ["here:disk", "here:tape"],
    "tier": ["quick", "daily"],
}
BLOCKS = [
    {**CASES, "block": [block], "tasks": [tasks]}
    for block, tasks in (("4KiB", 1), ("1MiB", 2))
]


@pytest.mark.parametrize(
    "index, keys, found",
    [
        ("$partition", ("here:disk",), None),
        (
            "$partition",
            ("here:dis",),
            "partition 'here:dis' (did you mean here:disk?), which no case has",
        ),
        (
            "$partition, block",
            ("here:disk", "4k"),
            "block '4k' (did you mean 4KiB?), which no case has; allowed: 4KiB, 1MiB",
        ),
        ("block, tasks", ("1MiB", 1), "tasks '1', which no case has; allowed: 2"),
        ("nodes, block", (7, "4KiB"), None),
    ],
)
def test_a_point_that_no_case_has_is_a_mistake(sites, index, keys, found):
    points = "\n".join(f"{'  ' * (n + 1)}{key}:" for n, key in enumerate(keys))
    text = f"$sources: {{Ior: a}}\nIor:\n  $index: [{index}]\n{points} {{write_bw: [9, -0.1, null, MiB/s]}}\n"
    write(sites, text)
    mistakes = References.of_site("here").unfitting("Ior", BLOCKS)
    if found is None:
        assert mistakes == []
    else:
        (mistake,) = mistakes
        wrong = next(n for n, key in enumerate(keys) if str(key) == found.split("'")[1])
        assert f"references.yaml:{4 + wrong}: Ior." in str(mistake)
        assert f"found {found}" in str(mistake)
    assert References.of_site("here").unfitting("Ior", []) == []
