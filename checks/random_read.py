"""Random reads of many small blocks: by one client and by all, from some servers or boxes and from all."""

from reframe.core.builtins import parameter, run_after

from iogauge.cases import span_of_boxes, sweep, words
from iogauge_extras.loads.random_read_check import ChecksumCheck, RandomReadCheck

_BLOCKS = ["4KiB", "32KiB", "128KiB"]


def _parts(extras):
    """Return the spans of a part of the servers: boxes if they come in boxes, else a server."""
    servers = extras.topology.servers if extras.topology else None
    if extras.target.striped_by != "lustre" or servers is None:
        return []
    if servers.per_box:
        return [span_of_boxes(number) for number in range(1, servers.boxes)]
    return ["one-server"] if servers.count > 1 else []


#: Spans of a part of the servers, on any partition of the system.
_PARTS = dict.fromkeys(["one-server", "one-box", *sweep.found(_parts)])


@sweep.simple_test_if(sweep.points("tasks_per_client", words.O_DIRECT))
class RandomRead(RandomReadCheck):
    descr = "Random reads with O_DIRECT by the processes of one or all clients"

    block = parameter(_BLOCKS, loggable=True)
    span = parameter(["one-client", *_PARTS, "all"], loggable=True)
    tasks = parameter(sweep.points("tasks_per_client", words.O_DIRECT), loggable=True)

    @run_after("init")
    def choose(self):
        self.valid_systems = sweep.partitions(
            "tasks_per_client", self.tasks, words.O_DIRECT
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


@sweep.simple_test_if(sweep.points("tasks_per_client", words.CHECKSUMS))
class ChecksumOverhead(ChecksumCheck):
    descr = "Random reads of one client with Lustre's checksums and without"
    tags = {"fio", "acceptance"}

    block = parameter(_BLOCKS, loggable=True)
    tasks = parameter(sweep.points("tasks_per_client", words.CHECKSUMS), loggable=True)

    @run_after("init")
    def choose(self):
        self.valid_systems = sweep.partitions(
            "tasks_per_client", self.tasks, words.CHECKSUMS
        )
