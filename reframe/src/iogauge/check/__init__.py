"""ReFrame base classes: they turn plans, guards and verdicts into pipeline hooks, and nothing else."""

from iogauge.check.base import StorageCheck
from iogauge.check.fio import FioMetadataCheck, FioRandomReadCheck
from iogauge.check.ior import IorCheck
from iogauge.check.mdtest import MdtestCheck

__all__ = ["FioMetadataCheck", "FioRandomReadCheck", "IorCheck", "MdtestCheck", "StorageCheck"]
