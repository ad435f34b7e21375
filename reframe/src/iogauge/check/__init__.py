"""ReFrame's side of the suite: base classes of the scenarios, and all that a scenario may import.

- compared: a partition against its baseline
- configuration: ReFrame's configuration of all sites
- derived: cases that are computed from records of other cases
- fio: scenarios that run fio
- io500: scenarios that run IO500
- ior: scenarios that run IOR
- job_files: what ReFrame's host writes for a job
- judged: the base class of every case, measured or computed
- mdtest: scenarios that run mdtest, or md-workbench
- needle: every storage target alone, every metadata target alone, every node alone
- storage: the base class of every measured case
- sweep: points of a sweep, as partitions declare them
"""

from iogauge.check import sweep
from iogauge.check.compared import BaselineCheck, BoxScalingCheck, baseline_checks
from iogauge.check.derived import CurveCheck, PairsCheck, SpeedupCheck
from iogauge.check.fio import (
    ChecksumCheck,
    FioCheck,
    FioMetadataCheck,
    FioRandomReadCheck,
    RandomReadCheck,
)
from iogauge.check.io500 import Io500Check
from iogauge.check.ior import (
    AggregatorsCheck,
    DefaultWritersCheck,
    IorCheck,
    PinnedFilesCheck,
    SharedFileCheck,
)
from iogauge.check.mdtest import MdtestCheck, MdWorkbenchCheck
from iogauge.check.needle import MdtNeedleCheck, NodeNeedleCheck, TargetNeedleCheck
from iogauge.check.storage import StorageCheck
from iogauge.core import words
from iogauge.node.layouts import Layout
from iogauge.node.mounts import traits
from iogauge.records import derive

__all__ = [
    "AggregatorsCheck",
    "BaselineCheck",
    "BoxScalingCheck",
    "ChecksumCheck",
    "CurveCheck",
    "DefaultWritersCheck",
    "FioCheck",
    "FioMetadataCheck",
    "FioRandomReadCheck",
    "Io500Check",
    "IorCheck",
    "Layout",
    "MdWorkbenchCheck",
    "MdtNeedleCheck",
    "MdtestCheck",
    "NodeNeedleCheck",
    "PairsCheck",
    "PinnedFilesCheck",
    "RandomReadCheck",
    "SharedFileCheck",
    "SpeedupCheck",
    "StorageCheck",
    "TargetNeedleCheck",
    "baseline_checks",
    "derive",
    "sweep",
    "traits",
    "words",
]
