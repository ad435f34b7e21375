"""When each guard speaks, and what it reads of a case."""

from dataclasses import replace

import pytest

from iogauge.evidence.task_counters import TaskCounters
from iogauge.guards import clock, contents, figures, others
from iogauge.guards.finding import Outcome
from iogauge.guards.moved import bytes_witnessed
from iogauge.node.counters import Reading
from iogauge.node.mounts import Mount
from iogauge.plan.observations import Instant, TaskLine
from iogauge.plan.stage import PhaseRun
from support.whole import GIB, MIB, data


def case(system="ext4", **left):
    """A case of which nothing is known over time."""
    return data(system).alter(**{"moved": (), "asked": (), "runs": {}, **left})


def said(whole, name, times=1, /, **changes):
    """The case if a phase was run so often, and its tool said something else."""
    rates = {"bw": (changes.get("name", name), "bw")}
    for at in range(times):
        whole = whole.planned(name, rates=rates).output(name, at, **changes)
    outputs = whole.evidence.outputs
    return whole.alter(outputs={**outputs, name: outputs[name][:times]})


def task(**says):
    """A task of the first node, which ran for a second."""
    plain = {"host": "n1", "started": 1.0, "ended": 2.0, "synced": None}
    return TaskLine(**{**plain, "asked": Reading(), "moved": Reading(), **says})


def heard(whole, *tasks, name="write"):
    """The case if one task spoke of each execution of a phase."""
    told = tuple(TaskCounters(witnesses=(one,), expected=1) for one in tasks)
    return whole.alter(task_counters={name: told})


SIZES = (
    "WARNING: inconsistent file size by different tasks",
    "WARNING: Expected aggregate file size       = 75497472",
    "WARNING: Stat() of aggregate file size      = 37748736",
    "WARNING: Using actual aggregate bytes moved = 75497472",
)


@pytest.mark.parametrize(
    "warnings, read, outcome",
    [
        (SIZES, 1, Outcome.WARN),
        # All tasks agree on a wrong size; not all was read; another warning.
        (SIZES[1:], 1, Outcome.INVALID),
        (SIZES, 0, Outcome.INVALID),
        ((*SIZES, "WARNING: odd"), 1, Outcome.INVALID),
    ],
)
def test_sizes_that_clients_do_not_see_alike_yet(warnings, read, outcome):
    whole = said(
        case().output("write", warnings=warnings), "read", 2, bytes_moved=GIB - 1 + read
    )
    finding = figures.bytes_moved(whole.phase("write"))
    assert finding.outcome == outcome, finding.saw


@pytest.mark.parametrize(
    "declared, seen, saw",
    [
        (None, "", "nothing that compresses"),
        (True, "", "a target that compresses, as its site declares"),
        (True, "btrfs compress=zstd", "on btrfs compress=zstd"),
        (False, "zfs", "on zfs, though the site declares target.compresses: false"),
    ],
)
def test_compression_that_a_node_sees_outweighs_the_site(declared, seen, saw):
    whole = case().declared(target={} if declared is None else {"compresses": declared})
    finding = contents.data_entropy(whole.below(compresses=seen).phase("write"))
    assert finding.saw.endswith(saw) or finding.saw.startswith(saw)


@pytest.mark.parametrize(
    "o_direct, share, outcome",
    [
        (False, 1.29, Outcome.OK),
        (False, 1.31, Outcome.INVALID),
        (True, 1.04, Outcome.OK),
        (True, 1.10, Outcome.INVALID),
    ],
)
def test_g8_lets_a_buffered_read_fetch_a_quarter_again(o_direct, share, outcome):
    """Memory was short: pages that were read ahead were dropped. A direct read drops none."""
    claimed = 8 * GIB
    fetched = Reading(round(share * claimed), 0)
    one = task(asked=Reading(claimed, 0), moved=fetched, counters={"8:16": fetched})
    whole = said(data(o_direct=o_direct), "read", 2, bytes_moved=claimed)
    whole = heard(whole, one, one, name="read")
    finding = bytes_witnessed(whole.phase("read"))
    assert finding.outcome is outcome, finding


NET, DISK, OTHER = "net", "254:0", "7:9"
WAYS = (DISK, OTHER, "8:0", "8:16", "8:32", "8:48")


