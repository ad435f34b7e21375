"""The mistakes of tests/data/mistakes.txt that reading the files of a site finds; test_new_site.py makes the others by night."""

import pytest

from iogauge.node.view import look
from iogauge.site import settings
from iogauge_extras.newsite import found, writing
from support.mistakes import FILES, REFERENCES, mistakes
from support.new_site import site


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The settings that ``site new`` would write here."""
    target = tmp_path_factory.mktemp("target")
    seen = found.Target(
        path=str(target),
        partition="target",
        view=look(str(target)),
        facts={"lustre.osts": 4},
        layout={},
    )
    return writing.settings_text(site(seen))


@pytest.mark.parametrize("row", mistakes("settings", "references"), ids="|".join)
def test_a_mistake_is_named_with_what_was_found_and_expected(
    row, written, tmp_path, monkeypatch
):
    kind, old, new, *said = row
    texts = {"settings.yaml": written, "references.yaml": REFERENCES}
    assert old in texts[FILES[kind]]
    texts[FILES[kind]] = texts[FILES[kind]].replace(old, new, 1)
    folder = tmp_path / "sites" / "mine"
    folder.mkdir(parents=True)
    for name, text in texts.items():
        (folder / name).write_text(text)
    monkeypatch.setenv("IOGAUGE_CONFIGURATION", str(folder.parent))
    monkeypatch.delenv("IOGAUGE_TARGET", raising=False)
    found_mistakes = "\n".join(map(str, settings.read_site(folder)[1]))
    assert [words for words in said if words not in found_mistakes] == []


def test_the_settings_without_a_mistake(written, tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "settings.yaml").write_text(written)
    monkeypatch.setenv("IOGAUGE_CONFIGURATION", str(tmp_path))
    assert settings.read_site(tmp_path / "mine")[1] == []
