"""A stream and a metadata storm on one target: what each costs the other, and what is believed of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from e2e.rig import Rig
from support.devices import Devices

pytestmark = [pytest.mark.needs_fio, pytest.mark.needs_loop]


@pytest.fixture
def rig(make_rig: Callable[..., Rig], devices: Devices) -> Rig:
    """A site whose target nobody else uses: bytes of others on it are an objection."""
    limits = {"phase_seconds": "2 s", "max_foreign": "10 %", "witness": "required"}
    return make_rig(target=devices.formatted("ext4") / "target", limits=limits)


def medians(record: dict[str, Any]) -> dict[str, float]:
    return {metric["name"]: metric["median"] for metric in record["metrics"]}


def of_disturber(record: dict[str, Any]) -> list[dict[str, Any]]:
    """What was found about the load beside the measured one."""
    return [finding for finding in record["findings"] if "disturber" in finding["demands"]]


def test_each_load_is_measured_alone_and_beside_the_other(rig: Rig) -> None:
    done = rig.run_until(
        lambda run: all(f["outcome"] == "ok" for one in run.records for f in of_disturber(one)),
        "-n",
        "^Interference",
        "--exec-policy=serial",
    )
    rig.assert_clean()
    found = {one["parameters"]["measured"]: one for one in done.records}
    assert set(found) == {"stream", "metadata"}
    for kind, one in found.items():
        # The load is ours: it is no load of others, on a target with a witness.
        # The stream before and after it may differ by more than 100 % if the machine is busy.
        assert one["verdict"] in ("UNREFERENCED", "UNSTABLE"), one["reason"]
        values = medians(one)
        for name in ["write_bw"] if kind == "stream" else ["create_warm_p50", "create_warm_p99"]:
            alone, disturbed, again, ratio = (
                values[f"{name}_{end}"] for end in ("alone", "disturbed", "again", "ratio")
            )
            assert ratio == pytest.approx(2 * disturbed / (alone + again))
        own = of_disturber(one)
        assert {f["outcome"] for f in own} == {"ok"}
        assert all("_disturbed" in f["metric"] or "_ratio" in f["metric"] for f in own)
        seen = [f for f in one["findings"] if "the kernel counts what the tool" in f["demands"]]
        assert any("_disturbed" in f["metric"] for f in seen), "nobody counted the stream's bytes"
