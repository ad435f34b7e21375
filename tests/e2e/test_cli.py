"""The ``iogauge`` command and ReFrame's own options, as typed."""

from __future__ import annotations

import html
import re
import shlex
import shutil
from collections.abc import Callable
from xml.etree import ElementTree

import pytest

from e2e.rig import ROOT, Rig
from e2e.test_values import GENEROUS, METADATA, RANDOM_READ


@pytest.fixture
def rig(make_rig: Callable[..., Rig]) -> Rig:
    return make_rig()


def flat(text: str) -> str:
    """Text without the line breaks that a terminal's width brings."""
    return " ".join(text.split())


class TestDoctor:
    def test_names_what_is_missing_and_what_brings_it(self, rig: Rig) -> None:
        # A PATH with nothing on it but links to what the system itself needs.
        bare = rig.base / "bare"
        bare.mkdir()
        run = rig.iogauge("doctor", PATH=str(bare), IOGAUGE_TARGET=str(rig.target))
        text = flat(run.out)
        assert run.rc == 0, run.out
        for name, command in {
            "ior": "ci/build-stack",
            "mdtest": "ci/build-stack",
            "fio": "apt install fio",
            "mpirun": "apt install openmpi-bin",
        }.items():
            assert re.search(rf"note {name}: not on PATH", text), text
            assert command in text


class TestPlan:
    def test_a_case_that_cannot_run_hides_no_other(self, make_rig: Callable[..., Rig]) -> None:
        rig = make_rig(tools=("ior", "fio"), limits={"case_bytes": "32 MiB"})
        run = rig.iogauge("plan", "-n", "^Burst|^FioRandomRead")
        assert run.rc == 1, run.out
        assert run.out.count("FioRandomRead") >= 3 and "ok G13" in flat(run.out), run.out
        assert "this scenario cannot be run at this scale" in flat(run.out)
        assert ". So 1 case cannot run: Burst" in flat(run.out)
        assert "as fast as the target can" in flat(run.out)
        fine = rig.iogauge("plan", "-n", "^FioRandomRead")
        assert fine.rc == 0 and "cannot run" not in fine.out, fine.out


@pytest.mark.needs_fio
class TestBudget:
    """Three cases of 4 MiB each, on a site that allows 10 MiB."""

    @pytest.fixture
    def rig(self, make_rig: Callable[..., Rig]) -> Rig:
        rig = make_rig(limits={"case_bytes": "16 MiB"})
        data = rig.settings()
        data["systems"][0]["partitions"][0]["extras"]["budget"] = {"written": "10 MiB"}
        rig.write_settings(data)
        return rig

    SELECTED = ("-n", "FioRandomRead", "--exec-order=name", "--exec-policy=serial")

    def test_plan_and_run_refuse_what_is_over(self, rig: Rig) -> None:
        for command in ("plan", "run"):
            run = rig.iogauge(command, *self.SELECTED)
            assert run.rc == 1, run.out
            assert "written: 12 MiB planned, 10 MiB allowed, 2 MiB over" in flat(run.out)
            assert run.records == []
        assert "no case was run" in flat(run.out)
        assert rig.iogauge("plan", "-n", "FioRandomRead%block=4KiB").rc == 0
        run = rig.iogauge("run", "--over-budget", *self.SELECTED)
        assert run.rc == 0, run.out
        assert len(run.records) == 3


