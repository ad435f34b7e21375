"""What a run would refuse, or pass over in silence, ``iogauge validate`` names with its line."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from e2e.rig import Rig

REFERENCES = """\
$sources:
  FioRandomRead: a
  FioMetadata: a
  RandomReadSmall: a
  FioSequential: a
FioRandomRead:
  $index: [$partition, block]
  rig:default:
    4KiB: {read_iop: [9, -0.1, null, ops/s]}
    128k: {read_iops: [9, -0.1, null, ops/s]}
    32KiB: {read_bw: [9, -0.1, null, MB/s]}
FioMetadata:
  rig:defualt: {create_rate: [9, -0.1, null, ops/s]}
FioSequential:
  $index: [$partition, blocksize]
  rig:default:
    4KiB: {write_bw: [9, -0.1, null, MiB/s]}
"""


@pytest.mark.needs_fio
def test_mistakes_that_only_the_cases_show(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(tools=("fio",))
    (rig.site / "references.yaml").write_text(REFERENCES.replace("  RandomReadSmall: a\n", ""))
    valid = rig.iogauge("validate")
    assert valid.rc == 1, valid.out
    for line, said in (
        (
            8,
            "FioRandomRead.rig:default.4KiB.read_iop: found metric 'read_iop' (did you mean read_iops?)",
        ),
        (
            9,
            "FioRandomRead.rig:default.128k: found block '128k' (did you mean 128KiB?), which no case has",
        ),
        (10, "FioRandomRead.rig:default.32KiB.read_bw (unit): found 'MB/s'; allowed: 'MiB/s'"),
        (12, "FioMetadata.rig:defualt: found partition 'rig:defualt' (did you mean rig:default?)"),
        (14, "FioSequential.$index: found 'blocksize' (did you mean block?)"),
    ):
        assert f"references.yaml:{line}: {said}" in valid.out, f"{said}\n{valid.out}"
