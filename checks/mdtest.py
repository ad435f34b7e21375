"""mdtest with the parameters of IO500's mdtest-easy and mdtest-hard."""

import reframe as rfm

from iogauge.check import MdtestCheck


@rfm.simple_test
class MdtestEasy(MdtestCheck):
    descr = "Empty files, a directory for each task"
    tags = {"mdtest", "quick", "daily", "weekly", "acceptance"}
    tree = {"unique_dir": True, "leaf_only": True}


@rfm.simple_test
class MdtestHard(MdtestCheck):
    descr = "Files of 3901 bytes in one directory"
    tags = {"mdtest", "quick", "daily", "weekly", "acceptance"}
    file_bytes = 3901
    share = 4
    tree = {"time_unique_dir": True, "write_bytes": 3901, "read_bytes": 3901}
