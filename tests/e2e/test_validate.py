"""What a run would refuse, or pass over in silence, ``iogauge validate`` names with its line."""

from __future__ import annotations

import socket
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


def test_a_site_that_this_host_is_not_of(make_rig: Callable[..., Rig]) -> None:
    """Without --system, another site would be used without a word."""
    rig = make_rig(tools=("fio",))
    (rig.site / "references.yaml").unlink(missing_ok=True)
    here = rig.iogauge("validate", "rig")
    assert here.rc == 0 and "hostnames" not in here.out, here.out
    data = rig.settings()
    data["systems"][0]["hostnames"] = ["^login[0-9]+$"]
    rig.write_settings(data)
    elsewhere = rig.iogauge("validate", "rig")
    assert elsewhere.rc == 0, elsewhere.out
    said = (
        f"hostnames: no pattern matches this host ({socket.gethostname()}). Use --system=rig here"
    )
    assert said in elsewhere.out
    rig.target.rename(rig.target.with_name("moved"))
    assert (
        f"target.path: this host has no directory {rig.target}."
        in rig.iogauge("validate", "rig").out
    )
    rig.target.with_name("moved").rename(rig.target)
    assert "hostnames" not in rig.iogauge("validate").out
