"""ReFrame's side of the suite: base classes of the scenarios, and all that a scenario may import.

- ceiling: what the layers below the file system carry
- configuration: ReFrame's configuration of all sites
- derived: cases that are computed from records of other cases: curves, pairs, baselines, sizes
- elbencho: scenarios that run elbencho
- fio: scenarios that run fio
- io500: scenarios that run IO500
- ior: scenarios that run IOR, also those in which all tasks write one file
- judged: the base class of every case, measured or computed
- load: sequential and other loads with fio, also on a full target
- mdtest: scenarios that run mdtest, or md-workbench
- needle: every storage target alone, every metadata target alone, every node alone
- storage: the base class of every measured case, and what ReFrame's host writes for its job
- sweep: points of a sweep, as partitions declare them
"""

from iogauge.check import sweep
from iogauge_extras.ceilings.check import DeviceCeilingCheck, MemoryCeilingCheck, NetworkCeilingCheck
from iogauge_extras.derived.check import (
    BaselineCheck,
    BoxCurveCheck,
    BoxScalingCheck,
    CurveCheck,
    PairsCheck,
    SizesCheck,
    SpeedupCheck,
    baseline_checks,
    sized_checks,
)
from iogauge_extras.suites.elbencho_check import ElbenchoCheck, ElbenchoFilesCheck
from iogauge.check.fio import (
    ChecksumCheck,
    FioCheck,
    FioMetadataCheck,
    FioRandomReadCheck,
    RandomReadCheck,
    span_of_boxes,
)
from iogauge_extras.suites.io500_check import Io500Check
from iogauge.check.ior import (
    AggregatorsCheck,
    CheckpointCheck,
    DefaultWritersCheck,
    HintedFileCheck,
    IorCheck,
    PinnedFilesCheck,
    SharedFileCheck,
    SizedFileCheck,
)
from iogauge_extras.loads.check import (
    EnduranceCheck,
    FillLevelCheck,
    FioSequentialCheck,
    InterferenceApartCheck,
    InterferenceCheck,
    QueueDepthCheck,
    SampleReadCheck,
)
from iogauge.check.mdtest import MdtestCheck, MdtestOnMdtsCheck, MdWorkbenchCheck
from iogauge_extras.needle.check import MdtNeedleCheck, NodeNeedleCheck, TargetNeedleCheck
from iogauge.check.storage import StorageCheck
from iogauge.core import words
from iogauge.node.layouts import Component, DirectoryLayout, Layout
from iogauge.node.mounts import traits
from iogauge_extras.derived import derive

__all__ = [
    "AggregatorsCheck",
    "BaselineCheck",
    "BoxCurveCheck",
    "BoxScalingCheck",
    "CheckpointCheck",
    "ChecksumCheck",
    "Component",
    "CurveCheck",
    "DefaultWritersCheck",
    "DeviceCeilingCheck",
    "DirectoryLayout",
    "ElbenchoCheck",
    "ElbenchoFilesCheck",
    "EnduranceCheck",
    "FillLevelCheck",
    "FioCheck",
    "FioMetadataCheck",
    "FioRandomReadCheck",
    "FioSequentialCheck",
    "HintedFileCheck",
    "InterferenceApartCheck",
    "InterferenceCheck",
    "Io500Check",
    "IorCheck",
    "Layout",
    "MdWorkbenchCheck",
    "MdtNeedleCheck",
    "MdtestCheck",
    "MdtestOnMdtsCheck",
    "MemoryCeilingCheck",
    "NetworkCeilingCheck",
    "NodeNeedleCheck",
    "PairsCheck",
    "PinnedFilesCheck",
    "QueueDepthCheck",
    "RandomReadCheck",
    "SampleReadCheck",
    "SharedFileCheck",
    "SizedFileCheck",
    "SizesCheck",
    "SpeedupCheck",
    "StorageCheck",
    "TargetNeedleCheck",
    "baseline_checks",
    "derive",
    "sized_checks",
    "span_of_boxes",
    "sweep",
    "traits",
    "words",
]
