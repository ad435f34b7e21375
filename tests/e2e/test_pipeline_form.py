"""The pipelines as files: what GitLab's and GitHub's own schemas say, and what their jobs may and may not do."""

from __future__ import annotations

import copy
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.pipeline import FIVE_LINES, Project, expanded, gitlab_ci_local
from e2e.rig import ROOT, Rig

TEMPLATE = ROOT / "ci" / "gitlab" / "pipeline.yml"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
INPUTS = yaml.safe_load(FIVE_LINES)["include"]["inputs"]


@pytest.fixture(scope="module")
def validate() -> Callable[..., str]:
    """Validates a file against a schema that lies in the package check-jsonschema; returns what is wrong."""
    beside = Path(sys.executable).with_name("check-jsonschema")
    program = str(beside) if beside.exists() else shutil.which("check-jsonschema")
    if program is None:
        pytest.skip("no check-jsonschema; it comes with: ci/setup --dev")

    def run(file: Path, schema: str, *words: str) -> str:
        done = subprocess.run(
            [program, "--builtin-schema", f"vendor.{schema}", *words, str(file)],
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        return "" if done.returncode == 0 else done.stdout + done.stderr

    return run


@pytest.fixture(scope="module")
def jobs() -> dict[str, Any]:
    return expanded(TEMPLATE.read_text(), INPUTS)


def gitlab(validate: Callable[..., str], folder: Path, data: dict[str, Any]) -> str:
    file = folder / "x.gitlab-ci.yml"
    file.write_text(yaml.safe_dump(data, sort_keys=False))
    return validate(file, "gitlab-ci", "--data-transform", "gitlab-ci")


def test_gitlab_accepts_it(validate, tmp_path, jobs):
    assert gitlab(validate, tmp_path, jobs) == ""
    head = yaml.safe_load(TEMPLATE.read_text().split("\n---\n")[0])
    assert gitlab(validate, tmp_path, {**head, "job": {"script": "true"}}) == ""
    assert gitlab(validate, tmp_path, yaml.safe_load(FIVE_LINES)) == ""
    assert len(FIVE_LINES.splitlines()) == 5


def test_gitlab_refuses_what_is_wrong(validate, tmp_path, jobs):
    broken = copy.deepcopy(jobs)
    broken["iogauge-judge"]["rules"] = [{"iff": "$X"}]
    assert "iogauge-judge" in gitlab(validate, tmp_path, broken)


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


@pytest.fixture(scope="module")
def project(make_module_rig: Callable[..., Rig]) -> Project:
    gitlab_ci_local()
    rig = make_module_rig()
    return Project(rig, rig.base / "project")


_OTHER_FILE = pytest.mark.nightly


@pytest.mark.needs_gitlab
class TestMergeRequest:
    """Which jobs a merge request gets, told by gitlab-ci-local for files that differ from the branch."""

    @pytest.mark.parametrize(
        ("file", "expected"),
        [
            ("README.md", set()),
            ("ci/lint", {"lint"}),
            pytest.param(
                "environments/local/spack.yaml", {"lint", "concretize"}, marks=_OTHER_FILE
            ),
            ("spack-repo/spack_repo/iogauge/repo.yaml", {"lint", "concretize"}),
            *(
                pytest.param(file, {"lint", "dry-run", "replay"}, marks=_OTHER_FILE)
                for file in ("site-configs/rig/settings.yaml", "checks/mdtest.py")
            ),
            ("reframe/src/iogauge/judge/case.py", {"lint", "dry-run", "replay"}),
        ],
    )
    def test_only_what_it_touches(self, project, file, expected):
        path = project.directory / file
        before = path.read_text()
        path.write_text(before + "\n# touched\n")
        try:
            listed = project.run("--list-csv", source="merge_request_event")
        finally:
            path.write_text(before)
        found = re.findall(r"^(iogauge-[\w-]+|pages)", listed.out, re.MULTILINE)
        assert set(found) == {f"iogauge-{name}" for name in expected}, listed.out

    @pytest.mark.parametrize("source", ["push", "schedule"])
    def test_nothing_is_measured_on_a_push(self, project, source):
        listed = project.run("--list-csv", source=source)
        found = set(re.findall(r"^iogauge-[a-z-]+", listed.out, re.MULTILINE))
        steps = {f"iogauge-{name}" for name in ("setup", "stack", "run", "judge", "report")}
        assert found == (set() if source == "push" else steps), listed.out


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
    assert "So 1 case cannot run: Burst" in done.stdout
    assert re.search(r"Ran .* \(1 failure\(s\), .* [1-9]\d+ skipped", done.stdout), done.stdout
