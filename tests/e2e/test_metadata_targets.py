"""mdtest in directories on chosen metadata targets, over all of them, and with data on them: what was asked for is proven.

Lustre is not real: ``lfs`` is a stand-in (tests/support/lustre). mdtest is real, on a local file system.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from e2e.rig import Rig, Run
from e2e.test_scenarios import run, striped

pytestmark = [pytest.mark.needs_ior, pytest.mark.slow]

TOPOLOGY = {
    "source": "made up",
    "servers": {"count": 2, "nic": "100 GB/s"},
    "targets": 4,
    "metadata_targets": 2,
}


@pytest.fixture
def measured(make_rig: Callable[..., Rig]) -> Callable[..., Run]:
    """Runs checks on a site with two metadata targets; ``knobs`` are those of the stand-ins."""

    def measure(names: str, files: int = 12_000, **knobs: str) -> Run:
        rig = striped(make_rig, topology=TOPOLOGY, sweeps={"metadata_targets": [1]})
        data = yaml.safe_load((rig.site / "settings.yaml").read_text())
        (partition,) = data["systems"][0]["partitions"]
        partition["extras"]["limits"]["case_files"] = files
        rig.write_settings(data)
        knobs.setdefault("LCTL_USER", "0")
        done = run(rig, "-n", names, "--exec-policy=serial", "--keep-stage-files", **knobs)
        rig.assert_clean()
        return done

    return measure


def said(record: dict[str, Any]) -> list[str]:
    return [f"{f['guard']} {f['outcome']}: {f['saw']} ({f['demands']})" for f in record["findings"]]


def test_directories_lie_where_the_case_asks_for(measured: Callable[..., Run]) -> None:
    done = measured("^MdtestOnMdts")
    by_mdts = {one["parameters"]["mdts"]: one for one in done.records}
    assert sorted(by_mdts) == ["1", "all"], done.out
    for mdts, demands in (
        ("all", "each directory with files over 2 metadata target(s)"),
        ("1", "each directory with files on metadata target 1"),
    ):
        record = by_mdts[mdts]
        # A disk with slow fsyncs gets few files until the stonewall, and their removal may be too short.
        refused = {f["guard"] for f in record["findings"] if f["outcome"] == "invalid"}
        assert refused <= {"G4"}, record["reason"]
        assert [m["name"] for m in record["metrics"]] == ["create_rate", "remove_rate"]
        assert f"G10 ok: 1 director(ies), each as asked ({demands})" in said(record)
    assert len({record["series"] for record in done.records}) == 2


@pytest.mark.parametrize(
    ("names", "knobs", "cause"),
    [
        (
            "^MdtestOnMdts.*mdts=all$",
            {"LFS_LIE_MDTS": "1"},
            r"G10: .*mdtest_tree\.0 lies on metadata target\(s\) 0; .*over 2 metadata target",
        ),
    ],
    ids=["fewer", "forbidden"],
)
def test_what_lustre_did_not_give_is_not_believed(
    measured: Callable[..., Run], names: str, knobs: dict[str, str], cause: str
) -> None:
    done = measured(names, **knobs)
    done.never_passed(cause)
    assert done.record["verdict"] == "INVALID"
