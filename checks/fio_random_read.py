"""Random reads with fio and O_DIRECT, at three block sizes."""

import reframe as rfm
from reframe.core.builtins import parameter

from iogauge.cases import FioRandomReadCheck, vocabulary


@rfm.simple_test
class FioRandomRead(FioRandomReadCheck):
    descr = "Random reads with O_DIRECT, one in flight for each task"
    valid_systems = [f"+{vocabulary.TARGET} +{vocabulary.O_DIRECT}"]
    tags = {"fio", "quick", "daily", "weekly", "acceptance"}

    block = parameter(["4KiB", "32KiB", "128KiB"], loggable=True)
