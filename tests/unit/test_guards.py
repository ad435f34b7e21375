"""Each guard speaks when it must, is silent when it may, and says number, limit and remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from iogauge.core.measurement import Stonewall
from iogauge.core.units import format_bytes
from iogauge.core.words import Tier
from iogauge.evidence.witness import Moved, NodeActivity, change
from iogauge.guards import figures, ledger, nodes, origin, others, preflight, striping, witness
from iogauge.guards.cache import client_cache, server_cache, write_back
from iogauge.guards.contents import data_entropy
from iogauge.guards.finding import Finding, Outcome
from iogauge.node import host
from iogauge.node.files import Eviction
from iogauge.node.host import Load
from iogauge.node.kinds import Traits, traits
from iogauge.node.lustre import client
from iogauge.node.lustre.directory import Directory
from iogauge.node.lustre.layout import FileLayout, Layouts, Part, last_with_data
from iogauge.node.lustre.quotas import Quota
from iogauge.node.lustre.request import Component, DirectoryLayout, Layout
from iogauge.node.lustre.targets import MetadataTarget, StorageTarget
from iogauge.node.mounts import Mount, Space
from iogauge.node.view import View
from iogauge.tools import mpi
from iogauge.tools.fio import output as tools_output
from iogauge.tools.ior.output import parse_json
from support.lustre.recorded import parse_parameters, sessions

GIB = 1 << 30
SAMPLES = Path(__file__).parents[1] / "data" / "samples"
CACHED = Traits("page-cache", True)
OPAQUE = Traits("opaque", False)
MEMORY = Traits("memory", True)
OK, WARN, INVALID, UNSTABLE = Outcome.OK, Outcome.WARN, Outcome.INVALID, Outcome.UNSTABLE


def says(finding: Finding, *words: str) -> None:
    """An objection has number, limit and remedy in its one line."""
    assert finding.outcome is not OK
    assert finding.remedy
    assert finding.remedy in str(finding)
    for word in words:
        assert word in str(finding), f"{word!r} is not in {finding}"


# --- G1: the client's cache -----------------------------------------------------------------------

READ: dict[str, Any] = {
    "nodes": 1,
    "task_offset": None,
    "o_direct": False,
    "traits": CACHED,
    "bytes_per_node": 4 * GIB,
    "node_memory": 16 * GIB,
}
EMPTY = Eviction("a", 2, 100, 4096, 0)
FULL = Eviction("b", 2, 100, 4096, 1)
MORE = Eviction("a", 3, 101, 4096, 0)


def evicted(*evictions: Eviction, of: int = 2, **more: Any) -> dict[str, Any]:
    return {"evictions": evictions, "expected_evictions": of, **more}


@pytest.mark.parametrize(
    ("change", "saw"),
    [
        ({"o_direct": True}, "O_DIRECT"),
        ({"nodes": 2, "task_offset": 1}, "readers shifted by 1 of 2 nodes"),
        ({"nodes": 3, "task_offset": 4}, "readers shifted by 1 of 3 nodes"),
        ({"bytes_per_node": 32 * GIB}, "V = 32 GiB per node, M = 16 GiB"),
        ({"bytes_per_node": 32 * GIB, "traits": OPAQUE}, "V = 32 GiB"),
        (evicted(EMPTY, EMPTY), "page cache emptied and proven empty 2 times (8 KiB dropped)"),
        (evicted(EMPTY, EMPTY, data_bytes=[100, 100]), "proven empty 2 times"),
        (evicted(EMPTY, MORE, MORE, of=3, data_bytes=[100, 101, 101]), "proven empty 3 times"),
        (evicted(EMPTY, EMPTY, MORE, MORE, of=4, data_bytes=[100, 101]), "proven empty 4 times"),
    ],
)
def test_g1_believes(change: dict[str, Any], saw: str) -> None:
    finding = client_cache(**{**READ, **change})
    assert finding.outcome is OK, finding
    assert saw in finding.saw


@pytest.mark.parametrize(
    ("change", "saw"),
    [
        ({"bytes_per_node": 32 * GIB - 1}, "against M = 16 GiB"),
        ({"o_direct": True, "traits": OPAQUE}, "not known to honour"),
        ({"bytes_per_node": 64 * GIB, "traits": MEMORY}, "the target is memory"),
        (evicted(EMPTY, EMPTY, traits=MEMORY), "the target is memory"),
        ({"nodes": 2, "task_offset": 2}, "Q = 2 on N = 2"),
        ({"nodes": 1, "task_offset": 1}, "on the node that wrote"),
        ({"nodes": 2, "task_offset": 1, "page_caches": 1}, "2 nodes share 1 page cache(s)"),
        (evicted(EMPTY), "emptied 1 times of 2"),
        (evicted(EMPTY, EMPTY, EMPTY), "emptied 3 times of 2"),
        (evicted(EMPTY, FULL), "not proven empty: b: 1 of 100 bytes resident"),
        (evicted(Eviction("c", 2, 100, 0, 0, "x: gone"), EMPTY), "x: gone"),
        (evicted(Eviction("c", 0, 0, 0, 0), EMPTY), "not proven empty"),
        (evicted(EMPTY, EMPTY, data_bytes=[101, 100]), "emptied of 100 of 101 bytes"),
        (evicted(MORE, EMPTY, data_bytes=[100, 101]), "emptied of 100 of 101 bytes"),
        (evicted(MORE, MORE, MORE, EMPTY, of=4, data_bytes=[101, 101]), "emptied of 100 of 101"),
        (evicted(EMPTY, EMPTY, traits=OPAQUE), "a cache that cannot be checked"),
    ],
)
def test_g1_objects(change: dict[str, Any], saw: str) -> None:
    finding = client_cache(**{**READ, **change})
    assert finding.outcome is INVALID, finding
    traits = {**READ, **change}["traits"]
    remedy = "Choose a directory on storage" if traits is MEMORY else "limits.case_bytes to"
    says(finding, "G1", saw, "V >= 2 M", "O_DIRECT", remedy)
    assert ("the O_DIRECT variant" in finding.remedy) == (traits is CACHED)


def test_g1_names_what_helps_and_nothing_else() -> None:
    loop = "loop7, whose file /srv/a image goes through the page cache (losetup --direct-io)"
    on_loop = replace(OPAQUE, why=f"vg0, on {loop}")
    assert (
        client_cache(**{**READ, "traits": on_loop}).remedy
        == "Run: losetup --direct-io=on /dev/loop7"
    )
    without_bytes = client_cache(**{**READ, "bytes_per_node": 0})
    assert without_bytes.remedy == "Use two nodes or more"


# --- G2: write-back -------------------------------------------------------------------------------

WRITE: dict[str, Any] = {
    "fsync": False,
    "o_direct": False,
    "traits": CACHED,
    "bytes_per_node": GIB,
    "node_memory": 16 * GIB,
}


@pytest.mark.parametrize(
    "change",
    [
        {"fsync": True},
        {"o_direct": True},
        {"bytes_per_node": 32 * GIB},
        {"fsync": True, "traits": OPAQUE},
    ],
)
def test_g2_believes(change: dict[str, Any]) -> None:
    assert write_back(**{**WRITE, **change}).outcome is OK


@pytest.mark.parametrize(
    ("change", "saw"),
    [
        ({"bytes_per_node": 32 * GIB - 1}, "no fsync"),
        ({"o_direct": True, "traits": OPAQUE}, "no fsync, O_DIRECT"),
        ({"bytes_per_node": 64 * GIB, "traits": MEMORY}, "the target is memory"),
    ],
)
def test_g2_objects(change: dict[str, Any], saw: str) -> None:
    finding = write_back(**{**WRITE, **change})
    assert finding.outcome is INVALID
    says(finding, "G2", saw, "M = 16 GiB", "fsync")


# --- G4: duration ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tier", "seconds", "outcome"),
    [
        ("quick", 0.0199, INVALID),
        ("quick", 0.02, WARN),
        ("quick", 30, OK),
        ("daily", 29.9, INVALID),
        ("daily", 30, WARN),
        ("daily", 60, OK),
        ("acceptance", 59.9, INVALID),
    ],
)
def test_g4(tier: Tier, seconds: float, outcome: Outcome) -> None:
    assert figures.duration(seconds=[1000, seconds, 1000], tier=tier).outcome is outcome


@pytest.mark.parametrize(("seconds", "outcome"), [(0.01, WARN), (59.9, WARN), (60, OK)])
def test_g4_demands_no_time_of_a_phase_that_follows(seconds: float, outcome: Outcome) -> None:
    found = figures.duration(seconds=[seconds], tier="acceptance", follows=True)
    assert found.outcome is outcome


@pytest.mark.parametrize(
    ("operations", "share", "tier", "outcome"),
    [
        (1_000, 0.01, "daily", OK),
        (999, 0.01, "daily", INVALID),
        (10_000, 0.001, "acceptance", OK),
        (9_999, 0.001, "acceptance", INVALID),
        (9_999, 0.001, "quick", WARN),
    ],
)
def test_g4_wants_operations_beyond_a_percentile(
    operations: int, share: float, tier: Tier, outcome: Outcome
) -> None:
    assert figures.beyond(operations=operations, share=share, tier=tier).outcome is outcome


# --- G5: stragglers -------------------------------------------------------------------------------


def wall(mean: float | None = None, least: int | None = None, most: int | None = None) -> Stonewall:
    return Stonewall(1.0, mean, least, most)


@pytest.mark.parametrize(
    ("ranks", "stonewalls", "outcome"),
    [
        ([(0.85, 1.15)], [], OK),
        ([(0.84, 1.16)], [], WARN),
        ([(1.0, 1.0), (0.5, 1.5)], [], WARN),
        ([], [(wall(100.0), 140.0, 2)], OK),
        ([], [(wall(100.0), 139.0, 2)], WARN),
        ([], [(wall(None, 5, 10), 1.0, 1)], OK),
        ([], [(wall(None, 4, 10), 1.0, 1)], WARN),
    ],
)
def test_g5(
    ranks: Sequence[Sequence[float]],
    stonewalls: Sequence[tuple[Stonewall, float, int]],
    outcome: Outcome,
) -> None:
    finding = figures.tail(rank_seconds=ranks, stonewalls=stonewalls)
    assert finding
    assert finding.outcome is outcome


@pytest.mark.parametrize("ranks", [[], [()]])
def test_g5_says_nothing_of_a_tool_that_tells_nothing(ranks: list[tuple[float, ...]]) -> None:
    assert figures.tail(rank_seconds=ranks, stonewalls=[(wall(), 1.0, 1)]) is None


# --- G6: the ceiling ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "outcome"),
    [(102.0, OK), (102.01, INVALID), (100, OK), (50, OK), (49.9, WARN), (1000, INVALID)],
)
def test_g6(value: float, outcome: Outcome) -> None:
    found = figures.ceiling(value=value, limit=100.0, limited_by="1 client", unit="MB/s")
    assert found.outcome is outcome


def test_g6_does_not_remark_on_a_scenario_that_drives_no_limit() -> None:
    for value, outcome in ((1.0, OK), (103.0, INVALID)):
        found = figures.ceiling(
            value=value, limit=100.0, limited_by="x", unit="B/s", saturating=False
        )
        assert found.outcome is outcome


# --- G7, G8: units and bytes ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bytes_s", "outcome"),
    [(1000, OK), (1010, OK), (990.2, OK), (1010.2, INVALID), (989.9, INVALID), (1024**2, INVALID)],
)
def test_g7(bytes_s: float, outcome: Outcome) -> None:
    found = figures.unit_sanity(operations_s=10, transfer_bytes=100, bytes_s=bytes_s)
    assert found.outcome is outcome


@pytest.mark.parametrize(
    ("requests", "latency", "outcome"),
    [
        (2.0, True, OK),
        (4.0, True, OK),
        (4.4, True, OK),
        (1.9, True, INVALID),
        (4.5, True, INVALID),
        # Between the requests fio waits for a processor.
        (0.1, False, OK),
        (4.5, False, INVALID),
    ],
)
def test_g7_wants_rate_and_latency_to_agree(
    requests: float, latency: bool, outcome: Outcome
) -> None:
    found = figures.unit_sanity(
        operations_s=10,
        transfer_bytes=100,
        bytes_s=1000,
        in_flight=(requests, 4),
        latency=latency,
    )
    assert found.outcome is outcome


@pytest.mark.parametrize(
    ("files", "written", "found", "outcome"),
    [
        (8000, 512_000, None, OK),
        (8000, 511_999, None, INVALID),
        (999, 0, 100, OK),
        (99, None, 99, OK),
        (8000, None, 100, OK),
        (8000, 10**9, 99, INVALID),
    ],
)
def test_g9_wants_new_files_on_the_target(
    files: int, written: int | None, found: int | None, outcome: Outcome
) -> None:
    made = witness.files_claim(files, written=written, found=found)
    assert witness.storage(traits=CACHED, made=[made]).outcome is outcome


@pytest.mark.parametrize(
    ("expected", "reported", "warnings", "saw"),
    [
        (100, [100, 99], (), "99 bytes moved"),
        (100, [101], (), "101 bytes moved"),
        (100, [100, None], (), "an unknown number of bytes moved"),
        (100, [100], ("short read",), "warning of the tool: short read"),
    ],
)
def test_g8_objects(
    expected: int | None, reported: list[int | None], warnings: tuple[str, ...], saw: str
) -> None:
    finding = figures.bytes_moved(expected=expected, reported=reported, warnings=warnings)
    assert finding.outcome is INVALID
    says(finding, "G8", saw, "no warning", "stage directory")
    if expected:
        says(finding, "100 bytes (N x T x b x s)")


@pytest.mark.parametrize(("expected", "reported"), [(100, [100, 100]), (None, [1, None])])
def test_g8_believes(expected: int | None, reported: list[int | None]) -> None:
    assert figures.bytes_moved(expected=expected, reported=reported).outcome is OK


# --- G9: the file system --------------------------------------------------------------------------

ROOM = Space(1000, 500, 1000, 500)


def view(
    host: str = "n1", fstype: str = "lustre", source: str = "mgs:/scratch", uuid: str = ""
) -> View:
    return View(host, "/s/x", Mount(1, "/s", source, fstype, "rw"), ROOM, uuid=uuid)


@pytest.mark.parametrize(
    ("views", "source"),
    [
        ([view()], "mgs:/scratch"),
        ([view(source="other")], None),
        ([view(), view("n2")], "mgs:/scratch"),
    ],
)
def test_g9_believes(views: list[View], source: str | None) -> None:
    found = preflight.identity(
        declared_type="lustre", declared_source=source, declared_uuid=None, views=views
    )
    assert found.outcome is OK


@pytest.mark.parametrize(
    ("views", "words"),
    [
        ([view(fstype="ext4")], ["on n1 the target /s/x is ext4 from mgs:/scratch, mounted at /s"]),
        ([view(source="mgs:/home")], ["lustre from mgs:/home"]),
        ([view(), view("n2", fstype="tmpfs")], ["on n2 the target /s/x is tmpfs"]),
        ([View("n3", "/s/x", None, ROOM)], ["on n3 the target /s/x is not mounted"]),
    ],
)
def test_g9_objects(views: list[View], words: list[str]) -> None:
    finding = preflight.identity(
        declared_type="lustre",
        declared_source="mgs:/scratch",
        declared_uuid=None,
        views=views,
    )
    assert finding.outcome is INVALID
    says(finding, "type lustre from mgs:/scratch", *words)


def identity(
    *views: View,
    declared: str | None = None,
    at_end: Mapping[str, str] = MappingProxyType({}),
    hosts: Sequence[str] = (),
) -> Finding:
    return preflight.identity(
        declared_type="lustre",
        declared_source=None,
        declared_uuid=declared,
        views=views,
        at_end=at_end,
        hosts=hosts,
    )


@pytest.mark.parametrize(
    ("finding", "words"),
    [
        (identity(view(uuid="B"), declared="A"), ["n1 sees UUID B", "with UUID A", "target.uuid"]),
        (identity(view(), declared="A"), ["n1 sees UUID unknown", "with UUID A"]),
        (
            identity(view(uuid="A"), view("n2", uuid="A"), view("n3", uuid="B", source="/dev/b")),
            ["n3 sees UUID B", "from /dev/b", "n1 sees UUID A", "on every node"],
        ),
        (
            identity(view(), view("n2", uuid="A"), view("n3", uuid="B")),
            ["n3 sees UUID B", "n2 sees UUID A"],
        ),
        (
            identity(view(uuid="A"), at_end={"n1": "A", "n2": "B"}),
            ["n2 sees UUID B", "after the last phase", "A before the first byte"],
        ),
        (
            identity(view(uuid="A"), hosts=["n1", "n7"]),
            ["tasks ran on n7", "n1 looked at the target", "launcher"],
        ),
    ],
)
def test_g9_tells_file_systems_of_one_type_apart(finding: Finding, words: list[str]) -> None:
    assert finding.outcome is INVALID
    says(finding, *words)


@pytest.mark.parametrize(
    "finding",
    [
        identity(view(uuid="A"), declared="A"),
        identity(view(uuid="A"), view("n2"), view("n3", uuid="A"), at_end={"n1": "A", "n2": ""}),
        identity(view(), at_end={"n1": "A"}),
        identity(
            view(uuid="fs@1@tcp,2@tcp"), view("n2", uuid="fs@2@tcp"), declared="fs@1@tcp,2@tcp"
        ),
    ],
)
def test_g9_takes_an_unknown_uuid_for_no_other_one(finding: Finding) -> None:
    assert finding.outcome is OK


@pytest.mark.parametrize(("traits", "outcome"), [(CACHED, OK), (OPAQUE, OK), (MEMORY, INVALID)])
def test_g9_refuses_metadata_rates_of_memory(traits: Traits, outcome: Outcome) -> None:
    finding = witness.storage(traits=traits)
    assert (finding.guard, finding.outcome) == ("G9", outcome)
    if outcome is INVALID:
        says(finding, "is memory, not storage", "storage behind it", "another target")


# --- G13, G14: room -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("free", "need", "max_fill", "keep_free", "outcome"),
    [
        (600, 500, 1.0, 0.0, OK),
        (599, 500, 1.0, 0.0, INVALID),
        (250, 100, 0.85, 0.0, OK),
        (249, 100, 0.85, 0.0, INVALID),
        (200, 100, 1.0, 0.10, OK),
        (199, 100, 1.0, 0.10, INVALID),
    ],
)
def test_g13(free: int, need: int, max_fill: float, keep_free: float, outcome: Outcome) -> None:
    found = preflight.room(
        space=Space(1000, free, 0, 0), need_bytes=need, max_fill=max_fill, keep_free=keep_free
    )
    assert found.outcome is outcome, found


def test_g13_refuses_a_file_system_without_room() -> None:
    found = preflight.room(space=Space(0, 0, 0, 0), need_bytes=1, max_fill=1, keep_free=0)
    assert found.outcome is INVALID


@pytest.mark.parametrize(
    ("total", "free", "files", "outcome"),
    [
        (1000, 600, 500, OK),
        (1000, 599, 500, INVALID),
        (1000, 55, 5, OK),
        (1000, 54, 5, INVALID),
        (0, 0, 500, OK),
    ],
)
def test_g14_inodes(total: int, free: int, files: int, outcome: Outcome) -> None:
    found = preflight.inodes(space=Space(1, 1, total, free), need_files=files)
    assert found.outcome is outcome
    if outcome is INVALID:
        says(
            found,
            f"{free} of {total} inodes free",
            f"{files} needed",
            "5 % left",
            "limits.case_files",
        )


@pytest.mark.parametrize(
    ("quota", "words"),
    [
        (Quota("u", None, None), []),
        (Quota("u", 1200, 120), []),
        (Quota("u", 1199, None), ["quota of u leaves 1.17 KiB", "1000 B needed"]),
        (Quota("u", None, 119), ["quota of u leaves 119 files, 100 needed"]),
    ],
)
def test_g14_quota(quota: Quota, words: list[str]) -> None:
    open_quota = Quota("g", None, None)
    found = preflight.quota(quotas=(open_quota, quota), need_bytes=1000, need_files=100)
    assert (found.outcome is OK) == (not words)
    if words:
        assert found.outcome is INVALID
        says(found, "G14", "1.2 x need within every quota", "raise the quota", *words)


@pytest.mark.parametrize(
    ("over", "unanswered", "outcome", "word"),
    [
        ("", (), OK, "room in the quotas of user 7"),
        ("9 KiB of 5, grace 1w", (), WARN, "user 7 is beyond its soft limit: 9 KiB of 5, grace 1w"),
        ("", ("project 9",), WARN, "the quota of project 9 was not answered"),
    ],
)
def test_g14_a_quota_that_may_bind_later_is_a_remark(
    over: str, unanswered: tuple[str, ...], outcome: Outcome, word: str
) -> None:
    quotas = (Quota("user 7", None, None, over),)
    found = preflight.quota(quotas=quotas, need_bytes=1, need_files=1, unanswered=unanswered)
    assert (found.guard, found.outcome) == ("G14", outcome)
    assert word in found.saw
    if over:
        short = (*quotas, Quota("group 8", 0, None))
        refused = preflight.quota(quotas=short, need_bytes=1, need_files=1)
        assert refused.outcome is INVALID, "what binds already comes before what may bind later"


# --- G17: dispersion ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("samples", "limit", "outcome"),
    [
        ([100, 100], 0.0, OK),
        ([90, 100, 110], 0.1, OK),
        ([90, 100, 110], 0.0999, UNSTABLE),
        ([50, 150], 0.10, UNSTABLE),
        ([100], 0.10, WARN),
        ([], 0.10, WARN),
    ],
)
def test_g17(samples: list[float], limit: float, outcome: Outcome) -> None:
    assert figures.spread(samples=samples, limit=limit).outcome is outcome


def test_g17_only_remarks_on_the_slowest_requests() -> None:
    assert figures.spread(samples=[80, 100, 120], limit=0.05, tail=True).outcome is WARN


# --- G22: the tool --------------------------------------------------------------------------------

TOOL: dict[str, Any] = {
    "tool": "ior",
    "versions": {"4.0.0": ["write", "write"]},
    "tasks": [4, 4],
    "nodes": [2, 2],
    "want_tasks": 4,
    "want_nodes": 2,
}


@pytest.mark.parametrize(
    "change",
    [{}, {"tasks": [None, None], "nodes": [None]}, {"want_tasks": None, "want_nodes": None}],
)
def test_g22_believes(change: dict[str, Any]) -> None:
    assert origin.tool_integrity(**{**TOOL, **change}).outcome is OK


@pytest.mark.parametrize(
    ("change", "saw"),
    [
        ({"tasks": [4, 1]}, "ior 4.0.0 with 1 task(s)"),
        ({"nodes": [2, 1]}, "on 1 node(s)"),
        (
            {"versions": {"4.0.0": ["write", "write"], "3.3.0": ["read"]}},
            "ior 3.3.0 in read; 4.0.0 in write",
        ),
        ({"versions": {}}, "of unknown version"),
    ],
)
def test_g22_objects(change: dict[str, Any], saw: str) -> None:
    finding = origin.tool_integrity(**{**TOOL, **change})
    assert finding.outcome is INVALID
    says(finding, "G22", saw, "one version, 4 task(s) on 2 node(s)", "iogauge check")


def test_g22_wants_one_version_on_all_nodes() -> None:
    on_hosts = {"4.0.0": ["n1", "n2", "n4"], "4.1.0": ["n3"]}
    finding = origin.tool_integrity(**{**TOOL, "on_hosts": on_hosts})
    assert finding.outcome is INVALID
    says(
        finding, "G22", "ior 4.0.0 on n[1-2,4]; 4.1.0 on n3", "one version on all nodes", "type ior"
    )


@pytest.mark.parametrize(
    ("fetched", "outcome"),
    [
        ([100, 100], Outcome.OK),
        ([95, 100], Outcome.OK),
        ([100, 94], Outcome.INVALID),
        ([0], Outcome.INVALID),
        ([None, None], Outcome.OK),
        ([], Outcome.OK),
    ],
)
def test_g1_tasks_must_have_fetched_what_they_read(
    fetched: list[int | None], outcome: Outcome
) -> None:
    finding = client_cache(
        nodes=1,
        task_offset=None,
        o_direct=False,
        traits=traits("ext4"),
        bytes_per_node=100,
        node_memory=1000,
        evictions=[Eviction("n", 1, 100, 100, 0)] * 2,
        expected_evictions=2,
        data_bytes=[100, 100],
        fetched=fetched,
    )
    assert finding.outcome is outcome


def test_g19_another_case_on_the_target_contaminates() -> None:
    assert others.neighbours(others=[]).outcome is Outcome.OK
    finding = others.neighbours(others=["/s/iogauge/u/t/c"])
    assert finding.outcome is Outcome.CONTAMINATED
    assert "/s/iogauge/u/t/c" in finding.saw and "iogauge clean" in finding.remedy


def test_g19_a_case_that_had_not_the_lock_throughout_is_contaminated() -> None:
    assert others.exclusive(objection="").outcome is Outcome.OK
    finding = others.exclusive(objection="bob had it")
    assert finding.outcome is Outcome.CONTAMINATED
    assert finding.saw == "bob had it"
    assert "limits.lock_wait" in finding.remedy


# --- G10: the layout that was asked for -----------------------------------------------------------

MIB = 1 << 20


def laid(path: str, *osts: int, **change: Any) -> FileLayout:
    """A plain file with one stripe on each of its targets."""
    fields: dict[str, Any] = {
        "stripe_count": len(osts),
        "stripe_bytes": MIB,
        "objects": osts,
        "instantiated": True,
        **change,
    }
    return FileLayout(path=path, parts=(Part(**fields),))


def noted(files: Sequence[FileLayout], total: int = 0, **more: Any) -> Layouts:
    """Layouts as the first node notes them."""
    return Layouts(repetition=1, files=tuple(files), total=total or len(files), **more)


ENDS = (16 * MIB, 64 * MIB, None)
PROGRESSIVE = Layout(
    components=tuple(
        Component(end_bytes=end, stripe_count=count)
        for end, count in zip(ENDS, (1, 2, -1), strict=True)
    )
)


def grown(*counts: int, ends: tuple[int | None, ...] = ENDS, size: int = MIB) -> FileLayout:
    parts, begin = [], 0
    for end, count in zip(ends, counts, strict=True):
        objects = (0,) if not parts else ()
        part = Part(
            stripe_count=count, stripe_bytes=size, objects=objects, instantiated=bool(objects)
        )
        parts.append(part.within(begin, end))
        begin = end or begin
    return FileLayout(path="f", parts=tuple(parts), composite=True)


@pytest.mark.parametrize(
    ("request_", "placed", "files"),
    [
        (Layout(stripe_count=2), {}, [laid("a", 0, 1), laid("b", 2, 3)]),
        (Layout(stripe_count=-1), {}, [laid("a", 3, 0, 1, 2)]),
        (Layout(stripe_count=-1, pool="flash"), {}, [laid("a", 1, 0, pool="flash")]),
        (Layout(stripe_bytes=MIB), {}, [laid("a", 1), laid("b", 1, 2, 3)]),
        (None, {"a": 0, "d/b": 3}, [laid("a", 0), laid("d/b", 3)]),
        (None, {"d": 2}, [laid("d/a", 2), laid("d/e/b", 2)]),
        (Layout(stripe_count=2), {"a": 3}, [laid("a", 3), laid("b", 0, 1)]),
        (PROGRESSIVE, {}, [grown(1, 2, -1)]),
    ],
)
def test_g10_believes(
    request_: Layout | None, placed: dict[str, int], files: list[FileLayout]
) -> None:
    usable = (0, 1) if request_ and request_.pool else range(4)
    finding = striping.layout(request=request_, placed=placed, noted=noted(files), usable=usable)
    assert finding.outcome is OK, finding
    assert finding.saw == f"{len(files)} file(s) as asked"


@pytest.mark.parametrize(
    ("request_", "placed", "files", "saw"),
    [
        (Layout(stripe_count=1), {}, [], "no file was found"),
        (Layout(stripe_count=-1), {}, [laid("a", 0, 1, 3)], "a has 3 stripe(s)"),
        (Layout(stripe_bytes=4 * MIB), {}, [laid("a", 0)], "a has stripes of 1048576 bytes"),
        (Layout(stripe_count=1, start=2), {}, [laid("a", 3)], "a starts on target 3"),
        (Layout(pool="flash"), {}, [laid("a", 0, pool="slow")], "a is in pool slow"),
        (
            Layout(stripe_count=-1, pool="flash"),
            {},
            [laid("a", 0, 1, 2, 3, 4, pool="flash")],
            "a has 5 stripe(s)",
        ),
        (PROGRESSIVE, {}, [laid("a", 0)], "a has 0 components"),
        (PROGRESSIVE, {}, [grown(2, 2, -1)], "f has 2 stripe(s) in component 1"),
        (PROGRESSIVE, {}, [grown(1, 2, 3)], "f has 3 stripe(s) in component 3"),
        (PROGRESSIVE, {}, [grown(1, 2, -1, ends=(MIB, *ENDS[1:]))], "component 1 up to 1048576"),
        (None, {"a": 0}, [laid("a", 1)], "a is on target 1 instead of 0"),
        (None, {"a": 0}, [laid("a", 0, 1)], "a is on target 0, 1 instead of 0"),
        (None, {"a": 0}, [laid("a", 0), laid("b", 0)], "b was not pinned to a target"),
        (None, {"a": 0, "b": 1}, [laid("a", 0)], "b was pinned and holds no file"),
        (None, {"d": 2}, [laid("dd/a", 2)], "dd/a was not pinned to a target"),
    ],
)
def test_g10_objects(
    request_: Layout | None, placed: dict[str, int], files: list[FileLayout], saw: str
) -> None:
    finding = striping.layout(request=request_, placed=placed, noted=noted(files), usable=range(4))
    assert finding.outcome is INVALID, finding
    says(finding, "G10", saw, "lfs getstripe")


def told(*files: FileLayout, **more: Any) -> Finding:
    """G10 of a case that asks for no layout."""
    return striping.layout(request=None, placed={}, noted=noted(files, **more), usable=range(4))


def test_g10_tells_the_layouts_of_a_case_that_asks_for_none() -> None:
    finding = told(laid("a", 0), laid("b", 3))
    assert (finding.outcome, finding.saw) == (OK, "2 file(s): 2 with 1 x 1 MiB")
    finding = told(laid("a", 0), laid("b", 3, 1), laid("c", 2))
    assert finding.outcome is WARN
    assert finding.saw == "3 file(s): 2 with 1 x 1 MiB, 1 with 2 x 1 MiB"
    assert told().outcome is WARN


def test_g10_of_layouts_that_were_not_answered() -> None:
    silent = noted([], problem="no Lustre")
    for request_, outcome in ((None, WARN), (Layout(stripe_count=1), INVALID)):
        finding = striping.layout(request=request_, placed={}, noted=silent, usable=[0])
        assert finding.outcome is outcome
        assert finding.saw == "not answered: no Lustre"


def test_g10_a_pinned_file_that_is_not_in_the_sample_is_not_missed() -> None:
    seen = noted([laid("a", 0)], total=2)
    finding = striping.layout(request=None, placed={"a": 0, "b": 1}, noted=seen, usable=range(4))
    assert finding.outcome is OK


def grown_to(size: int, *done: Part) -> FileLayout:
    return FileLayout(path="f", parts=done, composite=True, size=size)


ON_MDT = Part(stripe_count=0, stripe_bytes=MIB, pattern="mdt", instantiated=True).within(0, MIB)
FIRST = Part(stripe_count=1, stripe_bytes=MIB, objects=(1,), instantiated=True).within(0, 16 * MIB)
REST = Part(stripe_count=2, stripe_bytes=MIB, objects=(2, 3), instantiated=True)


@pytest.mark.parametrize(
    ("files", "outcome", "saw"),
    [
        ([grown_to(8 * MIB, FIRST)], OK, "100% of 8 MiB in the component from 0 B on (1 x 1 MiB)"),
        (
            [grown_to(32 * MIB, FIRST, REST.within(16 * MIB, None))] * 2,
            WARN,
            "50% of 64 MiB in the component from 0 B on (1 x 1 MiB); 50% of 64 MiB in the component "
            "from 16 MiB on (2 x 1 MiB)",
        ),
        (
            [grown_to(MIB // 2, ON_MDT, REST.within(MIB, None))],
            WARN,
            "100% of 512 KiB in the component from 0 B on (on the metadata target)",
        ),
    ],
)
def test_g10_tells_the_component_that_was_measured(
    files: list[FileLayout], outcome: Outcome, saw: str
) -> None:
    finding = striping.components(files=files)
    assert finding is not None
    assert (finding.outcome, finding.saw) == (outcome, saw)


@pytest.mark.parametrize(
    ("parts", "outcome"),
    [((ON_MDT,), OK), ((ON_MDT, FIRST.within(MIB, 16 * MIB)), INVALID), ((FIRST,), INVALID)],
)
def test_g10_of_data_that_shall_lie_with_the_metadata(
    parts: tuple[Part, ...], outcome: Outcome
) -> None:
    finding = striping.components(
        files=[grown_to(2 * MIB if len(parts) > 1 else MIB, *parts)], on_metadata=True
    )
    assert finding is not None
    assert (finding.outcome, finding.demands) == (outcome, "all bytes with the metadata")
    assert outcome is OK or "lod.*.dom_stripesize" in str(finding)


#: Data up to 64 KiB with the metadata, the others on a storage target.
DOM = Layout(
    components=(
        Component(end_bytes=1 << 16, stripe_count=0, on_metadata=True),
        Component(end_bytes=None, stripe_count=1),
    )
)


@pytest.mark.parametrize(
    ("first", "request_", "saw"),
    [
        ({"pattern": "mdt", "stripe_count": 0}, DOM, "1 file(s) as asked"),
        (
            {"pattern": "mdt", "stripe_count": 0},
            replace(DOM, pool="flash"),
            "f is in pool none; 1 of 1",
        ),
        ({"stripe_count": 1, "objects": (2,)}, DOM, "f has its first bytes in 1 x 1 MiB; 1 of 1"),
    ],
)
def test_g10_of_files_whose_data_lie_with_the_metadata(
    first: dict[str, Any], request_: Layout, saw: str
) -> None:
    begins = Part(stripe_bytes=MIB, instantiated=True, **first).within(0, 1 << 16)
    rest = Part(stripe_count=1, stripe_bytes=4 * MIB).within(1 << 16, None)
    file = FileLayout(path="f", parts=(begins, rest), composite=True, size=3901)
    finding = striping.layout(request=request_, placed={}, noted=noted([file]), usable=[0, 1])
    assert finding.saw.startswith(saw)
    assert (finding.outcome is OK) == saw.endswith("as asked")


@pytest.mark.parametrize(
    ("asked", "found", "outcome", "saw"),
    [
        (
            {"stripes": -1},
            [{"d": (0, 1, 2)}, {"d": (2, 1, 0)}],
            OK,
            "2 director(ies), each as asked",
        ),
        (
            {"stripes": -1},
            [{"d": (0, 1, 2)}, {"d": (0, 1)}],
            INVALID,
            "d lies on metadata target(s) 0, 1",
        ),
        ({"target": 2}, [{"a": (2,), "b": (2,)}], OK, "2 director(ies), each as asked"),
        ({"target": 2}, [{"a": (2,), "b": (1,)}], INVALID, "b lies on metadata target(s) 1"),
        ({"target": 2}, [{"a": (2, 1)}], INVALID, "a lies on metadata target(s) 1, 2"),
        ({"target": 2}, [{"a": (2,)}, {}], INVALID, "no directory with files was found"),
    ],
)
def test_g10_of_directories_with_the_tool_s_files(
    asked: dict[str, int], found: list[dict[str, tuple[int, ...]]], outcome: Outcome, saw: str
) -> None:
    request = DirectoryLayout(**asked)
    finding = striping.on_metadata_targets(request=request, found=found, every=3)
    assert (finding.outcome, finding.saw) == (outcome, saw)


@pytest.mark.parametrize(("problem", "outcome"), [("", OK), ("not permitted", INVALID)])
def test_g10_of_the_default_of_directories(problem: str, outcome: Outcome) -> None:
    finding = preflight.metadata_default(words=["-D", "-c", "-1"], problem=problem)
    assert finding.outcome is outcome
    assert outcome is OK or "lctl set_param mdt.*.enable_remote_dir_gid=-1" in str(finding)


# --- G11: storage targets that are hit ------------------------------------------------------------


def covered(
    files: Sequence[FileLayout],
    targets: Sequence[int],
    shared: bool = False,
    asked: bool = True,
    saturates: bool = False,
) -> Finding:
    return striping.coverage(
        noted=noted(files), targets=targets, shared=shared, asked=asked, saturates=saturates
    )


def spread_over(*osts: int) -> list[FileLayout]:
    return [laid(f"f.{i}", ost) for i, ost in enumerate(osts)]


@pytest.mark.parametrize(
    ("files", "targets", "shared"),
    [
        (spread_over(0, 1, 2, 3), 4, False),
        (spread_over(0, 1), 4, False),
        (spread_over(*range(9)), 10, False),
        (spread_over(*range(9), *range(9), 0, 1), 10, False),
        ([laid("a", 0)], 4, True),
        ([laid("a", 0)], 1, False),
    ],
)
def test_g11_believes(files: list[FileLayout], targets: int, shared: bool) -> None:
    finding = covered(files, range(targets), shared=shared)
    assert finding.outcome is OK, finding


@pytest.mark.parametrize(
    ("files", "targets", "saw"),
    [
        ([], 4, "0 file(s) on 0 of 4 storage targets"),
        (spread_over(0, 0), 4, "2 file(s) on 1 of 4 storage targets (placed at random: 1.8)"),
        (spread_over(*range(8), 0, 0), 10, "on 8 of 10"),
        (spread_over(*range(9), 0), 10, "at most 2 on one (target 0), mean 1"),
        (spread_over(5, 6, 7, 8), 4, "on 0 of 4"),
        (spread_over(0, 0, 0, 0, 1, 2, 3, 3), 4, "at most 4 on one (target 0), mean 2"),
    ],
)
def test_g11_objects(files: list[FileLayout], targets: int, saw: str) -> None:
    finding = covered(files, range(targets))
    assert finding.outcome is INVALID, finding
    says(finding, "G11", saw, "k >= 0.9", "1.5 x mean")
    claimed = covered(files, range(targets), asked=False, saturates=True)
    assert claimed.outcome is (INVALID if files and targets else WARN)
    assert covered(files, range(targets), asked=False).outcome is WARN


@pytest.mark.parametrize(("saturates", "claim"), [(False, ""), (True, "; the case claims what")])
def test_g11_a_shared_file_that_asks_for_no_layout_says_how_many_targets_it_hit(
    saturates: bool, claim: str
) -> None:
    one = covered([laid("a", 2)], range(4), shared=True, asked=False, saturates=saturates)
    assert one.outcome is WARN
    says(one, "G11", f"1 file(s) on 1 of 4 storage targets{claim}", "lfs setstripe -c -1 DIR")
    every = covered(
        [laid("a", 2, 3, 0, 1)], range(4), shared=True, asked=False, saturates=saturates
    )
    assert (every.outcome, every.saw) == (OK, "1 file(s) on 4 of 4 storage targets")


# --- G12: health of the storage targets -----------------------------------------------------------


def ost(index: int, flags: str = "", active: bool = True, free: int = 90) -> StorageTarget:
    return StorageTarget(
        index=index,
        uuid=f"OST{index}",
        active=active,
        flags=flags,
        bytes_total=100,
        bytes_free=free,
    )


@pytest.mark.parametrize("declared", [None, 2])
def test_g12_believes(declared: int | None) -> None:
    finding = preflight.health(targets=[ost(0), ost(1, "f")], declared=declared)
    assert finding.outcome is OK
    assert finding.saw == "2 storage targets, all active"


@pytest.mark.parametrize(
    ("targets", "declared", "outcome", "saw"),
    [
        ([], None, INVALID, "no storage target is known"),
        ([ost(0)], 2, INVALID, "1 storage targets; demanded: 2 storage targets"),
        ([ost(0), ost(1, active=False)], None, INVALID, "inactive: OST1;"),
        ([ost(0, "N"), ost(1, "D")], None, INVALID, "elsewhere than on OST0 (no new files);"),
        ([ost(0, "R"), ost(1, "S")], None, INVALID, "OST0 (read-only), OST1 (full)"),
        ([ost(0, "I")], None, INVALID, "OST0 (no inodes left)"),
        ([ost(0), ost(1, "D")], None, WARN, "OST1 (degraded)"),
        ([ost(0, "x"), ost(1, "fD")], None, WARN, "OST0 (flag x), OST1 (degraded)"),
    ],
)
def test_g12_objects(
    targets: list[StorageTarget], declared: int | None, outcome: Outcome, saw: str
) -> None:
    finding = preflight.health(targets=targets, declared=declared)
    assert finding.outcome is outcome, finding
    says(finding, "G12", saw, "lfs df")


@pytest.mark.parametrize("lost", [ost(1, active=False), ost(1, "N"), ost(1, "R")])
def test_g12_believes_a_target_that_is_out_as_declared(lost: StorageTarget) -> None:
    finding = preflight.health(targets=[ost(0), lost, ost(2)], declared=3, out=[1])
    assert (finding.outcome, finding.saw) == (OK, "2 storage targets, all active; out: OST0001")


@pytest.mark.parametrize(
    ("targets", "saw"),
    [
        ([ost(0), ost(1), ost(2)], "not out: OST0001"),
        ([ost(0), ost(2), ost(3)], "not out: OST0001"),
        ([ost(0), ost(1, "D"), ost(2)], "not out: OST0001"),
        ([ost(0), ost(1, active=False), ost(2, active=False)], "inactive: OST2"),
        ([ost(0), ost(1, active=False)], "2 storage targets"),
    ],
)
def test_g12_refuses_another_state_than_the_declared_one(
    targets: list[StorageTarget], saw: str
) -> None:
    finding = preflight.health(targets=targets, declared=3, out=[1])
    says(finding, "G12", saw, "but for OST0001, which must be out")
    assert finding.outcome is INVALID


# --- G13: room on each storage target -------------------------------------------------------------


@pytest.mark.parametrize(
    ("targets", "need", "max_fill", "saw"),
    [
        ([ost(0, free=90), ost(1, free=11)], 20, 1.0, "OST1: 11 B free of 100 B, 99% full once"),
        ([ost(0, free=60), ost(1, free=59)], 90, 0.85, "OST1: 59 B free of 100 B, 86% full"),
        ([ost(0, free=10), ost(1, active=False)], 10, 1.0, "OST0: 10 B free"),
        ([ost(0, active=False)], 1, 1.0, "no storage target is active"),
    ],
)
def test_g13_objects_to_a_full_storage_target(
    targets: list[StorageTarget], need: int, max_fill: float, saw: str
) -> None:
    finding = preflight.target_room(targets=targets, need_bytes=need, max_fill=max_fill)
    assert finding.outcome is INVALID
    says(finding, "G13", saw, "limits.case_bytes", "on each storage target")


# --- G12, G14: pools and metadata targets ---------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "problem", "outcome", "saw"),
    [
        ((0, 1), "", OK, "the pool flash has 2 storage targets, 2 active"),
        ((1, 2), "", OK, "the pool flash has 2 storage targets, 1 active"),
        ((2,), "", INVALID, "the pool flash has 1 storage targets, 0 active"),
        ((), "", INVALID, "the pool flash is empty"),
        ((), "lfs pool_list: no", INVALID, "lfs pool_list: no"),
    ],
)
def test_g12_of_the_declared_pool(
    members: tuple[int, ...], problem: str, outcome: Outcome, saw: str
) -> None:
    targets = [ost(0), ost(1), ost(2, active=False)]
    seen = Directory(pool=members, pool_problem=problem)
    finding = preflight.pool(name="flash", targets=targets, seen=seen)
    assert (finding.outcome, finding.saw) == (outcome, saw)
    assert "a pool flash" in finding.demands


@pytest.mark.parametrize(
    ("mdts", "files", "outcome"),
    [
        ((0,), 100, OK),
        ((1,), 100, INVALID),
        ((0, 1), 100, INVALID),
        ((0, 1), 10, OK),
        ((), 100, INVALID),
        ((0,), 800, INVALID),
    ],
)
def test_g14_of_the_metadata_targets_of_the_directory(
    mdts: tuple[int, ...], files: int, outcome: Outcome
) -> None:
    targets = [
        MetadataTarget(index=0, inodes_total=1000, inodes_free=900),
        MetadataTarget(index=1, inodes_total=100, inodes_free=15),
    ]
    finding = preflight.metadata_room(targets=targets, mdts=mdts, need_files=files)
    assert finding.outcome is outcome, finding
    assert "MDT " in finding.saw


@pytest.mark.parametrize(
    ("indices", "outcome", "saw"),
    [
        ((1, 0), OK, "metadata targets 0, 1"),
        ((0,), INVALID, "metadata targets 0"),
        ((0, 2), INVALID, "metadata targets 0, 2"),
        ((0, 1, 2), INVALID, "metadata targets 0, 1, 2"),
        ((), INVALID, "no metadata target is known"),
    ],
)
def test_g12_of_the_metadata_targets(indices: tuple[int, ...], outcome: Outcome, saw: str) -> None:
    targets = [MetadataTarget(index=i, inodes_total=9, inodes_free=9) for i in indices]
    finding = preflight.metadata_health(targets=targets, declared=2)
    assert (finding.outcome, finding.saw) == (outcome, saw)


@pytest.mark.parametrize(
    ("placed", "problem", "outcome", "saw"),
    [
        ({"a": (0,), "b": (1,)}, "", OK, "each directory lies on its metadata target"),
        ({"a": (0,), "b": (0,)}, "", INVALID, "b is on metadata target 0 instead of 1"),
        ({"a": (0, 1)}, "it went away", INVALID, "a is on metadata target 0, 1 instead of 0"),
        ({"a": (0,)}, "not permitted", INVALID, "metadata target 1: not permitted"),
    ],
)
def test_g10_of_directories_on_metadata_targets(
    placed: dict[str, tuple[int, ...]], problem: str, outcome: Outcome, saw: str
) -> None:
    finding = preflight.metadata_placement(count=2, placed=placed, problem=problem)
    assert (finding.outcome, finding.saw) == (outcome, saw)
    assert outcome is OK or "lctl set_param mdt.*.enable_remote_dir_gid=-1" in str(finding)


# --- G23: stripes against the size of a file ------------------------------------------------------


def stripes_of(size: int, stripe: int, count: int) -> Finding:
    part = Part(stripe_count=count, stripe_bytes=stripe)
    return preflight.stripes_against_size(file_bytes=size, part=part)


@pytest.mark.parametrize(("whole", "outcome"), [(400, OK), (351, OK), (349, WARN), (None, OK)])
def test_g12_sees_targets_that_the_metadata_servers_leave_out(
    whole: int | None, outcome: Outcome
) -> None:
    """The file system is smaller than its targets together; a project's quota says nothing of it."""
    targets = [
        StorageTarget(index=i, uuid=f"fs-OST000{i}", active=True, bytes_total=100 * GIB)
        for i in range(4)
    ]
    space = None if whole is None else Space(whole * GIB, whole * GIB, 0, 0)
    finding = preflight.health(targets=targets, declared=4, space=space)
    assert finding.outcome is outcome, finding


