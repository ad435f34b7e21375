"""What only Spack can say of the recipes and environments. Skipped where there is no Spack.

The solves and installations are kept by Spack and by ci/concretize: the first run takes minutes.
"""

import json
import re
import shutil
import subprocess

import pytest

from support.project import ROOT
from support.shell import completed, script

pytestmark = pytest.mark.slow

ENVIRONMENTS = ROOT / "environments"
PACKAGES = ["ior", "io500", "darshan-runtime", "lustre", "fio", "iogauge-stack"]


def test_audit(spack, builtin):
    done = spack("-e", ENVIRONMENTS / "generic", "audit", "packages", *PACKAGES)
    assert len(re.findall(r"^PKG-\w+: passed", done.stdout, re.MULTILINE)) >= 3, (
        done.stdout
    )
    assert "issue" not in done.stdout


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
    "told, files, found",
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
