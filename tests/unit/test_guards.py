"""Each guard speaks when it must, is silent when it may, and says number, limit and remedy."""

from dataclasses import replace
from types import MappingProxyType

import pytest

from iogauge.evidence.model import Striping
from iogauge.evidence.task_counters import NodeActivity
from iogauge.guards import (
    agreement,
    clock,
    figures,
    moved,
    others,
    placement,
    preflight,
    striping,
)
from iogauge.guards.cache import client_cache, server_cache
from iogauge.guards.contents import data_entropy
from iogauge.guards.finding import Guard, Outcome
from iogauge.node.counters import Reading
from iogauge.node.files import Eviction
from iogauge.node.lustre.file_layout import FileLayout, Layouts, Part, last_with_data
from iogauge.node.lustre.quotas import Quota
from iogauge.node.lustre.request import Layout, Pins
from iogauge.node.lustre.targets import MetadataTarget, StorageTarget
from iogauge.node.mounts import Mount, Space
from iogauge.node.view import View
from iogauge.plan.observations import Instant
from iogauge.tools import mpi
from support.extras import extras
from support.orders import job_order
from support.whole import begins, data, metadata

GIB, MIB = 1 << 30, 1 << 20
OK, WARN, INVALID, UNSTABLE = (
    Outcome.OK,
    Outcome.WARN,
    Outcome.INVALID,
    Outcome.UNSTABLE,
)


def says(finding, *words):
    """An objection has number, limit and remedy in its one line."""
    assert finding.outcome is not OK
    assert finding.remedy
    assert finding.remedy in str(finding)
    for word in words:
        assert word in str(finding), f"{word!r} is not in {finding}"


# --- G1: the client's cache -----------------------------------------------------------------------

EMPTY = Eviction("a", 2, 100, 0)
MORE = Eviction("a", 3, 101, 0)


def nodes_of(whole, nodes, page_caches=None):
    """The case on several nodes of two tasks, all with the same below; some of them may share their page cache."""
    (view,) = whole.evidence.views
    views = [
        replace(view, host=f"n{1 + n}", cache_id=f"k:{1 + n % (page_caches or nodes)}")
        for n in range(nodes)
    ]
    changed = whole.alter(views=tuple(views))
    return replace(changed, plan=replace(whole.plan, nodes=nodes, tasks=2 * nodes))


