"""A weather model's output by WRF-IO, for real: what is measured, and what is refused if it is untrue."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.rig import Rig
from e2e.test_loads import found, said

HEADER = Path(shutil.which("wrf_io") or "/").parent.parent / "share" / "wrf-io" / "wrf_header.txt"
pytestmark = pytest.mark.skipif(
    not HEADER.exists(),
    reason="no wrf_io with its header on PATH (docs/checks.md says how to build it)",
)


@pytest.fixture(scope="module")
def model(make_module_rig: Callable[..., Rig]) -> Rig:
    rig = make_module_rig(tools=("ior",), tasks=2, limits={"case_bytes": "64 MiB"})
    data = rig.settings()
    data["environments"][0]["extras"] = {"wrf_io": str(HEADER)}
    rig.write_settings(data)
    return rig


def test_an_output_is_timed_from_open_to_sync(model):
    record = model.run("-n", "^WrfOutput").record
    model.assert_clean()
    assert record["verdict"] == "UNREFERENCED", record["reason"]
    metrics = {name: metric["median"] for name, metric in found(record).items()}
    assert list(metrics) == ["write_time", "define_time", "write_bw"]
    assert 0 < metrics["define_time"] < metrics["write_time"]
    # The sync belongs to both.
    moved = metrics["write_time"] * metrics["write_bw"]
    assert 55 < moved < 64
    findings = said(record)
    assert "G2 ok fsync in the timed region" in findings
    assert "or more in each execution" in findings
    assert "G22 ok wrf_io 1.14" in findings


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (
            """awk '/^Total write/ {$4 *= 3} /^Write bandwidth/ {$3 *= 3} {print}'""",
            "G8 [a-z ]+: the tool wrote 1.. MiB, as it says; its tasks asked the kernel for 6",
        ),
        (
            """sed 's/202$/201/; s/wrfout.1/wrfout.0/'""",
            "G22 [a-z ]+: .* it says .*wrfout.0.nc.* instead of",
        ),
        ("""sed '/Write bandwidth/d'""", "'Write bandwidth' is 'missing': the report is damaged"),
        (
            "cat >/dev/null; echo 'Error in cdl_hdr_open: fail to open file'",
            "0 reports, expected 1",
        ),
    ],
    ids=["bytes", "another file", "cut", "an error"],
)
def test_an_untrue_report_is_refused(model, script, reason):
    model.program(
        "wrf_io",
        f'case "$*" in *.1.nc) "$real" "$@" | {script} ;; *) exec "$real" "$@" ;; esac',
    )
    done = model.run("-n", "^WrfOutput")
    (model.bin / "wrf_io").unlink()
    done.never_passed(reason)


def test_an_output_that_lies_elsewhere_is_refused(model, tmp_path):
    model.program(
        "wrf_io",
        f'words=("$@"); words[-1]={tmp_path}/o.nc\n'
        f'"$real" "${{words[@]}}" | sed "s|{tmp_path}/o.nc|${{@: -1}}|"',
    )
    done = model.run("-n", "^WrfOutput")
    (model.bin / "wrf_io").unlink()
    done.never_passed("G8 [a-z ]+: ")
