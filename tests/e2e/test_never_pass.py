"""What must not end in PASS, each on the literal command, each with its cause named."""

import contextlib
import shutil
import sys
import threading

import pytest

from e2e.rig import GENEROUS, RANDOM_READ, ROOT, command, processes, wait_for
from support.shell import completed

pytestmark = [pytest.mark.needs_fio]

IOR = ("-n", "IorPosix%files=shared%order=sequential%cache=direct")
IOR_BUFFERED = ("-n", "IorPosix%files=shared%order=sequential%cache=buffered")


@pytest.fixture
def fio_rig(make_rig):
    """Few files and generous references: nothing but what a test does keeps it from a PASS."""
    rig = make_rig()
    rig.write_references(GENEROUS)
    return rig


@pytest.fixture
def ior_rig(make_rig):
    """One task without a launcher: IOR and mdtest start at once as MPI programs of one rank."""
    rig = make_rig(
        tools=("ior", "mdtest"),
        tasks=1,
        launcher="local",
        limits={"case_bytes": "64 MiB", "case_files": 400},
    )
    rig.write_references(GENEROUS)
    return rig


def edit_json(edit):
    """A shell line that edits ``$out``: ``j`` is the JSON document, ``f`` its first job of fio."""
    code = (
        "import json, sys; t = open(sys.argv[1]).read(); "
        "j = json.loads(t[t.index('{'):]); f = j.get('jobs', [None])[0]; "
        "exec(sys.argv[2]); json.dump(j, open(sys.argv[1], 'w'))"
    )
    return f'{sys.executable} -c "{code}" "$out" "{edit}"'


@pytest.mark.quick
def test_a_result_that_is_no_number(fio_rig):
    script = edit_json("f['read']['iops'] = float('nan')")
    fio_rig.damage("fio", "fio-randread.1.json", script)
    run = fio_rig.run(*RANDOM_READ)
    run.never_passed("randread", "(?i)nan")
    assert run.record["verdict"] == "ERROR"
    fio_rig.assert_clean()


def test_other_unit(fio_rig):
    # KiB/s where bytes/s belong: a figure 1024 times too small.
    script = edit_json("f['read']['bw_bytes'] //= 1024")
    fio_rig.damage("fio", "fio-randread.1.json", script)
    run = fio_rig.run(*RANDOM_READ)
    run.never_passed("bw_bytes")


def test_what_a_run_sets_otherwise_is_compared_with_nothing(fio_rig):
    run = fio_rig.run(*RANDOM_READ, "-S", "tasks_per_node=1", gate=True)
    run.never_passed("UNREFERENCED.*measured with tasks_per_node=1")


def test_a_gate_does_not_try_until_it_passes(fio_rig):
    fio_rig.damage(
        "fio",
        "fio-randread.1.json",
        "[ -e ../../failed ] || { touch ../../failed; rc=1; }",
    )
    run = fio_rig.run(*RANDOM_READ, "--max-retries=3", gate=True)
    assert run.rc == 1
    verdicts = [r["verdict"] for r in run.records]
    assert verdicts[0] == "ERROR" and len(verdicts) > 1, run.out
    assert "1 case(s) did not pass at first" in run.out


def test_a_gate_that_is_neither_open_nor_shut(fio_rig):
    fio_rig.run(*RANDOM_READ, IOGAUGE_GATE="y").never_passed("IOGAUGE_GATE is")


@pytest.mark.quick
def test_another_file_system_than_declared(make_rig):
    rig = make_rig(declared={"type": "lustre"})
    run = rig.run(*RANDOM_READ)
    run.never_passed("G9", "lustre")
    assert (run.record["verdict"], run.record["metrics"]) == ("INVALID", [])
    assert not list(run.stage.rglob("fio-*.json")), "the tool ran"
    rig.assert_clean()


@pytest.mark.needs_ior
def test_page_cache_that_is_filled_again(ior_rig):
    """The page cache was proven empty, and then another process read the data."""
    ior_rig.program(
        "mpirun", 'case "$*" in *ior-read.*) sleep 1 ;; esac; exec "$real" "$@"'
    )
    stop = threading.Event()

    def read_everything():
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


