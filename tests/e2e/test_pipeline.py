"""The pipeline of a site: its files against the schemas of GitLab and GitHub, and run for real in GitLab's place.

The storage is a file system that moves a fixed number of MiB/s. On healthy storage the scheduled pipeline is
green, on slowed storage red, with a message that says what is slow, by how much and since when.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from e2e.pipeline import FIVE_LINES, SiteRepository, expanded, gitlab_ci_local
from e2e.rig import ROOT
from support.shell import completed
from support.web import served

CAPPED = ROOT / "benchmarks" / "capped-fs"
BLKIO = Path("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device")
#: MiB/s of healthy storage, and of slowed storage: so few that a busy machine can ask for them all the same.
HEALTHY, SLOWED = 12, 4
MEASURED = ["iogauge-setup: [mnt]", "iogauge-stack", "iogauge-run: [mnt]"]
ONLY = {"IOGAUGE_OPTIONS": "-n FioRandomRead%block=128KiB"}
REFERENCES = {
    "read_bw": [HEALTHY, -0.5, None, "MiB/s"],
    "read_iops": [1, -0.5, None, "ops/s"],
}


@pytest.fixture(scope="module")
def capped(storage):
    """A file system with a cap that a test may change; returns its mount point."""
    if (
        os.getuid() != 0
        or not os.access(BLKIO, os.W_OK)
        or shutil.which("mkfs.xfs") is None
    ):
        pytest.skip("needs root, cgroup v1 blkio and xfsprogs")
    directory = storage / "capped-pipeline"
    up = [str(CAPPED), "up", str(directory), "1G", str(HEALTHY)]
    done = completed(up)
    assert done.returncode == 0, done.stderr

    def cap(mib_s):
        completed([str(CAPPED), "cap", str(directory), str(mib_s)], check=True)
        return directory / "mnt"

    yield cap
    completed([str(CAPPED), "down", str(directory)], check=True)


@pytest.fixture
def repository(capped, make_module_rig):
    gitlab_ci_local()
    rig = make_module_rig(target=capped(HEALTHY))
    made = SiteRepository(rig, rig.base / "storage", variables=dict(ONLY))
    accepted = {"$index": ["$partition"], "mine:mnt": REFERENCES}
    references = {
        "$sources": {"FioRandomRead": "made up by a test"},
        "FioRandomRead": accepted,
    }
    (made.site / "references.yaml").write_text(yaml.safe_dump(references))
    return made


MONEY = "hunter2-webhook-token"
DOOR = "secret-path-of-the-webhook"


@pytest.fixture
def receiver():
    """A webhook."""
    with served() as server:
        yield server


@pytest.mark.needs_fio
@pytest.mark.needs_gitlab
@pytest.mark.slow
@pytest.mark.nightly
def test_healthy_is_green_and_slowed_is_red(repository, capped, receiver):
    """A repository of the site's own, with the iogauge that its five lines name."""
    # The first night of a site that has not said yet whom to tell.
    healthy = repository.run()
    assert healthy.rc == 0, healthy.out
    assert healthy.jobs == dict.fromkeys(
        [*MEASURED, "iogauge-judge", "iogauge-report"], "PASS"
    )
    assert "iogauge mine: ok: 1 passed" in healthy.out
    (suite,) = ElementTree.parse(repository.out / "mnt" / "junit.xml").getroot()
    assert [case.tag for case in suite] == ["testcase"] and not len(suite[0])

    repository.variables |= {
        "IOGAUGE_WEBHOOK_URL": f"{receiver.url}/{DOOR}",
        "IOGAUGE_WEBHOOK_TOKEN": MONEY,
    }
    capped(SLOWED)
    slowed = repository.run()
    assert slowed.rc != 0, slowed.out
    assert {name for name, word in slowed.jobs.items() if word == "FAIL"} == {
        "iogauge-run: [mnt]",
        "iogauge-judge",
    }
    # Case, metric, value, reference, since when, and what was before.
    for words in (
        r"FAIL mine:mnt FioRandomRead 128KiB read_bw: [345]\.\d+ MiB/s ±\S+, \d\d\.\d% below its reference",
        rf"expected: +reference {HEALTHY}\.00 MiB/s, at least 6\.0+ \(made up by a test\)",
        r"since: +\S+ \S+ UTC, session \S+, 2 runs in a row; the last PASS: \S+ \S+ UTC with \d+\.\d+ MiB/s",
        r"cause: +nothing that the fingerprint knows .* changed with it: look at the storage",
    ):
        assert re.search(rf"iogauge-judge +> .*{words}", slowed.out), (
            f"{words}\n{slowed.out}"
        )
    (suite,) = ElementTree.parse(repository.out / "mnt" / "junit.xml").getroot()
    assert "iogauge_median{" in (repository.out / "mnt" / "metrics.txt").read_text()
    reasons = [str(failure.get("message")) for failure in suite.iter("failure")]
    assert len(reasons) == 2 and all(
        r.startswith("FAIL: read_bw: median ") for r in reasons
    )

    # The alarm has reached the webhook, and its token and address nothing else.
    ((_, headers, content),) = receiver.got
    body = json.loads(content)
    assert headers["authorization"] == f"Bearer {MONEY}"
    assert [one["metric"] for one in body["troubles"]] == ["read_bw"]
    assert "FAIL mine:mnt FioRandomRead 128KiB read_bw" in body["text"]
    page = (repository.out / "report.html").read_text()
    assert "FioRandomRead 128KiB" in page and "<svg" in page and "since" in page
    for secret in (MONEY, DOOR):
        assert secret not in healthy.out + slowed.out
        files = [
            f
            for top in (repository.out, repository.rig.home)
            for f in top.rglob("*")
            if f.is_file()
        ]
        assert len(files) > 10
        assert [f for f in files if secret.encode() in f.read_bytes()] == []