def g1(
    *emptied,
    of=2,
    nodes=1,
    offset=None,
    said=None,
    shifts=1,
    o_direct=False,
    kind="ext4",
    size=4 * GIB,
    reads=(),
    page_caches=None,
):
    """G1 of a read that nobody counts, of ``size`` on each node, or of ``reads`` in its repetitions."""
    whole = nodes_of(data().declared(target={"type": kind}), nodes, page_caches)
    if reads or emptied:
        size, reads = None, reads or (100, 100)
    whole = whole.planned(
        "read",
        o_direct=o_direct,
        task_offset=offset,
        shifts=shifts,
        evict=bool(emptied),
        data_bytes=size and size * nodes,
    )
    (one, *_) = whole.evidence.outputs["read"]
    told = {}
    if offset is not None:
        told = said or {"shift": 2 * offset}
    outputs = [
        replace(
            one, parameters=told, phases=(replace(one.phases[0], bytes_moved=count),)
        )
        for count in reads or (GIB, GIB)
    ]
    plan = replace(whole.plan, repetitions=of // nodes)
    left = {**whole.evidence.outputs, "read": outputs}
    whole = whole.alter(outputs=left, evictions={"read": emptied}, task_counters={})
    finding = client_cache(replace(whole, plan=plan).phase("read"))
    return finding


#: What IOR says of a shift by one node, each of two tasks.
IOR_SAID = {"clients per node": 2, "taskPerNodeOffset": 1, "reorderTasks": 1}


@pytest.mark.parametrize(
    "finding, saw",
    [
        (g1(nodes=2, offset=1), "readers shifted by 1 of 2 nodes"),
        (g1(nodes=2, offset=1, said=IOR_SAID), "readers shifted by 1 of 2 nodes"),
        (g1(nodes=3, offset=1, shifts=2), "readers shifted by 2 of 3 nodes"),
        (g1(size=32 * GIB), "V = 32 GiB per node, M = 16 GiB"),
        (
            g1(EMPTY, EMPTY),
            "proven empty 2 times, then no counter tells what came from storage",
        ),
        (
            g1(EMPTY, EMPTY, MORE, MORE, of=4, nodes=2, reads=[100, 101]),
            "proven empty 4 times",
        ),
    ],
)
def test_g1_believes(finding, saw):
    assert finding.outcome is OK, finding
    assert saw in finding.saw


@pytest.mark.parametrize(
    "finding, saw, remedy",
    [
        (g1(size=32 * GIB - 1), "against M = 16 GiB", "limits.case_bytes to 32 GiB"),
        (g1(o_direct=True, kind="zfs"), "not known to honour", "limits.case_bytes to"),
        (
            g1(size=64 * GIB, kind="tmpfs"),
            "the target is memory",
            "a directory on storage",
        ),
        (
            g1(nodes=2, offset=1, said={**IOR_SAID, "clients per node": 4}),
            "shifted by 0 of 2 node(s)",
            "limits.case_bytes to",
        ),
        (
            g1(nodes=2, offset=1, shifts=2),
            "shifted by 2 of 2 node(s)",
            "limits.case_bytes to",
        ),
        (
            g1(nodes=2, offset=1, page_caches=1),
            "2 node(s), which have 1 page cache(s)",
            "limits.case_bytes to",
        ),
        (g1(EMPTY), "emptied 1 times of 2", "Use two nodes or more"),
        (
            g1(Eviction("c", 2, 100, 0, "x: gone"), EMPTY),
            "x: gone",
            "Use two nodes or more",
        ),
        (
            g1(MORE, MORE, MORE, EMPTY, of=4, nodes=2, reads=[101, 101]),
            "emptied of 100 of 101",
            "Use two nodes",
        ),
    ],
)
def test_g1_objects(finding, saw, remedy):
    assert finding.outcome is INVALID, finding
    says(finding, "G1", saw, "V >= 2 M", "O_DIRECT", remedy)
    assert "zfs" not in saw or "the O_DIRECT variant" not in finding.remedy


@pytest.mark.parametrize(
    "fetched, outcome",
    [
        ([GIB, GIB], OK),
        ([GIB * 95 // 100 + 2, GIB], OK),
        ([GIB, GIB * 94 // 100], INVALID),
        ([0, GIB], INVALID),
        ([None, None], OK),
    ],
)
def test_g1_tasks_must_have_fetched_what_they_read(fetched, outcome):
    whole = data(o_direct=False)
    for at, count in enumerate(fetched):
        whole = whole.witness("read", at, moved=Reading((count or 0) // 2, 0))
    if None in fetched:
        whole = whole.alter(task_counters={})
    finding = client_cache(whole.phase("read"))
    assert finding.outcome is outcome, finding


# --- G4: duration ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tier, seconds, outcome",
    [
        ("quick", 0.0199, INVALID),
        ("quick", 0.02, WARN),
        ("quick", 30, OK),
        ("daily", 30, WARN),
        ("acceptance", 59.9, INVALID),
    ],
)
def test_g4(tier, seconds, outcome):
    whole = data().output("read", 0, seconds=1000.0).output("read", 1, seconds=seconds)
    assert figures.duration(whole.phase("read", tier)).outcome is outcome


@pytest.mark.parametrize(
    "operations, quantity, tier, outcome",
    [
        (1_000, "latency_p99", "daily", OK),
        (999, "latency_p99", "daily", INVALID),
        (10_000, "latency_p999", "acceptance", OK),
        (9_999, "latency_p999", "acceptance", INVALID),
        (9_999, "latency_p999", "quick", WARN),
    ],
)
def test_g4_wants_operations_beyond_a_percentile(operations, quantity, tier, outcome):
    whole = (
        data()
        .output("read", 0, operations=10**6)
        .output("read", 1, operations=operations)
    )
    whole = whole.planned(
        "read", rates={"bw": ("read", "bw"), "slow": ("read", quantity)}
    )
    (found,) = figures.beyond(whole.phase("read", tier))
    assert (found.metric, found.outcome) == ("slow", outcome)


def test_g4_an_execution_without_operations_does_not_hide_the_others():
    whole = data().output("read", 0, operations=None).output("read", 1, operations=9)
    whole = whole.planned("read", rates={"slow": ("read", "latency_p99")})
    (found,) = figures.beyond(whole.phase("read"))
    assert found.outcome is WARN


# --- G5: stragglers -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ranks, outcome",
    [
        ([(0.85, 1.15)], OK),
        ([(0.84, 1.16)], WARN),
        ([(1.0, 1.0), (0.5, 1.5)], WARN),
        ([], None),
        ([()], None),
    ],
)
def test_g5(ranks, outcome):
    whole = data().output("read", 0, rank_seconds=()).output("read", 1, rank_seconds=())
    for at, times in enumerate(ranks):
        whole = whole.output("read", at, rank_seconds=times)
    finding = figures.tail(whole.phase("read"))
    assert (finding and finding.outcome) is outcome


# --- G6: the ceiling ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value, outcome",
    [
        (102.0, OK),
        (102.01, INVALID),
        (50, OK),
        (49.9, WARN),
    ],
)
def test_g6(value, outcome):
    assert ceiling(value).outcome is outcome


def ceiling(value, **access):
    """G6 of a client with a NIC of 100 MiB/s; the slower repetition does not matter."""
    site = {"source": "x", "clients": {"nic": "100 MiB/s"}}
    whole = (
        data()
        .declared(topology=site)
        .planned("read", **{"saturates": "bandwidth", **access})
    )
    (found,) = figures.ceiling(whole.phase("read", read_bw=[value, 10.0]))
    assert found.metric == "read_bw"
    return found


# --- G7, G8: units and bytes ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "files, written, found, syncs, outcome",
    [
        (8000, (512_000, 512_000), None, True, OK),
        (8000, (512_000, 511_999), None, True, INVALID),
        (8000, (511_999, 512_000), None, True, INVALID),
        # They wait in memory, as nobody asked for a sync.
        (8000, (512_000, 0), None, False, OK),
        (999, (0, 0), 100, True, OK),
        (99, (10**9, 10**9), 99, True, OK),
        (8000, (10**9, 10**9), 100, True, OK),
        (8000, (10**9, 10**9), 99, True, INVALID),
    ],
)
def test_g9_wants_new_files_on_the_target(files, written, found, syncs, outcome):
    whole = metadata().planned("create", syncs=syncs)
    for at in (0, 1):
        counted = Reading(0, written[at])
        whole = whole.output("create", at, operations=files)
        whole = whole.witness("create", at, counters={"8:16": counted})
    looks = [] if found is None else [(begins(n, 1) - 1, found) for n in (1, 2)]
    finding = moved.storage(whole.alter(found=tuple(looks)).phase("create"))
    assert finding.outcome is outcome, finding


# --- G9: the file system --------------------------------------------------------------------------

ROOM = Space(1000, 500, 1000, 500)


def view(host="n1", fstype="lustre", source="mgs:/scratch", uuid=""):
    return View(host, "/s/x", Mount(1, "/s", source, fstype, "rw"), ROOM, uuid=uuid)


def identity(*views, declared=None):
    target = extras(target={"type": "lustre", "source": None, "uuid": declared}).target
    return preflight.identity(target, views)


def identity_of(**left):
    """G9 of a case whose nodes told this in the end."""
    return preflight.identity_of(data().alter(**left).seen())


@pytest.mark.parametrize(
    "finding, words",
    [
        (
            identity(view(uuid="B"), declared="A"),
            ["n1 sees UUID B", "with UUID A", "target.uuid"],
        ),
        (identity(view(), declared="A"), ["n1 sees UUID unknown", "with UUID A"]),
        (
            identity(
                view(uuid="A"),
                view("n2", uuid="A"),
                view("n3", uuid="B", source="/dev/b"),
            ),
            ["n3 sees UUID B", "from /dev/b", "n1 sees UUID A", "on every node"],
        ),
        (
            identity(view(), view("n2", uuid="A"), view("n3", uuid="B")),
            ["n3 sees UUID B", "n2 sees UUID A"],
        ),
        (
            identity_of(
                activity=[
                    NodeActivity(host="n1", load1=0.0, uuid="U-1"),
                    NodeActivity(host="n2", load1=0.0, uuid="B"),
                ]
            ),
            ["n2 sees UUID B", "after the last phase", "U-1 before the first byte"],
        ),
        (
            identity_of(
                task_counters=data()
                .witness("read", of=1, host="n7")
                .evidence.task_counters
            ),
            ["tasks ran on n7", "n1 looked at the target", "launcher"],
        ),
    ],
)
def test_g9_tells_file_systems_of_one_type_apart(finding, words):
    assert finding.outcome is INVALID
    says(finding, *words)


# --- G13, G14: room -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "free, need, max_fill, outcome, lowest",
    [
        (600, 500, 1.0, OK, 600),
        (599, 500, 1.0, INVALID, 600),
        (249, 100, 0.85, INVALID, 250),
    ],
)
def test_g13(free, need, max_fill, outcome, lowest):
    order = job_order("/s", held_bytes=need, max_fill=max_fill)
    found = preflight.room(Space(1000, free, 0, 0), order)
    assert found.outcome is outcome, found
    assert found.demands.startswith(f"{lowest} B free (1.2 x need, at most ")


@pytest.mark.parametrize(
    "total, free, files, outcome",
    [
        (1000, 600, 500, OK),
        (1000, 599, 500, INVALID),
        (1000, 54, 5, INVALID),
        (0, 0, 500, OK),
    ],
)
def test_g14_inodes(total, free, files, outcome):
    found = preflight.inodes(Space(1, 1, total, free), files)
    assert found.outcome is outcome
    if outcome is INVALID:
        says(
            found,
            f"{free} of {total} inodes free",
            f"{files} needed",
            "5% left",
            "limits.case_files",
        )


@pytest.mark.parametrize(
    "quota, words",
    [
        (Quota("u", None, None), []),
        (Quota("u", 1200, 120), []),
        (Quota("u", 1199, None), ["quota of u leaves 1.17 KiB", "1000 B needed"]),
        (Quota("u", None, 119), ["quota of u leaves 119 files, 100 needed"]),
    ],
)
def test_g14_quota(quota, words):
    open_quota = Quota("g", None, None)
    found = preflight.quota(replace(view(), quotas=(open_quota, quota)), 1000, 100)
    assert (found.outcome is OK) == (not words)
    if words:
        assert found.outcome is INVALID
        says(found, "G14", "1.2 x need within every quota", "raise the quota", *words)


def test_g14_a_quota_that_was_not_answered_is_a_remark():
    for unanswered, outcome in ((), OK), (("project 9",), WARN):
        quotas = (Quota("user 7", None, None),)
        seen = replace(view(), quotas=quotas, unanswered=unanswered)
        found = preflight.quota(seen, 1, 1)
        assert (found.guard, found.outcome) == ("G14", outcome)


# --- G17: dispersion ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "samples, limit, outcome",
    [
        ([100, 100], 0.0, OK),
        ([90, 100, 110], 0.1, OK),
        ([90, 100, 110], 0.0999, UNSTABLE),
        ([50, 150], 0.10, UNSTABLE),
        ([100], 0.10, WARN),
        ([], 0.10, WARN),
    ],
)
def test_g17(samples, limit, outcome):
    assert spread(samples, limit).outcome is outcome


def test_g17_of_a_case_whose_repetitions_lie_within_its_sample():
    whole = data().declared(limits={"repetitions": 3})
    whole = replace(whole, plan=replace(whole.plan, repetitions=1))
    found = of_reads(whole.seen(read_bw=[100]))
    assert found.saw == "one value a run: spread unknown"
    assert found.remedy.startswith("Compare runs")


def spread(samples, limit, tail=False):
    whole = data().declared(limits={"max_spread": limit})
    metrics = tuple(replace(metric, tail=tail) for metric in whole.metrics)
    seen = replace(whole, metrics=metrics).seen(read_bw=samples)
    return of_reads(seen)


def of_reads(seen):
    (found,) = [one for one in figures.spread(seen) if one.metric == "read_bw"]
    return found


def test_g17_only_remarks_on_the_slowest_requests():
    assert spread([80, 100, 120], 0.05, tail=True).outcome is WARN


# --- G10: the layout that was asked for -----------------------------------------------------------


def laid(path, *osts, **change):
    """A plain file with one stripe on each of its targets."""
    fields = {
        "stripe_count": len(osts),
        "stripe_bytes": MIB,
        "objects": osts,
        "instantiated": True,
        **change,
    }
    return FileLayout(path=path, parts=(Part(**fields),))


def noted(files, total=0, **more):
    """Layouts as the first node notes them."""
    return Layouts(repetition=1, files=tuple(files), total=total or len(files), **more)


def laid_out(
    layouts,
    request=None,
    placed=MappingProxyType({}),
    usable=range(4),
    saturates=False,
    **planned,
):
    """The layouts of a repetition of a case on Lustre with so many storage targets."""
    whole = data("lustre").planned(
        "write", saturates="bandwidth" if saturates else None
    )
    whole = whole.planned("read", saturates=None)
    pins = Pins(kind="files", names=tuple(placed)) if placed else None
    plan = replace(
        whole.plan, layout=request, pins=pins, **{"shared_file": False, **planned}
    )
    targets = tuple(StorageTarget(index=n, uuid=f"OST{n}", active=True) for n in usable)
    opened = replace(whole.evidence.views[0], targets=targets)
    striping = Striping(dict(placed), layouts)
    changed = replace(whole, plan=plan).alter(opened=opened, striping=(striping,))
    return changed.seen()


def g10(layouts, *words):
    (finding,) = striping.layout(laid_out(layouts, *words))
    return finding


ENDS = (16 * MIB, 64 * MIB, None)


def grown(*counts, ends=ENDS, size=MIB):
    parts, begin = [], 0
    for end, count in zip(ends, counts, strict=True):
        objects = (0,) if not parts else ()
        part = Part(
            stripe_count=count,
            stripe_bytes=size,
            objects=objects,
            instantiated=bool(objects),
        )
        parts.append(part.within(begin, end))
        begin = end or begin
    return FileLayout(path="f", parts=tuple(parts), composite=True)


@pytest.mark.parametrize(
    "request_, placed, files",
    [
        (Layout(stripe_count=2), {}, [laid("a", 0, 1), laid("b", 2, 3)]),
        (Layout(stripe_count=2, start=2), {}, [laid("a", 2, 3)]),
        (Layout(stripe_count=-1), {}, [laid("a", 1, 0, 2, 3)]),
        (None, {"a": 0, "d/b": 3}, [laid("a", 0), laid("d/b", 3)]),
        (None, {"d": 2}, [laid("d/a", 2), laid("d/e/b", 2)]),
        (Layout(stripe_count=2), {"a": 3}, [laid("a", 3), laid("b", 0, 1)]),
    ],
)
def test_g10_believes(request_, placed, files):
    finding = g10(noted(files), request_, placed)
    assert finding.outcome is OK, finding
    assert finding.saw == f"{len(files)} file(s) as asked"


@pytest.mark.parametrize(
    "request_, placed, files, saw",
    [
        (Layout(stripe_count=1), {}, [], "no file was found"),
        (Layout(stripe_count=-1), {}, [laid("a", 0, 1, 3)], "a has 3 stripe(s)"),
        (
            Layout(stripe_bytes=4 * MIB),
            {},
            [laid("a", 0)],
            "a has stripes of 1048576 bytes",
        ),
        (Layout(stripe_count=1, start=2), {}, [laid("a", 3)], "a starts on target 3"),
        (Layout(stripe_count=1), {}, [grown(1, 2, -1)], "f has 3 component(s)"),
        (None, {"a": 0}, [laid("a", 0, 1)], "a is on target 0, 1 instead of 0"),
        (None, {"a": 0}, [laid("a", 0), laid("b", 0)], "b was not pinned to a target"),
        (None, {"a": 0, "b": 1}, [laid("a", 0)], "b was pinned and holds no file"),
    ],
)
def test_g10_objects(request_, placed, files, saw):
    finding = g10(noted(files), request_, placed)
    assert finding.outcome is INVALID, finding
    says(finding, "G10", saw, "lfs getstripe")


def told(*files, **more):
    """G10 of a case that asks for no layout."""
    return g10(noted(files, **more))


def test_g10_tells_the_layouts_of_a_case_that_asks_for_none():
    finding = told(laid("a", 0), laid("b", 3))
    assert (finding.outcome, finding.saw) == (OK, "2 file(s): 2 with 1 x 1 MiB")
    finding = told(laid("a", 0), laid("b", 3, 1), laid("c", 2))
    assert finding.outcome is WARN
    assert finding.saw == "3 file(s): 2 with 1 x 1 MiB, 1 with 2 x 1 MiB"
    assert told().outcome is WARN


def test_g10_of_layouts_that_were_not_answered():
    silent = noted([], problem="no Lustre")
    for request_, outcome in ((None, WARN), (Layout(stripe_count=1), INVALID)):
        finding = g10(silent, request_)
        assert finding.outcome is outcome
        assert finding.saw == "no Lustre"


ON_MDT = Part(
    stripe_count=0, stripe_bytes=MIB, pattern="mdt", instantiated=True
).within(0, MIB)
FIRST = Part(stripe_count=1, stripe_bytes=MIB, objects=(1,), instantiated=True).within(
    0, 16 * MIB
)
REST = Part(stripe_count=2, stripe_bytes=MIB, objects=(2, 3), instantiated=True)


#: Data up to 64 KiB with the metadata, the others on a storage target.
DOM = Layout(metadata_bytes=1 << 16, stripe_count=1)


@pytest.mark.parametrize(
    "first, request_, saw",
    [
        ({"pattern": "mdt", "stripe_count": 0}, DOM, "1 file(s) as asked"),
        (
            {"stripe_count": 1, "objects": (2,)},
            DOM,
            "f has a component (1 x 1 MiB) up to 65536; 1 of 1",
        ),
        (
            {"pattern": "mdt", "stripe_count": 0},
            replace(DOM, metadata_bytes=MIB),
            "f has a component (on the metadata target) up to 65536",
        ),
    ],
)
def test_g10_of_files_whose_data_lie_with_the_metadata(first, request_, saw):
    begins = Part(stripe_bytes=MIB, instantiated=True, **first).within(0, 1 << 16)
    rest = Part(stripe_count=1, stripe_bytes=4 * MIB).within(1 << 16, None)
    file = FileLayout(path="f", parts=(begins, rest), composite=True)
    finding = g10(noted([file]), request_)
    assert finding.saw.startswith(saw)
    assert (finding.outcome is OK) == saw.endswith("as asked")


# --- G11: storage targets that are hit ------------------------------------------------------------


def covered(files, targets, shared=False, asked=True, saturates=False):
    request = Layout(stripe_count=1) if asked else None
    seen = laid_out(
        noted(files), request, usable=targets, saturates=saturates, shared_file=shared
    )
    (finding,) = striping.coverage(seen)
    return finding


def spread_over(*osts):
    return [laid(f"f.{i}", ost) for i, ost in enumerate(osts)]


@pytest.mark.parametrize(
    "files, targets, shared",
    [
        (spread_over(0, 1, 2, 3), 4, False),
        (spread_over(*range(9)), 10, False),
        (spread_over(*range(9), *range(9), 0, 1), 10, False),
        ([laid("a", 0)], 4, True),
    ],
)
def test_g11_believes(files, targets, shared):
    finding = covered(files, range(targets), shared=shared)
    assert finding.outcome is OK, finding


@pytest.mark.parametrize(
    "files, targets, saw",
    [
        (spread_over(0, 0), 4, "on 1 of 4 storage targets, at most 2 on one"),
        (spread_over(*range(8), 0, 0), 10, "on 8 of 10"),
        (spread_over(5, 6, 7, 8), 4, "on 0 of 4"),
        (spread_over(0, 0, 0, 0, 1, 2, 3, 3), 4, "at most 4 on one (target 0), mean 2"),
    ],
)
def test_g11_remarks_what_an_allocator_may_do(files, targets, saw):
    finding = covered(files, range(targets), saturates=True)
    assert finding.outcome is WARN
    says(finding, "G11", saw, "0.9", "1.5 x mean")


#: 32 new files of two stripes on a healthy Lustre 2.17 with four targets, in order.
ALLOCATED = [(0, 1), (2, 3), (1, 2), (3, 0), (2, 3), (0, 1), (3, 0), (1, 2)]


@pytest.mark.parametrize("first", range(8))
@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 8])
def test_g11_never_refuses_what_lustre_did(first, count):
    osts = [ALLOCATED[(first + n) % 8] for n in range(count)]
    files = [laid(f"f.{n}", *pair) for n, pair in enumerate(osts)]
    assert covered(files, range(4), saturates=True).outcome in (OK, WARN)


