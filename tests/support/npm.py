"""Programs and scripts from npm that tests need, installed once into the user's cache."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.shell import completed


def modules(packages):
    """Return the folder ``node_modules`` with packages by their versions. Skips where npm does not bring them."""
    first = next(iter(packages))
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip(f"no npm on PATH, which brings {first}")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "iogauge" / "-".join((first, *packages.values()))
    if not (folder / "ready").exists():
        folder.mkdir(parents=True, exist_ok=True)
        data = {"private": True, "dependencies": dict(packages)}
        (folder / "package.json").write_text(json.dumps(data))
        words = [npm, "install", "--no-fund", "--no-audit", "--silent"]
        try:
            done = completed(words, cwd=folder)
        except subprocess.TimeoutExpired:
            pytest.skip(f"npm did not bring {first} within five minutes")
        if done.returncode != 0:
            pytest.skip(f"npm does not bring {first}: {done.stderr.strip()[-300:]}")
        (folder / "ready").touch()
    return folder / "node_modules"
