"""elbencho: options to arguments, and recorded outputs of 3.1-10 and 3.0-37 to bytes and seconds."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from iogauge.core.measurement import ToolOutputError
from iogauge_extras.suites import elbencho
from iogauge_extras.suites.elbencho import ElbenchoOptions

SAMPLES = Path(__file__).parents[2] / "data" / "samples"
MIB = 1 << 20


def sample(name: str, version: str = "") -> str:
    return (SAMPLES / f"elbencho{version}_{name}.json").read_text()


def words(**more: Any) -> ElbenchoOptions:
    given: dict[str, Any] = {
        "directory": "/tmp/scratch/data",
        "action": "write",
        "threads": 2,
        "file_bytes": 64 * MIB,
        "block_bytes": MIB,
        "direct": True,
        "json_file": "elbencho_write.json",
    }
    return ElbenchoOptions(**given | more)


@pytest.mark.parametrize("name", ["write", "read"])
def test_a_recorded_phase(name):
    text = sample(name)
    output = elbencho.parse(text, name)
    assert (output.tool, output.version, output.tasks, output.nodes) == (
        *("elbencho", "3.1-10"),
        *(2, 1),
    )
    (phase,) = output.phases
    assert (phase.name, phase.bytes_moved, phase.operations) == (name, 128 * MIB, 128)
    assert phase.rates["bw"].value == pytest.approx(128 / phase.seconds)
    (shown,) = re.findall(r'"last_done":\{"elapsed_time_ms":"(\d+)"', text)
    assert phase.seconds == pytest.approx(int(shown) / 1000, abs=0.001)
    assert [moment.name for moment in output.moments] == ["iso_start_date"]


@pytest.mark.parametrize("name", ["write", "read"])
@pytest.mark.parametrize(
    ("version", "more"),
    [("", {}), ("_hosts", {"hosts": "servers.hosts"})],
)
def test_the_words_are_those_of_the_recorded_command(version, more, name):
    given = words(action=name, json_file=f"elbencho_{name}.json", **more).arguments()
    if version == "_hosts" and name == "read":
        given[given.index("servers.hosts")] = "servers.next"
    assert elbencho.parse(sample(name, version), name).command.split() == [
        "elbencho",
        *given,
    ]


@pytest.mark.parametrize(
    ("version", "hosts", "more"),
    [("", 1, {}), ("_hosts", 2, {"hosts": "servers.next"})],
)
def test_both_ways_of_a_recorded_mix(version, hosts, more):
    text = sample("mix", version)
    output = elbencho.parse(text, "mix")
    sizes = {
        "file_bytes": 25 * MIB,
        "block_bytes": 128 << 10,
        "json_file": "elbencho_mix.json",
    }
    given = words(action="mix", reads=70, **sizes, **more)
    assert output.command.split() == ["elbencho", *given.arguments()]
    assert (output.tasks, output.nodes, output.at_once) == (2 * hosts, hosts, True)
    moved = {
        phase.name: (phase.bytes_moved, phase.operations) for phase in output.phases
    }
    each = {"write": (15 * MIB, 120), "read": (35 * MIB, 280)}
    assert moved == {
        way: (hosts * of, hosts * count) for way, (of, count) in each.items()
    }
    # Both go on for as long as the execution; bandwidth and operations are those of that time.
    write, read = output.phases
    assert write.seconds == pytest.approx(read.seconds, rel=0.01)
    assert read.rates["bw"].value == pytest.approx(read.rates["iops"].value / 8)
    for damage, said in (
        (("RWMIX70", "WRITE"), "found WRITE"),
        (("rwmix_read", "x"), "rwmix_read"),
    ):
        with pytest.raises(ToolOutputError, match=said):
            elbencho.parse(text.replace(*damage), "mix")


@pytest.mark.parametrize(
    "gpu, more", [("", ""), ("copied", "--gpuids all"), ("gds", "--gpuids all --gds")]
)
def test_the_memory_of_gpus_is_one_more_option(gpu, more):
    """The form of elbencho's own help; nothing of it was run on a GPU."""
    plain, given = words().arguments(), words(gpu=gpu).arguments()
    after = plain.index("--direct") + 1
    assert given == [*plain[:after], *more.split(), *plain[after:]]


def test_an_older_elbencho_is_refused_by_name():
    line = json.loads(sample("write"))
    line["version"] = line.pop("config")["version"]
    with pytest.raises(
        ToolOutputError, match=r"elbencho 3\.1-10: no 'config'.*install 3\.0-37"
    ):
        elbencho.parse(json.dumps(line), "write")