@pytest.mark.parametrize(
    "wrote, read, outcome",
    [
        ({NET: 1.0}, {NET: 1.0}, Outcome.WARN),
        ({NET: 1.0}, {NET: 0.5}, Outcome.INVALID),
        # Bytes that were written did not pass here: nobody knows where those that are read would pass.
        ({NET: 0.5}, {NET: 0.5}, Outcome.WARN),
        # GPFS writes a copy to a disk of its own node, and one through the network. It reads the nearer one.
        ({NET: 1.0, DISK: 1.0}, {DISK: 1.0}, Outcome.WARN),
        ({NET: 1.0, DISK: 1.0}, {NET: 0.4, DISK: 0.4}, Outcome.INVALID),
        # A mirror reads a half from each disk.
        ({"8:0": 1.0, "8:16": 1.0}, {"8:0": 0.5, "8:16": 0.5}, Outcome.WARN),
        # A partition counts the bytes of its disk once more.
        # Copies on two servers; a file system over four disks of the node.
        ({NET: 2.0}, {NET: 1.0}, Outcome.WARN),
    ],
)
def test_what_carried_the_writes_may_contradict_reads_and_confirms_none(
    wrote, read, outcome
):
    """A client that serves its file system itself (FUSE), whose servers are reached through the network."""
    whole, told = case("fuse.bindfs").below(ways=WAYS), {}
    for name, shares in (("write", wrote), ("read", read)):
        counted = [
            {way: Reading(*(round(x * GIB),) * 2) for way, x in shares.items()}
        ] * 2
        if name == "read":
            # Some executions are as they should be.
            counted[1] = dict.fromkeys(wrote, Reading(GIB, GIB))
        whole = said(whole, name, 2, operations=None)
        each = {"asked": Reading(GIB, GIB), "moved": Reading(GIB, GIB)}
        tasks = [task(**each, counters=counters) for counters in counted]
        told |= heard(whole, *tasks, name=name).evidence.task_counters
    seen = whole.alter(task_counters=told).phase("read")
    assert not seen.case.counters
    finding = bytes_witnessed(seen)
    assert finding.outcome is outcome, finding