# --- the pipelines as files  ----------------------------------------------------------------------


TEMPLATE = ROOT / "ci" / "gitlab" / "pipeline.yml"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
INPUTS = yaml.safe_load(FIVE_LINES)["include"]["inputs"]


@pytest.fixture(scope="module")
def validate():
    """Validates a file against a schema that lies in the package check-jsonschema; returns what is wrong."""
    beside = Path(sys.executable).with_name("check-jsonschema")
    program = str(beside) if beside.exists() else shutil.which("check-jsonschema")
    if program is None:
        pytest.skip("no check-jsonschema; it comes with: ci/setup --dev")

    def run(file, schema, *words):
        done = completed(
            [program, "--builtin-schema", f"vendor.{schema}", *words, str(file)]
        )
        return "" if done.returncode == 0 else done.stdout + done.stderr

    return run


@pytest.fixture(scope="module")
def jobs():
    return expanded(TEMPLATE.read_text(), INPUTS)


def gitlab(validate, folder, data):
    file = folder / "x.gitlab-ci.yml"
    file.write_text(yaml.safe_dump(data, sort_keys=False))
    return validate(file, "gitlab-ci", "--data-transform", "gitlab-ci")


def test_gitlab_accepts_it(validate, tmp_path, jobs):
    assert gitlab(validate, tmp_path, jobs) == ""
    head = yaml.safe_load(TEMPLATE.read_text().split("\n---\n")[0])
    assert gitlab(validate, tmp_path, {**head, "job": {"script": "true"}}) == ""
    assert gitlab(validate, tmp_path, yaml.safe_load(FIVE_LINES)) == ""
    assert len(FIVE_LINES.splitlines()) == 5


def test_no_secret_is_named_in_a_job():
    assert not re.search(r"WEBHOOK|TOKEN", TEMPLATE.read_text())


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_github_accepts_it(validate, tmp_path, workflow):
    assert validate(workflow, "github-workflows") == ""
    data = yaml.safe_load(workflow.read_text())
    for job in data["jobs"].values():
        job["stepz"] = job.pop("steps")
    broken = tmp_path / "broken.yml"
    broken.write_text(yaml.safe_dump(data))
    assert "stepz" in validate(broken, "github-workflows")


@pytest.mark.slow
def test_a_change_is_no_fault_of_a_site_that_is_too_small_for_a_scenario(make_rig):
    rig = make_rig(tools=("ior", "fio"), limits={"case_bytes": "32 MiB"})
    done = subprocess.run(
        [ROOT / "ci/pipeline", "change", "dry-run"],
        env=rig.environment(IOGAUGE_SITES=str(rig.sites)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout
    assert re.search(r"Ran .* \(1 failure\(s\), .* [1-9]\d+ skipped", done.stdout), (
        done.stdout
    )
