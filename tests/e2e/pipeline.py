"""A site's project with its pipeline, and gitlab-ci-local from npm, which runs it on this machine."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from e2e.rig import BUSY, ROOT, Rig
from support.npm import modules
from support.project import copied
from support.shell import completed

#: From npm; gitlab-ci-local does not load in Node 20.
PACKAGES = {"gitlab-ci-local": "4.75.1", "node": "22.23.3"}
_GITLAB = "https://gitlab.invalid"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
#: What a site writes into its own .gitlab-ci.yml.
FIVE_LINES = """\
include:
  local: ci/gitlab/pipeline.yml
  inputs:
    system: rig
    targets: [default]
"""


def gitlab_ci_local() -> list[str]:
    """Words that start gitlab-ci-local. Skips where npm does not bring it."""
    folder = modules(PACKAGES)
    return [
        str(folder / "node/bin/node"),
        str(folder / "gitlab-ci-local/dist/index.js"),
    ]


def _suite(directory: Path) -> None:
    """Copy this project without its tests, and its virtual environment as if ``ci/setup`` had made it there."""
    copied(directory, "tests", "docs")
    _environment(directory)


def _environment(directory: Path) -> None:
    made, venv = ROOT / ".venv", directory / ".venv"
    venv.mkdir()
    shutil.copy(made / "pyvenv.cfg", venv)
    for name in ("bin", "lib"):
        (venv / name).symlink_to((made / name).resolve())
    (venv / ".iogauge").touch()
    lock = (directory / "requirements/runtime.lock").read_bytes()
    library = (directory / "reframe/pyproject.toml").read_bytes()
    stamp = hashlib.sha256(f"{venv}\n".encode() + lock + library).hexdigest()
    (venv / ".iogauge-runtime").write_text(stamp + "\n")


def _commit(directory: Path, remote: str) -> None:
    for words in (
        ["init", "-q", "-b", "main"],
        ["config", "user.name", "t"],
        ["config", "user.email", "t@example.invalid"],
        ["remote", "add", "origin", remote],
        ["add", "-A"],
        ["commit", "-q", "-m", "site"],
        # What a merge request is compared with.
        ["update-ref", "refs/remotes/origin/main", "HEAD"],
    ):
        subprocess.run(["git", *words], cwd=directory, check=True, timeout=600)


@dataclass
class Project:
    """A site's copy of this project, with the rig's site in it, and what its pipeline says."""

    rig: Rig
    directory: Path
    text: str = FIVE_LINES
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _suite(self.directory)
        shutil.copytree(self.rig.site, self.site)
        (self.directory / ".gitlab-ci.yml").write_text(self.text)
        _commit(self.directory, "git@gitlab.invalid:storage/rig.git")

    @property
    def outside(self) -> dict[str, str]:
        """The environment of the runner."""
        environment = self.rig.environment(
            HOME=str(self.rig.base), IOGAUGE_HOME=str(self.rig.home)
        )
        del environment["RFM_CONFIG_PATH"]
        return environment

    @property
    def site(self) -> Path:
        """The folder of the site."""
        return self.directory / "site-configs" / "rig"

    @property
    def out(self) -> Path:
        """What the jobs leave as artifacts."""
        return self.directory / "iogauge-out"

    def start(self, *words: str, source: str = "schedule") -> subprocess.Popen[str]:
        """Start a pipeline, as GitLab would for ``source``."""
        variables = {"CI_PIPELINE_SOURCE": source, **self.variables}
        given = [
            w
            for name, value in variables.items()
            for w in ("--variable", f"{name}={value}")
        ]
        return subprocess.Popen(
            [
                *gitlab_ci_local(),
                *given,
                "--ignore-predefined-vars=CI_PIPELINE_SOURCE",
                *words,
            ],
            cwd=self.directory,
            env=self.outside,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )

    def finish(self, process: subprocess.Popen[str], timeout: float = 240) -> Pipeline:
        """Wait for a pipeline."""
        try:
            out, _ = process.communicate(timeout=BUSY * timeout)
        except subprocess.TimeoutExpired:
            self.rig.kill(process.pid)
            out, _ = process.communicate()
            raise AssertionError(
                f"not done after {BUSY * timeout:g} s\n{out}"
            ) from None
        return Pipeline(process.returncode, _COLOURS.sub("", out))

    def run(self, *words: str, source: str = "schedule") -> Pipeline:
        """Run a pipeline to its end."""
        return self.finish(self.start(*words, source=source))


@dataclass
class SiteRepository(Project):
    """A repository of the site ``mine`` as ``iogauge site new --repository`` writes it.

    Its pipeline fetches iogauge from a GitLab that is a folder here.
    """

    def __post_init__(self) -> None:
        _suite(self._origin)
        _commit(self._origin, f"{_GITLAB}/hpc/iogauge.git")
        words = [
            self._origin / ".venv" / "bin" / "iogauge",
            "site",
            "new",
            "mine",
            "--target",
        ]
        words += [
            self.rig.target,
            "--repository",
            self.directory,
            "--ceiling",
            "50 GB/s",
        ]
        self._do(*words, IOGAUGE_ROOT=str(self._origin))
        settings = self.site / "settings.yaml"
        short = settings.read_text().replace("phase_seconds: 2 s", "phase_seconds: 1 s")
        assert short != settings.read_text()
        # Spack and its sources are tried elsewhere: here the programs are those on PATH.
        assert "extras: {stack: mine}" in short
        short = short.replace("extras: {stack: mine}", "features: [fio]")
        settings.write_text(short)
        _commit(self.directory, f"{_GITLAB}/storage/mine.git")
        words = ["git", "clone", "-q", "--bare", str(self.directory), str(self.remote)]
        subprocess.run(words, check=True, timeout=600)
        for setting in ("receive.advertisePushOptions", "core.logAllRefUpdates"):
            words = ["git", "-C", str(self.remote), "config", setting, "true"]
            subprocess.run(words, check=True, timeout=600)
        hook = self.remote / "hooks" / "post-receive"
        hook.write_text(
            '#!/bin/sh\nenv | grep ^GIT_PUSH_OPTION_ >>"$GIT_DIR/options"\n'
        )
        hook.chmod(0o755)
        # As after the first night; packages from the network are not what is tried.
        self._do("./setup", "--fetch")
        _environment(self.directory / "iogauge")

    @property
    def site(self) -> Path:
        """The folder of the site."""
        return self.directory / "sites" / "mine"

    @property
    def _origin(self) -> Path:
        return self.directory.with_name("iogauge")

    @property
    def remote(self) -> Path:
        """The site's project in the GitLab; its file ``options`` holds the options of pushes."""
        return self.directory.with_name("mine.git")

    def merge(self, branch: str) -> None:
        """Merge a branch of the GitLab's project, as somebody who has read it."""
        words = ["git", "pull", "-q", "--no-edit", str(self.remote), branch]
        subprocess.run(words, cwd=self.directory, check=True, timeout=600)

    def a_day_passes(self) -> None:
        """Let everything in the history be a day older."""
        for file in (self.rig.home / "history").glob("*/*.jsonl"):
            lines = [json.loads(line) for line in file.read_text().splitlines()]
            for record in lines:
                before = datetime.fromisoformat(record["time"].rstrip("Z"))
                record["time"] = f"{(before - timedelta(days=1)).isoformat()}Z"
            file.write_text("".join(f"{json.dumps(record)}\n" for record in lines))

    def _do(self, *words: str | Path, **more: str) -> None:
        done = completed(
            words,
            cwd=self.directory if self.directory.exists() else self.rig.base,
            env=self.outside | more,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    @property
    def outside(self) -> dict[str, str]:
        """The environment of the runner: for git, the GitLab is the folder of iogauge."""
        return super().outside | {
            "GIT_CONFIG_COUNT": "2",
            "GIT_CONFIG_KEY_0": f"url.file://{self._origin}.insteadOf",
            "GIT_CONFIG_VALUE_0": f"{_GITLAB}/hpc/iogauge.git",
            "GIT_CONFIG_KEY_1": f"url.file://{self.remote}.pushInsteadOf",
            "GIT_CONFIG_VALUE_1": f"{_GITLAB}/storage/mine.git",
        }


@dataclass(frozen=True)
class Pipeline:
    """A pipeline that has ended."""

    rc: int
    out: str

    @property
    def jobs(self) -> dict[str, str]:
        """PASS or FAIL of each job, as gitlab-ci-local sums it up."""
        found = re.findall(r"^ (PASS|FAIL|WARN)\s+(.+?)\s*$", self.out, re.MULTILINE)
        return {name: word for word, name in found}


def expanded(text: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """An included file with its inputs put in, as GitLab does it before it looks at the jobs."""
    head, body = re.split(r"^---$", text, maxsplit=1, flags=re.MULTILINE)
    declared = yaml.safe_load(head)["spec"]["inputs"]
    values = {name: (d or {}).get("default") for name, d in declared.items()} | inputs
    missing = [name for name, value in values.items() if value is None]
    assert not missing and values.keys() == declared.keys(), (missing, values)

    def put(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: put(value) for key, value in node.items()}
        if isinstance(node, list):
            return [put(value) for value in node]
        if not isinstance(node, str):
            return node
        if whole := re.fullmatch(r"\$\[\[ inputs\.(\w+) \]\]", node):
            return values[whole[1]]
        return re.sub(r"\$\[\[ inputs\.(\w+) \]\]", lambda m: _word(values[m[1]]), node)

    found: dict[str, Any] = put(yaml.safe_load(body))
    return found


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
