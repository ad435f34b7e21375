"""Layouts asked for and read back, storage targets, pins."""

import os
from types import MappingProxyType

import pytest

from iogauge.cli import queues
from iogauge.core import commands
from iogauge.node.lustre import inherited, lfs, targets
from iogauge.node.lustre.file_layout import FileLayout, Part
from iogauge.node.lustre.inherited import Directory
from iogauge.node.lustre.lfs import LustreError
from iogauge.node.lustre.request import Layout, Pins, place
from iogauge.node.lustre.targets import MetadataTarget, StorageTarget
from iogauge.node.view import look
from support.lustre.recorded import answer

MIB = 1 << 20


# --- what is asked for ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "layout, words",
    [
        (Layout(stripe_count=-1, stripe_bytes=MIB), "-c -1 -S 1m"),
        (Layout(stripe_bytes=(1 << 32) - 65536), "-S 4194240k"),
        (
            Layout(metadata_bytes=1 << 16, stripe_count=1),
            "-E 64k -L mdt -E -1 -c 1",
        ),
    ],
)
def test_words_for_lfs(layout, words):
    assert layout.arguments() == words.split()


# --- what a directory passes on ---------------------------------------------------------------------


def said(command):
    return answer("directories.txt", command).stdout


@pytest.mark.parametrize(
    "name, found",
    [
        ("dne", ((0, 1), "fnv_1a_64")),
        ("m1", ((1,), "")),
        ("plain", ((1,), "")),
        ("d4", ((0,), "")),
    ],
)
def test_the_metadata_targets_of_a_directory(name, found):
    assert inherited.parse_getdirstripe(said(f"lfs getdirstripe -y {name}")) == found


def test_the_inodes_of_metadata_targets():
    assert targets.parse_df_inodes(said("lfs df -i")) == (
        MetadataTarget(index=0, inodes_total=838864, inodes_free=838555),
        MetadataTarget(index=1, inodes_total=838864, inodes_free=838584),
    )
    with pytest.raises(LustreError, match="no metadata target"):
        targets.parse_df_inodes("")


def four(*inactive):
    return tuple(
        StorageTarget(index=n, uuid=f"lustre-OST000{n}_UUID", active=n not in inactive)
        for n in range(4)
    )


def plain(count, size, **more):
    return FileLayout(
        path="d", parts=(Part(stripe_count=count, stripe_bytes=size, **more),)
    )


GROWING = FileLayout(
    path="d",
    parts=(
        Part(stripe_count=1, stripe_bytes=0).within(0, MIB),
        Part(stripe_count=-1, stripe_bytes=0).within(MIB, None),
    ),
    composite=True,
)


@pytest.mark.parametrize(
    "default, request_, known",
    [
        (plain(-1, MIB), None, [(3, MIB)]),
        (plain(0, 0), None, [(1, 4 * MIB)]),
        (None, None, []),
        (GROWING, None, [(1, MIB), (3, 4 * MIB)]),
        (plain(2, MIB), Layout(stripe_count=-1), [(3, 4 * MIB)]),
        (None, Layout(metadata_bytes=MIB, stripe_count=-1), [(0, 0), (3, 4 * MIB)]),
    ],
)
def test_what_a_file_will_have(default, request_, known):
    seen = Directory(default=default, of_root=plain(1, 4 * MIB))
    parts = seen.parts_of(request_, four(2))
    assert [(part.stripe_count, part.stripe_bytes) for part in parts] == known


@pytest.mark.parametrize(
    "default, count, size",
    [
        (plain(-1, MIB), -1, MIB),
        (plain(0, 2 * MIB), 1, 2 * MIB),
        (GROWING, "1,-1", "1048576,4194304"),
        (None, None, None),
    ],
)
def test_what_a_site_may_expect_of_a_default(default, count, size):
    told = Directory(default=default, of_root=plain(1, 4 * MIB)).stripes
    assert told.get("layout.stripe_count") == count
    assert told.get("layout.stripe_bytes") == size


