"""Which Spack environments the settings of a site name."""

import pytest

from iogauge.site.stack import stacks

SETTINGS = """\
systems:
  - name: {name}
    hostnames: ["{host}"]
environments:
  - {{name: openmpi, extras: {{stack: {name}-cpu}}}}
  - {{name: hpcx, extras: {{stack: {name}-gpu}}}}
  - {{name: bare}}
"""


def site(parent, name, host, text=SETTINGS):
    folder = parent / name
    folder.mkdir()
    (folder / "settings.yaml").write_text(text.format(name=name, host=host))
    return folder


@pytest.fixture
def folders(tmp_path):
    return [site(tmp_path, "one", "login1.*"), site(tmp_path, "two", "login.*")]


@pytest.mark.parametrize(
    "system, host, found",
    [
        ("two", "login1", ["two-cpu", "two-gpu"]),
        ("two:cpu", "login1", ["two-cpu", "two-gpu"]),
        ("", "login1", ["one-cpu", "one-gpu"]),
        ("", "login9", ["two-cpu", "two-gpu"]),
        ("", "laptop", []),
    ],
)
def test_stacks_of_the_selected_site(folders, system, host, found):
    assert stacks(folders, system, host) == found


def test_a_site_that_does_not_exist_is_refused(folders):
    with pytest.raises(ValueError, match="no site three; known: one, two"):
        stacks(folders, "three", "login1")


def test_mistakes_are_told_of_the_selected_site_alone(tmp_path, folders):
    broken = site(tmp_path, "broken", "login1.*", "systems: {{}}\nenvironments: 3\n")
    with pytest.raises(ValueError, match="iogauge check"):
        stacks([broken, *folders], "broken", "login1")
    assert stacks([broken, *folders], "", "login1") == ["one-cpu", "one-gpu"]
