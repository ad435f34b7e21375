"""ReFrame's side of the suite: base classes of the scenarios, and all that a scenario may import.

- configuration: ReFrame's configuration of all sites
- fio: scenarios that run fio
- fio_sequential: sequential writes and reads with fio
- ior: scenarios that run IOR, also those in which all tasks write one file
- judged: the base class of every case, measured or computed
- mdtest: scenarios that run mdtest
- storage: the base class of every measured case, and what ReFrame's host writes for its job
- sweep: points of a sweep, as partitions declare them
"""

from iogauge.check import sweep
from iogauge.check.fio import (
    ChecksumCheck,
    FioCheck,
    FioMetadataCheck,
    FioRandomReadCheck,
    RandomReadCheck,
    span_of_boxes,
)
from iogauge.check.fio_sequential import FioSequentialCheck
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
from iogauge.check.mdtest import MdtestCheck, MdtestOnMdtsCheck
from iogauge.check.storage import StorageCheck
from iogauge.core import words
from iogauge.node.layouts import Component, DirectoryLayout, Layout
from iogauge.node.mounts import traits

__all__ = [
    "AggregatorsCheck",
    "CheckpointCheck",
    "ChecksumCheck",
    "Component",
    "DefaultWritersCheck",
    "DirectoryLayout",
    "FioCheck",
    "FioMetadataCheck",
    "FioRandomReadCheck",
    "FioSequentialCheck",
    "HintedFileCheck",
    "IorCheck",
    "Layout",
    "MdtestCheck",
    "MdtestOnMdtsCheck",
    "PinnedFilesCheck",
    "RandomReadCheck",
    "SharedFileCheck",
    "SizedFileCheck",
    "StorageCheck",
    "span_of_boxes",
    "sweep",
    "traits",
    "words",
]