def test_g23_holds_for_the_last_component_with_data() -> None:
    parts = (ON_MDT, FIRST.within(MIB, 16 * MIB), REST.within(16 * MIB, None))
    assert last_with_data(parts, 8 * MIB) == parts[1]
    assert last_with_data(parts, 17 * MIB) == parts[2]
    assert last_with_data(parts, MIB) is None
    assert last_with_data((), MIB) is None


@pytest.mark.parametrize(("size", "stripe", "count"), [(32, 1, 4), (64 * MIB, MIB, 4), (1, 8, 1)])
def test_g23_believes(size: int, stripe: int, count: int) -> None:
    assert stripes_of(size, stripe, count).outcome is OK


@pytest.mark.parametrize(
    ("size", "stripe", "count"), [(32 * MIB - 1, MIB, 4), (0, MIB, 4), (MIB, MIB, 4)]
)
def test_g23_objects(size: int, stripe: int, count: int) -> None:
    finding = stripes_of(size, stripe, count)
    assert finding.outcome is INVALID
    says(finding, "G23", f"over {count} storage target(s)", "8 x stripe count", "Raise")


# --- G3: the servers' cache -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("total", "memory", "outcome"),
    [(32 * GIB, 16 * GIB, OK), (32 * GIB - 1, 16 * GIB, WARN), (1, None, OK)],
)
def test_g3(total: int, memory: int | None, outcome: Outcome) -> None:
    finding = server_cache(total_bytes=total, server_memory=memory)
    assert finding.outcome is outcome, finding
    if outcome is WARN:
        says(
            finding,
            "G3",
            "16 GiB of memory in the servers",
            ">= 2 x",
            "limits.case_bytes to 32 GiB",
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


def test_bindings_are_read() -> None:
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


def test_bindings_of_open_mpi_5_are_read() -> None:
    assert [one.cores for one in mpi.parse_bindings(FIVE_APART)] == [{"core 0"}, {"core 1"}]
    assert [len(one.cores) for one in mpi.parse_bindings(FIVE_ANYWHERE)] == [2, 2]
    assert mpi.parse_bindings(FIVE_UNTOLD) == []
    (wide,) = mpi.parse_bindings(
        "[n1:1] Rank 7 bound to package[0][core:0-1,3] package[1][core:8]\n"
    )
    assert wide == mpi.Binding("n1", 7, frozenset(f"core {n}" for n in (0, 1, 3, 8)))


def test_a_complaint_is_no_binding() -> None:
    said = APART + TOGETHER + FIVE_APART + FIVE_ANYWHERE + FIVE_UNTOLD
    assert all(mpi.is_binding(line) for line in said.splitlines())
    assert not mpi.is_binding("[vm:1] MCW rank 0 was killed")
    assert not mpi.is_binding("ior: bound to fail")


@pytest.mark.parametrize(
    "change",
    [
        {"tasks_per_node": 8},
        {"cores": [8, 4], "load1": [0.79, 0.39]},
        {"tasks_per_node": 9, "oversubscribed": True},
        {"bindings": mpi.parse_bindings(APART)},
        {"bindings": mpi.parse_bindings(TOGETHER), "oversubscribed": True},
        # As many tasks as the set of cores has that they may use: each finds one of its own.
        {"bindings": mpi.parse_bindings(FIVE_ANYWHERE)},
        {"bindings": mpi.parse_bindings(FIVE_APART + FIVE_APART.replace("vm", "n2"))},
    ],
)
def test_g15_believes(change: dict[str, Any]) -> None:
    given: dict[str, Any] = {"tasks_per_node": 4, "cores": [8], "load1": [0.0], **change}
    finding = nodes.placement(**given)
    assert finding.outcome is OK, finding
    if "governors" in change:
        assert "governor performance, powersave" in finding.saw


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tasks_per_node": 9}, ["9 task(s) on 8 core(s)", "Lower scale.tasks_per_node"]),
        ({"cores": [8, 2], "load1": [0.0, 0.0]}, ["4 task(s) on 2 core(s)"]),
        ({"cores": [8, 8], "load1": [0.0, 4.0]}, ["0.50 x cores"]),
        (
            {"bindings": mpi.parse_bindings(TOGETHER)},
            ["3 task(s) bound, at most 2 to a core", "a core of its own"],
        ),
        (
            # One may go anywhere, but the other two hold all cores.
            {"bindings": mpi.parse_bindings(FIVE_APART + FIVE_ANYWHERE.splitlines()[0])},
            ["3 task(s) bound, at most 2 to a core"],
        ),
    ],
)
def test_g15_remarks(change: dict[str, Any], words: list[str]) -> None:
    given: dict[str, Any] = {"tasks_per_node": 4, "cores": [8], "load1": [0.0], **change}
    finding = nodes.placement(**given)
    assert finding.outcome is WARN, finding
    says(finding, "G15", *words)