@pytest.mark.parametrize("when", ["idle", "activity"])
def test_a_device_that_the_kernel_does_not_count_at_either_end_is_no_evidence(when):
    whole, told = case(), {}
    for name in ("write", "read"):
        whole = said(whole, name, 2, operations=None)
        each = {"asked": Reading(GIB, GIB), "moved": Reading(GIB, GIB)}
        (device,) = whole.evidence.views[0].below.devices
        tasks = [
            task(**each, counters={device: Reading(count, count)})
            for count in (GIB, GIB // 2)
        ]
        told |= heard(whole, *tasks, name=name).evidence.task_counters
    whole = whole.alter(task_counters=told)
    assert bytes_witnessed(whole.phase("write")).outcome is Outcome.INVALID
    looks = [replace(look, silent=(device,)) for look in getattr(whole.evidence, when)]
    seen = whole.alter(**{when: tuple(looks)}).phase("write")
    assert bytes_witnessed(seen).outcome is Outcome.WARN


def test_the_first_node_is_the_node_of_the_job_script():
    """Whatever the order of names: seconds since boot are those of one node."""
    (view,) = case().evidence.views
    views = tuple(replace(view, host=host) for host in ("node10", "node9"))
    tasks = (
        task(host="node10", started=9000.0, ended=9001.0),
        task(host="node9", started=100.0, ended=101.0),
    )
    task_counters = TaskCounters(witnesses=tasks, expected=2)
    whole = case(
        views=views, opened=views[1], found=((99.0, 0), (101.5, 7), (9002.0, 0))
    )

    def seen(*waited, **left):
        """The first execution that writes, of which the kernels say this, if the job script waited for it at these times."""
        runs = {(1, "write"): PhaseRun(1, "write", 0, *waited, "t")} if waited else {}
        first, *_ = whole.alter(runs=runs, **left).phase("write").executions
        return replace(first, counts=task_counters)

    assert seen().span == (100.0, 101.0)
    assert seen().found_after == 7
    # Tasks in a time namespace have a clock of their own: the job script knows when it waited for them.
    assert seen(50099.0, 50102.0).span == (50099.0, 50102.0)
    assert seen(100.5, 103.0).span == (100.5, 103.0)
    assert seen(99.9, 101.2).span == (100.0, 101.0)
    # A job script on a node of its own says nothing of theirs.
    assert seen(opened=replace(view, host="login")).span is None


def test_g19_gives_no_credit_for_what_only_reads():
    """A journal has bytes of what makes, removes or writes; others wrote what was written beside a read or a stat."""
    for name in ("write", "read"):
        seen = said(case(), name, operations=1000).phase(name)
        (one,) = seen.executions
        assert seen.case.kind.accounts
        assert (others._beside(one).written > 0) == (name == "write"), name
        stats = (replace(one.output.phases[0], name="stat"),)
        assert (
            others._beside(replace(one, output=replace(one.output, phases=stats)))
            == Reading()
        )


@pytest.mark.parametrize(
    "sharing, of_tasks, outcome",
    [(1, False, Outcome.INVALID), (3, False, Outcome.WARN), (3, True, Outcome.INVALID)],
)
def test_servers_of_several_hosts_start_their_clocks_apart(sharing, of_tasks, outcome):
    """The tool reports 2 s. The device that one host or three share moved bytes for 3 s."""
    size = 512 * MIB
    (view,) = case().evidence.views
    hosts = [f"n1{n or ''}" for n in range(sharing)]
    views = tuple(replace(view, host=host, cache_id="one") for host in hosts)
    says = {"asked": Reading(1, size), "moved": Reading(0, size)}
    says["counters"] = {"8:16": Reading(0, size)}
    tasks = tuple(task(host=host, ended=6.0, **says) for host in hosts)
    whole = said(case(), "write", seconds=2.0, bytes_moved=size).alter(
        views=views,
        opened=views[0],
        moved=tuple(Instant(1 + n / 10, 0, size * min(n, 30) // 30) for n in range(51)),
        task_counters={
            "write": (
                TaskCounters(witnesses=tasks, expected=sharing, of_tasks=of_tasks),
            )
        },
    )
    finding = clock.seconds_witnessed(whole.phase("write"))
    assert finding.outcome is outcome, finding


def timed(tool, ended, parameters, **left):
    """A case that makes files in 2 s, as its tool says, and whose only task ran for longer."""
    whole = said(
        case(**left),
        "write",
        name="create",
        seconds=2.0,
        tool=tool,
        parameters=parameters,
    )
    return heard(
        whole.planned("write", direction="metadata"),
        task(ended=ended, counters={"8:16": Reading()}),
    )


@pytest.mark.parametrize(
    "tool, told_of, outcome",
    [
        ("mdtest", {"begins_at": 700}, Outcome.INVALID),
        ("mdtest", {"begins_at": 701}, Outcome.WARN),
        ("fio", {}, Outcome.WARN),  # nobody tells
    ],
)
def test_how_long_a_tool_worked(tool, told_of, outcome):
    """It reports 2 s; 6 s lie between its lines."""
    whole = timed(
        tool,
        8.0,
        told_of,
        printed=((1.2, 700), (7.2, 700), (7.4, 1500)),
    )
    finding = clock.seconds_witnessed(whole.phase("write"))
    assert finding.outcome is outcome, finding


@pytest.mark.parametrize(
    "nodes, ended, outcome",
    [
        (1, 9.4, Outcome.WARN),
        (1, 9.6, Outcome.INVALID),
        (2, 24.6, Outcome.WARN),
        (2, 24.8, Outcome.INVALID),
        (1000, 124.4, Outcome.WARN),
        (1000, 124.6, Outcome.INVALID),
    ],
)
def test_a_tool_whose_lines_were_kept_back_has_its_run_time_and_a_start(
    nodes, ended, outcome
):
    whole = timed("mdtest", ended, {})
    seen = replace(whole, plan=replace(whole.plan, nodes=nodes)).phase("write")
    finding = clock.seconds_witnessed(seen)
    assert finding.outcome is outcome, finding


@pytest.mark.parametrize(
    "kind, options, name, size, credit",
    [
        ("ext4", "rw", "write", 4096, 204),  # a twentieth of the data
        ("ext4", "rw", "write", 1 << 20, 2304),
        ("xfs", "rw", "write", 1 << 20, 1024),
        ("overlay", "rw", "write", 4096, 2048),  # its upper directory may lie on btrfs
        ("btrfs", "rw", "write", 4096, 2048),  # half of the data
        ("btrfs", "rw", "create", None, 16384),
        ("ext4", "rw,dirsync", "create", None, 160 << 10),
        ("xfs", "rw,wsync", "write", 4096, 160 << 10),
    ],
)
def test_how_much_a_file_system_may_write_beside_an_operation(
    kind, options, name, size, credit
):
    moved = None if size is None else 1000 * size
    whole = said(case(), "write", name=name, operations=1000, bytes_moved=moved)
    (view,) = whole.evidence.views
    mounted = replace(view, mount=Mount(1, "/scratch", "/dev/x", kind, options))
    seen = whole.declared(target={"type": kind}).alter(views=(mounted,)).phase("write")
    (one,) = seen.executions
    assert others._beside(one).written // 1000 == credit
