"""The ``iogauge`` command and ReFrame's own options, as typed."""

import re

import pytest

from e2e.rig import GENEROUS, RANDOM_READ, ROOT, flat

pytestmark = [pytest.mark.needs_fio]


@pytest.fixture
def rig(make_rig):
    return make_rig()


def test_gate_misses_what_it_had_before(make_rig):
    rig = make_rig(limits={"case_bytes": "64 MiB"})
    bands = {
        "read_iops": [1, -0.9, None, "ops/s"],
        "read_bw": [0.1, -0.9, None, "MiB/s"],
    }
    streams = {name: [0.1, -0.9, None, "MiB/s"] for name in ("write_bw", "read_bw")}
    references = {"FioSequential": streams, "FioRandomRead": bands}
    rig.write_references(references)
    buffered = "^FioSequential%files=shared%cache=buffered%block=4MiB"
    chosen = ("-n", f"{buffered}|^FioRandomRead%block=4K")
    first = rig.gate(*chosen)
    assert first.rc == 0, first.out
    # O_DIRECT is honoured no longer, says the site: FioRandomRead is not selected, and ReFrame passes.
    rig.declared = {"honours_o_direct": False}
    rig.write_settings()
    run = rig.gate(*chosen)
    assert run.rc == 1, run.out
    text = flat(run.out)
    assert (
        "not run: FioRandomRead (1 case(s)): partition rig:default lacks o_direct"
        in text
    )
    assert re.search(
        r"iogauge: FAILED: 1 passed, 1 of them without a second witness; 1 not run; "
        r"FioRandomRead 4KiB \(rig:default, tools\) was recorded in \S+, and is gone",
        text,
    )
    said = "purpose, say so in the gate's options: -x NAME"
    assert said in text
    assert rig.gate(*chosen, "-x", "FioRandomRead").rc == 0


def test_a_slip_runs_nothing_and_a_session_ends_with_its_word(rig):
    """The word ok is for what is proven."""
    for command, slip, meant in (
        (
            "run --gate",
            "-n FioRandomRed",
            "-n FioRandomRed selects no case (did you mean FioRandomRead?)",
        ),
        ("run", "-n FioRandomRead 4KB", "(did you mean FioRandomRead 4KiB?)"),
        ("run --dry-run", "--system=rgi", "no site 'rgi' (did you mean rig?)"),
    ):
        run = rig.iogauge(*command.split(), *slip.split())
        assert (run.rc, run.records) == (2, []) and meant in flat(run.out), run.out
    rig.write_references({"FioRandomRead": GENEROUS["FioRandomRead"]})
    chosen = ("-n", "^FioRandomRead%block=128|^MdtestEasy|^MdtestHard")
    run = rig.iogauge("run", *chosen)
    assert run.rc == 0 and run.records[-1]["verdict"] == "PASS", run.out
    # Phases of half a second are too short to be timed by the kernel's counts.
    passed = "1 passed, 1 of them without a second witness"
    said = f"partly proven: {passed}; 2 not run"
    assert f"iogauge: {said}" in flat(run.out)
    assert f"iogauge: {said}" in flat(rig.iogauge("report").out)
    assert "1 of 1 record(s)" in flat(rig.iogauge("history").out)
    run = rig.gate(*RANDOM_READ)
    assert run.rc == 0 and f"iogauge: ok: {passed} (gate)" in flat(run.out), run.out
    rig.write_references(None)
    run = rig.gate(*RANDOM_READ)
    assert run.rc == rig.iogauge("report").rc == 1
    assert "iogauge: FAILED: 1 unproven (UNREFERENCED) (gate)" in flat(run.out)


@pytest.mark.slow
def test_bench(rig):
    """The newcomer's command, on the site of a machine that nobody has described."""
    where = {
        "IOGAUGE_TARGET": str(rig.target),
        "RFM_CONFIG_PATH": str(ROOT / "site-configs"),
    }
    words = ("bench", "-n", "FioRandomRead%block=128", "-S", "repetitions=1")
    # Tests that run beside it are foreign load.
    run = rig.again(lambda: rig.iogauge(*words, **where))
    assert run.rc == 0, run.out
    record = run.records[-1]
    assert (record["system"], record["verdict"]) == ("local", "UNREFERENCED"), run.out
    assert "UNREFERENCED" in run.out and "read_iops" in run.out
    assert str(rig.target) in run.out.replace("\n", "")
    assert "iogauge: nothing proven: 1 unproven (UNREFERENCED)" in run.out
    first, *_ = [line.split() for line in run.out.splitlines()[-3:]]
    assert first == ["iogauge", "site", "new", "NAME", "--target", str(rig.target)]
    rig.assert_clean()


def test_a_failure_is_measured_once_more_and_both_are_kept(make_rig):
    rig = make_rig(tasks=1)
    met = GENEROUS["FioRandomRead"]
    rig.write_references({"FioRandomRead": met})
    references, kept = rig.site / "references.yaml", rig.base / "references.yaml"
    kept.write_text(references.read_text())
    # The first run has read its references when its job puts others in their place. It fails on a busy machine, too.
    bug = ["$xfail", "a bug, until 2099-12-31", met["read_iops"]]
    rig.write_references({"FioRandomRead": met | {"read_iops": bug}})
    rig.damage("fio", "fio-randread.1.*", f"cp {kept} {references}")
    done = rig.iogauge("run", "--confirm", "--repeat=1", *RANDOM_READ)
    first, second = done.records
    assert (first["verdict"], second["verdict"]) == ("FAIL", "PASS"), done.out
    case = "FioRandomRead %block=128KiB"
    assert (first["case"], second["case"]) == (f"{case} %.repeat_no=0", case)
    assert second["confirms"] == first["session"]
    assert done.rc == 0 and "1 FAIL not confirmed by a second run" in done.out, done.out


# --- what is selected, and in which order -----------------------------------------------------------


def test_each_mode_holds_the_one_before(make_rig):
    """And ``-l`` lists all that a site's tools allow."""
    rig = make_rig(tools=("fio", "ior", "ior-mpiio", "mdtest"))
    # Without sweeps: 17 of one case each, FioSequential (8), AccessMatrix (6) and its ratios,
    # Burst, Steady, Endurance, SharedFile.
    everything = rig.reframe("-c", "checks/", "-l")
    assert everything.rc == 0 and "Found 38 check(s)" in everything.out, everything.out
    found = [set(re.findall(r"^- (.*) /", everything.out, re.MULTILINE))]
    for mode in ("acceptance", "weekly", "daily", "quick"):
        run = rig.reframe("-c", "checks/", "-l", f"--mode={mode}")
        assert run.rc == 0, run.out
        found.append(set(re.findall(r"^- (.*) /", run.out, re.MULTILINE)))
    assert found[0] == found[1] > found[2] > found[3] > found[4]
    # Hours long.
    assert {case.split()[0] for case in found[1] - found[2]} == {"Steady", "Endurance"}


def test_doctor_names_what_is_missing_and_what_brings_it(rig):
    bare = rig.base / "bare"
    bare.mkdir()
    run = rig.iogauge("check", "--all", PATH=str(bare), IOGAUGE_TARGET=str(rig.target))
    assert run.rc == 0, run.out
    for name, command in {"ior": "ci/bring", "fio": "apt install fio"}.items():
        assert re.search(rf"note {name}: not on PATH", flat(run.out)), run.out
        assert command in flat(run.out)