# --- G18: data that can be compressed -------------------------------------------------------------

FIO = {"refill_buffers": "1", "bs": "1m"}


@pytest.mark.parametrize(
    ("compressing", "tool", "parameters"),
    [
        ("", "ior", [{"data_type": "timestamp"}]),
        ("zfs", "ior", [{"data_type": "random"}] * 2),
        ("zfs", "fio", [FIO]),
        ("zfs", "fio", [{**FIO, "buffer_compress_percentage": "0", "dedupe_percentage": "0"}]),
        ("zfs", "fio", [{**FIO, "zero_buffers": "0"}]),
    ],
)
def test_g18_believes(compressing: str, tool: str, parameters: list[dict[str, object]]) -> None:
    finding = data_entropy(compressing=compressing, tool=tool, parameters=parameters)
    assert finding.outcome is OK, finding


@pytest.mark.parametrize(
    ("tool", "parameters", "saw"),
    [
        ("ior", [{"data_type": "random"}, {"data_type": "timestamp"}], "data timestamp on zfs"),
        ("ior", [{}], "data of unknown kind"),
        ("fio", [{"bs": "1m"}], "written again and again"),
        ("fio", [{**FIO, "buffer_compress_percentage": "50"}], "buffer_compress_percentage=50"),
        ("fio", [{**FIO, "dedupe_percentage": "10"}], "dedupe_percentage=10"),
        ("fio", [{**FIO, "zero_buffers": "1"}], "zero_buffers"),
        ("mdtest", [{}], "data of mdtest"),
    ],
)
def test_g18_objects(tool: str, parameters: list[dict[str, object]], saw: str) -> None:
    finding = data_entropy(compressing="zfs", tool=tool, parameters=parameters)
    assert finding.outcome is INVALID, finding
    says(finding, "G18", saw, "-l random", "refill_buffers=1")


