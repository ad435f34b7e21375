"""For all tests: the depth of the properties, and signals that reach what the tests start."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

from support.depth import FULL

# A busy machine makes no property fail. By default the examples are the same in every run: what fails, fails again.
settings.register_profile(
    "ci",
    max_examples=30,
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
