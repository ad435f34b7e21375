"""What a training does to storage: checkpoints within a time, and reads in random order."""

import reframe as rfm
from reframe.core.builtins import parameter, run_after

from iogauge.cases import MdtestCheck, sweep, words
from iogauge_extras.loads.check import SampleReadCheck
from iogauge_extras.loads.checkpoint_check import CheckpointCheck

_MODELS = sweep.found(lambda extras: extras.checkpoints)


@sweep.simple_test_if(_MODELS)
class Checkpoint(CheckpointCheck):
    descr = (
        "Seconds to save a model's state and to read it again, and how many it may take"
    )
    tags = {"ior", "weekly", "acceptance"}

    model = parameter(_MODELS, loggable=True)
    files = parameter(["per-process", "shared"], loggable=True)

    @run_after("init")
    def choose(self):
        self.file_per_process = self.files == "per-process"
        self.valid_systems = sweep.partitions_of(
            lambda extras: self.model in extras.checkpoints
        )


@rfm.simple_test
class TrainingSamples(SampleReadCheck):
    descr = "Samples at random offsets of a few large files, read by all tasks with O_DIRECT"
    valid_systems = [f"+{words.TARGET} +{words.O_DIRECT}"]
    tags = {"fio", "weekly", "acceptance"}

    sample = parameter(["32KiB", "128KiB"], loggable=True)


@rfm.simple_test
class TrainingFiles(MdtestCheck):
    descr = "Files of 128 KiB, each read once and whole, in random order"
    tags = {"mdtest", "weekly", "acceptance"}
    file_bytes = 128 << 10
    random_reads = True
    tree = {"unique_dir": True, "leaf_only": True}
