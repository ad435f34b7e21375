"""ReFrame base classes: what a thin check in checks/ builds on."""

from iogauge.check.base import StorageCheck
from iogauge.check.fio import (
    ChecksumCheck,
    FioCheck,
    FioMetadataCheck,
    FioRandomReadCheck,
    RandomReadCheck,
)
from iogauge.check.ior import AggregatorsCheck, IorCheck, PinnedFilesCheck, SharedFileCheck
from iogauge.check.mdtest import MdtestCheck

__all__ = [
    "AggregatorsCheck",
    "ChecksumCheck",
    "FioCheck",
    "FioMetadataCheck",
    "FioRandomReadCheck",
    "IorCheck",
    "MdtestCheck",
    "PinnedFilesCheck",
    "RandomReadCheck",
    "SharedFileCheck",
    "StorageCheck",
]
