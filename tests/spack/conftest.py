"""What the tests of recipes and environments share. Those that need Spack are skipped where there is none."""

import importlib
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from support import made_stack
from support.project import ROOT


def load_script(name):
    """A script of ci/ as a module."""
    sys.path.insert(0, str(ROOT / "ci"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(ROOT / "ci"))


@pytest.fixture(scope="session")
def facts():
    return load_script("stack_facts")


@pytest.fixture(scope="session")
def externals():
    return load_script("find_externals")


@pytest.fixture(scope="session")
def check_stack():
    return load_script("check_stack")


@pytest.fixture
def environment(tmp_path):
    """Make an environment whose programs are small scripts: `environment(mpi_told="…")` returns its folder."""
    return partial(made_stack.environment, tmp_path)


@pytest.fixture(scope="session")
def spack():
    """Run Spack: `spack("audit", ...)` returns the finished process, its two streams as one text."""
    program = shutil.which("spack")
    if program is None:
        pytest.skip("no spack on PATH; ci/install-spack brings it")

    def run(*arguments, check=True, timeout=600):
        # A program that the lint or the benchmarks put in front must not be Spack's Python.
        environment = {
            k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "SPACK_ENV")
        }
        done = subprocess.run(
            [program, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            env=environment,
            timeout=timeout,
            cwd=ROOT,
        )
        if check and done.returncode:
            raise AssertionError(
                f"spack {' '.join(map(str, arguments))}:\n{done.stdout}"
            )
        return done

    return run


@pytest.fixture(scope="session")
def builtin(spack):
    """Where Spack's own package repository is, in the state that the environments pin."""
    code = 'import spack.repo; print(spack.repo.PATH.get_repo("builtin").root)'
    done = spack("-e", ROOT / "environments/generic", "python", "-c", code, check=False)
    path = (
        Path(done.stdout.strip().splitlines()[-1])
        if done.stdout.strip()
        else Path("/nonexistent")
    )
    if done.returncode or not path.is_dir():
        pytest.skip("Spack's package repository cannot be reached from here")
    return path
