"""Random reads of many small blocks: by one client and by all, from one server and from all."""

from reframe.core.builtins import parameter, run_after

from iogauge.check import ChecksumCheck, RandomReadCheck, sweep, words

_BLOCKS = ["4KiB", "32KiB", "128KiB"]


@sweep.simple_test_if(sweep.points("tasks_per_client", words.O_DIRECT))
class RandomRead(RandomReadCheck):
    descr = "Random reads with O_DIRECT by the processes of one or all clients"

    block = parameter(_BLOCKS, loggable=True)
    span = parameter(["one-client", "one-server", "all"], loggable=True)
    tasks = parameter(sweep.points("tasks_per_client", words.O_DIRECT), loggable=True)

    @run_after("init")
    def choose(self):
        self.valid_systems = sweep.partitions("tasks_per_client", self.tasks, words.O_DIRECT)
        if self.span != "one-client":
            several = sweep.partitions_of(lambda extras: extras.scale.nodes > 1)
            self.valid_systems = [name for name in self.valid_systems if name in several]
        if self.span == "one-server":
            striped = sweep.partitions_of(
                lambda extras: (
                    extras.target.striped_by == "lustre"
                    and extras.topology
                    and extras.topology.servers
                    and extras.topology.servers.count > 1
                )
            )
            self.valid_systems = [name for name in self.valid_systems if name in striped]
        self.tags = {"fio", "weekly", "acceptance"}


@sweep.simple_test_if(sweep.points("tasks_per_client", words.CHECKSUMS))
class ChecksumOverhead(ChecksumCheck):
    descr = "Random reads of one client with Lustre's checksums and without"
    tags = {"fio", "acceptance"}

    block = parameter(_BLOCKS, loggable=True)
    tasks = parameter(sweep.points("tasks_per_client", words.CHECKSUMS), loggable=True)

    @run_after("init")
    def choose(self):
        self.valid_systems = sweep.partitions("tasks_per_client", self.tasks, words.CHECKSUMS)
