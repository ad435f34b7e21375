"""The root scripts: ci/setup, ci/stack, ci/lint, activate, Makefile, lock files. No test needs a network.

Each runs the real script in a small copy of the project, with a PATH that holds only what the test puts
there: stubs of the benchmark programs, and links to the handful of system tools that the scripts call.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.project import ROOT
from support.shell import completed, script

_NAMES = (
    "awk basename bash cat cp cut dirname env flock grep head id ldd "
    "mkdir mv paste printf readlink rm sed sha256sum sleep sort tail touch tr"
)
TOOLS = _NAMES.split()
OPEN_MPI = 'echo "mpirun (Open MPI) 5.0.11"'
HYDRA = 'echo "HYDRA build details:"'


def stub(path, body="exit 0"):
    """An executable shell script."""
    return script(path, f"#!/bin/sh\n{body}\n")


class Project:
    """A copy of the project's root scripts, and a PATH of its own."""

    def __init__(self, directory):
        self.root = directory / "project"
        self.root.mkdir()
        for name in ("ci", "requirements"):
            shutil.copytree(ROOT / name, self.root / name)
        for name in ("activate", "Makefile"):
            shutil.copy2(ROOT / name, self.root / name)
        (self.root / "reframe").mkdir()
        shutil.copy2(
            ROOT / "reframe/pyproject.toml", self.root / "reframe/pyproject.toml"
        )
        self.bin = directory / "bin"
        self.bin.mkdir()
        self.tools = directory / "tools"
        self.tools.mkdir()
        for name in TOOLS:
            found = shutil.which(name, path="/usr/bin:/bin")
            assert found is not None, f"{name} is not installed"
            (self.tools / name).symlink_to(found)
        self.home = self.root / ".iogauge"

    def run(self, *command, path=None, env=None):
        """Run a command in the project with stubs (or ``path``) and system tools on PATH."""
        front = [self.bin] if path is None else path
        return completed(
            command,
            cwd=self.root,
            env={
                "PATH": os.pathsep.join(map(str, [*front, self.tools])),
                "HOME": str(self.root),
                "LC_ALL": "C",
                **(env or {}),
            },
            stdin=subprocess.DEVNULL,
        )

    def stack(self, *arguments, **kwargs):
        """Run ci/stack."""
        return self.run("bash", "ci/stack", *arguments, **kwargs)

    def decision(self):
        """The variables that stack.env sets."""
        done = self.run(
            "bash", "-c", 'set -a; . "$1"; env', "-", str(self.home / "stack.env")
        )
        return dict(
            line.split("=", 1) for line in done.stdout.splitlines() if "=" in line
        )

    def linked_with(self, library):
        """Let ldd say that every program is linked with ``library`` (a path, or a name not found)."""
        name = Path(library).name
        arrow = f"{library} (0x00007f)" if library.startswith("/") else "not found"
        stub(
            self.bin / "ldd",
            f"printf '\\tlibc.so.6 => /lib/libc.so.6\\n\\t{name} => {arrow}\\n'",
        )

    def make_ready(self):
        """Let .venv look as ci/setup leaves it."""
        stub(self.root / ".venv/bin/python")
        (self.root / ".venv/.iogauge").touch()
        for part in ("runtime", "dev"):
            content = f"{self.root / '.venv'}\n".encode()
            content += (self.root / f"requirements/{part}.lock").read_bytes()
            content += (self.root / "reframe/pyproject.toml").read_bytes()
            (self.root / f".venv/.iogauge-{part}").write_text(
                hashlib.sha256(content).hexdigest()
            )


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


def listed(output):
    """The programs that ci/stack lists, with their paths."""
    return dict(re.findall(r"^  (ior|mdtest|fio|mpirun) +(.*)$", output, re.MULTILINE))


# ----- ci/stack -------------------------------------------------------------------------------------


