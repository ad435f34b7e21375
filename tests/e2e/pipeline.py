"""A site's project with its pipeline, and gitlab-ci-local from npm, which runs it on this machine."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

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


def gitlab_ci_local():
    """Words that start gitlab-ci-local. Skips where npm does not bring it."""
    folder = modules(PACKAGES)
    return [
        str(folder / "node/bin/node"),
        str(folder / "gitlab-ci-local/dist/index.js"),
    ]


def _suite(directory):
    """Copy this project without its tests, and its virtual environment as if ``ci/setup`` had made it there."""
    copied(directory, "tests", "docs")
    _environment(directory)


def _environment(directory):
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


def _commit(directory, remote):
    for words in (
        ["init", "-q", "-b", "main"],
        ["config", "user.name", "t"],
        ["config", "user.email", "t@example.invalid"],
        ["remote", "add", "origin", remote],
        ["add", "-A"],
        ["commit", "-q", "-m", "site"],
    ):
        completed(["git", *words], cwd=directory, check=True)


@dataclass
class SiteRepository:
    """A repository of the site ``mine`` as ``iogauge site new --repository`` writes it.

    Its pipeline fetches iogauge from a GitLab that is a folder here.
    """

    rig: Rig
    directory: Path
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self):
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
        lines = (
            "    extras: {stack: mine}\n",
            "darshan, fio, io500, ior, ior-mpiio, mdtest",
        )
        for line, instead in zip(lines, ("", "fio"), strict=True):
            assert line in short
            short = short.replace(line, instead)
        settings.write_text(short)
        _commit(self.directory, f"{_GITLAB}/storage/mine.git")
        # As after the first night; packages from the network are not what is tried.
        self._do("./setup", "--fetch")
        _environment(self.directory / "iogauge")

    @property
    def site(self):
        """The folder of the site."""
        return self.directory / "sites" / "mine"

    @property
    def _origin(self):
        return self.directory.with_name("iogauge")

    def _do(self, *words, **more):
        done = completed(
            words,
            cwd=self.directory if self.directory.exists() else self.rig.base,
            env=self.outside | more,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    @property
    def outside(self):
        """The environment of the runner: for git, the GitLab is the folder of iogauge."""
        environment = self.rig.environment(
            HOME=str(self.rig.base),
            IOGAUGE_HOME=str(self.rig.home),
            GIT_CONFIG_COUNT="1",
            GIT_CONFIG_KEY_0=f"url.file://{self._origin}.insteadOf",
            GIT_CONFIG_VALUE_0=f"{_GITLAB}/hpc/iogauge.git",
        )
        del environment["RFM_CONFIG_PATH"]
        return environment

    @property
    def out(self):
        """What the jobs leave as artifacts."""
        return self.directory / "iogauge-out"

    def run(self):
        """Run a scheduled pipeline to its end."""
        words = gitlab_ci_local()
        variables = {"CI_PIPELINE_SOURCE": "schedule", **self.variables}
        for name, value in variables.items():
            words += ["--variable", f"{name}={value}"]
        done = completed(
            [*words, "--ignore-predefined-vars=CI_PIPELINE_SOURCE"],
            cwd=self.directory,
            env=self.outside,
            stdin=subprocess.DEVNULL,
            timeout=240 * BUSY,
        )
        return Pipeline(done.returncode, _COLOURS.sub("", done.stdout + done.stderr))


@dataclass(frozen=True)
class Pipeline:
    """A pipeline that has ended."""

    rc: int
    out: str

    @property
    def jobs(self):
        """PASS or FAIL of each job, as gitlab-ci-local sums it up."""
        found = re.findall(r"^ (PASS|FAIL|WARN)\s+(.+?)\s*$", self.out, re.MULTILINE)
        return {name: word for word, name in found}


def expanded(text, inputs):
    """An included file with its inputs put in, as GitLab does it before it looks at the jobs."""
    head, body = re.split(r"^---$", text, maxsplit=1, flags=re.MULTILINE)
    declared = yaml.safe_load(head)["spec"]["inputs"]
    values = {name: (d or {}).get("default") for name, d in declared.items()} | inputs
    missing = [name for name, value in values.items() if value is None]
    assert not missing and values.keys() == declared.keys(), (missing, values)

    def put(node):
        if isinstance(node, dict):
            return {key: put(value) for key, value in node.items()}
        if isinstance(node, list):
            return [put(value) for value in node]
        if not isinstance(node, str):
            return node
        if whole := re.fullmatch(r"\$\[\[ inputs\.(\w+) \]\]", node):
            return values[whole[1]]
        return re.sub(r"\$\[\[ inputs\.(\w+) \]\]", lambda m: _word(values[m[1]]), node)

    found = put(yaml.safe_load(body))
    return found


def _word(value):
    return str(value).lower() if isinstance(value, bool) else str(value)
