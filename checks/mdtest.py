"""mdtest with the parameters of IO500's mdtest-easy and mdtest-hard."""

import reframe as rfm
from iogauge.check import MdtestCheck
from iogauge.plan import DIR
from iogauge.tools.mdtest import MdtestOptions


@rfm.simple_test
class MdtestEasy(MdtestCheck):
    descr = "Empty files, a directory for each task"
    tags = {"mdtest", "quick", "daily", "acceptance"}

    def tree(self):
        return MdtestOptions(
            directory=f"{DIR}/mdtest-easy",
            unique_dir=True,
            leaf_only=True,
            data_type="timestamp",
        )


@rfm.simple_test
class MdtestHard(MdtestCheck):
    descr = "Files of 3901 bytes in one directory"
    tags = {"mdtest", "quick", "daily", "acceptance"}
    file_bytes = 3901

    def tree(self):
        return MdtestOptions(
            directory=f"{DIR}/mdtest-hard",
            time_unique_dir=True,
            write_bytes=self.file_bytes,
            read_bytes=self.file_bytes,
            data_type="timestamp",
        )
