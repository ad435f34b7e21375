"""What can be said of recipes and environments without Spack."""

import ast
import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ROOT / "spack-repo/spack_repo/iogauge/packages"
ENVIRONMENTS = sorted(
    path.parent for path in (ROOT / "environments").glob("*/spack.yaml")
)
SEEDS = {
    "azure-cyclecloud",
    "oist-saion",
    "azure-managed-lustre",
    "kaust-shaheen2",
    "oracle-oci",
}
SEEDS |= {"rhel9", "ubuntu2404", "cray-ex"}  # examples
RECIPES = sorted(PACKAGES.glob("*/package.py"))


def name(path):
    return path.name if path.is_dir() else path.parent.name


def read(path):
    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize("path", RECIPES, ids=name)
def test_every_source_has_a_checksum(path):
    """A version has sha256, or tag and commit; a resource has a commit. A branch is no version."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not (
            isinstance(node, ast.Call)
            and getattr(node.func, "id", "") in ("version", "resource")
        ):
            continue
        keys = {keyword.arg: keyword.value for keyword in node.keywords}
        if name(path) == "iogauge_stack":
            continue  # it has no source
        assert "branch" not in keys
        checksum = keys.get("sha256") or keys.get("commit")
        assert checksum is not None, ast.unparse(node)
        assert re.fullmatch(r"[0-9a-f]{40}([0-9a-f]{24})?", checksum.value)


@pytest.mark.parametrize("path", [*ENVIRONMENTS, ROOT / "ci/repository"], ids=name)
def test_environment_is_of_one_kind(path):
    """Also the one that a site's own repository begins with."""
    text = (path / "spack.yaml").read_text()
    text = text.replace("../../iogauge/environments/", "../").replace(
        " LUSTRE", " +lustre"
    )
    spack = yaml.safe_load(text)["spack"]
    assert set(spack) - {"packages"} == {"include", "specs", "view"}
    scope, *others = spack["include"]
    assert scope == "../scope"
    for other in others:
        if other == {"path": "made-by-ci-find_externals.py", "prefer_modify": True}:
            assert "ci/find_externals.py" in text.partition("spack:")[0]
        elif other != {"path": "found", "optional": True, "prefer_modify": True}:
            assert (ROOT / "environments/os" / other).is_file(), other
    (spec,) = spack["specs"]
    assert re.match(r"iogauge-stack@2026\.2 [+~]lustre", spec), (
        "variants are written out"
    )
    assert spack["view"]["default"] == {"root": ".spack-env/view", "link": "run"}


@pytest.mark.parametrize("path", [p for p in ENVIRONMENTS if p.name in SEEDS], ids=name)
def test_site_names_its_mpi_and_compiler(path):
    spack = read(path / "spack.yaml")["spack"]
    packages = spack["packages"]
    assert packages["mpi"]["buildable"] is False
    assert packages[packages["mpi"]["require"]]["externals"][0]["prefix"].startswith(
        "/"
    )
    fragment = read(path / spack["include"][1])["packages"]
    compiler = (packages if "gcc" in packages else fragment)["gcc"]["externals"][0]
    assert set(compiler["extra_attributes"]["compilers"]) == {"c", "cxx", "fortran"}
    assert (
        (path / "spack.yaml")
        .read_text()
        .startswith("# Not verified on the real system")
    )


def test_pins_stand_in_one_place():
    repos = read(ROOT / "environments/scope/repos.yaml")["repos"]
    assert next(iter(repos)) == "iogauge", "nothing hides this repository's recipes"
    repos = repos["builtin"]
    assert re.fullmatch(r"v\d{4}\.\d\d\.\d+", repos["tag"])
    assert re.fullmatch(r"[0-9a-f]{40}", repos["commit"])
    installer = (ROOT / "ci/install-spack").read_text()
    assert re.search(r"^tag=v1\.\d+\.\d+ .*\noldest=1\.\d+ ", installer, re.MULTILINE)
    files = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout.split()
    assert files
    twice = [
        file
        for file in files
        if (ROOT / file).suffix in ("", ".yaml", ".yml", ".py", ".toml")
        and (ROOT / file).is_file()
        and file != "environments/scope/repos.yaml"
        and repos["commit"] in (ROOT / file).read_text(errors="replace")
    ]
    assert twice == []


def test_no_lock_of_a_system_that_was_only_pretended():
    """ci/concretize solves foreign systems here; such an answer is not one to install from."""
    tracked = subprocess.run(
        ["git", "ls-files", "environments"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ).stdout.split()
    assert [path for path in tracked if path.endswith("spack.lock")] == []


@pytest.mark.parametrize("path", RECIPES, ids=name)
def test_every_patch_is_upstreams_by_address_and_checksum(path):
    calls = [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
    ]
    for node in calls:
        if getattr(node.func, "id", "") == "patch":
            assert re.fullmatch(
                r"https://github\.com/\S+/commit/[0-9a-f]{40}\.patch\?full_index=1",
                node.args[0].value,
            )
            (checksum,) = [k.value.value for k in node.keywords if k.arg == "sha256"]
            assert re.fullmatch(r"[0-9a-f]{64}", checksum)
    assert not list(path.parent.glob("*.patch"))
