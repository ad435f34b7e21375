"""Random reads of many small blocks: by one client and by all, from one server or box and from all."""

from reframe.core.builtins import parameter, run_after

from iogauge.cases import sweep, vocabulary
from iogauge_extras.loads.random_read_check import ChecksumCheck, RandomReadCheck

_BLOCKS = ["4KiB", "32KiB", "128KiB"]


def _parts(extras):
    """Return the spans of a part of the servers: boxes if they come in boxes, else a server."""
    servers = extras.topology.servers if extras.topology else None
    if extras.target.striped_by != "lustre" or servers is None:
        return []
    if servers.per_box:
        return ["one-box"] if servers.boxes > 1 else []
    return ["one-server"] if servers.count > 1 else []


@sweep.simple_test_if(sweep.points("tasks_per_client", vocabulary.O_DIRECT))
class RandomRead(RandomReadCheck):
    descr = "Random reads with O_DIRECT by the processes of one or all clients"

    block = parameter(_BLOCKS, loggable=True)
    span = parameter(["one-client", "one-server", "one-box", "all"], loggable=True)
    tasks = parameter(
        sweep.points("tasks_per_client", vocabulary.O_DIRECT), loggable=True
    )

    @run_after("init")
    def choose(self):
        self.valid_systems = sweep.partitions(
            "tasks_per_client", self.tasks, vocabulary.O_DIRECT
        )
        if self.span != "one-client":
            several = sweep.partitions_of(lambda extras: extras.scale.nodes > 1)
            self.valid_systems = [
                name for name in self.valid_systems if name in several
            ]
        if self.span not in ("one-client", "all"):
            whole = sweep.partitions_of(lambda extras: self.span in _parts(extras))
            self.valid_systems = [name for name in self.valid_systems if name in whole]
        self.tags = {"fio", "weekly", "acceptance"}


@sweep.simple_test_if(sweep.points("tasks_per_client", vocabulary.CHECKSUMS))
class ChecksumOverhead(ChecksumCheck):
    descr = "Random reads of one client with Lustre's checksums and without"
    tags = {"fio", "acceptance"}

    block = parameter(_BLOCKS, loggable=True)
    tasks = parameter(
        sweep.points("tasks_per_client", vocabulary.CHECKSUMS), loggable=True
    )

    @run_after("init")
    def choose(self):
        self.valid_systems = sweep.partitions(
            "tasks_per_client", self.tasks, vocabulary.CHECKSUMS
        )
