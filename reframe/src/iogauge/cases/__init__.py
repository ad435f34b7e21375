"""ReFrame's side of the suite: base classes of the scenarios, and all that a scenario may import.

- configuration: ReFrame's configuration of the sites that it may select
- fio_check: scenarios that run fio
- ior_check: scenarios that run IOR
- job_files: what ReFrame's host writes for a job
- judged: the base class of every case, measured or computed
- mdtest_check: scenarios that run mdtest
- storage: the base class of every measured case
- sweep: points of a sweep, as partitions declare them
"""

from iogauge.cases import sweep
from iogauge.cases.fio_check import (
    FioCheck,
    FioRandomReadCheck,
    FioSequentialCheck,
)
from iogauge.cases.ior_check import IorCheck, PinnedFilesCheck
from iogauge.cases.mdtest_check import MdtestCheck
from iogauge.cases.storage import StorageCheck
from iogauge.core import vocabulary
from iogauge.node.kinds import kind_of
from iogauge.node.lustre.request import Layout
