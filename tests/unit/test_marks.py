"""Marks of a reference file: which figures are published, which metrics are only recorded."""

import pytest
from pydantic import ValidationError

from iogauge.site import reference_notes
from iogauge.site.references import find_mistakes
from iogauge.site.topology import Servers

DATA = {
    "$sources": {"Burst": "a test"},
    "Burst": {
        "$index": ["$partition", "variant", "tasks"],
        "here:a": {"sound|published": {16: {"write_bw": [1, -0.1, None, "MiB/s"]}}},
    },
}


@pytest.mark.parametrize("mark", reference_notes.MARKS)
def test_a_sound_mark_is_no_mistake(mark):
    names = ["here:a"] if mark == reference_notes.PUBLISHED else ["read_bw"]
    assert not list(find_mistakes({**DATA, mark: {"Burst": names}}))


@pytest.mark.parametrize(
    ("mark", "value", "found"),
    [
        (reference_notes.PUBLISHED, {}, "{}"),
        (reference_notes.PUBLISHED, {"Burst": []}, "[]"),
        (reference_notes.PUBLISHED, {"Burst": ["here:b"]}, "'here:b'"),
        (reference_notes.PUBLISHED, {"Steady": ["here:a"]}, "this check"),
    ],
)
def test_a_mistake_in_a_mark(mark, value, found):
    (mistake,) = find_mistakes({**DATA, mark: value})
    assert mistake.found == found


@pytest.mark.parametrize(
    ("values", "holds"),
    [
        (("here:a", "sound", 16), True),
        (("here:a", "published", 16), True),
        (("here:a", "sound", 8), False),
        (("here:a", "soundly", 16), False),
        (("here:b", "sound", 16), False),
    ],
)
def test_a_case_with_a_published_figure(values, holds):
    assert bool(reference_notes.look_up(DATA["Burst"], values)) is holds


def test_a_box_is_whole():
    assert (
        Servers.model_validate({"count": 8, "nic": "100 Gbit/s", "per_box": 2}).per_box
        == 2
    )
    with pytest.raises(ValidationError, match="a multiple of per_box"):
        Servers.model_validate({"count": 8, "nic": "100 Gbit/s", "per_box": 3})
