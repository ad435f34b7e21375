"""For all tests: depth of the properties, order and sharing of the work, signals that reach what is started."""

import functools
import gc
import os
import shutil
import signal

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from support.depth import FULL
from support.project import ROOT

# readline, which pytest imports, tells all workers the size of a terminal that is not there.
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)

# An MPI looks at every device of the machine when it starts. No test measures what it finds there.
if not FULL:
    os.environ.setdefault("HWLOC_COMPONENTS", "-pci,-linuxio,-gl,-opencl,-nvml")


#: Programs by the marks of the tests that need them.
_NEEDS = {"needs_fio": ("fio",), "needs_ior": ("ior", "mdtest", "mpirun")}

# A busy machine makes no property fail. By default the examples are the same in every run: what fails, fails again.
settings.register_profile(
    "ci",
    max_examples=20,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile(
    "nightly", settings.get_profile("ci"), max_examples=300, derandomize=False
)
settings.load_profile("nightly" if FULL else "ci")

# What a caller ignores (nohup, a shell's background) must reach what the tests start and signal.
for _number in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)


@functools.cache
def _shares_a_fixture(file):
    """Whether the tests of a module share a run, a cluster or another thing that is made once."""
    return 'scope="module"' in (ROOT / file).read_text()


@functools.cache
def _is_quick(file):
    """Whether a module of unit tests has no slow test. Slow tests wait, and should wait at the same time."""
    return "/unit/" in file and "mark.slow" not in (ROOT / file).read_text()


class _ByModuleThatShares(LoadScopeScheduling):
    """Gives each worker the next test, and a module as a whole if its tests share a fixture or what they have read."""

    def _split_scope(self, nodeid):
        file = nodeid.partition("::")[0]
        return file if _is_quick(file) or _shares_a_fixture(file) else nodeid


def pytest_configure():
    gc.disable()


def pytest_collection_finish():
    """What was collected stays: no later search for garbage need look at it."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    config.option.loadscopereorder = False
    return _ByModuleThatShares(config, log)


def _cheapness(item):
    file = item.nodeid.partition("::")[0]
    if "/e2e/" in file and _shares_a_fixture(file):
        return 0
    if item.get_closest_marker("slow"):
        return 1
    return 2 if "/e2e/" in file else 3


@functools.cache
def _missing(marker):
    """Return the programs that a mark demands and that are not on PATH."""
    return ", ".join(name for name in _NEEDS[marker] if shutil.which(name) is None)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Put what takes long first: at the end of a run no worker waits for the last. Skip what needs a missing program."""
    items.sort(key=_cheapness)
    for item in items:
        for marker in _NEEDS:
            if item.get_closest_marker(marker) and (missing := _missing(marker)):
                item.add_marker(pytest.mark.skip(reason=f"not on PATH: {missing}"))
        if "/e2e/" in item.nodeid:
            item.add_marker("e2e")
        if item.get_closest_marker("needs_root") and os.getuid():
            item.add_marker(pytest.mark.skip(reason="root alone may do this"))
        if item.get_closest_marker("nightly") and not FULL:
            item.add_marker(pytest.mark.skip(reason="IOGAUGE_TEST_FULL=1 runs it"))