def test_a_target_that_lustre_does_not_answer_for_has_no_facts(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    view = look(str(tmp_path))
    found = inherited.look_at_directory(view)
    assert found.facts == {}
    assert len(found.unanswered) == 3


# --- storage targets ------------------------------------------------------------------------------


def joined(df, osts="lfs osts /mnt/lustre", servers=MappingProxyType({})):
    return targets.join_targets(
        osts=targets.parse_osts(answer("health.txt", osts).stdout),
        shown=targets.parse_df(answer("health.txt", df).stdout),
        servers=servers,
    )


def test_healthy_targets():
    targets = joined("lfs df /mnt/lustre")
    assert [target.index for target in targets] == [0, 1, 2, 3]
    assert targets[3] == StorageTarget(
        index=3,
        uuid="lustre-OST0003_UUID",
        active=True,
        bytes_total=(94708 + 3509216) * 1024,
        bytes_free=3509216 * 1024,
    )


def test_a_target_is_inactive_if_the_client_or_its_server_says_so():
    for df, osts in (
        ("lfs df /mnt/lustre", "lfs osts # OST 2 inactive"),
        ("lfs df # OST 2 inactive", "lfs osts /mnt/lustre"),
    ):
        targets = joined(df, osts)
        assert [target.index for target in targets if not target.active] == [2]


@pytest.mark.parametrize(
    "df, flags",
    [
        ("lfs df # OST 1 degraded", ["", "D", "", ""]),
        ("lfs df /mnt/lustre # OST 2 no_create", ["", "", "N", ""]),
        ("lfs df # OST 3 full", ["", "", "", ""]),
    ],
)
def test_flags_at_the_end_of_the_line(df, flags):
    assert [target.flags for target in joined(df)] == flags


def test_a_target_that_does_not_answer_is_inactive():
    text = answer("health.txt", "lfs df /mnt/lustre").stdout
    lines = text.splitlines(keepends=True)
    lines[4] = "lustre-OST0001_UUID : Resource temporarily unavailable\n"
    found = targets.parse_df("".join(lines))
    assert sorted(target.index for target in found.values()) == [0, 2, 3]


def test_a_target_has_the_address_of_its_server():
    servers = {
        "lustre-OST0000_UUID": "10.0.0.11@tcp",
        "lustre-OST0001_UUID": "10.0.0.12@o2ib1",
    }
    targets = joined("lfs df /mnt/lustre", servers=servers)
    assert [t.server for t in targets] == [
        "10.0.0.11@tcp",
        "10.0.0.12@o2ib1",
        None,
        None,
    ]


# --- pins -----------------------------------------------------------------------------------------


def storage(servers, inactive=()):
    return tuple(
        StorageTarget(index=i, uuid=f"OST{i}", active=i not in inactive, server=server)
        for i, server in enumerate(servers)
    )


def pins(number, **change):
    return Pins(names=tuple(f"f.{i}" for i in range(number)), kind="file", **change)


ALTERNATING = ["a", "b", "a", "b"]
BLOCKS = ["a", "a", "b", "b", "c", "c"]


@pytest.mark.parametrize(
    "change, servers, inactive, where",
    [
        ({}, ALTERNATING, (), [0, 1, 2, 3, 0]),
        ({}, ALTERNATING, (1,), [0, 2, 3, 0, 2]),
        ({"servers": 1}, ALTERNATING, (0,), [1, 3, 1, 3, 1]),
        ({"servers": 3}, BLOCKS, (1,), [0, 2, 4, 3, 5]),
        ({"targets": (3, 1)}, ALTERNATING, (0,), [3, 1, 3, 1, 3]),
    ],
)
def test_names_go_round_the_targets(change, servers, inactive, where):
    placed = place(pins(5, **change), storage(servers, inactive))
    assert placed == {f"f.{i}": target for i, target in enumerate(where)}


@pytest.mark.parametrize(
    "change, servers, inactive, why",
    [
        ({"servers": 3}, ALTERNATING, (), "3 servers asked for, 2 known: a, b"),
        ({"servers": 1}, ["a", None], (), "server of OST1 is not known"),
        ({"targets": (0, 1)}, ALTERNATING, (1,), "storage target 1 is inactive"),
        ({"servers": 1}, [], (), "1 servers asked for, 0 known"),
    ],
)
def test_names_that_cannot_be_placed(change, servers, inactive, why):
    with pytest.raises(ValueError, match=why):
        place(pins(2, **change), storage(servers, inactive))


# --- programs whose exit status is 0 ----------------------------------------------------------------

#: The file system's own line is missing.
CUT = answer("health.txt", "lfs df /mnt/lustre").stdout.partition("filesystem_summary")[
    0
]


@pytest.mark.parametrize(
    "program, printed, complaint, ask, why",
    [
        ("lfs", CUT, "", lambda: lfs.run_lfs("df", ends=lfs.SUMMARY), "cut off"),
        ("lfs", "a 1", "error: OST0001: timed out", lambda: lfs.run_lfs("osts"), "timed out"),
        ("sinfo", "", "sinfo: error: slurmctld backup used", queues.queues, "backup used"),
        ("scontrol", "A = 1", "error: incomplete", lambda: commands.output("scontrol"), "incomplete"),
    ],
)  # fmt: skip
def test_an_answer_that_is_not_whole_is_an_error(
    tmp_path, monkeypatch, program, printed, complaint, ask, why
):
    script = f"#!/bin/sh\ncat <<'EOF'\n{printed}\nEOF\necho '{complaint}' >&2\n"
    (tmp_path / program).write_text(script)
    (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises((OSError, LustreError), match=why):
        ask()


def test_a_change_that_lustre_refuses_names_all_its_options(tmp_path, monkeypatch):
    said = "lfs setdirstripe: cannot set default stripe on dir '/l/tree.0': Operation not permitted"
    (tmp_path / "lfs").write_text(f'#!/bin/sh\necho "{said}" >&2\nexit 1\n')
    (tmp_path / "lfs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(LustreError) as refused:
        lfs.change("setdirstripe", "-D", "-c", "1", "-i", "1", "/l/tree.0")
    assert str(refused.value) == f"lfs setdirstripe -D -c 1 -i 1: exit status 1: {said}"
