"""Bandwidth against the number of tasks on a node, and against the number of servers.

Each task has a file, pinned to one storage target, round robin. Another node reads what a task
wrote.
"""

from reframe.core.builtins import parameter, run_after

from iogauge.cases import PinnedFilesCheck, sweep, vocabulary


@sweep.simple_test_if(sweep.points("tasks_per_node"))
class TaskScaling(PinnedFilesCheck):
    descr = "Bandwidth by tasks on a node, a file for each task"
    variants = ("sound", "published")
    sweeps_tasks = True
    published = (
        "-a POSIX -F -E -w -r -C -Q {shift} -e -t {transfer} -b {block} -o {file} -k "
        "-O summaryFormat=JSON -O summaryFile={summary}"
    )
    flaw = (
        "the document shifts readers by T + 1 (-Q): with as many nodes as divide that number, every task "
        "reads its own data; the command itself is not printed there and is reconstructed, with -k so that "
        "the layout can be read back"
    )

    tasks = parameter(sweep.points("tasks_per_node"), loggable=True)

    @run_after("init")
    def choose(self):
        self.valid_systems = sweep.partitions("tasks_per_node", self.tasks)
        self.tags = {"ior", "scaling", "weekly", "acceptance"}

    def declared(self):
        declared = super().declared()
        # A task moves as many bytes at every point; the largest point moves as many as the limits
        # allow.
        most = max(self.site.sweeps.tasks_per_node)
        share = declared["total_bytes"] // most * self.tasks
        return {**declared, "tasks_per_node": self.tasks, "total_bytes": share}


@sweep.simple_test_if(sweep.points("servers", vocabulary.LUSTRE))
class ServerScaling(PinnedFilesCheck):
    descr = "Bandwidth by object storage servers that hold the files"

    servers = parameter(sweep.points("servers", vocabulary.LUSTRE), loggable=True)

    @run_after("init")
    def choose(self):
        self.valid_systems = sweep.partitions(
            "servers", self.servers, vocabulary.LUSTRE
        )
        self.tags = {"ior", "scaling", "weekly", "acceptance"}

    def servers_used(self):
        return self.servers