@pytest.mark.parametrize(
    "hit, asked, saturates, free, outcome",
    [
        ([0], True, False, 90, INVALID),
        ([0], False, True, 90, INVALID),
        ([0, 1], False, True, 90, INVALID),  # half of the targets
        ([0, 1, 2], False, True, 90, WARN),
        ([0], False, False, 90, WARN),
        ([0], False, True, 70, WARN),  # Lustre weighs targets that are unequally full
    ],
)
def test_g11_refuses_what_no_allocator_does(hit, asked, saturates, free, outcome):
    files = spread_over(*hit * (18 // len(hit)))
    case = laid_out(
        noted(files),
        Layout(stripe_count=1) if asked else None,
        usable=range(4),
        saturates=saturates,
    )
    opened = case.evidence.opened
    *rest, last = (replace(target, bytes_free=90) for target in opened.targets)
    targets = (*rest, replace(last, bytes_free=free))
    evidence = replace(case.evidence, opened=replace(opened, targets=targets))
    (finding,) = striping.coverage(replace(case, evidence=evidence))
    assert finding.outcome is outcome, finding
    assert covered([], range(4)).outcome is INVALID


def test_g11_a_shared_file_that_asks_for_no_layout_says_how_many_targets_it_hit():
    one = covered([laid("a", 2)], range(4), shared=True, asked=False)
    assert one.outcome is WARN
    says(one, "G11", "1 file(s) on 1 of 4 storage targets", "lfs setstripe -c -1 DIR")
    every = covered([laid("a", 2, 3, 0, 1)], range(4), shared=True, asked=False)
    assert (every.outcome, every.saw) == (OK, "1 file(s) on 4 of 4 storage targets")


# --- G12: health of the storage targets -----------------------------------------------------------


def ost(index, flags="", active=True, free=90):
    return StorageTarget(
        index=index,
        uuid=f"OST{index}",
        active=active,
        flags=flags,
        bytes_total=100,
        bytes_free=free,
    )


@pytest.mark.parametrize(
    "targets, declared, outcome, saw",
    [
        ([], None, INVALID, "no storage target is known"),
        ([ost(0)], 2, INVALID, "1 storage targets; demanded: 2 storage targets"),
        ([ost(0), ost(1, active=False)], None, INVALID, "inactive: OST1;"),
        (
            [ost(0, "N"), ost(1, "D")],
            None,
            INVALID,
            "elsewhere than on OST0 (no new files);",
        ),
        ([ost(0), ost(1, "D")], None, WARN, "OST1 (degraded)"),
    ],
)
def test_g12_objects(targets, declared, outcome, saw):
    finding = preflight.health(targets=targets, declared=declared)
    assert finding.outcome is outcome, finding
    says(finding, "G12", saw, "lfs df")


# --- G14: metadata targets ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mdts, files, outcome",
    [
        ((0,), 100, OK),
        ((1,), 100, INVALID),
        ((0, 1), 100, INVALID),
        ((0, 1), 10, OK),
    ],
)
def test_g14_of_the_metadata_targets_of_the_directory(mdts, files, outcome):
    targets = [
        MetadataTarget(index=0, inodes_total=1000, inodes_free=900),
        MetadataTarget(index=1, inodes_total=100, inodes_free=15),
    ]
    finding = preflight.metadata_room(targets, mdts, files)
    assert finding.outcome is outcome, finding
    assert "MDT " in finding.saw


# --- G23: stripes against the size of a file ------------------------------------------------------


def stripes_of(size, stripe, count):
    part = Part(stripe_count=count, stripe_bytes=stripe)
    return preflight.stripes_against_size(size, part)


def test_g23_holds_for_the_last_component_with_data():
    parts = (ON_MDT, FIRST.within(MIB, 16 * MIB), REST.within(16 * MIB, None))
    assert last_with_data(parts, 8 * MIB) == parts[1]
    assert last_with_data(parts, 17 * MIB) == parts[2]
    assert last_with_data(parts, MIB) is None
    assert last_with_data((), MIB) is None


def test_g23_counts_what_lies_in_the_last_component():
    """Lustre 2.17, -E 64M -c 1 -E -1 -c 4 -S 1M: of 72 MiB, three targets had two stripes each."""
    rest = Part(stripe_count=4, stripe_bytes=MIB, begin_bytes=64 * MIB)
    says(
        preflight.stripes_against_size(72 * MIB, rest),
        "G23",
        "8 MiB in stripes of 1 MiB over 4 ",
    )
    assert preflight.stripes_against_size(96 * MIB, rest).outcome is OK


@pytest.mark.parametrize(
    "size, stripe, count", [(32, 1, 4), (64 * MIB, MIB, 4), (1, 8, 1)]
)
def test_g23_believes(size, stripe, count):
    assert stripes_of(size, stripe, count).outcome is OK


# --- G8: bytes, and the bandwidth that they make ----------------------------------------------------


@pytest.mark.parametrize("factor, outcome", [(1.04, OK), (0.1, INVALID), (10, INVALID)])
def test_g8_a_bandwidth_is_bytes_by_seconds(factor, outcome):
    """A tool with true bytes and seconds printed ten times its bandwidth."""
    whole = data()
    stated = whole.evidence.outputs["read"][0].phases[0].rates["bw"]
    rates = {"bw": replace(stated, value=factor * stated.value)}
    finding = figures.bytes_moved(whole.output("read", 0, rates=rates).phase("read"))
    assert finding.outcome is outcome, finding


# --- G3: the servers' cache -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "total, memory, outcome",
    [(32 * GIB, 16 * GIB, OK), (32 * GIB - 1, 16 * GIB, WARN), (1, None, OK)],
)
def test_g3(total, memory, outcome):
    servers = {"count": 2, "nic": "1 GB/s", "memory": f"{(memory or 0) >> 31} GiB"}
    whole = data()
    if memory:
        whole = whole.declared(topology={"source": "x", "servers": servers})
    whole = whole.output("read", 0, bytes_moved=1).output("read", 1, bytes_moved=total)
    finding = server_cache(whole.phase("read"))
    assert finding.outcome is outcome, finding
    if outcome is WARN:
        says(
            finding,
            "G3",
            "16 GiB of memory in the servers",
            "2 x the memory",
            "limits.case_bytes",
        )