@pytest.mark.parametrize(
    ("sample", "outcome"), [("ior_random_data.json", OK), ("ior_i1.json", INVALID)]
)
def test_g18_knows_the_data_of_recorded_runs(sample: str, outcome: Outcome) -> None:
    output = parse_json((SAMPLES / sample).read_text(), "")
    finding = data_entropy(compressing="zfs", tool="ior", parameters=[output.parameters])
    assert finding.outcome is outcome


@pytest.mark.parametrize(
    ("sample", "outcome"), [("fio_randread.json", OK), ("fio_file.json", INVALID)]
)
def test_g18_knows_the_buffers_of_recorded_runs(sample: str, outcome: Outcome) -> None:
    output = tools_output.parse_json((SAMPLES / sample).read_text())
    finding = data_entropy(compressing="zfs", tool="fio", parameters=[output.parameters])
    assert finding.outcome is outcome


# --- G10: directories with layouts of their own ---------------------------------------------------

EASY = FileLayout(path="ior-easy", parts=(Part(stripe_count=1, stripe_bytes=0),))


@pytest.mark.parametrize(
    ("request_", "found", "unanswered", "outcome", "words"),
    [
        (Layout(stripe_count=1), EASY, {}, OK, "1 x default size"),
        (Layout(stripe_count=2), EASY, {}, INVALID, "ior-easy has 1 x default size"),
        (Layout(stripe_count=1, pool="flash"), EASY, {}, INVALID, "ior-easy has 1 x default size"),
        (Layout(stripe_count=1), None, {}, INVALID, "ior-easy has no layout of its own"),
        (Layout(stripe_count=1), EASY, {"ior-easy": "gone"}, INVALID, "ior-easy: gone"),
        (None, EASY, {"ior-easy": "gone"}, WARN, "ior-easy: gone"),
    ],
)
def test_g10_reads_the_layouts_of_directories_back(
    request_: Layout | None,
    found: FileLayout | None,
    unanswered: dict[str, str],
    outcome: Outcome,
    words: str,
) -> None:
    finding = striping.directories(
        asked={"ior-easy": request_}, found={"ior-easy": found}, unanswered=unanswered, active=4
    )
    assert (finding.outcome, words in finding.saw) == (outcome, True)


