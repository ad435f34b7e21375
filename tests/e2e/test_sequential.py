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