# --- G15: tasks and cores -------------------------------------------------------------------------

#: mpirun of Open MPI 4.1.4 on a node with two cores: two tasks, and three with --bind-to core:overload-allowed.
APART = """\
[vm:03927] MCW rank 0 bound to socket 0[core 0[hwt 0]]: [B/.]
[vm:03927] MCW rank 1 bound to socket 0[core 1[hwt 0]]: [./B]
"""
TOGETHER = """\
[vm:18881] MCW rank 2 bound to socket 0[core 0[hwt 0]]: [B/.]
[vm:18881] MCW rank 0 bound to socket 0[core 0[hwt 0]]: [B/.]
[vm:18881] MCW rank 1 bound to socket 0[core 1[hwt 0]]: [./B]
"""


def test_bindings_are_read():
    first, second = mpi.parse_bindings("warning: x\n" + APART)
    assert (first.host, first.rank, first.cores) == ("vm", 0, {"socket 0[core 0"})
    assert (second.rank, second.cores) == (1, {"socket 0[core 1"})
    (both,) = mpi.parse_bindings(
        "[n1:1] MCW rank 0 bound to socket 0[core 0[hwt 0-1]], socket 0[core 1[hwt 0-1]]: [BB/BB]\n"
    )
    assert len(both.cores) == 2
    assert mpi.parse_bindings("") == []


