"""What only Spack can say of the recipes and environments. Skipped where there is no Spack.

The solves and installations are kept by Spack and by ci/concretize: the first run takes minutes.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = ROOT / "environments"
PACKAGES = ["ior", "io500", "darshan-runtime", "lustre", "fio", "iogauge-stack"]


def test_audit(spack, builtin):
    done = spack("-e", ENVIRONMENTS / "generic", "audit", "packages", *PACKAGES)
    assert len(re.findall(r"^PKG-\w+: passed", done.stdout, re.MULTILINE)) >= 3, done.stdout
    assert "issue" not in done.stdout


def test_what_is_offered_upstream_applies_to_builtin(builtin, tmp_path):
    """Also to another state of spack-packages: IOGAUGE_SPACK_DEVELOP=DIR names its clone."""
    repository = builtin.parents[2]
    packages = builtin.relative_to(repository) / "packages"
    source = Path(os.environ.get("IOGAUGE_SPACK_DEVELOP") or repository)
    for name in ("fio", "ior", "darshan_runtime"):
        shutil.copytree(source / packages / name, tmp_path / packages / name)
    for patch in sorted((ROOT / "spack-repo/upstream").iterdir()):
        done = subprocess.run(
            ["git", "apply", patch], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{patch.name}: {done.stderr}"
    for recipe in (tmp_path / packages).glob("*/package.py"):
        ast.parse(recipe.read_text())
    assert (tmp_path / packages / "io500/package.py").exists()
    in_spacks_style(repository, tmp_path)


def test_style_of_spacks_repository(builtin):
    in_spacks_style(builtin.parents[2], ROOT / "spack-repo")


def in_spacks_style(repository, recipes):
    """`spack style` refuses foreign repositories; these are its settings, in its repository's pyproject.toml."""
    ruff = shutil.which("ruff", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if ruff is None:
        pytest.skip("no ruff")
    settings = repository / "pyproject.toml"
    if not settings.exists():
        pytest.skip("this copy of the package repository has no settings for ruff")
    rules = ["--select", "E,F,I,W", "--ignore", "E731,F403,F811"]
    options = ["--config", settings, recipes]
    for command in (
        [ruff, "check", "--no-fix", *rules, *options],
        [ruff, "format", "--diff", *options],
    ):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 0, done.stdout


def test_this_repositorys_recipes_come_first(spack, builtin):
    code = "import spack.repo; print(*(r.namespace for r in spack.repo.PATH.repos))"
    done = spack("-e", ENVIRONMENTS / "generic", "python", "-c", code)
    assert done.stdout.split()[:2] == ["iogauge", "builtin"]


def test_users_own_settings_stay_out(spack):
    done = spack("-e", ENVIRONMENTS / "generic", "config", "scopes", "-vp")
    states = {line.split()[0]: line for line in done.stdout.splitlines()[1:] if line.strip()}
    # With SPACK_DISABLE_LOCAL_CONFIG, as .iogauge/spack.sh sets it, these two are not there at all.
    for scope in ("user", "system"):
        assert scope not in states or "override" in states[scope]
    assert "override" in states["site"]


def test_two_clones_are_built_apart(spack, tmp_path):
    """In one folder, a build waits for the other clone's package of the same hash, and fails after a minute."""
    stages = []
    for clone in (tmp_path / "one", tmp_path / "other"):
        shutil.copytree(ENVIRONMENTS / "generic", clone / "environments/generic", symlinks=True)
        for link in ("spack-repo", "environments/common"):
            (clone / link).symlink_to(ROOT / link)
        done = spack("-e", clone / "environments/generic", "location", "--stages")
        stages.append(Path(done.stdout.strip().splitlines()[-1]))
    assert len(set(stages)) == 2
    assert not any(one in other.parents for one in stages for other in stages), stages


def test_unprepared_machine_is_refused_with_the_command(spack, tmp_path):
    """Spack writes neither into files of git nor another MPI's solve where externals are not known."""
    copy = tmp_path / "environments"
    keep_out = shutil.ignore_patterns(".spack-env", "spack.lock", "found", "user")
    shutil.copytree(ENVIRONMENTS, copy, ignore=keep_out)
    (copy / "local/packages.yaml").unlink(missing_ok=True)
    (tmp_path / "spack-repo").symlink_to(ROOT / "spack-repo")
    done = spack("-e", copy / "local", "concretize", check=False)
    assert done.returncode
    assert "run ci/find_externals.py first" in done.stdout
    assert (copy / "local/spack.yaml").read_text() == (
        ENVIRONMENTS / "local/spack.yaml"
    ).read_text()


def test_another_machine_than_the_sites_is_refused_before_the_solve(spack, tmp_path):
    """Without the compiler Spack would search for minutes, and say only that nothing provides C."""
    (tmp_path / "environments/site").mkdir(parents=True)
    for link in ("spack-repo", "environments/common"):
        (tmp_path / link).symlink_to(ROOT / link)
    site = tmp_path / "environments/site"
    shutil.copy(ENVIRONMENTS / "kaust-shaheen2/spack.yaml", site)
    text = (ENVIRONMENTS / "kaust-shaheen2/packages.yaml").read_text()
    (site / "packages.yaml").write_text(text.replace("/opt/cray", str(tmp_path)))
    done = spack("-e", site, "config", "get", "repos", check=False)
    assert done.returncode
    prefix = f"{tmp_path}/pe/mpt/7.7.18/gni/mpich-gnu/8.2"
    assert f"{prefix}/ is missing: ci/check_stack.py --before environments/kaust" in done.stdout
    # With all that it names, it goes on.
    Path(prefix).mkdir(parents=True)
    text = (site / "packages.yaml").read_text().replace("/opt/gcc/10.3.0", str(tmp_path))
    (site / "packages.yaml").write_text(text)
    done = spack("-e", site, "config", "get", "repos")
    assert "spack-repo/spack_repo/iogauge" in done.stdout


@pytest.mark.nightly(
    "spack/test_spack.py::test_every_environment_concretizes_and_all_agree",
)
@pytest.mark.slow
def test_a_compiler_that_spack_finds_is_not_written_into_the_environment(spack, builtin, tmp_path):
    copy = tmp_path / "environments"
    keep_out = shutil.ignore_patterns(".spack-env", "spack.lock", "found", "user")
    shutil.copytree(ENVIRONMENTS, copy, ignore=keep_out)
    (tmp_path / "spack-repo").symlink_to(ROOT / "spack-repo")
    manifest = copy / "generic/spack.yaml"
    # One small package needs a compiler too, and is solved in seconds.
    kept, changed = re.subn(r"- iogauge-stack@.*", "- zlib", manifest.read_text())
    assert changed == 1
    manifest.write_text(kept)
    spack("-e", manifest.parent, "concretize")
    assert manifest.read_text() == kept
    assert "gcc@" in (copy / "generic/found/packages.yaml").read_text()


@pytest.mark.slow
def test_every_environment_concretizes_and_all_agree(spack, builtin, tmp_path):
    done = subprocess.run(
        [ROOT / "ci/concretize"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 0, done.stdout
    solved = re.findall(r"^concretize: (\S+): (?:solved|as before)", done.stdout, re.MULTILINE)
    assert solved == sorted(path.parent.name for path in ENVIRONMENTS.glob("*/spack.yaml"))
    cache = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
    locks = Path(os.environ.get("IOGAUGE_LOCKS", f"{cache}/iogauge/locks"))
    command = [ROOT / "ci/compare_stacks.py", *(locks / f"{site}.lock" for site in solved)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    assert "chosen: ior lustre" in done.stdout


@pytest.fixture(scope="module")
def stack(spack, builtin, tmp_path_factory):
    """environments/local, installed in a copy: from what Spack has already, or from its mirror of sources."""
    work = tmp_path_factory.mktemp("stack")
    (work / "environments/local").mkdir(parents=True)
    for link, target in (
        ("spack-repo", "spack-repo"),
        ("environments/common", "environments/common"),
    ):
        (work / link).symlink_to(ROOT / target)
    if (ENVIRONMENTS / "user").exists():
        (work / "environments/user").symlink_to(ENVIRONMENTS / "user")
    folder = work / "environments/local"
    shutil.copy(ENVIRONMENTS / "local/spack.yaml", folder)
    subprocess.run(
        [ROOT / "ci/find_externals.py", "-o", folder / "packages.yaml"],
        check=True,
        stderr=subprocess.DEVNULL,
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
    states = re.findall(r"^check_stack: (\S+)  ", done.stdout, re.MULTILINE)
    assert states.count("ok") == 13, done.stdout
    facts = json.loads((stack / ".spack-env/stack.json").read_text())
    assert facts["packages"]["ior"]["version"] == "4.0.0"


@pytest.mark.slow
def test_a_wrong_external_is_caught(stack):
    """The MPI that was declared is not the one at its prefix."""
    lock = (stack / "spack.lock").read_text()
    data = json.loads(lock)
    (mpi,) = [
        spec for spec in data["concrete_specs"].values() if spec["name"] in ("openmpi", "mpich")
    ]
    declared, mpi["version"] = mpi["version"], "99.1"
    try:
        (stack / "spack.lock").write_text(json.dumps(data))
        done = subprocess.run(
            [ROOT / "ci/check_stack.py", stack],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    finally:
        (stack / "spack.lock").write_text(lock)
    assert done.returncode == 1
    assert f"is {mpi['name']} {declared}, but packages.yaml declares 99.1" in done.stdout


@pytest.mark.nightly(
    "spack/test_spack.py::test_what_was_built_is_what_was_promised",
    "spack/test_spack.py::test_audit",
)
@pytest.mark.slow
def test_stand_alone_tests(spack, stack):
    done = spack("-e", stack, "test", "run", "ior", "io500", "fio", "darshan-runtime", check=False)
    assert re.search(r"4 passed of 4 specs", done.stdout), done.stdout[-4000:]


@pytest.mark.parametrize(
    ("told", "files", "found"),
    [
        ("2.14.0_ddn149", ["include/lustre/lustreapi.h", "lib64/liblustreapi.so"], "lustre@2.14.0"),
        ("2.15.8", ["lib64/liblustreapi.so"], None),
        ("2.15.8", [], None),
    ],
)
def test_only_a_client_that_can_be_built_on_is_found(spack, builtin, tmp_path, told, files, found):
    (tmp_path / "client/bin").mkdir(parents=True)
    lfs = tmp_path / "client/bin/lfs"
    lfs.write_text(f"#!/bin/sh\necho lfs {told}\n")
    lfs.chmod(0o755)
    for file in files:
        path = tmp_path / "client" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for name in ("environments/here", "environments/user"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "spack-repo").symlink_to(ROOT / "spack-repo")
    (tmp_path / "environments/common").symlink_to(ENVIRONMENTS / "common")
    manifest = tmp_path / "environments/here/spack.yaml"
    text = (
        (ENVIRONMENTS / "generic/spack.yaml")
        .read_text()
        .replace("path: packages.yaml", "path: none.yaml")
    )
    manifest.write_text(
        text.replace("IOGAUGE_SPACK_PACKAGES\n", "IOGAUGE_SPACK_PACKAGES\n      optional: true\n")
    )
    kept = manifest.read_text()
    done = spack("-e", manifest.parent, "external", "find", "--path", lfs.parent, "lustre")
    # What Spack writes by itself goes into found/, never into the file that git keeps.
    written = manifest.parent / "found/packages.yaml"
    added = re.findall(r"spec: (lustre@\S+)", written.read_text() if written.exists() else "")
    assert manifest.read_text() == kept
    assert added == ([found] if found else []), done.stdout
    # builtin's recipe looks too and finds less: that is no advice to somebody whose client is complete.
    assert ("lustre-client-devel" in done.stdout) == (not found), done.stdout
