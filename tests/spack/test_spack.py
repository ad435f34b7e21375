"""What only Spack can say of the recipes and environments. Skipped where there is no Spack.

The solves and installations are kept by Spack and by ci/concretize: the first run takes minutes.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.shell import completed, script

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = ROOT / "environments"
PACKAGES = ["ior", "io500", "darshan-runtime", "lustre", "fio", "iogauge-stack"]


def test_audit(spack, builtin):
    done = spack("-e", ENVIRONMENTS / "generic", "audit", "packages", *PACKAGES)
    assert len(re.findall(r"^PKG-\w+: passed", done.stdout, re.MULTILINE)) >= 3, (
        done.stdout
    )
    assert "issue" not in done.stdout


def test_style_of_spacks_repository(builtin):
    """`spack style` refuses foreign repositories; these are its settings, in its repository's pyproject.toml."""
    ruff = shutil.which(
        "ruff", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    )
    if ruff is None:
        pytest.skip("no ruff")
    settings = builtin.parents[2] / "pyproject.toml"
    if not settings.exists():
        pytest.skip("this copy of the package repository has no settings for ruff")
    rules = ["--select", "E,F,I,W", "--ignore", "E731,F403,F811"]
    options = ["--config", settings, ROOT / "spack-repo"]
    for command in (
        [ruff, "check", "--no-fix", *rules, *options],
        [ruff, "format", "--diff", *options],
    ):
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert done.returncode == 0, done.stdout


def test_this_repositorys_recipes_come_first(spack, builtin):
    code = "import spack.repo; print(*(r.namespace for r in spack.repo.PATH.repos))"
    done = spack("-e", ENVIRONMENTS / "generic", "python", "-c", code)
    assert done.stdout.split()[:2] == ["iogauge", "builtin"]


def copy_of(tmp_path, site):
    """A copy of an environment, with what it includes: nothing is written beside the original."""
    for name in ("scope", "os", site):
        keep_out = shutil.ignore_patterns(
            ".spack-env", "spack.lock", "found", "made-by-*"
        )
        shutil.copytree(
            ENVIRONMENTS / name, tmp_path / "environments" / name, ignore=keep_out
        )
    (tmp_path / "spack-repo").symlink_to(ROOT / "spack-repo")
    return tmp_path / "environments" / site


def test_a_sites_own_scopes_count(spack, tmp_path):
    """As everywhere in Spack; what they change of the programs is told after the solve."""
    done = spack("-e", copy_of(tmp_path, "generic"), "config", "scopes", "-vp")
    states = {
        line.split()[0]: line for line in done.stdout.splitlines()[1:] if line.strip()
    }
    # With SPACK_DISABLE_LOCAL_CONFIG these two are not there at all.
    for scope in ("site", "user", "system"):
        assert scope not in states or "active" in states[scope]


def test_another_machine_than_the_sites_is_refused_before_the_solve(spack, tmp_path):
    """Without the compiler Spack would search for minutes, and say only that nothing provides C."""
    site = copy_of(tmp_path, "kaust-shaheen2")
    command = [ROOT / "ci/check_stack.py", "--before", site]
    done = completed(command)
    assert done.returncode == 1
    assert "gcc@10.3.0: its prefix /opt/gcc/10.3.0 does not exist" in done.stderr
    assert "cray-mpich@7.7.18: its prefix /opt/cray/pe/mpt" in done.stderr


def test_without_the_search_spack_ends_at_once_and_names_it(spack, tmp_path):
    """A solve would find no MPI, and build one that knows neither fabric nor scheduler."""
    done = spack("-e", copy_of(tmp_path, "local"), "install", check=False)
    assert done.returncode
    assert "Required path (made-by-ci-find_externals.py) does not exist" in done.stdout
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.nightly
@pytest.mark.slow
def test_a_compiler_that_spack_finds_is_not_written_into_the_environment(
    spack, builtin, tmp_path
):
    manifest = copy_of(tmp_path, "generic") / "spack.yaml"
    # One small package needs a compiler too, and is solved in seconds.
    kept, changed = re.subn(r"specs: .*", "specs: [zlib]", manifest.read_text())
    assert changed == 1
    manifest.write_text(kept)
    spack("-e", manifest.parent, "concretize")
    assert manifest.read_text() == kept
    assert "gcc@" in (manifest.parent / "found/packages.yaml").read_text()


