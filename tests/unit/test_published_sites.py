"""The sites of published systems: what a document says stands in the site's files, converted exactly."""

import re

import pytest

from iogauge.core.units import convert
from iogauge.core.yamlfile import load
from iogauge.site import folders, settings
from iogauge.site.references import References
from support.project import DATA, ROOT

SITES = ROOT / "site-configs"
NAMES = (
    "azure-cyclecloud",
    "azure-managed-lustre",
    "kaust-shaheen2",
    "oist-saion",
    "oracle-oci",
)

#: Figures of the documents: scenario, site, check, partition and further keys, metric, value, its unit.
TABLE = (DATA / "published.txt").read_text()
PUBLISHED = [line.split() for line in TABLE.splitlines()[1:]]


@pytest.fixture(autouse=True)
def _sites(monkeypatch, tmp_path):
    monkeypatch.setenv("IOGAUGE_CONFIGURATION", str(SITES))
    monkeypatch.setenv("IOGAUGE_HOME", str(tmp_path))


def entries(name, check):
    """References of a check by the keys of its index, the partition's full name first."""
    data = dict(References.of_site(name).data[check])
    levels = len(data.pop("$index", ("$partition",)))
    found = {(): data}
    for _ in range(levels):
        found = {
            (*keys, key): inner
            for keys, body in found.items()
            for key, inner in body.items()
        }
    return found


def leaf(name, check, keys, metric):
    """A reference as ReFrame finds it: a key that is text is an anchored regular expression."""

    def fits(pattern, value):
        text = isinstance(pattern, str) and isinstance(value, str)
        return (
            bool(re.match(f"^(?:{pattern})$", value))
            if text
            else bool(pattern == value)
        )

    partition, *rest = keys
    wanted = (f"{name}:{partition}", *rest)
    (found,) = [
        body
        for patterns, body in entries(name, check).items()
        if len(patterns) == len(wanted) and all(map(fits, patterns, wanted))
    ]
    return found[metric]


@pytest.mark.parametrize("name", NAMES)
def test_a_published_site_has_no_mistake(name):
    _, mistakes = settings.read_site(SITES / name)
    assert [str(mistake) for mistake in mistakes] == []


@pytest.mark.parametrize(
    "folder", folders.site_folders(SITES), ids=lambda folder: str(folder.name)
)
def test_a_site_names_the_permission_that_its_targets_need(folder):
    """Declared targets are mount points of the site; space that the job is given belongs to its user."""
    (system,) = load(folder / "settings.yaml")["systems"]
    declared = [
        p["extras"].get("target", {}).get("path", "") for p in system["partitions"]
    ]
    needed = {path for path in declared if path.startswith("/")}
    readme = folder / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.exists() else ""
    assert {*re.findall(r"^    iogauge site allow (\S+)", text, re.MULTILINE)} == needed
    assert needed or folder.name == "local"


@pytest.mark.parametrize("row", PUBLISHED, ids=" ".join)
def test_a_published_figure_is_a_reference(row):
    _, name, check, places, metric, value, unit = row
    keys = [int(key) if key.isdigit() else key for key in places.split("/")]
    reference, _, _, in_unit = leaf(name, check, keys, metric)
    assert reference == pytest.approx(convert(float(value), unit, in_unit), rel=3e-4)
