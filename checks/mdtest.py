"""Metadata: mdtest with the parameters of IO500 and with others."""

import reframe as rfm
from reframe.core.builtins import parameter, run_after

from iogauge.cases import Layout, MdtestCheck, sweep


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
    tree = {"time_unique_dir": True}


def _on_lustre(extras):
    return extras.target.striped_by == "lustre"


#: Data of each file up to here lie with its metadata.
_WITH_METADATA = 65536


@rfm.simple_test
class MdtestDom(MdtestCheck):
    descr = "Small files whose data lie with their metadata"
    tags = {"mdtest", "weekly", "acceptance"}
    share = 4
    layout = Layout(metadata_bytes=_WITH_METADATA, stripe_count=1)

    size = parameter([0, 3901, _WITH_METADATA], loggable=True)

    @run_after("init")
    def choose(self):
        self.valid_systems = sweep.partitions_of(_on_lustre)
        self.file_bytes = self.size