def test_stack_prefers_what_the_user_names_then_spack_then_path(project):
    prefix = project.root / "my prefix"
    view = project.root / "environments/local/.spack-env/view"
    stub(prefix / "bin/ior")
    for name in ("ior", "mdtest"):
        stub(view / "bin" / name)
    for name in ("ior", "mdtest", "fio"):
        stub(project.bin / name)
    stub(project.bin / "mpirun", OPEN_MPI)

    done = project.stack(env={"IOGAUGE_STACK": str(prefix)})
    programs = listed(done.stdout)
    assert programs["ior"] == str(prefix / "bin/ior")
    assert programs["mdtest"] == str(view / "bin/mdtest")
    assert programs["fio"] == str(project.bin / "fio")
    assert project.decision()["IOGAUGE_STACK_NAME"] == f"IOGAUGE_STACK={prefix}"
    assert project.decision()["IOGAUGE_STACK_PATH"] == f"{prefix}/bin:{view}/bin"

    done = project.stack()
    assert listed(done.stdout)["ior"] == str(view / "bin/ior")
    assert (
        project.decision()["IOGAUGE_STACK_NAME"]
        == "Spack environment environments/local"
    )


def site_settings(project, *stacks):
    """Let .venv's Python say that the settings of this site name some stacks."""
    project.make_ready()
    for name in stacks:
        (project.root / f"environments/{name}").mkdir(parents=True, exist_ok=True)
        (project.root / f"environments/{name}/spack.yaml").touch()
    stub(project.root / ".venv/bin/python", f"printf '%s\\n' {' '.join(stacks)}")


def test_stack_is_that_of_the_site(project):
    """The environment that the site's settings name comes before environments/local, and is asked for."""
    site_settings(project, "mysite", "mysite-gpu")
    for name in ("ior", "mdtest", "fio"):
        stub(project.bin / name)
        stub(project.root / "environments/local/.spack-env/view/bin" / name)
    stub(project.bin / "mpirun", OPEN_MPI)
    said = project.stack().stdout
    assert project.decision()["IOGAUGE_STACK_NAME"] == "programs on PATH"
    assert (
        "environments/mysite is what this site measures with, and is not installed: ci/build-stack"
        in said
    )

    view = project.root / "environments/mysite/.spack-env/view/bin"
    for name in ("ior", "mdtest", "fio"):
        stub(view / name)
    said = project.stack().stdout
    assert listed(said)["ior"] == str(view / "ior")
    assert "not installed" not in said
    assert (
        project.decision()["IOGAUGE_STACK_NAME"]
        == "Spack environment environments/mysite"
    )


def test_stack_takes_the_launcher_beside_the_library(project, tmp_path):
    """Another MPI comes first on PATH; ior's own is in the prefix of its library."""
    right, wrong = tmp_path / "openmpi", tmp_path / "other"
    stub(right / "bin/mpirun", OPEN_MPI)
    stub(wrong / "bin/mpirun", HYDRA)
    (right / "lib").mkdir()
    for name in ("ior", "mdtest", "fio"):
        stub(project.bin / name)
    project.linked_with(str(right / "lib/libmpi.so.40"))

    done = project.stack(path=[wrong / "bin", project.bin])
    assert listed(done.stdout)["mpirun"] == str(right / "bin/mpirun")
    assert (
        f"{wrong}/bin/mpirun comes first, but {project.bin}/ior is linked with"
        in done.stdout
    )
    assert project.decision()["IOGAUGE_STACK_PATH"] == f"{right}/bin"

    done = project.stack(path=[right / "bin", project.bin])
    assert "comes first" not in done.stdout


def test_setup_refuses_a_path_that_no_job_script_can_hold(project):
    """At once, and not at the first run: ReFrame and job scripts would split the path."""
    odd = project.root.with_name("pro ject")
    project.root.rename(odd)
    project.root = odd
    done = project.run("bash", "ci/setup")
    assert done.returncode == 1
    assert (
        f"the path {odd}/.iogauge holds ' '" in done.stderr
        and "IOGAUGE_HOME" in done.stderr
    )
    assert not (odd / ".iogauge").exists() and not (odd / ".venv").exists()


# ----- activate -------------------------------------------------------------------------------------

SHELLS = [
    pytest.param(
        shell,
        marks=pytest.mark.skipif(not shutil.which(shell), reason=f"no {shell} here"),
    )
    for shell in ("bash", "dash", "zsh")
]


def activate(project, shell, lines):
    """Run a script in a shell that stands elsewhere; ``$A`` is the file to source."""
    found = shutil.which(shell)
    assert found is not None
    flags = ["-f"] if shell == "zsh" else []
    env = {"A": str(project.root / "activate"), "PYTHONHOME": "/set/by/a/module"}
    return project.run(found, *flags, "-c", f"cd /\n{lines}", env=env)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("options", ["", "set -eu"])