def test_g10_a_directory_that_nobody_looked_at_and_all_targets() -> None:
    asked = {"ior-hard": Layout(stripe_count=-1)}
    finding = striping.directories(asked=asked, found={}, unanswered={}, active=4)
    says(finding, "ior-hard: nobody read its layout", "ior-hard: -c -1", "lfs getstripe -d")
    for count in (-1, 4):
        parts = (Part(stripe_count=count, stripe_bytes=1 << 20),)
        hard = FileLayout(path="ior-hard", parts=parts)
        found = {"ior-hard": hard}
        assert striping.directories(asked=asked, found=found, unanswered={}, active=4).outcome is OK


@pytest.mark.parametrize(
    ("reached", "outcome"), [(0.8, OK), (0.809, OK), (0.811, INVALID), (0.789, INVALID)]
)
def test_g13_wants_the_fill_that_was_asked_for(reached: float, outcome: Outcome) -> None:
    finding = preflight.fill_level(wanted=0.8, reached=reached, bytes_taken=5 << 30)
    assert finding.outcome is outcome
    assert f"{reached:.1%} full, 5 GiB of it in files of this case" in finding.saw


# --- G17, G19: what loads the target on purpose ---------------------------------------------------

FULL = others.OnPurpose(lead_s=1.0, after_s=1.0, active=0.9)


