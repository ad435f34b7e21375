"""A stream and a metadata storm on one target: what each costs the other, and what is believed of it."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from e2e.rig import MIB, Rig
from e2e.test_witness import Place

pytestmark = [pytest.mark.needs_fio, pytest.mark.needs_loop]

SECONDS = 2


@pytest.fixture(scope="module")
def rig(make_module_rig: Callable[..., Rig], storage: Path) -> Iterator[Rig]:
    """A site whose target nobody else uses: bytes of others on it are an objection."""
    base = storage / "interference"
    base.mkdir()
    with ExitStack() as leaving:
        target = Place(base, leaving).formatted("ext4")
        yield make_module_rig(
            tools=("fio",),
            tasks=2,
            target=target / "target",
            limits={
                "phase_seconds": f"{SECONDS} s",
                "max_foreign": "10 %",
                "witness": "required",
            },
        )
    shutil.rmtree(base)


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


def test_the_plan_counts_the_bytes_of_both_loads(rig: Rig) -> None:
    """The stream lasts for its own time, or two seconds longer if it disturbs; the storm writes no byte."""
    rig.reframe("-c", "checks/", "--dry-run", "-n", "^Interference")
    planned = {}
    for file in rig.stage.rglob("footprint.json"):
        data = json.loads(file.read_text())
        (timed,) = data["timed"]
        planned["stream" if "stream" in data["name"] else "metadata"] = timed["seconds"]
        # The stream's file, and those of the storm.
        assert data["order"]["files"] == 1 + 32
        assert data["order"]["held_bytes"] == 128 * MIB
    assert planned == {"stream": 3 * SECONDS + 2, "metadata": SECONDS + 2}


@pytest.mark.nightly(
    "unit/test_guards.py::test_g19_wants_a_disturber_all_the_time",
    "unit/test_guards.py::test_g19_wants_a_disturber_all_the_time",
    "e2e/test_interference.py::test_each_load_is_measured_alone_and_beside_the_other",
)
def test_a_disturber_that_stands_still_is_no_disturber(rig: Rig) -> None:
    """Its process is stopped for most of the time, so that the stream is as fast as alone."""
    rig.program(
        "fio",
        'case ${@: -1} in disturbed.fio) (sleep 1; storm=$(pgrep -P $$ -f "^$real" | sort -n | head -n 1)\n'
        f'kill -STOP "$storm"; sleep {SECONDS + 0.8}; kill -CONT "$storm") & ;; esac\n'
        'exec "$real" "$@"',
    )
    done = rig.run("-n", "^Interference.*measured=stream")
    (rig.bin / "fio").unlink()
    rig.assert_clean()
    assert done.record["verdict"] == "INVALID", done.record["reason"]
    done.never_passed(r"at work in ([234]\d|50)% of its half-seconds")


@pytest.mark.nightly(
    "unit/test_guards.py::test_g19_wants_a_disturber_all_the_time",
    "e2e/test_interference.py::test_each_load_is_measured_alone_and_beside_the_other",
)
def test_a_disturber_in_memory_is_no_disturber(rig: Rig) -> None:
    """It makes its files elsewhere. Its options say otherwise, and it is at work all the time."""
    memory = Path(f"/dev/shm/iogauge-storm-{os.getpid()}")
    elsewhere = (
        "import re, sys; text = open('disturbed.fio').read(); at = text.index('[disturber]')\n"
        f"part = re.sub('(?m)^directory=.*', 'directory={memory}', text[at:], count=1)\n"
        "open('elsewhere.fio', 'w').write(text[:at] + part)"
    )
    rig.program(
        "fio",
        f'case ${{@: -1}} in disturbed.fio) mkdir -p {memory}; {sys.executable} -c "{elsewhere}"\n'
        '"$real" "${@/disturbed.fio/elsewhere.fio}"; status=$?\n'
        f'sed -i "s#{memory}#$IOG_DIR#" "$out"; exit $status ;; esac\nexec "$real" "$@"',
    )
    try:
        done = rig.run("-n", "^Interference.*measured=stream")
    finally:
        shutil.rmtree(memory, ignore_errors=True)
        (rig.bin / "fio").unlink()
    done.never_passed(r"G19: .*; meanwhile \d file\(s\) came or went on the target")