def test_activate_sets_the_variables_and_is_idempotent(project, shell, options):
    project.make_ready()
    stub(project.bin / "fio")
    prefix = project.root / "stack"
    stub(prefix / "bin/ior")
    assert project.stack(env={"IOGAUGE_STACK": str(prefix)}).returncode == 0
    done = activate(
        project,
        shell,
        f'{options}\n. "$A"\necho "$PATH"\n. "$A"\n. "$A"\necho "$PATH"\nenv',
    )
    assert done.returncode == 0, done.stderr
    once, again, *environment = done.stdout.splitlines()
    assert once == again
    assert once.startswith(f"{project.root}/.venv/bin:{prefix}/bin:{project.bin}:")
    assert f"IOGAUGE_ROOT={project.root}" in environment
    assert not [line for line in environment if line.startswith("PYTHONHOME=")]
    assert f"RFM_CONFIG_PATH={project.root}/site-configs" in environment


@pytest.mark.parametrize("shell", SHELLS)
def test_activate_without_setup_says_what_to_run(project, shell):
    done = activate(
        project,
        shell,
        'before=$PATH; . "$A"; echo "$?"; [ "$PATH" = "$before" ] && echo same',
    )
    assert done.stdout.split() == ["1", "same"]
    assert "run: make setup" in done.stderr


# ----- ci/setup -------------------------------------------------------------------------------------


def setup(project, *arguments, **env):
    """Run ci/setup."""
    return project.run("bash", "ci/setup", *arguments, env=env)


def test_setup_does_nothing_when_ready(project):
    project.make_ready()
    done = setup(project, "--dev")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_setup_refuses_an_old_python(project):
    stub(project.bin / "python3", '[ "$1" = --version ] && echo "Python 3.9.2"; exit 1')
    done = setup(project)
    assert done.returncode == 1
    assert "no Python 3.10 or newer on PATH (python3 is: Python 3.9.2)" in done.stderr
    assert "PYTHON=" in done.stderr
    done = setup(project, PYTHON="python3")
    assert "PYTHON=python3 is Python 3.9.2; needed: Python 3.10 or newer" in done.stderr


def test_setup_leaves_a_venv_of_somebody_else_alone(project):
    (project.bin / "python3").symlink_to(sys.executable)
    theirs = project.root / ".venv/theirs"
    theirs.parent.mkdir()
    theirs.touch()
    done = setup(project)
    assert done.returncode == 1
    assert "was not made by ci/setup" in done.stderr
    assert theirs.exists()


@pytest.mark.slow
def test_setup_without_network_names_the_other_way(project):
    stub(project.bin / "python3", f'exec "{sys.executable}" "$@"')
    closed = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0"}
    done = setup(project, **closed)
    assert done.returncode == 1
    assert "127.0.0.1" in done.stderr, "what was not reached is named"
    assert "PIP_NO_INDEX=1 PIP_FIND_LINKS=DIR ci/setup" in done.stderr
    assert not (project.root / ".venv/.iogauge-runtime").exists(), (
        "half made is not ready"
    )


# ----- ci/bring -------------------------------------------------------------------------------------


def bring(project, *arguments, **variables):
    """Run ci/bring, whose Spack is not reached, where no package manager is but what the test puts there."""
    build = project.root / "ci/build-stack"
    stub(build, "echo 'install-spack: not reached: https://github.com/spack'; exit 1")
    stub(project.bin / "mpicc")
    stub(project.bin / "id", "echo 1000")
    return project.run("bash", "ci/bring", *arguments, env=variables)


def test_nothing_is_brought_where_nothing_is_missing_or_it_is_forbidden(project):
    stub(project.bin / "fio")
    done = bring(project, IOGAUGE_BUILD="no")
    assert done.returncode == 0 and "tried" not in done.stdout
    for name in ("ior", "mdtest", "mpirun"):
        stub(project.bin / name)
    done = bring(project)
    assert done.returncode == 0 and done.stdout.startswith("stack: programs on PATH")


def test_an_error_names_each_way_that_was_tried(project):
    done = bring(project)
    assert done.returncode == 1
    assert "tried: Spack: install-spack: not reached: https://github.com" in done.stdout
    assert "tried: packages: neither apt, dnf nor zypper is here" in done.stdout
    stub(project.bin / "fio")
    done = bring(project)
    assert done.returncode == 0, "what is there is measured"
    assert "missing: ior: ci/bring" in done.stdout


# ----- lock files, Makefile, layout -----------------------------------------------------------------
