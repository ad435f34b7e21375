"""Without an extra the rest works, and says what is missing."""

import json
import pkgutil
import sys
from importlib.metadata import entry_points

import pytest

import iogauge_extras
from iogauge.core import registry
from support.depth import FULL
from support.shell import completed

EXTRAS = [extra.name for extra in pkgutil.iter_modules(iogauge_extras.__path__)]
#: Commands that are parts of others, and how they are called.
PARTS = {
    "ceilings": "site ceilings",
    "collecting": "site collecting",
    "new": "site new",
    "prune": "history prune 2026-01-01",
}
GROUPS = ("iogauge_commands", "iogauge_agent", "iogauge_answers")
#: Hides a package, and prints what the command says: its help, and each of the words.
HIDING = """
import importlib.abc, json, sys

class Hide(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if f"{name}.".startswith(sys.argv[1] + "."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hide())
from typer.testing import CliRunner
from iogauge.cli.app import app
from iogauge.core import registry
import iogauge.job.agent
said = {}
for words in ("--help", *sys.argv[2:]):
    done = CliRunner().invoke(app, words.split())
    said[words] = (done.exit_code, done.output)
for group in ("iogauge_agent", "iogauge_answers"):
    for name in registry.names(group):
        try:
            registry.load(group, name)
        except registry.Missing as error:
            said[name] = (1, str(error))
print(json.dumps(said))
"""


def given(extra, group):
    package = f"iogauge_extras.{extra}."
    return [
        one.name for one in entry_points(group=group) if one.value.startswith(package)
    ]


def test_every_name_leads_to_a_function():
    for group in GROUPS:
        assert registry.names(group)
        for name in registry.names(group):
            assert callable(registry.load(group, name))


@pytest.mark.parametrize("extra", EXTRAS if FULL else EXTRAS[:3])
def test_the_rest_works_and_says_what_is_missing(extra):
    commands, package = given(extra, "iogauge_commands"), f"iogauge_extras.{extra}"
    words = [PARTS.get(name, name) for name in commands]
    hiding = [sys.executable, "-c", HIDING, package, *words]
    done = completed(hiding)
    said = json.loads(done.stdout or "{}")
    status, text = said.pop("--help", (None, done.stderr))
    assert status == 0, text
    assert all(
        f" {name} " in text
        for name in registry.names("iogauge_commands")
        if name not in PARTS
    )
    answers = given(extra, "iogauge_agent") + given(extra, "iogauge_answers")
    assert {*words, *answers} <= said.keys()  # others may need this one
    for name, (status, text) in said.items():
        assert status == (2 if name in words else 1), text
        named = name.removeprefix("site ").removeprefix("history ")
        assert f"{named.partition(' ')[0]} needs {package}" in " ".join(text.split())


def test_an_extra_that_needs_another_says_so(monkeypatch):
    """The page shows trends, and without them there is none."""
    for name in [
        name for name in sys.modules if name.startswith("iogauge_extras.page")
    ]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("iogauge_extras.history", "iogauge_extras.history.states"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(registry.Missing, match=r"page needs iogauge_extras\.history"):
        registry.load("iogauge_answers", "page")(None, None, None)


def test_a_command_starts_without_what_only_some_need():
    """Each takes longer to import than all else, and starts threads."""
    code = "import sys, iogauge.cli.app; print({'numpy', 'polars', 'scipy'} & sys.modules.keys())"
    done = completed([sys.executable, "-c", code], check=True)
    assert done.stdout == "set()\n"
