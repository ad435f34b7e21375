"""ReFrame's ``--disable-hook`` leaves out no hook of ours, whichever class has it."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import reframe as rfm
from reframe.core.exceptions import ReframeFatalError

import iogauge.cases  # all base classes
import iogauge.cases.configuration  # noqa: F401  # what it changes in ReFrame
from iogauge.cases.judged import JudgedCheck


def and_below(kind: type[JudgedCheck]) -> Iterator[type[JudgedCheck]]:
    yield kind
    for inner in kind.__subclasses__():
        yield from and_below(inner)


@pytest.mark.parametrize(
    "kind", sorted(set(and_below(JudgedCheck)), key=str), ids=lambda kind: kind.__name__
)
def test_no_hook_can_be_left_out(kind, monkeypatch):
    monkeypatch.setattr(rfm.RegressionTest, "disable_hook", lambda *_: None)
    hooks = [hook.fn.__name__ for hook in kind._rfm_hook_registry]
    assert "_nothing_passes_unproven" in hooks
    check = object.__new__(kind)
    for hook in hooks:
        with pytest.raises(ReframeFatalError, match=f"--disable-hook={hook} .*: not allowed"):
            check.disable_hook(hook)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"needs": "iorr"}, r"needs is 'iorr': expected .*\bior\b"),
        ({"tags": {"daily", "weekyl"}}, r"a tag is 'weekyl': expected .*\bweekly\b"),
        ({"variants": ("published", "sound")}, "expected 'sound' first"),
        ({"variants": ("sound", "published")}, "flaw is empty: expected what is wrong"),
    ],
)
def test_a_class_that_cannot_be_meant_stops_reframe(change, words):
    right = {"needs": "ior", "tags": {"daily"}, "variants": ("sound",), "flaw": ""}
    check = vars(JudgedCheck)["_check_definition"]
    check(SimpleNamespace(**right))
    with pytest.raises(ReframeFatalError, match=words):
        check(SimpleNamespace(**right | change))