@pytest.mark.parametrize(
    ("executions", "outcome"),
    [
        ([FULL, FULL], OK),
        ([FULL, replace(FULL, after_s=0.0, active=0.5)], OK),
        ([FULL, replace(FULL, lead_s=0.0)], INVALID),
        ([FULL, replace(FULL, after_s=-0.01)], INVALID),
        ([FULL, replace(FULL, active=0.49)], INVALID),
        ([FULL, None], INVALID),
        ([FULL, replace(FULL, late_s=0.9)], OK),
        ([FULL, replace(FULL, changed=10)], OK),
        ([FULL, replace(FULL, changed=9)], INVALID),
        ([FULL, replace(FULL, late_s=1.1)], WARN),
        ([FULL, replace(FULL, late_s=1.1, after_s=-0.01)], INVALID),
    ],
)
def test_g19_wants_a_disturber_all_the_time(
    executions: list[others.OnPurpose | None], outcome: Outcome
) -> None:
    assert others.on_purpose(executions=executions).outcome is outcome


@pytest.mark.parametrize(
    ("after", "tail", "outcome"),
    [([104, 104], False, OK), ([120, 120], False, UNSTABLE), ([120, 120], True, WARN)],
)
def test_g17_wants_the_same_before_and_after_a_disturbance(
    after: list[float], tail: bool, outcome: Outcome
) -> None:
    finding = figures.drift(before=[100, 96], after=after, limit=0.1, tail=tail)
    assert finding.outcome is outcome
    assert f"98.00 before, {after[0]:.1f} after" in finding.saw


# --- G19: what others load the target with --------------------------------------------------------

RECORDED = sessions("load.txt")
JOB_STATS = (
    "jobid_var=procname_uid\n"
    + RECORDED[
        "(root) lctl get_param obdfilter.lustre-OST0001.job_stats # jobid_var=procname_uid"
    ].stdout
)


@pytest.mark.parametrize(
    ("own", "counted", "jobs", "saw"),
    [
        (Moved(GIB, GIB), Moved(GIB, GIB), [], "others on 2 node(s) moved 0 B of 2 GiB (0%)"),
        (Moved(GIB, GIB), Moved(GIB + 100 * MIB, GIB), [], "100 MiB of 2.1 GiB (5%)"),
        (Moved(GIB, GIB), Moved(1, GIB), [], "moved 0 B of 1 GiB"),
        (Moved(MIB, 0), Moved(16 * MIB, 0), [], "15 MiB of 16 MiB (0%)"),
        # What others write beside gigabytes of our reads.
        (Moved(9 * GIB, 0), Moved(9 * GIB, 299 * MIB), [], "299 MiB of 9.29 GiB (3%)"),
        (None, Moved(), [], "no counter can be compared"),
        (None, Moved(), [(9 * GIB, GIB)], "moved 1 GiB of 10 GiB"),
    ],
)
def test_g19_believes_what_the_counters_explain(
    own: Moved | None, counted: Moved, jobs: list[tuple[int, int]], saw: str
) -> None:
    finding = others.foreign_load(nodes=2, own=own, counted=counted, jobs=jobs)
    assert finding.outcome is OK, finding
    assert saw in finding.saw


@pytest.mark.parametrize(
    ("own", "counted", "jobs", "saw"),
    [
        (Moved(GIB, GIB), Moved(2 * GIB, 2 * GIB), [], "moved 2 GiB of 4 GiB (50%)"),
        (Moved(0, GIB), Moved(0, GIB + 128 * MIB), [], "moved 128 MiB of 1.12 GiB (11%)"),
        # What was not read is no excuse for what others wrote.
        (Moved(GIB, GIB), Moved(0, 2 * GIB), [], "moved 1 GiB of 2 GiB (50%)"),
        (Moved(), Moved(16 * MIB, 0), [], "moved 16 MiB of 16 MiB (100%)"),
        (
            Moved(GIB, GIB),
            Moved(GIB, GIB),
            [(8 * GIB, GIB)],
            "other jobs, as the servers say, moved 1 GiB of 9 GiB (11%)",
        ),
    ],
)
def test_g19_sees_others(
    own: Moved | None, counted: Moved, jobs: list[tuple[int, int]], saw: str
) -> None:
    finding = others.foreign_load(nodes=1, own=own, counted=counted, jobs=jobs)
    assert finding.outcome is Outcome.CONTAMINATED, finding
    says(finding, "G19", saw, "at most 10%", "nobody else uses the target")


