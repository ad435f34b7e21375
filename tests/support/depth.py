"""How deep the tests look: ``IOGAUGE_TEST_FULL=1`` asks for 300 examples a property, full sizes, and tests marked ``nightly``."""

import os

FULL = os.environ.get("IOGAUGE_TEST_FULL", "") == "1"