@pytest.mark.needs_fio
class TestRun:
    def test_gate(self, rig: Rig) -> None:
        rig.write_references({"FioRandomRead": GENEROUS["FioRandomRead"]})
        run = rig.iogauge("run", "--gate", *RANDOM_READ)
        assert run.rc == 0, run.out
        assert run.record["verdict"] == "PASS" and run.record["gate"]
        assert "iogauge: ok: 1 passed (gate)" in flat(run.out)
        again = rig.iogauge("report")
        assert again.rc == 0 and "iogauge: ok: 1 passed (gate)" in flat(again.out)
        assert "read_iops" in again.out

    def test_gate_misses_what_it_had_before(self, make_rig: Callable[..., Rig]) -> None:
        rig = make_rig(limits={"case_bytes": "64 MiB"})
        bands = {"read_iops": [1, -0.9, None, "ops/s"], "read_bw": [0.1, -0.9, None, "MiB/s"]}
        streams = {name: [0.1, -0.9, None, "MiB/s"] for name in ("write_bw", "read_bw")}
        references = {"FioSequential": streams, "FioRandomRead": bands}
        rig.write_references(references)
        buffered = "^FioSequential%files=shared%cache=buffered%block=4MiB"
        chosen = ("run", "--gate", "-n", f"{buffered}|^FioRandomRead%block=4K")
        first = rig.iogauge(*chosen)
        assert first.rc == 0, first.out
        # O_DIRECT is honoured no longer, says the site: FioRandomRead is not selected, and ReFrame passes.
        rig.declared = {"honours_o_direct": False}
        rig.write_settings()
        run = rig.iogauge(*chosen)
        assert run.rc == 1, run.out
        text = flat(run.out)
        assert "not run: FioRandomRead (1 case(s)): partition rig:default lacks o_direct" in text
        assert re.search(
            r"iogauge: FAILED: 1 passed; 1 not run \(FioRandomRead: no o_direct\); "
            r"FioRandomRead %block=4KiB \(rig:default, tools\) was recorded in \S+, and is gone",
            text,
        )
        accepted = rig.iogauge("run", "--gate", "--accept-missing", *chosen[2:])
        assert accepted.rc == 0, accepted.out
        assert rig.iogauge(*chosen).rc == 0

    @pytest.mark.skipif(shutil.which("script") is None, reason="not on PATH: script")
    def test_a_terminal_shows_where_the_case_stands(self, rig: Rig) -> None:
        rig.limits = {"case_files": 200}
        rig.write_settings()
        rig.program("fio", 'sleep 2.5; exec "$real" "$@"')
        words = shlex.join(["reframe", "-c", "checks/", "-r", *METADATA])
        run = rig.finish(rig.start(["script", "-qefc", words, "/dev/null"]), 120)
        assert re.search(r"\x1b\[KFioMetadata: \w+, warm-up, \d+ s gone, about \d+ s left", run.out)
        # The line is gone before ReFrame says the next word.
        assert re.search(r"\x1b\[K\[.*FioMetadata", run.out)
        piped = rig.reframe("-c", "checks/", "-r", *METADATA)
        assert "gone, about" not in piped.out


def told(rig: Rig) -> dict[str, str]:
    """What each way of showing the newest session says: word and sentence."""
    page, xml = rig.base / "page.html", rig.base / "junit.xml"
    run = rig.iogauge("report", "--html", str(page), "--junit", str(xml))
    (line,) = re.findall(r"^iogauge: (.*)$", run.out, re.MULTILINE)
    text = html.unescape(page.read_text())
    (page_line,) = re.findall(r'<p class="quiet ending">(.*?)</p>', text)
    (alarm,) = re.findall(r"^iogauge \S+: (.*)$", rig.iogauge("alarm").out, re.MULTILINE)
    junit = str(ElementTree.parse(xml).getroot().get("name")).removeprefix("iogauge: ")
    return {"report": line, "page": page_line, "junit": junit, "alarm": alarm}


@pytest.mark.needs_fio
class TestEnding:
    """The word ok is for what is proven; all ways of showing a session use the same words."""

    def test_name_that_fits_nothing(self, rig: Rig) -> None:
        said = (
            "nothing proven: no case was measured; -n FioMetadta selects no case "
            "(did you mean FioMetadata?)"
        )
        run = rig.iogauge("run", "-n", "FioMetadta")
        assert f"iogauge: {said}" in flat(run.out)
        assert (run.rc, run.records) == (0, [])
        assert told(rig) == dict.fromkeys(("report", "page", "junit", "alarm"), said)
        gate = rig.iogauge("run", "--gate", "-n", "FioMetadta")
        assert gate.rc == 1 and "iogauge: FAILED: no case was measured; -n" in flat(gate.out)
        assert rig.iogauge("report").rc == 1

    def test_missing_tool(self, rig: Rig) -> None:
        rig.write_references({"FioRandomRead": GENEROUS["FioRandomRead"]})
        chosen = ("-n", "^FioRandomRead%block=128|^MdtestEasy|^MdtestHard")
        reason = (
            "not run: MdtestEasy, MdtestHard (2 case(s)): environment tools lacks mdtest: "
            "if the program is on PATH of the nodes, add it to the features of tools in "
            f"{rig.site}/settings.yaml"
        )
        planned = rig.iogauge("plan", *chosen)
        assert planned.rc == 0 and reason in flat(planned.out), planned.out
        run = rig.iogauge("run", *chosen)
        assert run.rc == 0 and run.record["verdict"] == "PASS", run.out
        said = "partly proven: 1 passed; 2 not run (MdtestEasy, MdtestHard: no mdtest)"
        assert f"iogauge: {said} {reason}" in flat(run.out)
        assert told(rig) == dict.fromkeys(("report", "page", "junit", "alarm"), said)
        # Whoever does not want them leaves them out of the selection.
        without = rig.iogauge("run", *chosen, "-x", "Mdtest")
        assert "iogauge: ok: 1 passed" in flat(without.out)


