"""What extras provide, by name."""

import sys

import pytest

from iogauge.core import registry
from support.shell import completed

GROUPS = ("iogauge_commands", "iogauge_agent", "iogauge_answers")


def test_every_name_leads_to_a_function():
    for group in GROUPS:
        assert registry.names(group)
        for name in registry.names(group):
            assert callable(registry.load(group, name))


def test_a_name_that_nothing_provides_says_what_to_do():
    with pytest.raises(
        registry.Missing, match=r"page\.map is not installed here: run ci/setup"
    ):
        registry.load("iogauge_answers", "page.map")


def test_a_command_starts_without_what_only_some_need():
    """Each takes longer to import than all else, and starts threads."""
    code = "import sys, iogauge.cli.app; print({'numpy', 'polars', 'scipy'} & sys.modules.keys())"
    done = completed([sys.executable, "-c", code], check=True)
    assert done.stdout == "set()\n"
