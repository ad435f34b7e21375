"""elbencho, where it is installed: a second tool for large files, for both ways at once, and for many small files."""

from reframe.core.builtins import parameter, run_after

from iogauge.cases import sweep, words
from iogauge_extras.suites.elbencho_check import (
    ElbenchoCheck,
    ElbenchoFilesCheck,
    ElbenchoMixedCheck,
)


@sweep.simple_test_if(sweep.environments(words.ELBENCHO))
class Elbencho(ElbenchoCheck):
    descr = (
        "Bandwidth of write and read with elbencho, a file for each process, O_DIRECT"
    )
    valid_systems = [f"+{words.TARGET} +{words.O_DIRECT}"]
    tags = {"elbencho", "daily", "weekly", "acceptance"}

    block = parameter(["1MiB", "4MiB"], loggable=True)


@sweep.simple_test_if(sweep.with_devices("gpu") and sweep.environments(words.ELBENCHO))
class ElbenchoGpu(ElbenchoCheck):
    descr = "Bandwidth between a file for each process and the memory of a node's GPUs"
    block = "4MiB"
    tags = {"elbencho", "weekly", "acceptance"}

    memory = parameter(["copied", "gds"], loggable=True)

    @run_after("init")
    def choose(self):
        self.gpu = self.memory
        self.valid_systems = sweep.with_devices("gpu", words.O_DIRECT)


@sweep.simple_test_if(
    sweep.points("read_shares") and sweep.environments(words.ELBENCHO)
)
class ElbenchoMixed(ElbenchoMixedCheck):
    descr = "Reads alone, then reads and writes of the same files, by all processes of all nodes, O_DIRECT"
    block = "128KiB"
    tags = {"elbencho", "weekly", "acceptance"}

    reads = parameter(sweep.points("read_shares"), loggable=True)

    @run_after("init")
    def choose(self):
        self.valid_systems = sweep.partitions("read_shares", self.reads, words.O_DIRECT)


#: Bytes of a file, a directory for each process, and the fraction of the case's files: as MdtestEasy, MdtestHard and
#: MdtestShape have them.
_SHAPES = {
    "unique-empty": (0, True, 1),
    "shared-3901": (3901, False, 4),
    "unique-64KiB": (65536, True, 4),
}


@sweep.simple_test_if(sweep.environments(words.ELBENCHO))
class ElbenchoFiles(ElbenchoFilesCheck):
    descr = "Many files with elbencho, in the pattern of mdtest"
    tags = {"elbencho", "weekly", "acceptance"}

    shape = parameter(list(_SHAPES), loggable=True)

    @run_after("init")
    def choose(self):
        self.file_bytes, self.own_directory, self.share = _SHAPES[self.shape]