#: mpirun of Open MPI 5.0.11 on that node: two tasks bound to cores, two to the whole of it, and those whose cores
#: it does not tell. Several packages are joined by a blank (PRRTE, hwloc_base_util.c).
FIVE_APART = """\
[vm:19703] Rank 0 bound to package[0][core:L0]
[vm:19703] Rank 1 bound to package[0][core:L1]
"""
FIVE_ANYWHERE = """\
[vm:22276] Rank 0 bound to package[0][core:L0-1]
[vm:22276] Rank 1 bound to package[0][core:L0-1]
"""
FIVE_UNTOLD = """\
[vm:22281] Rank 0 bound to package[0][hwt:L0]
[vm:19763] Rank 0 is not bound (or bound to all available processors)
"""


def test_bindings_of_open_mpi_5_are_read():
    assert [one.cores for one in mpi.parse_bindings(FIVE_APART)] == [
        {"core 0"},
        {"core 1"},
    ]
    assert [len(one.cores) for one in mpi.parse_bindings(FIVE_ANYWHERE)] == [2, 2]
    assert mpi.parse_bindings(FIVE_UNTOLD) == []
    (wide,) = mpi.parse_bindings(
        "[n1:1] Rank 7 bound to package[0][core:0-1,3] package[1][core:8]\n"
    )
    assert wide == mpi.Binding("n1", 7, frozenset(f"core {n}" for n in (0, 1, 3, 8)))