def test_time_limit(make_rig):
    rig = make_rig(time_limit="2s")
    rig.write_references(GENEROUS)
    rig.program("fio", '[ "$1" != --version ] || exec "$real" "$@"\nsleep 120')
    run = rig.run(*RANDOM_READ)
    run.never_passed("(?i)time limit|timeout|timed out")
    wait_for(lambda: not processes(str(rig.base)), 10, "the tool to end")
    rig.assert_clean()


@pytest.mark.quick
def test_nothing_selected_is_no_pass_of_a_gate(fio_rig):
    for words in (("-vr", "-n", "NoSuchCheck"), ("-r", "-p", "no-such-environment")):
        run = fio_rig.reframe("-c", "checks/", *words, IOGAUGE_GATE="1")
        assert run.rc != 0, run.out
        assert run.records == []
    for words in (("-l", "-nIor"), ("--dry-run", "-nIor")):
        run = fio_rig.reframe("-c", "checks/", *words, IOGAUGE_GATE="1")
        assert (run.rc, "a gate measures" in run.out) == (2, True), run.out
    for words in (("--gate", "-l"), ("--gate", "--dry-run")):
        assert fio_rig.iogauge("run", *words).rc == 2
    for word in ("-l", "--dry-run"):
        assert fio_rig.iogauge("run", word, IOGAUGE_GATE="1").rc == 2
    assert fio_rig.iogauge("check", "--files", "rig", IOGAUGE_GATE="1").rc == 0


def test_a_check_that_cannot_be_loaded(fio_rig):
    """One check passes, another never loads: as a gate that is no pass."""
    checks = fio_rig.base / "checks"
    checks.mkdir()
    for name in ("__init__.py", "fio_random_read.py"):
        shutil.copy(ROOT / "checks" / name, checks)
    lost = "import reframe as rfm\nimport no_such_module\n@rfm.simple_test\nclass Lost: pass\n"
    (checks / "lost.py").write_text(lost)
    run = fio_rig.reframe("-c", str(checks), "-r", IOGAUGE_GATE="1")
    assert run.rc != 0, run.out
    assert "lost.py" in run.out


def test_without_a_usable_site_nothing_runs(fio_rig):
    env = {k: v for k, v in fio_rig.environment().items() if k != "RFM_CONFIG_PATH"}
    words = ["reframe", "-c", "checks/", "-r"]
    done = completed(words, cwd=ROOT, env=env)
    text = done.stdout + done.stderr
    assert done.returncode != 0, text
    assert "RFM_CONFIG_PATH" in text and "nothing was measured" in text
    fio_rig.declare(limits={"case_byte": "1 MiB"})
    run = fio_rig.run(*RANDOM_READ)
    run.never_passed("settings.yaml", "nothing was measured", "case_byte", "case_bytes")
    assert run.records == []
    fio_rig.assert_clean()


@pytest.mark.quick
def test_another_site_may_be_broken(fio_rig):
    broken = fio_rig.sites / "broken"
    broken.mkdir()
    (broken / "settings.yaml").write_text("systems: 7")
    run = fio_rig.run(*RANDOM_READ, "--system=rig")
    assert run.rc == 0 and run.record["verdict"] == "PASS", run.out


# --- options of ReFrame that leave out what decides -------------------------------------------------


@pytest.fixture
def failing(fio_rig):
    """Would FAIL: no machine reads a million million times a second."""
    metrics = {**GENEROUS["FioRandomRead"], "read_iops": [1e12, -0.1, None, "ops/s"]}
    fio_rig.write_references({"FioRandomRead": metrics})
    return fio_rig


def test_a_failing_value_whose_performance_is_not_checked(failing):
    run = failing.run(*RANDOM_READ, "--skip-performance-check", "--keep-stage-files")
    assert run.verdict == "FAIL" and (run.rc != 0 or run.record["verdict"] != "FAIL")
    failing.assert_clean()


def test_nothing_judged(fio_rig):
    words = ("--skip-sanity-check", "--skip-performance-check", "--keep-stage-files")
    run = fio_rig.run(*RANDOM_READ, *words)
    assert run.rc != 0, run.out
    assert all(r["verdict"] != "PASS" for r in run.records)
    fio_rig.assert_clean()


def test_figures_of_an_earlier_run(failing):
    """A tool that does nothing and says that all is well, over what an earlier run left."""
    first = failing.run(*RANDOM_READ)
    assert first.verdict == "FAIL", first.out
    failing.write_references(GENEROUS)
    failing.program("fio", "exit 0")
    words = ["reframe", "-c", "checks/", "-r", *RANDOM_READ, "--dont-restage"]
    second = failing.finish(failing.start(words))
    assert second.rc != 0, second.out
    assert all(r["verdict"] != "PASS" for r in second.records)


