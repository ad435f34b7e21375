"""The sites of published systems: what a document says stands in the site's files, converted exactly."""

import re
from pathlib import Path

import pytest

from iogauge.core.units import convert
from iogauge.core.yamlfile import load
from iogauge.site import folders, settings
from iogauge.site.references import References

SITES = Path(__file__).resolve().parents[2] / "site-configs"
NAMES = (
    "azure-cyclecloud",
    "azure-managed-lustre",
    "kaust-shaheen2",
    "oist-saion",
    "oracle-oci",
)

CYCLE, SAION, AMLFS = "azure-cyclecloud", "oist-saion", "azure-managed-lustre"
KAUST, ORACLE = "kaust-shaheen2", "oracle-oci"

#: Figures of the documents: scenario, site, check, partition and further keys, metric, value, its unit.
PUBLISHED = [
    *(
        (scenario, CYCLE, "TaskScaling", (oss, variant, tasks), metric, value, "MiB/s")
        for scenario, oss, metric, value in (
            ("R1", "oss4", "write_bw", 12900),
            ("R1", "oss4", "read_bw", 12500),
            ("R2", "oss8", "write_bw", 26000),
            ("R2", "oss8", "read_bw", 27000),
        )
        for variant in ("sound", "published")
        for tasks in (16, 24, 32)
    ),
    ("R1", CYCLE, "TaskScalingCurve", ("oss4",), "write_plateau", 12900, "MiB/s"),
    ("R1", CYCLE, "TaskScalingCurve", ("oss4",), "read_plateau", 12500, "MiB/s"),
    ("R2", CYCLE, "TaskScalingCurve", ("oss8",), "write_plateau", 26000, "MiB/s"),
    ("R2", CYCLE, "TaskScalingCurve", ("oss8",), "read_plateau", 27000, "MiB/s"),
    (
        "R2",
        CYCLE,
        "AgainstBaseline",
        ("oss8", "TaskScaling"),
        "write_bw_scale_out",
        1.008,
        "1",
    ),
    (
        "R2",
        CYCLE,
        "AgainstBaseline",
        ("oss8", "TaskScaling"),
        "read_bw_scale_out",
        1.08,
        "1",
    ),
    *(
        (
            scenario,
            SAION,
            "RandomRead",
            ("gpu", *variant, span, 128, block),
            metric,
            value,
            unit,
        )
        for scenario, span, block, metric, value, unit in (
            ("O1", "one-client", "4KiB", "read_iops", 333e3, "ops/s"),
            ("O1", "one-client", "4KiB", "read_bw", 333e3 * 4096, "B/s"),
            ("O2", "one-client", "128KiB", "read_bw", 11.5, "GB/s"),
            ("O4a", "one-box", "4KiB", "read_iops", 710e3, "ops/s"),
            ("O4b", "one-box", "128KiB", "read_bw", 24, "GB/s"),
            ("O5a", "all", "4KiB", "read_iops", 2.84e6, "ops/s"),
            ("O5b", "all", "32KiB", "read_iops", 2.39e6, "ops/s"),
            ("O5b", "all", "32KiB", "read_bw", 76.9, "GB/s"),
            ("O5c", "all", "128KiB", "read_bw", 95.7, "GB/s"),
        )
        for variant in (("sound", "acceptance"), ("published", "quick"))
    ),
    *(
        (
            "O3",
            SAION,
            "ChecksumOverhead",
            ("gpu", *variant, 128, block),
            metric,
            value,
            unit,
        )
        for block, metric, value, unit in (
            ("4KiB", "checksum_ratio", 1 - 0.06, "1"),
            ("32KiB", "checksum_ratio", 1 - 0.17, "1"),
            ("128KiB", "checksum_ratio", 1 - 0.0, "1"),
            ("4KiB", "read_iops", 333e3, "ops/s"),
        )
        for variant in (("sound", "acceptance"), ("published", "quick"))
    ),
    *(
        ("A1", AMLFS, "Burst", ("amlfs", variant), metric, 30, "GB/s")
        for variant in ("sound", "published")
        for metric in ("write_bw", "read_bw")
    ),
    *(
        (scenario, KAUST, check, keys, "write_bw", 361e9 / seconds, "B/s")
        for scenario, stripes, seconds in (("K1", 1, 674.26), ("K2", 144, 10.35))
        for check, keys in (
            (check, ("lustre", api, stripes))
            for check in ("StripeCount", "Aggregators", "DefaultWriters")
            for api in ("MPIIO", "NCMPI")
        )
    ),
    *(
        (
            scenario,
            KAUST,
            "Aggregators",
            (partition, api, writers),
            "writers",
            writers,
            "1",
        )
        for scenario, partition, writers in (
            ("K1", "lustre", 1),
            ("K2", "lustre", 144),
            ("K5", "datawarp", 40),
            ("K5", "datawarp", 80),
        )
        for api in ("MPIIO", "NCMPI")
    ),
    ("C1", ORACLE, "ServerScaling", ("block", 2), "write_bw", 5.0, "GiB/s"),
    ("C1", ORACLE, "ServerScaling", ("block", 2), "read_bw", 5.0, "GiB/s"),
    *(
        (
            "C2",
            ORACLE,
            "AgainstBaseline",
            ("nvme", "ServerScaling"),
            metric,
            (1.07 + 1.23) / 2,
            "1",
        )
        for metric in ("write_bw_ratio", "read_bw_ratio")
    ),
]


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


@pytest.mark.parametrize(
    ("name", "check", "keys", "metric", "value", "unit"),
    [figure[1:] for figure in PUBLISHED],
    ids=[f"{f[0]}-{'-'.join(map(str, f[3]))}-{f[4]}" for f in PUBLISHED],
)
def test_a_published_figure_is_a_reference(name, check, keys, metric, value, unit):
    reference, _, _, in_unit = leaf(name, check, keys, metric)
    assert reference == pytest.approx(convert(value, unit, in_unit), rel=3e-4)
