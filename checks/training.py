"""What a training does to storage: checkpoints within a time."""

from reframe.core.builtins import parameter, run_after

from iogauge.cases import sweep
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
