"""The ``iogauge`` command and ReFrame's own options, as typed."""

import html
import re
import shlex
import shutil
from xml.etree import ElementTree

import pytest

from e2e.rig import GENEROUS, METADATA, RANDOM_READ, ROOT, flat

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
    chosen = ("run", "--gate", "-n", f"{buffered}|^FioRandomRead%block=4K")
    first = rig.iogauge(*chosen)
    assert first.rc == 0, first.out
    # O_DIRECT is honoured no longer, says the site: FioRandomRead is not selected, and ReFrame passes.
    rig.declared = {"honours_o_direct": False}
    rig.write_settings()
    run = rig.iogauge(*chosen)
    assert run.rc == 1, run.out
    text = flat(run.out)
    assert (
        "not run: FioRandomRead (1 case(s)): partition rig:default lacks o_direct"
        in text
    )
    assert re.search(
        r"iogauge: FAILED: 1 passed; 1 not run \(FioRandomRead: no o_direct\); "
        r"FioRandomRead 4KiB \(rig:default, tools\) was recorded in \S+, and is gone",
        text,
    )
    accepted = rig.iogauge("run", "--gate", "--accept-missing", *chosen[2:])
    assert accepted.rc == 0, accepted.out
    assert rig.iogauge(*chosen).rc == 0


@pytest.mark.skipif(shutil.which("script") is None, reason="not on PATH: script")
def test_a_terminal_shows_where_the_case_stands(rig):
    rig.limits = {"case_files": 200}
    rig.write_settings()
    # Of one execution of the warm-up.
    rig.program(
        "fio", 'case $IOG_TOKEN in create.0.*) sleep 2.5 ;; esac; exec "$real" "$@"'
    )
    words = shlex.join(["reframe", "-c", "checks/", "-r", *METADATA])
    run = rig.finish(rig.start(["script", "-qefc", words, "/dev/null"]), 120)
    assert re.search(
        r"\x1b\[KFioMetadata: \w+, warm-up, \d+ s of about \d+ s gone", run.out
    )
    # The line is gone before ReFrame says the next word.
    assert re.search(r"\x1b\[K\[.*FioMetadata", run.out)


def told(rig):
    """What each way of showing the newest session says: word and sentence."""
    page, xml = rig.base / "page.html", rig.base / "junit.xml"
    run = rig.iogauge("report", "--html", str(page), "--junit", str(xml))
    (line,) = re.findall(r"^iogauge: (.*)$", run.out, re.MULTILINE)
    text = html.unescape(page.read_text())
    (page_line,) = re.findall(r'<p class="ending">(.*?)</p>', text)
    (alarm,) = re.findall(
        r"^iogauge \S+: (.*)$", rig.iogauge("alarm").out, re.MULTILINE
    )
    junit = str(ElementTree.parse(xml).getroot().get("name")).removeprefix("iogauge: ")
    return {"report": line, "page": page_line, "junit": junit, "alarm": alarm}