@pytest.mark.parametrize(
    "change",
    [
        {"tasks": 8},
        {"cores": [8, 4]},
        {"tasks": 9, "sweeps": True},
        {"bindings": mpi.parse_bindings(TOGETHER), "tasks": 9, "sweeps": True},
        # As many tasks as the set of cores has that they may use: each finds one of its own.
        {"bindings": mpi.parse_bindings(FIVE_ANYWHERE)},
    ],
)
def test_g15_believes(change):
    finding = g15(**change)
    assert finding.outcome is OK, finding


def g15(tasks=4, cores=(8,), bindings=(), sweeps=False):
    """G15 of nodes by their cores, and what their launcher bound."""
    whole = data()
    facts = {f"n{at}": {"cpu.cores": n} for at, n in enumerate(cores)}
    left = {"nodes": facts, "bindings": tuple(bindings)}
    plan = replace(
        whole.plan, nodes=len(cores), tasks=tasks * len(cores), sweeps_tasks=sweeps
    )
    return placement.placement(replace(whole, plan=plan).alter(**left).seen())


@pytest.mark.parametrize(
    "change, words",
    [
        ({"tasks": 9}, ["9 task(s) on 8 core(s)", "Lower scale.tasks_per_node"]),
        (
            {"bindings": mpi.parse_bindings(TOGETHER)},
            ["3 task(s) bound, at most 2 to a core", "a core of its own"],
        ),
        (
            # One may go anywhere, but the other two hold all cores.
            {
                "bindings": mpi.parse_bindings(
                    FIVE_APART + FIVE_ANYWHERE.splitlines()[0]
                )
            },
            ["3 task(s) bound, at most 2 to a core"],
        ),
    ],
)
def test_g15_remarks(change, words):
    finding = g15(**change)
    assert finding.outcome is WARN, finding
    says(finding, "G15", *words)


