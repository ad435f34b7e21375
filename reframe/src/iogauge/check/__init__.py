"""ReFrame's side of the suite: base classes of the scenarios, and all names that a scenario may
import.
"""

from iogauge.check import sweep
from iogauge.check.compared import BaselineCheck, baseline_checks
from iogauge.check.derived import CurveCheck, PairsCheck, SpeedupCheck
from iogauge.check.fio import (
    ChecksumCheck,
    FioCheck,
    FioMetadataCheck,
    FioRandomReadCheck,
    RandomReadCheck,
)
from iogauge.check.ior import AggregatorsCheck, IorCheck, PinnedFilesCheck, SharedFileCheck
from iogauge.check.mdtest import MdtestCheck
from iogauge.check.needle import NodeNeedleCheck, TargetNeedleCheck
from iogauge.check.storage import StorageCheck
from iogauge.core import words
from iogauge.node.layouts import Layout
from iogauge.node.mounts import traits
from iogauge.records import derive

__all__ = [
    "AggregatorsCheck",
    "BaselineCheck",
    "ChecksumCheck",
    "CurveCheck",
    "FioCheck",
    "FioMetadataCheck",
    "FioRandomReadCheck",
    "IorCheck",
    "Layout",
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