@pytest.mark.needs_fio
@pytest.mark.slow
def test_bench(rig: Rig) -> None:
    """The newcomer's command, on the site of a machine that nobody has described."""
    run = rig.iogauge(
        *("bench", "-n", "FioRandomRead%block=128", "-S", "repetitions=1"),
        IOGAUGE_TARGET=str(rig.target),
        RFM_CONFIG_PATH=str(ROOT / "site-configs"),
    )
    assert run.rc == 0, run.out
    assert run.record["system"] == "local"
    # Tests that run beside it are foreign load.
    assert run.record["verdict"] in ("UNREFERENCED", "CONTAMINATED"), run.out
    assert run.record["verdict"] in run.out and "read_iops" in run.out
    assert str(rig.target) in run.out.replace("\n", "")
    assert "iogauge: nothing proven: 1 proves nothing" in run.out
    first, *_ = [line.split() for line in run.out.splitlines()[-3:]]
    assert first == ["iogauge", "site", "new", "NAME", "--target", str(rig.target)]
    rig.assert_clean()


class TestReframe:
    """The literal commands of the README."""

    def test_list(self, make_rig: Callable[..., Rig]) -> None:
        rig = make_rig(tools=("fio", "ior", "ior-mpiio", "mdtest"))
        run = rig.reframe("-c", "checks/", "-l")
        assert run.rc == 0, run.out
        # Without sweeps: 18 of one case each, TrainingSamples (2), FioSequential (8), MdtestShape (6), AccessMatrix (6) and its ratios,
        # Burst, Steady, Endurance, Interference (2).
        assert "Found 46 check(s)" in run.out
        quick = rig.reframe("-c", "checks/", "-l", "-t", "quick")
        assert 0 < quick.out.count("\n- ") < 16
        named = rig.reframe("-c", "checks/", "-l", "-n", "IorMpiio")
        assert "Found 2 check(s)" in named.out

    def test_setvar_changes_the_scale(self, make_rig: Callable[..., Rig]) -> None:
        rig = make_rig(tools=("ior",))
        one = ("-n", "IorMpiio", "-n", "IorPosix%files=shared%order=sequential%cache=direct")
        run = rig.reframe("-c", "checks/", "--dry-run", *one, "-S", "tasks_per_node=3")
        assert run.rc == 0, run.out
        assert re.search(r"mpirun -np 3 [^\n]*\bior ", run.file("rfm_job.sh").read_text())
        run = rig.reframe("-c", "checks/", "--dry-run", *one, "-S", "nodes=2")
        script = run.file("rfm_job.sh").read_text()
        assert re.search(r"mpirun -np 4 --map-by ppr:2:node [^\n]*\bior ", script)
        assert re.search(r"ior .* -r .*-C .*-Q 1 ", script)


# --- a failure is measured once more --------------------------------------------------------------


@pytest.mark.needs_fio
@pytest.mark.parametrize(
    "always",
    [
        False,
    ],
    ids=["refuted", "confirmed"],
)
def test_a_failure_is_measured_once_more_and_both_are_kept(
    make_rig: Callable[..., Rig], always: bool
) -> None:
    # So few files that ext4 without a journal finds them soon, by one task, so that they take G4's 0.02 s.
    rig = make_rig(tasks=1, limits={"case_files": 6_000})
    rig.write_references(
        {
            "FioMetadata": {
                "create_rate": [2_000, -0.1, None, "ops/s"],
                "stat_warm_rate": [1, -0.9, None, "ops/s"],
                "remove_rate": [1, -0.9, None, "ops/s"],
            }
        }
    )
    once = "" if always else f"[ -e {rig.base}/slowed ] || "
    # The sync after the creates belongs to their time.
    slow = f"{once}{{ touch {rig.base}/slowed; sleep 4; }}"
    rig.program("sync", f'case $IOG_TOKEN in create.1.*) {slow} ;; esac\nexec "$real" "$@"')
    done = rig.iogauge("run", "--confirm", "-n", "^FioMetadata$")
    assert len(done.records) == 2, done.out
    first, second = done.records
    assert first["verdict"] == "FAIL", first["reason"]
    assert second["confirms"] == first["session"]
    assert second["verdict"] == ("FAIL" if always else "PASS")
    assert done.rc == (1 if always else 0), done.out
    assert ("1 FAIL not confirmed by a second run" in done.out) is not always