# --- G18: data that can be compressed -------------------------------------------------------------

FIO = {"jobs": {}, "refill_buffers": "1", "bs": "1m"}


def g18(tool, parameters):
    """G18 of what a tool says of its data in the last repetitions."""
    whole = data().below(compresses="zfs")
    (one, *_) = whole.evidence.outputs["read"]
    outputs = [replace(one, tool=tool, parameters=given) for given in parameters]
    whole = whole.alter(outputs={**whole.evidence.outputs, "read": outputs})
    finding = data_entropy(whole.phase("read"))
    return finding


@pytest.mark.parametrize(
    "tool, parameters, saw",
    [
        (
            "ior",
            [{"data_type": "random"}, {"data_type": "timestamp"}],
            "data timestamp on zfs",
        ),
        ("fio", [{"bs": "1m", "jobs": {}}], "written again and again"),
        (
            "fio",
            [{**FIO, "buffer_compress_percentage": "50"}],
            "buffer_compress_percentage=50",
        ),
        ("mdtest", [{}], "data of mdtest"),
    ],
)
def test_g18_objects(tool, parameters, saw):
    finding = g18(tool, parameters)
    assert finding.outcome is INVALID, finding
    says(finding, "G18", saw, "-l random", "refill_buffers=1")


# --- G19: what others load the target with --------------------------------------------------------


def g19(own, counted):
    """G19 of a case of one read and one write on XFS; what both move is counted in the read."""
    whole = data("xfs")
    if own is None:
        whole = whole.below(devices=(), disks=())
    for way, mine in (("read", own or Reading()), ("write", Reading())):
        (one, *_) = whole.evidence.outputs[way]
        part = replace(one.phases[0], operations=0, transfer_bytes=MIB)
        whole = whole.alter(
            outputs={**whole.evidence.outputs, way: (replace(one, phases=(part,)),)},
            task_counters={
                **whole.evidence.task_counters,
                way: whole.evidence.task_counters[way][:1],
            },
        )
        both = counted if way == "read" else Reading()
        told = {"moved": Reading(), "counters": {"8:16": both}}
        whole = whole.witness(way, 0, **told).witness(way, 0, of=0, moved=mine)
    return others.foreign_load(whole.seen())


