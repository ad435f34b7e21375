"""Everything that must not end in PASS, each on the literal command, each with its cause named."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.rig import (
    ROOT,
    Rig,
    Run,
    processes,
    wait_for,
)
from e2e.test_values import GENEROUS, METADATA, RANDOM_READ

QUICK = pytest.mark.quick
IOR = ("-n", "IorPosix%files=shared%order=sequential%cache=direct")
IOR_BUFFERED = ("-n", "IorPosix%files=shared%order=sequential%cache=buffered")
IOR_GENEROUS = {
    "write_bw": [0.001, -0.5, None, "MiB/s"],
    "read_bw": [0.001, -0.5, None, "MiB/s"],
}
MDTEST_GENEROUS = {
    "create_rate": [0.001, -0.5, None, "ops/s"],
    "read_rate": [0.001, -0.5, None, "ops/s"],
    "remove_rate": [0.001, -0.5, None, "ops/s"],
}


@pytest.fixture
def fio_rig(make_rig: Callable[..., Rig]) -> Rig:
    """Few files and generous references: nothing but what a test does keeps it from a PASS."""
    rig = make_rig()
    rig.write_references(GENEROUS)
    return rig


@pytest.fixture
def ior_rig(make_rig: Callable[..., Rig]) -> Rig:
    """One task without a launcher: IOR and mdtest start at once as MPI programs of one rank."""
    rig = make_rig(
        tools=("ior", "mdtest"),
        tasks=1,
        launcher="local",
        limits={"case_bytes": "64 MiB", "case_files": 400},
    )
    rig.write_references(
        {"IorPosix": IOR_GENEROUS, "IorMpiio": IOR_GENEROUS, "MdtestHard": MDTEST_GENEROUS}
    )
    return rig


def edit_json(edit: str) -> str:
    """A shell line that edits ``$out``: ``j`` is the JSON document, ``f`` its first job of fio."""
    code = (
        "import json, sys; t = open(sys.argv[1]).read(); "
        "j = json.loads(t[t.index('{'):]); f = j.get('jobs', [None])[0]; "
        "exec(sys.argv[2]); json.dump(j, open(sys.argv[1], 'w'))"
    )
    return f'{sys.executable} -c "{code}" "$out" "{edit}"'


@pytest.mark.needs_fio
class TestFioOutput:
    """The real fio, whose result is damaged in the first judged repetition.

    A session for each way to refuse; every damage meets the judge in tests/unit/test_tool_damage.py.
    """

    @pytest.mark.parametrize(
        ("script", "causes"),
        [
            pytest.param(edit_json("f['write']['iops'] = float('nan')"), ["(?i)nan"], marks=QUICK),
            ('rm "$out"', ["no output"]),
            ("rc=1", ["exit status 1"]),
        ],
        ids=["nan", "no-file", "exit-1"],
    )
    def test_damaged(self, fio_rig: Rig, script: str, causes: list[str]) -> None:
        fio_rig.limits = {"case_files": 200}
        fio_rig.write_settings()
        fio_rig.damage("fio", "fio-create.1.json", script)
        run = fio_rig.run(*METADATA)
        run.never_passed("create", *causes)
        assert run.record["verdict"] == "ERROR"
        fio_rig.assert_clean()

    def test_other_unit(self, fio_rig: Rig) -> None:
        # KiB/s where bytes/s belong: a figure 1024 times too small.
        script = edit_json("f['read']['bw_bytes'] //= 1024")
        fio_rig.damage("fio", "fio-randread.1.json", script)
        run = fio_rig.run(*RANDOM_READ)
        run.never_passed("bw_bytes|G7", "bandwidth|bw")


RESULT = "j['tests'][0]['Results'][0]"


class TestOverrides:
    """What a run sets otherwise than the site declares is compared with nothing."""

    @pytest.mark.parametrize(
        "setting",
        [
            "tasks_per_node=1",
        ],
    )
    def test_a_reference_holds_for_what_the_site_declares(
        self, make_rig: Callable[..., Rig], setting: str
    ) -> None:
        rig = make_rig(limits={"tier": "daily"} if "tier" in setting else {})
        rig.write_references(GENEROUS)
        run = rig.run(*RANDOM_READ, "-S", setting, gate=True)
        run.never_passed(f"UNREFERENCED.*measured with {setting}")


class TestRetries:
    def test_a_gate_does_not_try_until_it_passes(self, fio_rig: Rig) -> None:
        fio_rig.damage(
            "fio", "fio-randread.1.json", "[ -e ../../failed ] || { touch ../../failed; rc=1; }"
        )
        run = fio_rig.run(*RANDOM_READ, "--max-retries=3", gate=True)
        assert run.rc == 1
        verdicts = [r["verdict"] for r in run.records]
        assert verdicts[0] == "ERROR" and len(verdicts) > 1, run.out
        assert "1 case(s) did not pass at first" in run.out

    @pytest.mark.parametrize("value", ["y", "gate"])
    def test_a_gate_that_is_neither_open_nor_shut(self, fio_rig: Rig, value: str) -> None:
        run = fio_rig.run(*METADATA, IOGAUGE_GATE=value)
        run.never_passed("IOGAUGE_GATE is")


class TestTarget:
    """The target is looked at before the first byte."""

    def check(self, rig: Rig, run: Run, *causes: str) -> None:
        run.never_passed(*causes)
        assert run.record["verdict"] == "INVALID"
        assert run.record["metrics"] == []
        assert not list(run.stage.rglob("fio-*.json")), "the tool ran"
        rig.assert_clean()

    @pytest.mark.parametrize(
        ("declared", "causes"),
        [
            pytest.param({"type": "lustre"}, ["G9", "lustre"], marks=QUICK),
        ],
        ids=["type", "source"],
    )
    def test_other_file_system(
        self, make_rig: Callable[..., Rig], declared: dict[str, str], causes: list[str]
    ) -> None:
        rig = make_rig(declared=declared)
        self.check(rig, rig.run(*METADATA), *causes)

    @pytest.mark.needs_fio
    def test_memory(self, make_rig: Callable[..., Rig]) -> None:
        """Metadata operations in memory measure no storage, references or not."""
        target = Path("/dev/shm", f"iogauge-test-{os.getpid()}")
        rig = make_rig(target=target)
        try:
            rig.write_references(GENEROUS)
            rig.run(*METADATA).never_passed("memory, not storage")
            rig.assert_clean()
        finally:
            shutil.rmtree(target)


@pytest.mark.needs_ior
def test_page_cache_that_is_filled_again(ior_rig: Rig) -> None:
    """The page cache was proven empty, and then another process read the data."""
    ior_rig.program("mpirun", 'case "$*" in *ior-read.*) sleep 1 ;; esac; exec "$real" "$@"')
    stop = threading.Event()

    def read_everything() -> None:
        while not stop.is_set():
            for file in [f for f in ior_rig.target.rglob("data*") if f.is_file()]:
                with contextlib.suppress(OSError):
                    file.read_bytes()
            stop.wait(0.1)

    reader = threading.Thread(target=read_everything)
    reader.start()
    try:
        run = ior_rig.run(*IOR_BUFFERED)
    finally:
        stop.set()
        reader.join()
    run.never_passed("read_bw: G1", "another program had read|not proven empty")


@pytest.mark.needs_ior
def test_ior_whose_words_are_changed_on_the_way(ior_rig: Rig) -> None:
    """Words that are changed, added and gone meet the judge in tests/unit/test_judge.py."""
    ior_rig.program("ior", '"$real" "${@/--posix.odirect/-g}"')
    ior_rig.run(*IOR).never_passed("G22: ior", "'-g' instead of '--posix.odirect'")


@pytest.mark.needs_fio
def test_fio_whose_job_is_changed_on_the_way(fio_rig: Rig) -> None:
    """Other options meet the judge in tests/unit/test_judge.py."""
    fio_rig.program("fio", 'sed -i "s/^direct=1$/direct=0/" randread.fio; "$real" "$@"')
    cause = "randread, repetition 1: it says direct=0 instead of direct=1"
    fio_rig.run(*RANDOM_READ).never_passed("G22: fio", cause)


def test_time_limit(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(time_limit="2s")
    rig.write_references(GENEROUS)
    rig.program("fio", "echo $$ >>pids; sleep 120")
    run = rig.run(*METADATA)
    run.never_passed("(?i)time limit|timeout|timed out")
    wait_for(lambda: not processes(str(rig.base)), 10, "the tool to end")
    rig.assert_clean()


class TestNothingRan:
    """A gate that measured nothing is no pass."""

    @pytest.mark.parametrize(
        "arguments",
        [
            ("-r", "-n", "NoSuchCheck"),
            ("-vr", "-n", "NoSuchCheck"),
            ("-r", "-p", "no-such-environment"),
        ],
        ids=lambda words: "_".join(words),
    )
    def test_nothing_selected(self, fio_rig: Rig, arguments: tuple[str, ...]) -> None:
        run = fio_rig.reframe("-c", "checks/", *arguments, IOGAUGE_GATE="1")
        assert run.rc != 0, run.out
        assert run.records == []

    @pytest.mark.needs_fio
    @pytest.mark.parametrize(
        "content",
        [
            "import no_such_module\n",
        ],
        ids=["import", "raises", "syntax"],
    )
    def test_check_that_cannot_be_loaded(self, fio_rig: Rig, content: str) -> None:
        """One check passes, another never loads: as a gate that is no pass."""
        checks = fio_rig.base / "checks"
        checks.mkdir()
        for name in ("__init__.py", "fio_metadata.py"):
            shutil.copy(ROOT / "checks" / name, checks)
        (checks / "lost.py").write_text(
            "import reframe as rfm\n" + content + "@rfm.simple_test\nclass Lost: pass\n"
        )
        run = fio_rig.reframe("-c", str(checks), "-r", IOGAUGE_GATE="1")
        assert run.rc != 0, run.out
        assert "lost.py" in run.out


class TestSite:
    """Without a usable site nothing runs, and it is said what to do."""

    def test_no_configuration(self, fio_rig: Rig) -> None:
        env = {k: v for k, v in fio_rig.environment().items() if k != "RFM_CONFIG_PATH"}
        done = subprocess.run(
            ["reframe", "-c", "checks/", "-r"],
            cwd=ROOT,
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
        )
        text = done.stdout + done.stderr
        assert done.returncode != 0, text
        assert "RFM_CONFIG_PATH" in text and "nothing was measured" in text
        assert "PASSED" not in text

    @pytest.mark.parametrize(
        ("change", "causes"),
        [
            (
                lambda p: p["extras"]["limits"].update(case_byte="1 MiB"),
                ["case_byte", "case_bytes"],
            ),
            (lambda p: p.update(max_jobs=4), ["max_jobs"]),
        ],
        ids=[
            *("unknown-key", "no-unit", "impossible", "no-time-limit", "max-jobs", "feature"),
        ],
    )
    def test_mistake(self, fio_rig: Rig, change: Callable[..., object], causes: list[str]) -> None:
        data = fio_rig.settings()
        change(data["systems"][0]["partitions"][0])
        fio_rig.write_settings(data)
        run = fio_rig.run(*METADATA)
        run.never_passed("settings.yaml", "nothing was measured", *causes)
        assert run.records == []
        fio_rig.assert_clean()

    @pytest.mark.needs_fio
    @pytest.mark.quick
    def test_another_site_may_be_broken(self, fio_rig: Rig) -> None:
        broken = fio_rig.sites / "broken"
        broken.mkdir()
        (broken / "settings.yaml").write_text("systems: 7")
        run = fio_rig.run(*RANDOM_READ, "--system=rig")
        assert run.rc == 0 and run.record["verdict"] == "PASS", run.out
        assert "site broken is disabled" in run.out


@pytest.mark.needs_fio
class TestReframesOwnDoors:
    """Options of ReFrame that leave out what decides."""

    @pytest.fixture
    def failing(self, fio_rig: Rig) -> Rig:
        """Would FAIL: no machine reads a million million times a second."""
        metrics = {**GENEROUS["FioRandomRead"], "read_iops": [1e12, -0.1, None, "ops/s"]}
        fio_rig.write_references({"FioRandomRead": metrics})
        return fio_rig

    @pytest.mark.parametrize(
        "arguments",
        [
            ("--skip-performance-check", "--keep-stage-files"),
            ("-S", "strict_check=0"),
        ],
        ids=lambda words: " ".join(words),
    )
    def test_failing_value(self, failing: Rig, arguments: tuple[str, ...]) -> None:
        run = failing.run(*RANDOM_READ, *arguments)
        assert run.rc != 0, run.out
        assert [r["verdict"] for r in run.records] == ["FAIL"]
        failing.assert_clean()

    @pytest.mark.parametrize(
        "arguments",
        [
            ("--skip-sanity-check",),
            ("--skip-sanity-check", "--skip-performance-check", "--keep-stage-files"),
        ],
        ids=lambda words: " ".join(words),
    )
    def test_nothing_judged(self, fio_rig: Rig, arguments: tuple[str, ...]) -> None:
        run = fio_rig.run(*RANDOM_READ, *arguments)
        assert run.rc != 0, run.out
        assert all(r["verdict"] != "PASS" for r in run.records)
        fio_rig.assert_clean()

    @pytest.mark.parametrize(
        "hook",
        [
            "_hand_over",
            "_show_what_is_no_pass",
            pytest.param("_nothing_passes_unproven", marks=QUICK),
        ],
    )
    def test_hook_left_out(self, failing: Rig, hook: str) -> None:
        run = failing.run(*RANDOM_READ, f"--disable-hook={hook}", "--skip-performance-check")
        run.never_passed(hook, "not allowed")

    def test_figures_of_an_earlier_run(self, failing: Rig) -> None:
        """A tool that does nothing and says that all is well, over what an earlier run left."""
        first = failing.run(*RANDOM_READ)
        assert first.record["verdict"] == "FAIL", first.out
        failing.write_references(GENEROUS)
        failing.program("fio", "exit 0")
        words = ["reframe", "-c", "checks/", "-r", *RANDOM_READ, "--dont-restage"]
        second = failing.finish(failing.start(words))
        assert second.rc != 0, second.out
        assert all(r["verdict"] != "PASS" for r in second.records)