@pytest.mark.slow
def test_every_environment_concretizes_and_all_agree(spack, builtin, tmp_path):
    done = subprocess.run(
        [ROOT / "ci/concretize"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    solved = re.findall(r"^concretize: (\S+): solved", done.stdout, re.MULTILINE)
    assert solved == sorted(
        path.parent.name for path in ENVIRONMENTS.glob("*/spack.yaml")
    )
    assert done.stdout.count(" agrees ") == len(solved)


@pytest.fixture(scope="module")
def stack(spack, builtin, tmp_path_factory):
    """environments/local, installed in a copy: from what Spack has already, or from its mirror of sources."""
    work = tmp_path_factory.mktemp("stack")
    folder = copy_of(work, "local")
    subprocess.run(
        [ROOT / "ci/find_externals.py", folder], check=True, stdout=subprocess.DEVNULL
    )
    done = spack("-e", folder, "install", check=False, timeout=1200)
    if done.returncode and "All fetchers failed" in done.stdout:
        pytest.skip("no mirror with the sources, and no network to fetch them")
    assert done.returncode == 0, done.stdout[-3000:]
    return folder


@pytest.mark.slow
def test_what_was_built_is_what_was_promised(stack):
    done = subprocess.run(
        [ROOT / "ci/check_stack.py", stack],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("check_stack: ok  ") == 2, done.stdout
    assert " agrees " in done.stdout
    facts = json.loads((stack / ".spack-env/stack.json").read_text())
    assert facts["packages"]["ior"]["version"] == "4.0.0"


@pytest.mark.nightly
@pytest.mark.slow
def test_stand_alone_tests(spack, stack):
    done = spack(
        "-e",
        stack,
        "test",
        "run",
        "ior",
        "io500",
        "fio",
        "darshan-runtime",
        check=False,
    )
    assert re.search(r"4 passed of 4 specs", done.stdout), done.stdout[-4000:]


@pytest.mark.parametrize(
    ("told", "files", "found"),
    [
        (
            "2.14.0_ddn149",
            ["include/lustre/lustreapi.h", "lib64/liblustreapi.so"],
            "lustre@2.14.0",
        ),
        ("2.15.8", ["lib64/liblustreapi.so"], None),
        ("2.15.8", [], None),
    ],
)
def test_only_a_client_that_can_be_built_on_is_found(
    spack, builtin, tmp_path, told, files, found
):
    lfs = script(tmp_path / "client/bin/lfs", f"#!/bin/sh\necho lfs {told}\n")
    for file in files:
        path = tmp_path / "client" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    manifest = copy_of(tmp_path, "generic") / "spack.yaml"
    kept = manifest.read_text()
    done = spack(
        "-e", manifest.parent, "external", "find", "--path", lfs.parent, "lustre"
    )
    # What Spack writes by itself goes into found/, never into the file that git keeps.
    written = manifest.parent / "found/packages.yaml"
    added = re.findall(
        r"spec: (lustre@\S+)", written.read_text() if written.exists() else ""
    )
    assert manifest.read_text() == kept
    assert added == ([found] if found else []), done.stdout
    # builtin's recipe looks too and finds less: that is no advice to somebody whose client is complete.
    assert ("lustre-client-devel" in done.stdout) == (not found), done.stdout


@pytest.mark.slow
def test_a_wrong_external_is_caught(stack):
    """The MPI that was declared is not the one at its prefix."""
    lock = (stack / "spack.lock").read_text()
    data = json.loads(lock)
    (mpi,) = [
        spec
        for spec in data["concrete_specs"].values()
        if spec["name"] in ("openmpi", "mpich")
    ]
    declared, mpi["version"] = mpi["version"], "99.1"
    try:
        (stack / "spack.lock").write_text(json.dumps(data))
        done = completed([str(ROOT / "ci/check_stack.py"), str(stack)])
    finally:
        (stack / "spack.lock").write_text(lock)
    assert done.returncode == 1
    assert (
        f"is {mpi['name']} {declared}, but {mpi['name']} 99.1 is declared"
        in done.stdout + done.stderr
    )
