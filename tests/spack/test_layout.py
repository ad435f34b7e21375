"""What can be said of recipes and environments without Spack."""

import ast
import re

import pytest

from support.project import ROOT

PACKAGES = ROOT / "spack-repo/spack_repo/iogauge/packages"
RECIPES = sorted(PACKAGES.glob("*/package.py"))


def name(path):
    return path.name if path.is_dir() else path.parent.name


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