@pytest.mark.parametrize(
    ("foreign", "requests", "outcome"),
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
def test_g19_counts_requests_if_all_are_small(
    foreign: int, requests: tuple[int, int] | None, outcome: Outcome
) -> None:
    finding = others.foreign_load(
        nodes=1, own=Moved(4 * MIB, 0), counted=Moved(4 * MIB + foreign, 0), requests=requests
    )
    assert finding.outcome is outcome, finding


@pytest.mark.parametrize(
    ("executions", "outcome"),
    [
        ([(20_000, 20_010), (20_000, 19_990)], OK),
        ([(20_000, 20_010), (20_000, 40_000)], Outcome.CONTAMINATED),
        ([(20_000, 10_000)], Outcome.INVALID),
        ([(20_000, 0)], Outcome.INVALID),
        # A few files beside few, and a tenth.
        ([(1000, 1900)], OK),
        ([(20_000, 22_000)], OK),
    ],
)
def test_g19_holds_files_against_the_inodes_in_use(
    executions: list[tuple[int, int]], outcome: Outcome
) -> None:
    finding = others.foreign_files(executions=executions)
    assert finding and finding.outcome is outcome, finding
    assert others.foreign_files(executions=[]) is None


def moved(**more: Any) -> NodeActivity:
    return NodeActivity(host="n1", cache_id="k:1", seconds=1.0, **more)


def looked(text: str, **more: Any) -> Load:
    given: dict[str, Any] = {"host": "n1", "cache_id": "k:1", "time": 1795223500.0, "load1": 0.0}
    return Load(**{**given, **host._lustre(parse_parameters(text), {}, 1000), **more})


def test_g19_on_the_jobs_that_a_server_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(others, "FOREIGN_BYTES", MIB)
    seen = change(looked("jobid_var=procname_uid\n"), looked(JOB_STATS))
    assert seen.jobs_own is not None and seen.jobs_foreign is not None
    jobs = [(seen.jobs_own, seen.jobs_foreign)]
    finding = others.foreign_load(nodes=1, own=None, counted=Moved(), jobs=jobs)
    assert finding.outcome is Outcome.CONTAMINATED
    says(finding, "other jobs, as the servers say, moved 16 MiB of 32 MiB (50%)")


# --- G11: the targets that moved the bytes ---------------------------------------------------------


@pytest.mark.parametrize(
    ("counted", "held", "whole", "outcome", "saw"),
    [
        (
            {"OST0000": 8, "OST0001": 9},
            {0, 1},
            True,
            OK,
            "with 2 of 2 storage targets of the files",
        ),
        ({"OST000a": 8, "OST0001": 9}, {10, 1}, True, OK, "8 B (ost000a) to 9 B (ost0001)"),
        ({"OST0000": 8, "OST0001": 0}, {0, 1}, True, Outcome.INVALID, "none with ost0001"),
        ({"OST0000": 8}, {0, 1, 2}, True, Outcome.INVALID, "none with ost0001 and 1 more"),
        # A short or random read need not touch every target.
        ({"OST0000": 8}, {0, 1, 2}, False, OK, "1 of 3"),
        ({"OST0000": 8, "OST0003": 7}, {0}, True, OK, "7 B with targets that hold none of them"),
        # Data on a metadata target are none of a storage target.
        ({"MDT0000": 8}, {0}, True, Outcome.INVALID, "0 of 1"),
    ],
)
def test_g11_on_what_each_target_moved(
    counted: dict[str, int], held: set[int], whole: bool, outcome: Outcome, saw: str
) -> None:
    finding = witness.targets_witnessed(counted=counted, held=held, whole=whole)
    assert finding and finding.outcome is outcome, finding
    assert saw in finding.saw


def test_g11_without_counters_says_nothing_of_bytes() -> None:
    assert witness.targets_witnessed(counted={}, held={1}, whole=True) is None
    assert witness.targets_witnessed(counted={"MDT0000": 5}, held=set(), whole=True) is None


# --- G8, G4: the tool's word and the kernel's -----------------------------------------------------


HONEST: dict[str, Any] = {"asked": GIB, "own": GIB, "counted": GIB, "least": GIB}


def g8(
    *executions: Mapping[str, Any] | None,
    direction: str = "read",
    source: str = "sda",
    required: bool = False,
) -> Finding:
    """G8 of executions that claim a GiB each, by their counts."""
    claims = [
        None if counts is None else witness.bytes_claims(direction, GIB, source=source, **counts)
        for counts in executions
    ]
    return witness.bytes_witnessed(executions=claims, source=source, required=required)


@pytest.mark.parametrize("direction", ["read", "write"])
@pytest.mark.parametrize("share", [0.951, 1.0, 1.049])
def test_g8_believes_two_words_that_agree(direction: str, share: float) -> None:
    counts = {**HONEST, "own": int(share * GIB), "counted": int(share * GIB)}
    finding = g8(counts, direction=direction)
    assert finding.outcome is OK, finding
    assert "sda: " in finding.saw


@pytest.mark.parametrize("who", ["asked", "own", "counted", "least"])
@pytest.mark.parametrize("direction", ["read", "write"])
def test_g8_refuses_bytes_that_one_of_the_kernels_counts_lacks(direction: str, who: str) -> None:
    for count in (0, GIB // 2, int(0.949 * GIB)):
        finding = g8(HONEST, {**HONEST, who: count}, direction=direction)
        assert finding.outcome is Outcome.INVALID, finding
        says(finding, "1 GiB", format_bytes(count), "within 5%")


@pytest.mark.parametrize(
    ("calls", "outcome"), [(95_000, OK), (94_999, Outcome.INVALID), (None, OK)]
)
@pytest.mark.parametrize("direction", ["read", "write"])
def test_g8_wants_a_call_for_each_operation(
    direction: str, calls: int | None, outcome: Outcome
) -> None:
    """A library that gathers small transfers in large ones (IOBUF) moves all bytes, and does not what was asked for."""
    finding = g8({**HONEST, "operations": 100_000, "calls": calls}, direction=direction)
    assert finding.outcome is outcome, finding
    if outcome is not OK:
        says(finding, "100000 times, as it says", "called the kernel 94999 times")


def test_g8_refuses_a_tool_that_says_too_little() -> None:
    too_much = {**HONEST, "own": int(1.1 * GIB)}
    assert g8(too_much).outcome is Outcome.INVALID
    assert g8({**too_much, "beside": GIB}).outcome is OK  # buffered


def test_g8_refuses_tasks_that_read_their_data_twice() -> None:
    """Then the second time is served by a cache, and the devices moved as much as the tool says."""
    twice = {**HONEST, "asked": 2 * GIB}
    for most, outcome in ((None, OK), (2 * GIB, OK), (int(1.1 * GIB), Outcome.INVALID)):
        finding = g8({**twice, "most_asked": most})
        assert finding.outcome is outcome, finding


@pytest.mark.parametrize(("counted", "outcome"), [(2 * GIB, OK), (GIB, Outcome.INVALID)])
def test_g8_knows_the_second_copy_of_a_file_system(counted: int, outcome: Outcome) -> None:
    counts = {**HONEST, "counted": counted, "least": counted, "copies": (2.0, 2.0)}
    finding = g8(counts, direction="write")
    assert finding.outcome is outcome, finding
    # Reads come from one copy.
    assert g8({**HONEST, "copies": (2.0, 2.0)}).outcome is OK


@pytest.mark.parametrize(("required", "outcome"), [(False, WARN), (True, Outcome.INVALID)])
@pytest.mark.parametrize(
    ("executions", "source", "saw"),
    [
        ([{"own": GIB}, None], "sda", "1 of 2 executions have no witness"),
        ([{"asked": GIB}], "", "nothing under the mount counts bytes"),
        # A device far below shows what is missing, and nothing else.
        ([{"asked": GIB, "least": GIB}], "", "nothing under the mount counts bytes"),
    ],
)
def test_g8_says_that_there_is_no_witness(
    executions: list[dict[str, int] | None],
    source: str,
    saw: str,
    required: bool,
    outcome: Outcome,
) -> None:
    finding = g8(*executions, source=source, required=required)
    assert finding.outcome is outcome
    says(finding, "G8", "no second witness", saw)


@pytest.mark.parametrize(
    ("passed", "outcome"),
    [
        (int(0.951 * GIB), WARN),
        # Others use the networks, too.
        (9 * GIB, WARN),
        (int(0.949 * GIB), Outcome.INVALID),
        (0, Outcome.INVALID),
        (None, WARN),
    ],
)
@pytest.mark.parametrize("source", ["", "the client of rig (osc.*.stats)"])
def test_g8_lets_networks_and_disks_contradict_but_not_confirm(
    source: str, passed: int | None, outcome: Outcome
) -> None:
    for required in (False, True):
        finding = g8({"asked": GIB, "passed": passed}, source=source, required=required)
        assert finding.outcome is (Outcome.INVALID if required and outcome is WARN else outcome)
        said = "no second witness" if outcome is WARN else "the networks and disks of the nodes"
        assert said in finding.saw


def g4(*executions: Mapping[str, Any] | None, **more: Any) -> Finding:
    """G4 of executions by what they claim and who saw them."""
    claims = [None if seen is None else witness.seconds_claims(**seen) for seen in executions]
    return witness.seconds_witnessed(executions=claims, **more)


@pytest.mark.parametrize(
    ("claimed", "ran", "moving", "outcome"),
    [
        (30.0, 32.0, 29.5, OK),
        (29.4, 29.35, 30.9, OK),
        (30.0, 29.0, None, Outcome.INVALID),  # longer than its processes
        (15.0, 32.0, 29.5, Outcome.INVALID),  # a clock at half speed
        (27.0, 32.0, 29.5, Outcome.INVALID),
    ],
)
def test_g4_wants_seconds_that_the_job_confirms(
    claimed: float, ran: float | None, moving: float | None, outcome: Outcome
) -> None:
    seen = {"claimed": claimed, "ran": ran, "moving": moving}
    assert g4(seen).outcome is outcome
    # On a busy node a healthy tool waits for a processor; it never reports more than its processes ran.
    busy = g4(seen, busy="n1 had a load of 20.0")
    excused = outcome is not OK and moving is not None
    assert busy.outcome is (Outcome.CONTAMINATED if excused else outcome)
    assert not excused or "at rest" in busy.remedy


@pytest.mark.parametrize("required", [False, True])
def test_g4_remarks_an_execution_that_nobody_saw(required: bool) -> None:
    """Metadata have no other witness that every file system gives."""
    found = g4({"claimed": 3.0, "ran": 4.0}, None, required=required)
    assert found.outcome is (Outcome.INVALID if required else WARN)
    assert found.saw.startswith("no second witness: 1 of 2 executions")


@pytest.mark.parametrize(
    ("more", "outcome"),
    [
        ({"asked": 10.5}, WARN),  # by its own word
        ({"asked": 10.6}, Outcome.INVALID),
        ({"asked": 30.0}, Outcome.INVALID),  # told to run three times as long
        (
            {"claimed": 36.0, "ran": 40.0, "asked": 30.0, "timed": 30.0},
            WARN,
        ),  # a disturber runs longer
        ({"claimed": 36.0, "ran": 40.0, "asked": 30.0, "timed": 20.0}, Outcome.INVALID),
        ({"working": 13.4}, OK),
        ({"working": 13.6}, Outcome.INVALID),
        ({"ran": 90.0, "working": 10.2}, OK),  # its library took long to connect all tasks
        ({"making": 10.4}, OK),
        ({"making": 10.6}, Outcome.INVALID),
        ({"ran": 90.0}, WARN),  # of which it may not report all
    ],
)
def test_g4_wants_no_fewer_seconds_than_the_tool_was_at_work(
    more: dict[str, Any], outcome: Outcome
) -> None:
    assert g4({"claimed": 10.0, "timed": 10.0, "ran": 12.0, **more}).outcome is outcome


@pytest.mark.parametrize(
    ("working", "outcome"),
    [
        ((2.2, 2.2, 2.2), OK),
        ((2.3, 2.3, 2.3), Outcome.INVALID),  # a clock at less than half its speed
        ((19.0, 0.3, 0.3), OK),  # a busy machine
        ((19.0, 2.3, 0.3), Outcome.INVALID),
        ((None, 2.3, 2.3), Outcome.INVALID),
    ],
)
def test_g4_knows_how_long_a_tool_worked(
    working: tuple[float | None, ...], outcome: Outcome
) -> None:
    """In half of the executions or more no longer than it reports, a quarter, and a second."""
    seen = [{"claimed": 1.0, "ran": 20.0, "working": seconds} for seconds in working]
    assert g4(*seen).outcome is outcome


def test_a_word_that_is_not_exact_contradicts_and_never_confirms() -> None:
    """Whatever the quantity: the ledger has one rule for all."""
    for count, required, outcome in (
        (100, False, WARN),
        (100, True, Outcome.INVALID),
        (90, False, Outcome.INVALID),
    ):
        word = ledger.BYTES.most("somebody counted less", count)
        claim = ledger.Claim("the tool says 100", 100, [word])
        found = ledger.settle(
            "G8 witness",
            [[claim]],
            fine="fine",
            unseen="nobody is exact",
            required=required,
            tolerance=0.05,
        )
        assert found.outcome is outcome
        confirmed = replace(claim, words=[word, ledger.Bounds("exact", exact=True)])
        seen = ledger.settle("G8 witness", [[confirmed]], fine="fine", unseen="x", tolerance=0.05)
        assert seen.outcome is (OK if count == 100 else Outcome.INVALID)


# --- G20: connections to the servers --------------------------------------------------------------

STATES = RECORDED["lctl get_param osc.*.state"].stdout


def test_g20_believes_connections_that_stayed() -> None:
    seen = change(looked(STATES), looked(STATES))
    finding = nodes.connections(changes=[seen])
    assert finding.outcome is OK
    assert "1 node(s), as the state of the connections say" in finding.saw


def test_g20_says_that_nothing_can_be_seen() -> None:
    for changes in ([], [change(looked(""), looked(""))]):
        finding = nodes.connections(changes=changes)
        assert finding.outcome is OK
        assert finding.saw.startswith(
            "not visible here: an ordinary user sees no evictions; root does"
        )
        assert "lctl get_param 'osc.*.state'" in finding.saw


def test_g20_objects_to_a_client_that_was_evicted() -> None:
    line = " - [ 1795223141, FULL ]\n"
    device = "osc.lustre-OST0002-osc-ffff888129458800.state="
    head, tail = STATES.split(device)
    went = " - [ 1795223505, EVICTED ]\n - [ 1795223506, FULL ]\n"
    after = looked(head + device + tail.replace(line, line + went, 1))
    finding = nodes.connections(changes=[change(looked(STATES), after), moved()])
    assert finding.outcome is INVALID
    says(finding, "G20", "n1: lustre-OST0002 went through EVICTED", "no eviction", "run again")


# --- G21: reading what was written ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("reads", "writes", "saw"),
    [
        ([(1, 20.0), (2, 40.0)], [(1, 10.0)], "repetition 2 reads what this run did not write"),
        ([(1, 20.0)], [(1, 20.1)], "repetition 1 reads before its data were written"),
        ([(1, 20.0)], [(0, 10.0), (1, 30.0)], "repetition 1 reads before"),
        ([], [(1, 10.0)], "no read"),
    ],
)
def test_g21_objects(
    reads: list[tuple[int, float]], writes: list[tuple[int, float]], saw: str
) -> None:
    finding = figures.read_after_write(reads=reads, writes=writes)
    assert finding.outcome is INVALID
    says(finding, "G21", saw, "phases.tsv")


def test_g21_knows_when_all_writes_were_to_come_first() -> None:
    late, first = [(1, 10.0), (2, 30.0)], [(1, 10.0), (2, 15.0)]
    reads = [(1, 20.0), (2, 40.0)]
    assert figures.read_after_write(reads=reads, writes=late).outcome is OK
    assert figures.read_after_write(reads=reads, writes=first, writes_first=True).outcome is OK
    finding = figures.read_after_write(reads=reads, writes=late, writes_first=True)
    assert finding.outcome is INVALID
    says(finding, "G21", "repetition 1 reads before all repetitions have written", "phases.tsv")
    assert finding.demands == "all writes of this run have finished before the first read"


# --- G24: what the client makes of I/O ------------------------------------------------------------

HYBRID = client.facts_of(
    parse_parameters(
        sessions("params.txt")[
            "(bench) lctl get_param llite.*.hybrid_io llite.*.hybrid_io_read_threshold_bytes "
            "llite.*.hybrid_io_write_threshold_bytes llite.*.unaligned_dio"
        ].stdout
    )
)


def modes(**change: Any) -> Finding:
    given: dict[str, Any] = {
        "nodes": [HYBRID, HYBRID],
        "buffered": True,
        "transfer_bytes": MIB,
        "direction": "write",
    }
    return nodes.client_modes(**{**given, **change})


@pytest.mark.parametrize(
    "change",
    [
        {"transfer_bytes": 2 * MIB - 1},
        {"transfer_bytes": 8 * MIB - 1, "direction": "read"},
        {"transfer_bytes": 64 * MIB, "buffered": False},
        {"transfer_bytes": None},
        {"transfer_bytes": 64 * MIB, "direction": "metadata"},
        {"transfer_bytes": 64 * MIB, "nodes": [{**HYBRID, "tunable.llite.hybrid_io": "0"}]},
        {"transfer_bytes": 64 * MIB, "nodes": [{}, {}]},
    ],
)
def test_g24_believes(change: dict[str, Any]) -> None:
    assert modes(**change).outcome is OK


@pytest.mark.parametrize(
    ("change", "saw"),
    [
        ({"transfer_bytes": 2 * MIB}, "transfers of 2 MiB may be direct (hybrid_io from 2 MiB)"),
        ({"transfer_bytes": 8 * MIB, "direction": "read"}, "(hybrid_io from 8 MiB)"),
        (
            {"nodes": [HYBRID, {**HYBRID, "tunable.llite.unaligned_dio": "0"}]},
            "unaligned_dio is 0 and 1",
        ),
        ({"nodes": [HYBRID, {}]}, "hybrid_io is 1 and unknown on different nodes"),
        ({"nodes": [{"unanswered.lustre": True}]}, "not answered in time on 1 of 1 node(s)"),
        ({"nodes": [HYBRID, {"unanswered.lustre": True}]}, "not answered in time on 1 of 2 node"),
    ],
)
def test_g24_remarks(change: dict[str, Any], saw: str) -> None:
    finding = modes(**change)
    assert finding.outcome is WARN, finding
    says(finding, "G24", saw)


# --- G13: shares ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("need", "share", "outcome"), [(10, 0.1, OK), (11, 0.1, INVALID), (0, 0.0, OK)]
)
def test_g13_a_case_takes_a_share_of_what_is_free(
    need: int, share: float, outcome: Outcome
) -> None:
    space = Space(1000, 100, 0, 0)
    finding = preflight.share_of_free(space=space, need_bytes=need, max_of_free=share)
    assert finding.outcome is outcome
    if outcome is INVALID:
        says(finding, "G13", "of the 100 B that are free", "limits.max_of_free")


@pytest.mark.parametrize(
    ("pieces", "pinned", "free", "outcome"),
    [
        (None, (), [90, 12], OK),  # even: 10 each
        (2, (), [90, 12], OK),
        (1, (), [90, 12], INVALID),  # one piece of 20 may land on either
        (3, (), [90, 16], INVALID),  # two of three pieces of 7 on one
        (3, (), [90, 17], OK),
        (2, (0, 0), [90, 1], OK),  # both on the first
        (2, (1, 1), [90, 23], INVALID),
        (2, (1, 1), [1, 24], OK),
        (3, (0, 1, 1), [90, 16], INVALID),
    ],
)
def test_g13_the_share_of_a_storage_target_follows_from_the_layout(
    pieces: int | None, pinned: tuple[int, ...], free: list[int], outcome: Outcome
) -> None:
    finding = preflight.target_room(
        targets=[ost(n, free=room) for n, room in enumerate(free)],
        need_bytes=20,
        max_fill=1.0,
        pieces=pieces,
        pinned=pinned,
    )
    assert finding.outcome is outcome, finding