@pytest.mark.parametrize(
    ("pattern", "text", "said"),
    [
        (r"(?s).*", "", "expected one phase WRITE, found (nothing)"),
        (r"(?s)(.*)", r"\1\1", "expected one phase WRITE, found WRITE WRITE"),
        (r"WRITE", "MKDIRS", "expected one phase WRITE, found MKDIRS"),
        (r"\}\}\n", "", "its answer is damaged"),
        (r"\}\}\n", "}} and more\n", "extra data after the JSON"),
        (r'("last_done".*"bytes":")\d+', r"\g<1>0", "'bytes' is '0'"),
        (r'("last_done".*"bytes":")\d+', r"\g<1>67108864", "but it says"),
        (r'("last_done".*"bytes/s":")\d', r"\g<1>9", "but it says"),
        (r"3\.1-10", "none", "expected numbers"),
        (r"2026-", "never-", "expected a date with a zone"),
    ],
)
def test_what_is_no_whole_phase_is_refused(pattern, text, said):
    whole = sample("write").replace("\\/", "/")
    damaged = re.sub(pattern, text, whole, count=1)
    assert damaged != whole
    with pytest.raises(ToolOutputError, match=re.escape(said)):
        elbencho.parse(damaged, "write")


# Many files.

ACTIONS = ("create", "stat", "read", "remove")


def many(action: Any, **more: Any) -> ElbenchoOptions:
    given: dict[str, Any] = {
        "directory": "/tmp/scratch/data",
        "action": action,
        "threads": 2,
        "files": 1000,
        "file_bytes": 3901,
        "own_directory": False,
        "json_file": f"files_{action}.json",
    }
    given |= more
    return ElbenchoOptions(**given, block_bytes=given["file_bytes"])


@pytest.mark.parametrize("action", ACTIONS)
def test_a_recorded_execution_over_many_files(action):
    text = sample(f"files_{action}")
    output = elbencho.parse(text, action, 2000)
    assert output.command.split() == ["elbencho", *many(action).arguments()]
    assert (output.tasks, output.nodes) == (2, 1)
    (phase,) = output.phases
    assert (phase.name, phase.operations) == (action, 2000)
    assert phase.rates["rate"].value == pytest.approx(2000 / phase.seconds)
    assert phase.bytes_moved == (2000 * 3901 if action == "read" else None)


def test_the_time_of_the_sync_counts():
    """272 ms of creation and 23 ms of syncfs(2), cut to whole milliseconds; the sync before is none of them."""
    (phase,) = elbencho.parse(sample("files_create"), "create", 2000).phases
    assert 0.295 <= phase.seconds < 0.297
    (phase,) = elbencho.parse(sample("files_stat"), "stat", 2000).phases
    assert phase.seconds == pytest.approx(2000 / 1125492)  # finer than its 1 ms


def test_directories_are_made_before_the_files():
    words = [
        "-d",
        "-w",
        "-t",
        "2",
        "-n",
        "1",
        "-N",
        "500",
        "-s",
        "0",
        "--sync",
        "--nolive",
    ]
    given = many("create", own_directory=True, files=500, file_bytes=0).arguments()
    assert given[: len(words)] == words
    output = elbencho.parse(sample("files_unique_create"), "create", 1000)
    assert output.phases[0].operations == 1000


@pytest.mark.parametrize(
    ("action", "pattern", "text", "said"),
    [
        (
            "create",
            r"RMFILES",
            "RMFILES",
            "expected one phase WRITE, found SYNC RMFILES SYNC",
        ),
        ("remove", r'("phase_type":")RMFILES', r"\1STAT", "expected one phase RMFILES"),
        (
            "remove",
            r"(?s)(RMFILES.*?\n).*",
            r"\1",
            "after RMFILES expected SYNC, found (nothing)",
        ),
        (
            "remove",
            r'("RMFILES".*"entries":")2000',
            r"\g<1>1999",
            "1999 files, expected 2000",
        ),
        (
            "remove",
            r'("RMFILES".*"entries.{2}s":")19044',
            r"\g<1>29044",
            "but it says 29044 a second",
        ),
        (
            "remove",
            r'("RMFILES".*"entries.{2}s":")19044',
            r"\g<1>18000",
            "but it says 18000 a second",
        ),
        (
            "remove",
            r'(?s)(.*"elapsed_time_ms":")1',
            r"\g<1>x",
            "expected a whole number",
        ),
        ("remove", r"\}\}\n$", "}} and more\n", "extra data after the JSON"),
    ],
)
def test_an_execution_over_files_that_is_not_whole(action, pattern, text, said):
    whole = sample("files_remove")
    damaged = re.sub(pattern, text, whole, count=1)
    assert damaged != whole or action == "create"
    with pytest.raises(ToolOutputError, match=re.escape(said)):
        elbencho.parse(damaged, action, 2000)