@pytest.mark.parametrize(
    "foreign, requests, outcome",
    [
        (4 * MIB, (1200, 2400), Outcome.CONTAMINATED),
        # A few large requests, many small ones, and a few of any size.
        (12 * MIB, (2400, 2660), OK),
        (MIB // 4, (1200, 2400), OK),
        (4 * MIB, (100, 355), OK),
        # Phases whose requests are not small.
        (4 * MIB, None, OK),
    ],
)
def test_g19_counts_requests_if_all_are_small(foreign, requests, outcome, monkeypatch):
    own, counted = requests or (None, 0)

    def of_phase(one, mine):
        return own and (own if one.phase.access.direction == "read" else 0)

    monkeypatch.setattr(others, "_requests", of_phase)
    of_all = Reading(4 * MIB + foreign, 0, counted)
    assert g19(Reading(4 * MIB, 0), of_all).outcome is outcome


@pytest.mark.parametrize(
    "executions, outcome",
    [
        ([(20_000, 20_010), (20_000, 19_990)], OK),
        ([(20_000, 20_010), (20_000, 40_000)], Outcome.CONTAMINATED),
        ([(20_000, 10_000), (20_000, 20_000)], INVALID),
        ([(1000, 500), (1000, 500)], Outcome.CONTAMINATED),
        # Others removed some.
        ([(1000, 500), (20_000, 20_000)], OK),
        # A few files beside few, and a tenth.
        ([(1000, 1900), (20_000, 22_000)], OK),
    ],
)
def test_g19_holds_files_against_the_inodes_in_use(executions, outcome):
    whole, looks, total = metadata(), list[Instant](), 50
    for at, (own, changed) in enumerate(executions):
        whole = whole.output("create", at, operations=own)
        begun = begins(at + 1, 0)
        looks += [
            Instant(begun + 0.4, 0, 0, total),
            Instant(begun + 5, 0, 0, total + changed),
        ]
        total += changed
    finding = others.foreign_files(whole.alter(moved=tuple(looks)).phase("create"))
    assert finding.outcome is outcome, finding
    assert others.foreign_files(whole.alter(moved=()).phase("create")) is None


def activity(**more):
    return NodeActivity(host="n1", load1=0.0, **more)


# --- G8, G4: the tool's word and the kernel's -----------------------------------------------------


GUARD = Guard(
    name="G8 witness",
    must="the kernel counts",
    remedy="Look for a cache",
    against="a: a test",
)


def g4(*executions, **more):
    """G4 of executions by what they report and who saw them."""
    figures = [[clock.reported_seconds(**known)] for known in executions]
    unseen = GUARD.unwitnessed("nobody saw it", required=False)
    return agreement.settle(GUARD, figures, fine="all", unseen=unseen, **more)


@pytest.mark.parametrize(
    "reported, ran, moving, outcome",
    [
        (30.0, 32.0, 29.5, OK),
        (29.4, 29.35, 30.9, OK),
        (30.0, 29.0, None, Outcome.INVALID),  # longer than its processes
        (15.0, 32.0, 29.5, Outcome.INVALID),  # a clock at half speed
        (27.0, 32.0, 29.5, Outcome.INVALID),
    ],
)
def test_g4_wants_seconds_that_the_job_confirms(reported, ran, moving, outcome):
    seen = {"reported": reported, "ran": ran, "moving": moving}
    assert g4(seen).outcome is outcome
    # On a busy node a healthy tool waits for a processor; it never reports more than its processes ran.
    busy = g4(seen, busy="n1 had a load of 20.0")
    excused = outcome is not OK and moving is not None
    assert busy.outcome is (Outcome.CONTAMINATED if excused else outcome)
    assert not excused or "at rest" in busy.remedy


@pytest.mark.parametrize(
    "more, outcome",
    [
        ({"asked": 10.5}, WARN),  # by its own word
        ({"asked": 10.6}, Outcome.INVALID),
        ({"asked": 30.0}, Outcome.INVALID),  # told to run three times as long
        (
            {"ran": 90.0, "working": 10.2},
            OK,
        ),  # its library took long to connect all tasks
        ({"ran": 90.0}, WARN),  # of which it may not report all
    ],
)
def test_g4_wants_no_fewer_seconds_than_the_tool_was_at_work(more, outcome):
    assert g4({"reported": 10.0, "ran": 12.0, **more}).outcome is outcome


@pytest.mark.parametrize(
    "working, outcome",
    [
        ((2.2, 2.2, 2.2), WARN),  # too short for what a tool may do beside
        ((2.3, 2.3, 2.3), Outcome.INVALID),  # a clock at less than half its speed
        ((19.0, 0.3, 0.3), OK),  # a busy machine
        ((19.0, 2.3, 0.3), Outcome.INVALID),
        ((None, 2.3, 2.3), Outcome.INVALID),
    ],
)
def test_g4_knows_how_long_a_tool_worked(working, outcome):
    """In half of the executions or more no longer than it reports, a quarter, and a second."""
    seen = [{"reported": 1.0, "ran": 20.0, "working": seconds} for seconds in working]
    assert g4(*seen).outcome is outcome


def test_g4_confirms_no_seconds_that_are_shorter_than_five_times_what_may_be_missed():
    """Seen: a wrapper multiplied a rate by 1.34, in phases below a second."""
    for short, long in (
        ({"moving": 0.9}, {"moving": 1.1}),
        ({"changing": 0.9}, {"changing": 1.1}),
        ({"working": 4.9}, {"working": 5.1}),
    ):
        assert g4({"reported": 6.0, "ran": 7.0, **short}).outcome is WARN
        assert g4({"reported": 6.0, "ran": 7.0, **long}).outcome is OK


def test_g4_confirms_no_seconds_at_which_nobody_looked_for_a_second():
    """Seen on NFS, on a node without an idle processor: a wrapper divided the seconds by 1.3."""
    seen = {"reported": 3.2428, "ran": 9.18, "moving": 2.375}
    assert g4({**seen, "unseen": 0.99}).outcome is OK
    assert g4({**seen, "unseen": 1.504}).outcome is WARN


# --- G20: connections to the servers --------------------------------------------------------------


def test_g20_names_all_that_a_failure_took_away():
    """The servers of a real Lustre were killed: the first trouble was an MDT, and an eviction by an OST the error."""
    troubles = (
        "rig-MDT0001 lost rig-MDT0001",
        "rig-OST0000 evicted by rig-OST0000",
    )
    whole = data().alter(activity=(activity(troubles=troubles),))
    plan = replace(whole.plan, checks_all=True)
    finding = placement.connections(replace(whole, plan=plan).seen())
    assert finding.outcome is WARN
    assert all(trouble in finding.saw for trouble in troubles)


def test_g8_knows_that_tasks_read_programs_too():
    """If memory is short, again and again: 75.8 MiB were seen for 24 MiB of data. They are not the target's."""
    for counted, outcome in ((GIB, OK), (3 * GIB, INVALID)):
        counters = dict.fromkeys(("8:17", "8:16"), Reading(counted, 1))
        whole = data("ext4 on a partition")
        for at in (0, 1):
            moves = Reading(3 * GIB // 2, 0)
            whole = whole.witness("read", at, moved=moves, counters=counters)
        assert moved.bytes_witnessed(whole.phase("read")).outcome is outcome


@pytest.mark.parametrize(
    "grew, carried",
    [
        # What carried hardly more than was written counts alone, each disk of a mirror too.
        ({"net": 1.04, "8:0": 1.06}, ["net"]),
        ({"8:0": 1.0, "8:16": 1.04}, ["8:0", "8:16"]),
        # Others use it as well.
        ({"8:0": 1.5, "net": 0.1}, ["8:0"]),
        # Two of them together.
        ({"8:0": 0.5, "net": 0.5}, [""]),
        ({"8:0": 0.5, "net": 0.4}, []),
    ],
)
def test_g8_takes_the_ways_out_of_a_node_that_carried_the_writes(grew, carried):
    counters = {name: Reading(0, round(share * GIB)) for name, share in grew.items()}
    whole = data("fuse.bindfs").below(ways=("8:0", "8:16"))
    for at in (0, 1):
        whole = whole.witness("write", at, counters=counters)
    assert sorted(moved._carriers(whole.seen())) == carried


# --- G13: shares ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "need, share, outcome", [(10, 0.1, OK), (11, 0.1, INVALID), (0, 0.0, OK)]
)
def test_g13_a_case_takes_a_share_of_what_is_free(need, share, outcome):
    space = Space(1000, 100, 0, 0)
    order = job_order("/s", held_bytes=need, max_of_free=share)
    finding = preflight.share_of_free(space, order)
    assert finding.outcome is outcome
    if outcome is INVALID:
        says(finding, "11 B of the 100 B that are free", "at most 10 B (0.1 x")


@pytest.mark.parametrize(
    "pieces, pinned, free, outcome",
    [
        (None, (), [90, 12], OK),  # even: 10 each
        (1, (), [90, 12], INVALID),  # one piece of 20 may land on either
        (3, (), [90, 16], INVALID),  # two of three pieces of 7 on one
        (3, (), [90, 17], OK),
        # both on the first
        (2, (1, 1), [90, 23], INVALID),
        (2, (1, 1), [1, 24], OK),
    ],
)
def test_g13_the_share_of_a_storage_target_follows_from_the_layout(
    pieces, pinned, free, outcome
):
    targets = [ost(n, free=room) for n, room in enumerate(free)]
    order = job_order("/s", held_bytes=20, pieces=pieces)
    finding = preflight.target_room(targets, order, pinned)
    assert finding.outcome is outcome, finding
