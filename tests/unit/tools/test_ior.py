"""IOR: options to arguments, and its outputs (recorded and real ones) to values."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iogauge.core.measurement import Stonewall, ToolOutput, ToolOutputError
from iogauge.tools.ior.options import DATA_TYPES, DataType, IorOptions, parse_help
from iogauge.tools.ior.output import parse_json, rank_times_csv, with_rank_times

SAMPLES = Path(__file__).parents[2] / "data" / "samples"
GOOD = (
    "ior_i1.json",
    "ior_i3.json",
    "ior_i3_stdout.stdout",
    "ior33_i2.stdout",
    "ior_stone_wear.json",
    "ior_stone_i2.json",
    "ior_stone_plain.stdout",
    "ior_i2.json",
    "ior_mpirun_4x2.json",
    "ior_wonly.json",
    "ior_verify.json",
    "ior_corrupt.json",
    "ior_random_data.json",
)
MINIMAL: dict[str, Any] = {"test_file": "/t/f", "transfer_bytes": 2**20, "block_bytes": 2**24}


def sample(name: str) -> str:
    return (SAMPLES / name).read_text()


def trustworthy(output: ToolOutput) -> None:
    """Nothing in an accepted output is infinite, NaN or not positive."""
    assert output.phases
    for phase in output.phases:
        assert math.isfinite(phase.seconds)
        assert phase.seconds > 0
        for quantity in phase.rates.values():
            assert math.isfinite(quantity.value)
            assert quantity.value > 0


# --- recorded outputs -----------------------------------------------------------------------------


def test_one_repetition() -> None:
    output = parse_json(sample("ior_i1.json"))
    assert (output.tool, output.version, output.tasks, output.nodes) == ("ior", "4.0.0", 2, 1)
    assert output.command.endswith("-O summaryFormat=JSON -O summaryFile=ior_i1.json")
    write, read = output.phases
    assert (write.name, read.name) == ("write", "read")
    assert {k: (q.value, q.unit) for k, q in write.rates.items()} == {
        "bw": (1335.1278, "MiB/s"),
        "iops": (5479.1692, "ops/s"),
        "latency": (0.0004, "s"),
    }
    assert "latency" not in read.rates  # printed as 0.0000
    assert (write.seconds, write.bytes_moved, write.operations) == (0.0015, 2 * 2**20, 8)
    assert write.transfer_bytes == 262144
    assert write.stonewall is None
    assert output.warnings == ()
    assert output.parameters["filePerProc"] == 1
    assert output.parameters["ordering inter file"] == "no tasks offsets"
    assert output.parameters["taskPerNodeOffset"] == 1
    assert output.parameters["Path"] == "/scratch/rigs/raw/s/f.00000000"


def test_repetitions_in_order() -> None:
    output = parse_json(sample("ior_i3.json"))
    assert [(p.name, p.rates["bw"].value) for p in output.phases] == [
        ("write", 1126.1388),
        ("read", 23831.2727),
        ("write", 1441.8371),
        ("read", 26630.5016),
        ("write", 1605.1680),
        ("read", 28532.6803),
    ]
    assert all(phase.bytes_moved == 2 * 2**20 for phase in output.phases)


def test_nested_results_of_version_3_3() -> None:
    output = parse_json(sample("ior33_i2.stdout"))
    assert output.version == "3.3.0"
    assert [(p.name, p.rates["bw"].value, p.bytes_moved) for p in output.phases] == [
        ("write", 1348.3426, 2**23),
        ("read", 17974.1756, 2**23),
        ("write", 1657.1199, 2**23),
        ("read", 22161.2173, 2**23),
    ]
    assert "data_type" not in output.parameters  # other numbers than in 4.0


def test_several_nodes() -> None:
    output = parse_json(sample("ior_mpirun_4x2.json"))
    assert (output.nodes, output.tasks) == (4, 8)
    assert output.phases[0].bytes_moved == 134217728


def test_stonewall_with_wear_out() -> None:
    output = parse_json(sample("ior_stone_wear.json"), sample("ior_stone_wear.stdout"))
    (phase,) = output.phases
    assert phase.stonewall == Stonewall(1.0001, 394.0860, 1576, 1577)
    assert phase.bytes_moved == 826802176 == 1577 * 2 * 262144
    assert phase.operations == 2 * 1577
    assert "latency" not in phase.rates  # IOR divides by the transfers that were planned
    assert "WARNING: Using actual aggregate bytes moved = 826802176" in output.warnings


def test_stonewall_with_repetitions() -> None:
    text, log = sample("ior_stone_i2.json"), sample("ior_stone_i2.stdout")
    output = parse_json(text, log)
    assert [(p.name, p.bytes_moved) for p in output.phases] == [
        ("write", 867172352),
        ("read", 867172352),
        ("write", 1588068352),
        ("read", 1588068352),
    ]
    assert "WARNING: Using actual aggregate bytes moved = 1588068352" in output.warnings
    assert [p.stonewall and p.stonewall.max_pairs for p in output.phases] == [
        1654,
        1654,
        3029,
        3029,
    ]
    # The summary has the bytes of the first repetition only; the pairs are in the log.
    without_log = [phase.bytes_moved for phase in parse_json(text).phases]
    assert without_log == [867172352, 867172352, None, None]


def test_messages_in_the_middle_of_the_json() -> None:
    output = parse_json(sample("ior_stone_plain.stdout"))
    assert output.phases[0].bytes_moved == 1562378240
    assert output.warnings[0] == "WARNING: Expected aggregate file size       = 17179869184"
    assert len(output.warnings) == 4


def test_messages_around_the_json() -> None:
    around = "Writing output to x\n[vm:1] noise {1}\n" + sample("ior_i1.json") + "ERROR: late, x\n"
    output = parse_json(around)
    assert output.phases == parse_json(sample("ior_i1.json")).phases
    assert output.warnings == ("ERROR: late, x",)


def test_a_launchers_words_before_the_first_of_ior_are_no_warning_of_ior() -> None:
    launcher = "WARNING: module gcc/12 is deprecated and will be removed\n"
    log = f"{launcher}Writing output to x\nWriting output to x\nWARNING: The file exists\n"
    assert parse_json(sample("ior_i1.json"), log).warnings == ("WARNING: The file exists",)
    assert parse_json(sample("ior_i1.json"), launcher).warnings == (launcher.strip(),)


def test_corrupt_data_is_a_warning_of_the_log() -> None:
    output = parse_json(sample("ior_corrupt.json"), sample("ior_corrupt.stdout"))
    assert output.warnings == ("WARNING: Incorrect data on read (1 errors found).",)


def test_data_type_is_read_from_the_number() -> None:
    output = parse_json(sample("ior_random_data.json"))
    assert '"data packet type": "i"' in sample("ior_random_data.json")
    assert output.parameters["data_type"] == "random"
    assert "data packet type" not in output.parameters


def test_latency_is_left_out_with_several_segments() -> None:
    assert all("latency" not in p.rates for p in parse_json(sample("ior_i2.json")).phases)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ior_v1.json", r"4\.0\.0 writes invalid JSON when -v is given; drop -v"),
        ("ior_v2_stdout.stdout", r"4\.0\.0 writes invalid JSON when -v is given; drop -v"),
        ("ior_enospc.json", r"cut off \(2201 characters, last line '\"Results\": \['\)"),
        ("ior_missing.json", "cut off"),
        ("ior_nodir.json", "cut off"),
        ("ior_shortread.json", "cut off"),
        ("ior_nodir.stdout", r"only messages: .*ERROR: open64"),
        ("ior_enospc.stdout", r"only messages: .*partial write"),
        ("ior_odirect_ramfs.stdout", r"no IOR JSON .*begins: IOR-4\.0\.0: MPI Coordinated"),
        ("ior_tiny.json", r"Results\[1\] \(read\): 'totalTime' is 0\.0000 s: .* too short"),
        ("ior_maxtime.json", r"'bwMaxMIB' is -nan, expected a finite number"),
        ("ior_two_worlds.stdout", r"2 IOR JSON documents .* world of one"),
    ],
)
def test_damaged_output(name: str, message: str) -> None:
    with pytest.raises(ToolOutputError, match=message):
        parse_json(sample(name))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"bwMiB": 1335.1278', '"bwMiB": 0.0000', r"'bwMiB' is 0, expected a number above 0"),
        ('"bwMiB": 1335.1278', '"bwMiB": -5.0', r"'bwMiB' is -5\.0"),
        ('"bwMiB": 1335.1278', '"bwMiB": "inf"', r"'bwMiB' is 'inf'"),
        ('"bwMiB": 1335.1278', '"bwMiB": nan', r"'bwMiB' is nan"),
        ('"bwMiB": 1335.1278', '"bwMiB": NaN', r"the number NaN"),
        ('"bwMiB": 1335.1278', '"bwMiB": Infinity', r"the number Infinity"),
        ('"bwMiB": 1335.1278', '"bwMiB": 1e999', r"the number 1e999"),
        ('"bwMiB": 1335.1278', '"bwMiB": true', r"'bwMiB' is True"),
        ('"bwMiB": 1335.1278', '"bwMiB": 1435.1278', r"'bwMaxMIB' is 1335\.1278, but Results"),
        ('"bwMiB": 1335.1278', '"bwMB": 1335.1278', r"key 'bwMiB' is missing"),
        ('"iops": 5479.1692', '"iops": 0.0', r"'iops' is 0"),
        ('"iops": 5479.1692', '"iops": 5589.1692', r"wrRdTime\) is not 8 transfers"),
        ('"repetitions": 1,', '"repetitions": 2,', r"holds 2 phases .*expected 4"),
        ('"repetitions": 1,', '"repetitions": 99999999999999999999,', "of 64 bits at most"),
        ('"repetitions": 1,', '"repetitions": 9000000000000000000,', "holds 2 phases"),
        ('"readFile": 1', '"readFile": 0', r"access is 'read'"),
        ('"readFile": 1', '"readfile": 1', r"key 'readFile' is missing"),
        ('"numTasks": 2', '"numTasks": 4', r"numTasks is 4, but Options say 2"),
        ('"xsizeMiB": 2.0000', '"xsizeMiB": 4.0000', r"does not give the 4\.0 MiB"),
        ('"transferSize": 262144', '"transferSize": 0', r"'transferSize' is 0"),
        ('"operation": "read"', '"operation": "write"', r"unexpected operation 'write'"),
        ('"summary"', '"sumary"', r"key 'summary' is missing"),
    ],
)
def test_damage_by_hand(old: str, new: str, message: str) -> None:
    text = sample("ior_i1.json")
    assert old in text
    with pytest.raises(ToolOutputError, match=message):
        parse_json(text.replace(old, new, 1))


def test_nothing() -> None:
    with pytest.raises(ToolOutputError, match="0 bytes"):
        parse_json("")


def test_two_runs_in_one_file() -> None:
    with pytest.raises(ToolOutputError, match=r"2 IOR JSON documents .* matching mpirun"):
        parse_json(sample("ior_i1.json") * 2)


# --- properties of the parser ---------------------------------------------------------------------


@pytest.mark.parametrize("name", GOOD)
def test_every_truncation_is_refused(name: str) -> None:
    text = sample(name)
    trustworthy(parse_json(text))
    end = text.rindex("}")
    for length in range(0, end + 1, 7):
        with pytest.raises(ToolOutputError):
            parse_json(text[:length])
    with pytest.raises(ToolOutputError):
        parse_json(text[:end])


@given(st.text(max_size=300) | st.text(alphabet='{}[]":,.0123456789eE+-nVersion \n', max_size=300))
def test_arbitrary_text_is_refused(text: str) -> None:
    for document in (text, '{"Version": ' + text):
        with pytest.raises(ToolOutputError):
            parse_json(document)
    with pytest.raises(ToolOutputError):
        rank_times_csv(text)


@given(
    name=st.sampled_from(GOOD),
    where=st.integers(0, 12000),
    length=st.integers(0, 40),
    put=st.text(alphabet='0123456789.-{}[]",:naife \n', max_size=12),
)
def test_mutations_are_refused_or_harmless(name: str, where: int, length: int, put: str) -> None:
    text = sample(name)
    where %= len(text)
    try:
        output = parse_json(text[:where] + put + text[where + length :])
    except ToolOutputError:
        return
    trustworthy(output)


VALUES = st.sampled_from(
    [None, True, False, 0, -1, 1, 10**400, -0.0, 1.5, "", "x", [], {}, [1], {"a": 1}]
)


@given(data=st.data(), name=st.sampled_from(["ior_i1.json", "ior_i3.json", "ior_stone_wear.json"]))
def test_values_of_other_types(data: st.DataObject, name: str) -> None:
    document = json.loads(sample(name))
    holder: Any = document
    while True:
        keys = sorted(holder) if isinstance(holder, dict) else list(range(len(holder)))
        key = data.draw(st.sampled_from(keys))
        child = holder[key]
        if not isinstance(child, (dict, list)) or not child or data.draw(st.integers(0, 4)) == 0:
            break
        holder = child
    if data.draw(st.booleans()):
        holder[key] = data.draw(VALUES)
    else:
        del holder[key]
    try:
        output = parse_json(json.dumps(document))
    except ToolOutputError:
        return
    trustworthy(output)


# --- rank details and help ------------------------------------------------------------------------


def test_rank_times() -> None:
    ranks = rank_times_csv(sample("ior_i2.ranks.csv"), tasks=2)
    assert [entry.operation for entry in ranks] == ["write", "read", "write", "read"]
    assert ranks[0].total_seconds == (3.0338764191e-03, 3.0329227448e-03)
    assert ranks[3].transfer_seconds == (6.2584877014e-04, 8.1491470337e-04)
    output = with_rank_times(parse_json(sample("ior_i2.json")), ranks)
    assert output.phases[0].rank_seconds == (3.0338764191e-03, 3.0329227448e-03)


def test_rank_times_of_another_run() -> None:
    ranks = rank_times_csv(sample("ior_stone.ranks.csv"))
    with pytest.raises(ToolOutputError, match="1 phases, but the summary has 4"):
        with_rank_times(parse_json(sample("ior_i2.json")), ranks)
    four = replace(parse_json(sample("ior_stone_wear.json")), tasks=4)
    with pytest.raises(ToolOutputError, match="2 ranks in write, but IOR ran 4 tasks"):
        with_rank_times(four, ranks)
    with pytest.raises(ToolOutputError, match="2 ranks in a write phase, expected 3"):
        rank_times_csv(sample("ior_stone.ranks.csv"), tasks=3)


def test_worlds_of_one_task_that_wrote_one_summary() -> None:
    """Under the launcher of another MPI: the last summary is left, and the rank details of all."""
    alone = parse_json(sample("ior_wonly.json"))
    alone = replace(alone, tasks=1, phases=alone.phases[:1])
    (one, *_) = rank_times_csv(sample("ior_i2.ranks.csv"))
    with pytest.raises(ToolOutputError, match=r"2 phases, .* has 1: .* use the matching mpirun"):
        with_rank_times(alone, [one, one])
    with pytest.raises(ToolOutputError, match=r"2 phases, but the summary has 1$"):
        with_rank_times(replace(alone, tasks=2), [one, one])


def test_truncated_rank_times() -> None:
    text = sample("ior_i2.ranks.csv")
    for length in range(len(text) - 1):
        if text[length - 1 : length] == "\n" and text[:length].count("\n") in (3, 5, 7):
            continue  # whole phases: with_rank_times finds that
        with pytest.raises(ToolOutputError):
            rank_times_csv(text[:length], tasks=2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("a,b\n", "unknown header"),
        (sample("ior_i2.ranks.csv").split("\n")[0] + "\n", "no rows"),
        (sample("ior_i2.ranks.csv").replace("write,1,", "write,2,", 1), "rank 2 is out of order"),
        (sample("ior_i2.ranks.csv").replace("3.0338764191e-03", "nan", 1), "line 2 is damaged"),
        (sample("ior_i2.ranks.csv").replace("3.0338764191e-03", "0.0000000000e+00", 1), "above 0"),
    ],
)
def test_damaged_rank_times(text: str, message: str) -> None:
    with pytest.raises(ToolOutputError, match=message):
        rank_times_csv(text)


def test_help() -> None:
    built = parse_help(sample("ior_help.txt"))
    assert built.apis == {"POSIX", "DUMMY", "MPIIO", "MMAP"}
    assert (built.lustre, built.o_direct) == (False, True)
    assert {"-a", "-c", "-o", "--mpiio.hintsFileName", "--warningAsErrors"} <= built.options
    lustre = sample("ior_help.txt").replace(
        "  --posix.odirect ", "  --posix.lustre.stripecount=-1   Stripes\n  --posix.odirect "
    )
    assert parse_help(lustre).lustre
    with pytest.raises(ToolOutputError, match="not the help text of IOR"):
        parse_help("ior: command not found")


# --- options --------------------------------------------------------------------------------------


def options(**changes: Any) -> IorOptions:
    return IorOptions(**{**MINIMAL, **changes})


def test_arguments() -> None:
    assert options().arguments() == (
        [
            "-a",
            "POSIX",
            "-o",
            "/t/f",
            "-t",
            "1m",
            "-b",
            "16m",
            "-s",
            "1",
            "-O",
            "summaryFormat=JSON",
        ]
    )
    assert options().bytes_per_task == 2**24
    assert options(segments=3).bytes_per_task == 3 * 2**24
    hard = IorOptions(
        test_file="/d/file",
        transfer_bytes=47008,
        block_bytes=47008,
        segments=10_000_000,
        write=True,
        fsync=True,
        reorder_tasks=True,
        task_offset=1,
        barriers=True,
        keep=True,
        signature=1234,
        stonewall_s=300,
        wear_out=True,
        stonewall_status_file="/r/hard.stonewall",
    )
    assert hard.arguments() == [
        "-a",
        "POSIX",
        "-o",
        "/d/file",
        "-t",
        "47008",
        "-b",
        "47008",
        "-s",
        "10000000",
        "-w",
        "-e",
        "-g",
        "-C",
        "-k",
        "-Q",
        "1",
        "-D",
        "300",
        "-G=1234",
        "-O",
        "stoneWallingWearOut=1",
        "-O",
        "stoneWallingStatusFile=/r/hard.stonewall",
        "-O",
        "summaryFormat=JSON",
    ]


def test_phases() -> None:
    assert (options().writes, options().reads) == (True, True)
    assert (options(read=True).writes, options(read=True).reads) == (False, True)
    both = options(write=True, read=True)
    assert (both.writes, both.reads) == (True, True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_bytes": 2**20 + 8}, "multiple of transfer_bytes"),
        ({"transfer_bytes": 0}, "transfer_bytes is 0"),
        ({"transfer_bytes": 3, "block_bytes": 9}, "multiple of 8"),
        ({"segments": 0}, "segments is 0"),
        ({"random_offsets": True, "block_bytes": 2**20}, "choose a larger block"),
        ({"random_offsets": True, "reorder_tasks": True}, "on a shared file"),
        ({"task_offset": 1}, "-Q does nothing without -C"),
        ({"task_offset": 0, "reorder_tasks": True}, "expected at least 1"),
        ({"random_offset_seed": 1}, "together with random_offsets"),
        ({"random_prefill_bytes": 2**20}, "needs random_offsets"),
        ({"random_prefill_bytes": 3, "random_offsets": True}, "divisor of block_bytes"),
        ({"random_offsets": True, "verify_read": True, "read": True}, "needs random_offset_seed"),
        ({"verify_read": True}, "leaves the read out of its summary"),
        ({"verify_read": True, "write": True}, "leaves the read out of its summary"),
        ({"verify_write": True}, "removes the file before"),
        ({"verify_read": True, "read": True}, "needs the signature"),
        ({"signature": 0}, "signature is 0"),
        ({"signature": 2**31}, "32-bit"),
        ({"data_type": "zeros"}, "data_type is 'zeros'"),
        ({"unique_dir": True}, "no effect without file_per_process"),
        ({"unique_dir": True, "file_per_process": True, "test_file": "f"}, "absolute"),
        ({"test_file": "/a b"}, "without blanks"),
        ({"test_file": '/a"b'}, "quotes"),
        ({"test_file": "/a@b"}, "separator of several files"),
        ({"test_file": ""}, "test_file is ''"),
        ({"summary_file": "/a,b"}, "separators"),
        ({"wear_out": True}, "needs a stonewall"),
        ({"stonewall_s": 3}, "EOF prematurely"),
        ({"stonewall_status_file": "/s", "read": True}, "needs keep"),
        ({"stonewall_status_file": "/s", "write": True, "keep": True}, "needs wear_out"),
        ({"min_duration_s": 3}, "page cache"),
        ({"api": "POSIX -v"}, "api is"),
        ({"api": "NCMPI", "file_per_process": True}, "no file_per_process"),
        ({"api": "HDF5", "random_offsets": True}, "no random_offsets"),
        ({"collective": True}, "no effect with api POSIX"),
        ({"api": "MPIIO", "o_direct": True}, "option of api POSIX"),
    ],
)
def test_refused_options(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        options(**changes)


FLAGS = {
    "file_per_process": "-F",
    "write": "-w",
    "read": "-r",
    "fsync": "-e",
    "barriers": "-g",
    "keep": "-k",
}
TAKES_VALUE = {"-a", "-o", "-t", "-b", "-s", "-Q", "-i", "-D", "-l", "-O"}


def parsed(arguments: list[str]) -> dict[str, str]:
    """The arguments read as IOR reads them: options to values ('' for a flag)."""
    found: dict[str, str] = {}
    words = iter(arguments)
    for word in words:
        name, _, value = word.partition("=")
        if word in TAKES_VALUE:
            value = next(words)
            if word == "-O":
                directive, _, value = value.partition("=")
                name = f"-O {directive}"
        assert name not in found or name == "-v"
        found[name] = value
    return found


def as_bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+)([kmgt]?)", text)
    assert match
    return int(match[1]) * int(1024 ** " kmgt".index(match[2] or " "))


@given(
    transfer=st.integers(1, 2**24).map(lambda n: n * 8),
    transfers=st.integers(1, 4096),
    segments=st.integers(1, 1000),
    repetitions=st.integers(1, 9),
    flags=st.fixed_dictionaries({name: st.booleans() for name in FLAGS}),
    reorder=st.booleans(),
    stonewall=st.integers(0, 600),
    data_type=st.sampled_from([None, *DATA_TYPES]),
    signature=st.none() | st.integers(-(2**31), 2**31 - 1).filter(bool),
)
def test_arguments_say_what_the_options_say(
    transfer: int,
    transfers: int,
    segments: int,
    repetitions: int,
    flags: dict[str, bool],
    reorder: bool,
    stonewall: int,
    data_type: DataType | None,
    signature: int | None,
) -> None:
    made = options(
        transfer_bytes=transfer,
        block_bytes=transfer * transfers,
        segments=segments,
        repetitions=repetitions,
        reorder_tasks=reorder,
        stonewall_s=stonewall,
        wear_out=stonewall > 0,
        data_type=data_type,
        signature=signature,
        **flags,
    )
    found = parsed(made.arguments())
    assert as_bytes(found["-t"]) == transfer
    assert as_bytes(found["-b"]) * int(found["-s"]) == made.bytes_per_task
    for name, flag in FLAGS.items():
        assert (flag in found) == flags[name]
    assert ("-C" in found) == reorder
    assert int(found.get("-i", 1)) == repetitions
    assert int(found.get("-D", 0)) == stonewall
    assert found.get("-l") == data_type
    assert found.get("-G") == (None if signature is None else str(signature))
    assert found["-O summaryFormat"] == "JSON"


# --- the real program -----------------------------------------------------------------------------

needs_ior = pytest.mark.skipif(shutil.which("ior") is None, reason="no ior on PATH")
REAL: list[dict[str, Any]] = [
    {},
    {"file_per_process": True, "fsync": True, "data_type": "random", "barriers": True},
    {"reorder_tasks": True, "task_offset": 1, "segments": 3, "repetitions": 2},
    {"write": True, "read": True, "verify_read": True, "signature": 7},
    {"random_offsets": True, "random_offset_seed": 3},
    {"random_offsets": True, "random_prefill_bytes": 2**21},
    {"file_per_process": True, "unique_dir": True, "repetitions": 2},
    {"verify_write": True, "write": True, "read": True, "signature": -9},
    {"write": True, "stonewall_s": 5, "wear_out": True},
    {"write": True, "min_duration_s": 1},
    {"o_direct": True, "use_existing": True},
    {"api": "MPIIO", "collective": True},
    {"api": "MMAP"},
    {"data_type": "incompressible"},
]


def run(arguments: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["ior", *arguments],
        cwd=directory,
        env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.slow
@pytest.mark.needs_ior
@needs_ior
@pytest.mark.parametrize("changes", REAL, ids=lambda changes: ",".join(changes) or "plain")
def test_real_ior(changes: dict[str, Any], tmp_path: Path) -> None:
    made = options(
        test_file=str(tmp_path / "f"),
        summary_file=str(tmp_path / "out.json"),
        rank_details_csv=str(tmp_path / "ranks.csv"),
        **changes,
    )
    done = run(made.arguments(), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    output = parse_json((tmp_path / "out.json").read_text(), done.stdout)
    trustworthy(output)
    ranks = rank_times_csv((tmp_path / "ranks.csv").read_text(), tasks=1)
    output = with_rank_times(output, ranks)
    names = ["write"] * made.writes + ["read"] * made.reads
    assert [phase.name for phase in output.phases] == names * made.repetitions
    for phase in output.phases:
        if not made.min_duration_s:
            assert phase.bytes_moved == made.bytes_per_task
        assert phase.rank_seconds[0] <= phase.seconds + 1e-3
    assert (output.tasks, output.nodes) == (1, 1)
    if made.data_type and output.version.startswith("4."):
        assert output.parameters["data_type"] == made.data_type
    for word in made.arguments():
        assert word in output.command


@pytest.mark.needs_ior
@needs_ior
def test_real_ior_help(tmp_path: Path) -> None:
    built = parse_help(run(["--help"], tmp_path).stdout)
    assert "POSIX" in built.apis
    assert built.o_direct
