"""The first month of a partition: it collects until something decides, and what is proposed then applies."""

import subprocess

import pytest
import yaml

from iogauge_extras.collecting import collecting_command as collecting
from support.extras import EXTRAS
from support.records import append, metric, values
from support.shell import completed

#: Medians of 20 steady runs, with the noise of healthy storage.
STEADY = [100 + 3 * ((7 * n) % 11 - 5) / 5 for n in range(20)]


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A site that nothing decides on, in a git repository of its own; returns its folder."""
    folder = tmp_path / "repository" / "sites" / "mine"
    folder.mkdir(parents=True)
    partition = {
        "name": "mnt",
        "scheduler": "local",
        "launcher": "local",
        "environs": ["tools"],
        "max_jobs": 1,
        "time_limit": "30m",
        "extras": {**EXTRAS, "target": {"path": str(tmp_path), "type": "ext4"}},
    }
    system = {"name": "mine", "hostnames": ["^$"], "partitions": [partition]}
    tools = {"name": "tools", "target_systems": ["mine"], "features": ["fio"]}
    settings = {"systems": [system], "environments": [tools]}
    (folder / "settings.yaml").write_text(yaml.safe_dump(settings))
    subprocess.run(["git", "init", "-q", str(tmp_path / "repository")], check=True)
    monkeypatch.setenv("IOGAUGE_SITES", str(folder.parent))
    monkeypatch.setenv("IOGAUGE_HOME", str(tmp_path / "home"))
    return folder


def keep(tmp_path, medians, verdict="UNREFERENCED", first=1, **change):
    for day, median in enumerate(medians, first):
        name = f"202701{day:02}T010000-n1-1"
        change.setdefault("reference", None)
        measured = metric(verdict=verdict, median=median, samples=[median], **change)
        record = values(
            verdict,
            **{
                "system": "mine",
                "partition": "mnt",
                "session": name,
                "time": f"2027-01-{day:02}T01:00:00Z",
                "check": "FioRandomRead",
                "case": "FioRandomRead %block=4KiB",
                "parameters": {"block": "4KiB"},
                "metrics": [measured],
            },
        )
        append(tmp_path / "home" / "history" / "mine" / f"{name}.jsonl", record)


def test_a_decision_ends_it_for_good(site, tmp_path):
    assert not collecting.is_gate("mine", "mnt")
    keep(tmp_path, STEADY[:7])
    keep(tmp_path, [1.0], "INVALID", 8)
    keep(tmp_path, [90.0], "UNSTABLE", 9)
    assert not collecting.is_gate("mine", "mnt")
    done = completed(["iogauge", "site", "collecting", "mine:mnt"])
    assert done.returncode == 0 and "0 of 1 metric can have" in done.stdout, done.stdout
    # A reference that was there once, and is gone, opens no gate.
    keep(tmp_path, [100.0], "PASS", 10, reference=metric()["reference"])
    assert collecting.is_gate("mine", "mnt")


@pytest.mark.parametrize(
    ("references", "decided"),
    [
        ("", False),
        ("{'other:mnt': LEAF}", False),
        ("{'mine:mnt': LEAF}", True),
        ("{'mine:.*': LEAF}", True),
        ("{$index: [block], 4KiB: LEAF}", True),
        ("{'mine:mnt': 7}", True),
    ],
)
def test_what_decides(site, references, decided):
    leaf = "{read_iops: [100, -0.1, null, ops/s]}"
    if references:
        text = f"$sources: {{FioRandomRead: a test}}\nFioRandomRead: {references}\n"
        (site / "references.yaml").write_text(text.replace("LEAF", leaf))
    assert collecting.is_decided("mine", "mnt") is decided


def test_an_efficiency_decides_from_the_first_day(site):
    settings = yaml.safe_load((site / "settings.yaml").read_text())
    topology = {
        "source": "an offer",
        "devices": {"read": "1 GB/s", "write": "1 GB/s"},
        "efficiency": {"read": "80 %", "write": "80 %"},
    }
    settings["systems"][0]["partitions"][0]["extras"]["topology"] = topology
    (site / "settings.yaml").write_text(yaml.safe_dump(settings))
    assert collecting.is_decided("mine", "mnt")


def test_the_proposal_applies_in_the_repository_and_ends_the_month(site, tmp_path):
    keep(tmp_path, STEADY, unit="ops/s", name="read_iops")
    words = ["iogauge", "site", "collecting", "mine:mnt", "--propose", str(tmp_path)]
    done = completed(words)
    assert done.returncode == 0, done.stderr
    assert "mine:mnt: collecting: 1 of 1 metric can have" in done.stdout
    assert not (site / "references.yaml").exists()
    said = (tmp_path / "references.txt").read_text()
    assert "median 100.0 ops/s of 20 runs" in said and "written" not in said
    top = site.parents[1]
    diff = str(tmp_path / "references.diff")
    subprocess.run(["git", "-C", str(top), "apply", diff], check=True)
    entry = yaml.safe_load((site / "references.yaml").read_text())["FioRandomRead"]
    assert entry["mine:mnt"]["4KiB"]["read_iops"][0] == pytest.approx(100, rel=0.02)
    done = completed(words)
    assert (done.returncode, "a gate" in done.stdout) == (1, True), done.stdout
