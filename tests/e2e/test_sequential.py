"""Bandwidth with fio alone: writes and reads for real, with every witness."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable

import pytest

from e2e.rig import Rig


@pytest.mark.needs_fio
def test_a_shared_file_through_the_page_cache(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(tools=("fio",), tasks=2, limits={"case_bytes": "128 MiB"})
    run = rig.run("-n", "FioSequential %files=shared %cache=buffered %block=1MiB".replace(" ", ""))
    record = run.record
    assert [metric["name"] for metric in record["metrics"]] == ["write_bw", "read_bw"], run.out
    assert record["verdict"] == "UNREFERENCED", record["reason"]
    assert all(metric["median"] > 0 for metric in record["metrics"])
    said = {
        (f["metric"], f["guard"], f["outcome"], f["saw"].split(" (")[0]) for f in record["findings"]
    }
    assert (None, "G8", "ok", "fio checked its data in the warm-up") in said
    times = record["repetitions"]
    assert ("read_bw", "G1", "ok", f"page cache emptied and proven empty {times} times") in said
    assert any(f[:3] == ("write_bw", "G2", "ok") for f in said)
    # No reference, and yet a line for each metric in ReFrame's performance log.
    (log,) = (rig.home / "perflogs").rglob("*.log")
    heading, *lines = [line.split("|") for line in log.read_text().splitlines()]
    logged = [dict(zip(heading, line, strict=True)) for line in lines]
    assert [(one["perf_var"], one["verdict"], float(one["perf_value"])) for one in logged] == [
        (metric["name"], record["verdict"], float(f"{metric['median']:.6g}"))
        for metric in record["metrics"]
    ]
    jobs = {name: (run.file(f"{name}.fio")).read_text() for name in ("write", "read")}
    for way, text in jobs.items():
        assert {"filename=shared", "filesize=128m", "size=64m", "offset_increment=64m"} <= set(
            text.split()
        ), text
        assert ("end_fsync=1" in text) == (way == "write")


@pytest.mark.skipif(not shutil.which("elbencho"), reason="no elbencho on PATH")
def test_elbencho_beside_fio(make_rig: Callable[..., Rig]) -> None:
    """Both tools move the same bytes in the same way, each in a series of its own."""
    rig = make_rig(tools=("elbencho", "fio"), tasks=2, limits={"case_bytes": "64 MiB"})
    names = "^(Elbencho|FioSequential%files=per-process%cache=direct)%block=1MiB$"
    run = rig.run("-n", names, "--exec-policy=serial", "--keep-stage-files")
    one, other = sorted(run.records, key=lambda record: str(record["check"]))
    assert (one["check"], other["check"]) == ("Elbencho", "FioSequential"), run.out
    assert one["series"] != other["series"]
    assert [m["name"] for m in one["metrics"]] == [m["name"] for m in other["metrics"]]
    assert one["verdict"] == "UNREFERENCED", one["reason"]
    said = "\n".join(f"{f['guard']} {f['outcome']} {f['saw']}" for f in one["findings"])
    assert "G8 ok elbencho checked its data in the warm-up" in said
    # A busy machine reads fewer than 32 in the time that it has.
    assert re.search(r"G8 ok [1-9]\d* block\(s\) of 1 repetition\(s\) read again", said)
    assert said.count("64 MiB or more in each execution") == 2
    rig.assert_clean()
    # Bytes that another process changes between write and read.
    rig.program(
        "elbencho",
        'case " $* " in *" -r "*) printf XXXX | dd of="$IOG_DIR/r1-f0" bs=1 seek=5000000 conv=notrunc;; esac\n'
        'exec "$real" "$@"',
    )
    rig.run("-n", "^Elbencho%block=1MiB$").never_passed("Data verification failed")
    # A write through the page cache.
    rig.program(
        "elbencho",
        'for word in "$@"; do [ "$word" = --direct ] || words+=("$word"); done\nexec "$real" "${words[@]}"',
    )
    rig.run("-n", "^Elbencho%block=1MiB$").never_passed("'--nolive' instead of '--direct'")


@pytest.mark.skipif(not shutil.which("elbencho"), reason="no elbencho on PATH")
@pytest.mark.needs_ior
def test_many_files_with_elbencho_beside_mdtest(make_rig: Callable[..., Rig]) -> None:
    """Both tools work on as many files of the same size, each in a series of its own."""
    rig = make_rig(tools=("elbencho", "ior", "mdtest"), tasks=2, limits={"case_files": 8000})
    names = "^(ElbenchoFiles|MdtestHard)"
    run = rig.run("-n", names, "--exec-policy=serial", "--keep-stage-files")
    found = {record["parameters"].get("shape", record["check"]): record for record in run.records}
    assert sorted(found) == ["MdtestHard", "shared-3901", "unique-64KiB", "unique-empty"], run.out
    for name, record in found.items():
        assert record["verdict"] in ("UNREFERENCED", "UNSTABLE"), (name, record["reason"])
    assert len({record["series"] for record in run.records}) == 4
    rates = {n: [m["name"] for m in record["metrics"]] for n, record in found.items()}
    assert (
        rates["shared-3901"] == rates["MdtestHard"] == ["create_rate", "read_rate", "remove_rate"]
    )
    assert rates["unique-empty"] == ["create_rate", "remove_rate"]
    said = [f"{f['guard']} {f['outcome']} {f['saw']}" for f in found["shared-3901"]["findings"]]
    assert any(one.startswith("G8 ok elbencho checked its data in the warm-up") for one in said)
    assert any(one.startswith("G1 ok page cache emptied") for one in said), said
    # Their metrics stand side by side in one report.
    report = rig.iogauge("report").out
    assert "ElbenchoFiles" in report
    assert "MdtestHard" in report
    rig.assert_clean()
    # Files that elbencho did not create are no measurement.
    rig.program(
        "elbencho",
        'words=("$@"); for n in "${!words[@]}"; do [ "${words[n]}" != -N ] || words[n+1]=$((words[n+1] / 2)); done\n'
        'exec "$real" "${words[@]}"',
    )
    rig.run("-n", "^ElbenchoFiles.*shape=shared-3901").never_passed(r"1000 files, expected 2000")
    # A file that is not the one that was written.
    rig.program(
        "elbencho",
        'case " $* " in *" -r "*) printf XXXX >"$IOG_DIR/r1-f7"; truncate -s 3901 "$IOG_DIR/r1-f7";; esac\n'
        'exec "$real" "$@"',
    )
    rig.run("-n", "^ElbenchoFiles.*shape=shared-3901").never_passed("Data verification failed")