def test_all_ways_of_showing_a_session_use_the_same_words(rig):
    """The word ok is for what is proven."""
    ways = ("report", "page", "junit", "alarm")
    for command, slip, meant in (
        (
            "run --gate",
            "-n FioMetadta",
            "-n FioMetadta selects no case (did you mean FioMetadata?)",
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
    said = "partly proven: 1 passed; 2 not run (MdtestEasy, MdtestHard: no mdtest)"
    assert f"iogauge: {said}" in flat(run.out)
    assert told(rig) == dict.fromkeys(ways, said)
    assert "1 of 1 record(s)" in flat(rig.iogauge("history").out)
    run = rig.iogauge("run", "--gate", *RANDOM_READ)
    assert run.rc == 0 and "iogauge: ok: 1 passed (gate)" in flat(run.out), run.out
    rig.write_references(None)
    run = rig.iogauge("run", "--gate", *RANDOM_READ)
    assert run.rc == rig.iogauge("report").rc == 1
    assert "iogauge: FAILED: 1 proves nothing (UNREFERENCED) (gate)" in flat(run.out)


@pytest.mark.slow
def test_bench(rig):
    """The newcomer's command, on the site of a machine that nobody has described."""
    run = rig.iogauge(
        *("run", "--try", "-n", "FioRandomRead%block=128", "-S", "repetitions=1"),
        IOGAUGE_TARGET=str(rig.target),
        RFM_CONFIG_PATH=str(ROOT / "site-configs"),
    )
    assert run.rc == 0, run.out
    assert run.record["system"] == "local"
    # Tests that run beside it are foreign load.
    assert run.record["verdict"] in ("UNREFERENCED", "CONTAMINATED"), run.out
    assert run.record["verdict"] in run.out and "read_iops" in run.out
    assert str(rig.target) in run.out.replace("\n", "")
    assert "iogauge: 1 measured: 1 " in run.out
    first, *_ = [line.split() for line in run.out.splitlines()[-3:]]
    assert first == ["iogauge", "site", "new", "NAME", "--target", str(rig.target)]
    rig.assert_clean()


def test_a_failure_is_measured_once_more_and_both_are_kept(make_rig):
    # So few files that ext4 without a journal finds them soon, by one task, so that they take G4's 0.02 s.
    rig = make_rig(tasks=1, limits={"case_files": 6_000})
    bands = {name: [1, -0.9, None, "ops/s"] for name in GENEROUS["FioMetadata"]}
    rig.write_references({"FioMetadata": bands})
    references, kept = rig.site / "references.yaml", rig.base / "references.yaml"
    kept.write_text(references.read_text())
    # The first run has read its references when its job puts others in their place.
    bands["create_rate"] = [1e9, -0.1, None, "ops/s"]
    rig.write_references({"FioMetadata": bands})
    rig.damage("fio", "create.1.*", f"cp {kept} {references}")
    done = rig.iogauge("run", "--confirm", "--repeat=1", "-n", "^FioMetadata$")
    if done.records[0]["verdict"] == "CONTAMINATED":
        pytest.skip("this machine had more work than cores: nothing is confirmed")
    first, second = done.records
    assert (first["verdict"], second["verdict"]) == ("FAIL", "PASS"), done.out
    assert (first["case"], second["case"]) == (
        "FioMetadata %.repeat_no=0",
        "FioMetadata",
    )
    assert second["confirms"] == first["session"]
    assert done.rc == 0 and "1 FAIL not confirmed by a second run" in done.out, done.out


# --- what is selected, and in which order -----------------------------------------------------------


def test_what_a_published_gate_cannot_run_is_counted_as_its_cases(rig):
    """24 would be all sizes on all partitions, of which the document has 16."""
    words = ["--system=azure-cyclecloud", "-t", "published-figure"]
    run = rig.iogauge("run", "-l", *words, RFM_CONFIG_PATH=str(ROOT / "site-configs"))
    assert "TaskScaling (16 case(s)): environment hpcx lacks ior" in flat(run.out)


def test_each_mode_holds_the_one_before(make_rig):
    """And ``-l`` lists all that a site's tools allow."""
    rig = make_rig(tools=("fio", "ior", "ior-mpiio", "mdtest"))
    # Without sweeps: 17 of one case each, FioSequential (8), MdtestShape (6), AccessMatrix (6) and its ratios,
    # Burst, Steady, Endurance, Interference (2), SharedFile.
    everything = rig.reframe("-c", "checks/", "-l")
    assert everything.rc == 0 and "Found 48 check(s)" in everything.out, everything.out
    found = [set(re.findall(r"^- (.*) /", everything.out, re.MULTILINE))]
    for mode in ("acceptance", "weekly", "daily", "quick"):
        run = rig.reframe("-c", "checks/", "-l", f"--mode={mode}")
        assert run.rc == 0, run.out
        found.append(set(re.findall(r"^- (.*) /", run.out, re.MULTILINE)))
    assert found[0] == found[1] > found[2] > found[3] > found[4]
    # Hours long.
    assert {case.split()[0] for case in found[1] - found[2]} == {"Steady", "Endurance"}


@pytest.mark.needs_ior
def test_all_writes_of_an_acceptance_come_before_the_first_read(make_rig):
    rig = make_rig(tools=("ior",), limits={"repetitions": 2, "case_bytes": "24 MiB"})
    rig.declare(tiers={"quick": {"case_bytes": "192 MiB", "writes_first": True}})
    run = rig.run("-n", "IorPosix%files=per-process%order=sequential%cache=buffered")
    record = run.record
    # Two repetitions may spread by more than 100 % if the machine is busy.
    assert record["verdict"] in ("UNREFERENCED", "UNSTABLE"), record["reason"]
    assert record["overridden"] == {}
    (order,) = {f["saw"]: f for f in record["findings"] if f["guard"] == "G21"}.values()
    assert order["demands"].startswith("all writes of this run")
    lines = [
        line.split("\t") for line in run.file("phases.tsv").read_text().splitlines()
    ]
    begun = [float(line[3]) for line in lines]
    assert begun == sorted(begun)
    ran = [f"{name}.{rep}" for rep, name, *_ in lines if not name.startswith("facts-")]
    reads = [f"{name}.{n}" for n in range(3) for name in ("evict-read", "read")]
    assert ran == ["write.0", "write.1", "write.2", *reads]
    # Three sets of files, of what the limits allow together.
    assert " -b 32m " in record["commands"][0]
    rig.assert_clean()


REFERENCES = """\
$sources: {FioRandomRead: a, FioMetadata: a, FioSequential: a}
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


def test_mistakes_that_only_the_cases_show_are_named_with_their_lines(rig):
    (rig.site / "references.yaml").write_text(REFERENCES)
    valid = rig.iogauge("check")
    assert valid.rc == 1, valid.out
    for line, said in (
        (
            5,
            "FioRandomRead.rig:default.4KiB.read_iop: found metric 'read_iop' (did you mean",
        ),
        (
            6,
            "FioRandomRead.rig:default.128k: found block '128k' (did you mean 128KiB?)",
        ),
        (
            7,
            "FioRandomRead.rig:default.32KiB.read_bw (unit): found 'MB/s'; allowed: 'MiB/s'",
        ),
        (
            9,
            "FioMetadata.rig:defualt: found partition 'rig:defualt' (did you mean rig:default?)",
        ),
        (11, "FioSequential.$index: found 'blocksize' (did you mean block?)"),
    ):
        assert f"references.yaml:{line}: {said}" in valid.out, f"{said}\n{valid.out}"


def test_doctor_names_what_is_missing_and_what_brings_it(rig):
    bare = rig.base / "bare"
    bare.mkdir()
    run = rig.iogauge("check", "--all", PATH=str(bare), IOGAUGE_TARGET=str(rig.target))
    assert run.rc == 0, run.out
    for name, command in {"ior": "ci/bring", "fio": "apt install fio"}.items():
        assert re.search(rf"note {name}: not on PATH", flat(run.out)), run.out
        assert command in flat(run.out)
