"""Hours of steady writing: bandwidth over time, its dips, and burst credits that are used up."""

import reframe as rfm

from iogauge.cases import vocabulary
from iogauge_extras.loads.endurance_check import EnduranceCheck


@rfm.simple_test
class Endurance(EnduranceCheck):
    descr = "A sequential write with O_DIRECT for hours, sampled several times a second"
    valid_systems = [f"+{vocabulary.TARGET} +{vocabulary.O_DIRECT}"]
    tags = {"fio", "acceptance"}
    transfer = 4 << 20
