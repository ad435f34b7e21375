"""An output passes only for the execution that printed it, and only from an honest environment.

Programs on PATH run the real tool and then show something else: an older output, that of another repetition
or phase, another date, another version.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.rig import Rig, Run
from e2e.test_never_pass import IOR_GENEROUS, MDTEST_GENEROUS
from e2e.test_values import GENEROUS

IOR = ("-n", "IorPosix%files=shared%order=sequential%cache=buffered")
MDTEST = ("-n", "MdtestHard")
FIO = ("-n", "FioRandomRead%block=128")
METADATA = ("-n", "FioMetadata")


#: Where the programs keep what they show later; a script sees the phase's file as $out.
KEEP = 'mkdir -p {kept}; cp "$out" {kept}/$(basename "$out")'
SHOW = 'cp {kept}/$(basename "$out") "$out"'


@pytest.fixture
def ior_rig(make_rig: Callable[..., Rig]) -> Rig:
    """Two repetitions of one task without a launcher."""
    rig = make_rig(
        tools=("ior", "mdtest"),
        tasks=1,
        launcher="local",
        limits={"case_bytes": "64 MiB", "case_files": 400, "repetitions": 2},
    )
    rig.write_references({"IorPosix": IOR_GENEROUS, "MdtestHard": MDTEST_GENEROUS})
    return rig


@pytest.fixture
def fio_rig(make_rig: Callable[..., Rig]) -> Rig:
    rig = make_rig(limits={"case_files": 4_000, "repetitions": 2})
    rig.write_references(GENEROUS)
    return rig


def believed(run: Run) -> Run:
    """G22 has nothing against a run; the disk is shared, and other guards may speak."""
    assert run.record["metrics"], run.out
    assert not objections(run), run.out
    return run


def objections(run: Run) -> list[str]:
    """What G22 says."""
    findings = run.record["findings"]
    return [f["saw"] for f in findings if f["guard"] == "G22" and f["outcome"] != "ok"]


def shows(rig: Rig, tool: str, results: str, script: str) -> None:
    rig.damage(tool, results, script.format(kept=rig.base / "kept"))


def prints(rig: Rig, phase: str, edit: str) -> None:
    """mdtest prints its result: ``edit`` is a filter of what it printed in a phase."""
    rig.program(
        "mdtest", f'case "$*" in {phase}) "$real" "$@" | {edit} ;; *) exec "$real" "$@" ;; esac'
    )


@pytest.mark.needs_ior
class TestIor:
    def test_output_of_an_earlier_run(self, ior_rig: Rig) -> None:
        shows(ior_rig, "ior", "*", KEEP)
        ior_rig.run(*IOR)
        shows(ior_rig, "ior", "*.json", SHOW)
        ior_rig.run(*IOR).never_passed(
            r"G22: ior 4.0.0, write, repetition 1: it says '\S+/data' instead of '\S+/data'"
        )

    @pytest.mark.parametrize("key", ["Finished"])
    def test_date_of_another_year(self, ior_rig: Rig, key: str) -> None:
        edit = f's/("{key}": "[^"]*) 20[0-9]+"/\\1 2019"/'
        ior_rig.damage("ior", "ior-read.1.json", f"sed -i -E '{edit}' \"$out\"")
        ior_rig.run(*IOR).never_passed(
            f"G22: ior 4.0.0, read, repetition 1: '{key}' is 2019-.* and the execution lasted from 20[2-9]"
        )


@pytest.mark.needs_fio
class TestFio:
    def test_output_of_one_repetition_for_another(self, fio_rig: Rig) -> None:
        fio_rig.damage("fio", "fio-randread.2.json", 'cp fio-randread.1.json "$out"')
        fio_rig.run(*FIO).never_passed(
            "repetition 2: it says description=randread.1.* instead of description=randread.2."
        )


EATS = next(Path("/usr/lib").glob("*/libeatmydata.so"), None)


@pytest.mark.needs_fio
class TestEnvironment:
    @pytest.mark.skipif(EATS is None, reason="no libeatmydata")
    def test_a_library_that_lies(self, fio_rig: Rig) -> None:
        run = fio_rig.run(*FIO, LD_PRELOAD=str(EATS))
        run.never_passed("G22: libeatmydata.so .LD_PRELOAD., which makes fsync, sync and O_SYNC do")
        assert run.record["fingerprint"]["preload.LD_PRELOAD"] == "libeatmydata.so"

    def test_a_forged_count_of_the_kernel(self, fio_rig: Rig) -> None:
        """A count too many would make the true one incomplete, and so no witness."""
        line = "iogauge-witness $(hostname) 1.0 2.0 - 1 1 1 1 1 1 0 end"
        fio_rig.program("fio", f'"$real" "$@"; rc=$?\necho "{line}" >&2; exit $rc')
        run = fio_rig.run(*FIO)
        run.never_passed(r"G22: .*which left 2 count\(s\) of the kernel for 1 task\(s\)")


@pytest.mark.parametrize(
    "tool",
    [
        "ior",
    ],
)
def test_a_tool_that_is_too_old_is_named(ior_rig: Rig, tool: str) -> None:
    """The file holds its version, as IOR's and mdtest's do; IOR 3.3.0 ends with 255, mdtest with 0."""
    said = {"ior": "echo Unrecognized parameter; exit 255", "mdtest": "echo Synopsis; exit 0"}
    ior_rig.program(tool, f"{said[tool]}\n\0" + "3.3.0\0")
    run = ior_rig.run(*{"ior": IOR, "mdtest": MDTEST}[tool])
    run.never_passed(
        f"ERROR: {tool}: version 3.3.0, and 4.0.0 or newer is needed: .*ci/build-stack"
    )
