"""ReFrame's ``--disable-hook`` leaves out no hook of ours, whichever class has it."""

import re

import pytest
import reframe as rfm
from reframe.core.exceptions import ReframeFatalError

import iogauge.cases  # all base classes
import iogauge.cases.configuration  # noqa: F401  # what it changes in ReFrame
from iogauge.cases.judged import JudgedCheck
from iogauge.core import vocabulary
from support.project import ROOT


def and_below(kind):
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
        with pytest.raises(
            ReframeFatalError, match=f"--disable-hook={hook} .*: not allowed"
        ):
            check.disable_hook(hook)


def test_every_tag_of_a_check_is_known():
    text = "".join(file.read_text() for file in (ROOT / "checks").glob("*.py"))
    sets = re.findall(r"\btags(?: = {(.*?)}|\.add\((.*?)\))", text)
    found = {tag for one in sets for tag in re.findall(r'"(.+?)"', "".join(one))}
    assert {"quick", "ior"} < found <= vocabulary.TAGS
