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


def resolved(jobs: dict[str, Any], name: str) -> dict[str, Any]:
    """A job with what it extends, merged as GitLab does."""

    def merge(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        both = {k: merge(a[k], b[k]) for k in a.keys() & b.keys() if isinstance(b[k], dict)}
        return {**a, **b, **both}

    job = jobs[name]
    return merge(resolved(jobs, job["extends"]), job) if "extends" in job else job


def names(jobs: dict[str, Any]) -> list[str]:
    return [
        name
        for name, job in jobs.items()
        if isinstance(job, dict) and "script" in resolved(jobs, name) and name[0] != "."
    ]


def gitlab(validate: Callable[..., str], folder: Path, data: dict[str, Any]) -> str:
    file = folder / "x.gitlab-ci.yml"
    file.write_text(yaml.safe_dump(data, sort_keys=False))
    return validate(file, "gitlab-ci", "--data-transform", "gitlab-ci")


def test_gitlab_accepts_it(
    validate: Callable[..., str], tmp_path: Path, jobs: dict[str, Any]
) -> None:
    assert gitlab(validate, tmp_path, jobs) == ""
    head = yaml.safe_load(TEMPLATE.read_text().split("\n---\n")[0])
    assert gitlab(validate, tmp_path, {**head, "job": {"script": "true"}}) == ""
    assert gitlab(validate, tmp_path, yaml.safe_load(FIVE_LINES)) == ""
    assert len(FIVE_LINES.splitlines()) == 5


@pytest.mark.parametrize(
    ("job", "key", "value"),
    [
        ("iogauge-run", "when", "sometimes"),
        ("iogauge-run", "resource_group", ["a"]),
        ("iogauge-run", "artifacts", {"reports": {"junnit": "x"}}),
        ("iogauge-judge", "retry", {"max": 1, "when": ["script_failed"]}),
        ("iogauge-judge", "rules", [{"iff": "$X"}]),
    ],
)
def test_gitlab_refuses_what_is_wrong(
    validate: Callable[..., str],
    tmp_path: Path,
    jobs: dict[str, Any],
    job: str,
    key: str,
    value: object,
) -> None:
    broken = copy.deepcopy(jobs)
    broken[job][key] = value
    assert job in gitlab(validate, tmp_path, broken)


def test_no_job_is_tried_again_for_a_failure_of_its_script(jobs: dict[str, Any]) -> None:
    allowed = {"runner_system_failure", "scheduler_failure", "api_failure"}
    for name in names(jobs):
        assert set(resolved(jobs, name)["retry"]["when"]) == allowed, name


def test_one_at_a_time_on_a_target(jobs: dict[str, Any]) -> None:
    run = resolved(jobs, "iogauge-run")
    assert run["resource_group"] == "iogauge-rig-$PARTITIONS"
    assert run["parallel"] == {"matrix": [{"PARTITIONS": ["default"]}]}
    assert (run["interruptible"], run["artifacts"]["when"]) == (False, "always")
    assert run["artifacts"]["paths"] and run["artifacts"]["expire_in"] and run["timeout"] == "6h"


def test_judge_and_report_run_whatever_came_before(jobs: dict[str, Any]) -> None:
    for name in ("iogauge-judge", "iogauge-report"):
        assert [rule["when"] for rule in resolved(jobs, name)["rules"]] == ["always"]


def test_a_job_says_when_and_a_script_what(jobs: dict[str, Any]) -> None:
    steps = set(
        re.findall(r"^    (\w[\w |]*)\) \"\$step\"", (ROOT / "ci/pipeline").read_text(), re.M)[
            0
        ].split(" | ")
    )
    for name in set(names(jobs)) - {"pages"}:
        (line,) = resolved(jobs, name)["script"]
        assert line.split()[:1] == ["ci/pipeline"] and line.split()[1] in steps, name


def test_no_secret_is_named_in_a_job() -> None:
    assert not re.search(r"WEBHOOK|TOKEN", TEMPLATE.read_text())


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_github_accepts_it(validate: Callable[..., str], tmp_path: Path, workflow: Path) -> None:
    assert validate(workflow, "github-workflows") == ""
    data = yaml.safe_load(workflow.read_text())
    for job in data["jobs"].values():
        job["stepz"] = job.pop("steps")
    broken = tmp_path / "broken.yml"
    broken.write_text(yaml.safe_dump(data))
    assert "stepz" in validate(broken, "github-workflows")


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_no_cache_of_github_has_a_path_upwards(workflow: Path) -> None:
    """With `..` in its path the cache action saves nothing, and only warns."""
    steps = [
        step
        for job in yaml.safe_load(workflow.read_text())["jobs"].values()
        for step in job["steps"]
    ]
    assert steps
    caches = [step for step in steps if str(step.get("uses", "")).startswith("actions/cache@")]
    assert bool(caches) == (workflow.stem == "stack")
    assert [step for step in caches if ".." in step["with"]["path"].split("/")] == []


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
    def test_only_what_it_touches(self, project: Project, file: str, expected: set[str]) -> None:
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
    def test_nothing_is_measured_on_a_push(self, project: Project, source: str) -> None:
        listed = project.run("--list-csv", source=source)
        found = set(re.findall(r"^iogauge-[a-z-]+", listed.out, re.MULTILINE))
        steps = {f"iogauge-{name}" for name in ("setup", "stack", "run", "judge", "report")}
        assert found == (set() if source == "push" else steps), listed.out
