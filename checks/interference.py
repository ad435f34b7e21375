"""What one load costs another: a stream beside a metadata storm, and metadata beside a stream."""

import reframe as rfm
from reframe.core.builtins import parameter

from iogauge.check import InterferenceCheck, words


@rfm.simple_test
class Interference(InterferenceCheck):
    descr = "Alone, beside a load on purpose, and alone again: writes with O_DIRECT, or creates"
    valid_systems = [f"+{words.TARGET} +{words.O_DIRECT}"]
    tags = {"fio", "weekly", "acceptance"}

    measured = parameter(["stream", "metadata"], loggable=True)
    transfer = 1 << 20