# --- outputs of other executions, and environments that lie -----------------------------------------


@pytest.mark.needs_ior
def test_output_of_an_earlier_run(ior_rig):
    kept = ior_rig.base / "kept"
    ior_rig.damage("ior", "*", f'mkdir -p {kept}; cp "$out" {kept}/$(basename "$out")')
    ior_rig.run(*IOR)
    ior_rig.damage("ior", "*.json", f'cp {kept}/$(basename "$out") "$out"')
    ior_rig.run(*IOR).never_passed(
        r"G22 tool: ior 4.0.0, write, repetition 1: it says '\S+/data' instead of '\S+/data'"
    )


def test_output_of_one_repetition_for_another(fio_rig):
    fio_rig.damage("fio", "fio-randread.2.json", 'cp fio-randread.1.json "$out"')
    fio_rig.run(*RANDOM_READ, "-S", "repetitions=2").never_passed(
        "repetition 2: it says description=randread.1.* instead of description=randread.2."
    )


def test_an_option_that_nobody_asked_for(fio_rig):
    """All words of the case are there, and one more: fio reads a MiB again and again."""
    edit = 'sed -i "s/^rw=randread/&\\nsize=1m/" randread.fio'
    fio_rig.program("fio", f'[ ! -e randread.fio ] || {edit}; exec "$real" "$@"')
    fio_rig.run(*RANDOM_READ).never_passed(
        "G22 tool: .*size=1m instead of no such option"
    )


@pytest.mark.parametrize("program", ["reframe", "iogauge"])
def test_a_caller_that_ignores_the_ends_of_children(fio_rig, program):
    """Then the kernel drops exit statuses: Python takes each for 0, and ReFrame waits for ever."""
    ignores = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execvp(sys.argv[1], sys.argv[1:])"
    fio_rig.inside, fio_rig.cold = [sys.executable, "-c", ignores], True
    words = {
        "reframe": command(*RANDOM_READ),
        "iogauge": ["iogauge", "run", *RANDOM_READ],
    }
    run = fio_rig.finish(fio_rig.start(words[program]))
    assert run.rc == 0 and run.record["verdict"] in ("PASS", "CONTAMINATED"), run.out
    fio_rig.damage("fio", "fio-randread.1.json", "rc=1")
    run = fio_rig.finish(fio_rig.start(words[program]))
    assert run.rc == 1 and run.records[-1]["verdict"] == "ERROR", run.out


# --- healthy, though odd ----------------------------------------------------------------------------


@pytest.mark.needs_ior
def test_odd_surroundings_are_healthy(make_rig):
    """A launcher that labels lines, with a clock and processes of its own; tools in containers of another clock zone, and one
    that prints all in one stream without a last newline; a shell whose options are exported.

    A container with processes of its own leaves them to init: the kernel adds them to nobody's sums.
    """
    rig = make_rig(tools=("fio", "ior", "mdtest"), limits={"case_files": 16_000})
    rig.write_references(GENEROUS)
    if shutil.which("bwrap"):
        for tool, more, after in (
            ("ior", "", ""),
            ("mdtest", "", "2>&1 | head -c -1"),
            ("fio", "--unshare-pid", ""),
        ):
            box = f"bwrap --dev-bind / / --proc /proc --setenv TZ UTC-9 {more}"
            rig.program(tool, f'{box} "$real" "$@" {after}')
    clock = [
        "unshare",
        "--time",
        "--boottime",
        "100000",
        "--pid",
        "--mount-proc",
        "--fork",
    ]
    if completed([*clock, "true"]).returncode == 0:
        rig.program("mpirun", f'exec {" ".join(clock)} "$real" "$@"')
    options = (
        "braceexpand:errexit:hashall:interactive-comments:noclobber:nounset:pipefail"
    )
    words = (*IOR_BUFFERED, "-n", "MdtestEasy", *RANDOM_READ)
    around = {"OMPI_MCA_orte_tag_output": "1", "SHELLOPTS": options}
    run = rig.again(lambda: rig.run(*words, **around))
    assert [r["verdict"] for r in run.records] == ["PASS"] * 3, run.out
    assert run.rc == 0, run.out
