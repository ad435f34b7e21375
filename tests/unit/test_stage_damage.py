"""A stage directory that something happened to between the run and the verdict.

PASS only where the evidence is complete: the same samples as before, and every file that they rest on. All else
is INVALID, or an ERROR with a name; nothing is waited for, nothing is read without bounds.
"""

import os
import shutil
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iogauge.core import untrusted
from iogauge.core.measurement import Reference, ToolOutputError
from iogauge.evidence import collect
from iogauge.judge import decide
from iogauge.judge.verdict import Verdict
from support import fuzz
from support import stage as healthy
from support.extras import extras

REFERENCES = {
    "write_bw": Reference(500.0, -0.1, None, "MiB/s", "run 1"),
    "read_iops": Reference(20000.0, -0.1, None, "ops/s", "run 1"),
}
#: What a verdict does not rest on: what the tools said beside their results, and the warm-up's emptying.
SILENT = ("write.", "evict-read.0.", ".err", "evict-read.1.out", "evict-read.2.out")
#: A damage that takes longer than this hangs, also on a machine with other work.
#: CPU seconds of a verdict, which take no longer if the machine is busy; 0.05 are usual.
ANSWER_S = 20.0


@pytest.fixture(autouse=True)
def _no_waiting_for_other_nodes(monkeypatch):
    monkeypatch.setattr(collect, "ANSWER_S", 0.0)


def verdict_of(stage):
    plan = healthy.plan()
    started = time.process_time()
    try:
        found = collect.collect(stage, plan, 0, ("s", "c"))
        return decide.judge(plan, found, healthy.METRICS, REFERENCES, extras(), "quick")
    except ToolOutputError as error:
        assert str(error)
        return error
    finally:
        assert time.process_time() - started < ANSWER_S


def samples(found):
    return (
        [] if isinstance(found, ToolOutputError) else [m.samples for m in found.metrics]
    )


def is_silent(name):
    return name.endswith(".err") or name.startswith(SILENT)


@pytest.fixture(scope="module")
def good():
    with TemporaryDirectory() as folder:
        yield healthy.build(Path(folder, "stage"))


def test_the_healthy_stage_passes(good):
    found = verdict_of(good)
    assert isinstance(found, decide.Judgement) and found.verdict is Verdict.PASS, found


def _sparse(file):
    with open(file, "wb") as opened:
        opened.truncate(1 << 42)


def _link(to):
    def make(file):
        file.unlink()
        file.symlink_to(to)

    return make


def _pipe(file):
    file.unlink()
    os.mkfifo(file)


def _directory(file):
    file.unlink()
    file.mkdir()


def _loop(file):
    file.unlink()
    file.symlink_to(file.name)


REPLACED = {
    "removed": Path.unlink,
    "a directory": _directory,
    "a named pipe": _pipe,
    "a link to nowhere": _link("/nonexistent"),
    "a link to itself": _loop,
    "a link to a device": _link("/dev/zero"),
    "4 TiB of nothing": _sparse,
}


@pytest.mark.parametrize("how", REPLACED)
def test_a_file_that_is_no_file_any_more(good, how):
    # One repetition is like the other.
    for file in sorted(f for f in good.iterdir() if ".2." not in f.name):
        with TemporaryDirectory() as folder:
            copy = shutil.copytree(good, Path(folder, "copy"), symlinks=True)
            REPLACED[how](copy / file.name)
            found = verdict_of(copy)
        if isinstance(found, ToolOutputError):
            assert file.name.split(".")[0] in str(found) or "seen" in str(found), str(
                found
            )
        else:
            # What may be missing was not emptied, or says nothing of the judged repetitions.
            assert found.verdict is not Verdict.PASS or is_silent(file.name), file.name


@given(data=st.data())
def test_a_file_that_was_cut_or_damaged(good, data):
    name = data.draw(st.sampled_from(sorted(f.name for f in good.iterdir())))
    before = (good / name).read_bytes()
    damages = data.draw(
        st.lists(
            st.tuples(st.integers(0, 9), st.integers(0, 2**20), st.integers(0, 2**16)),
            min_size=1,
            max_size=3,
        )
    )
    after = before
    for kind, at, what in damages:
        after = fuzz.damage(after, kind, at, what)
    with TemporaryDirectory() as folder:
        copy = shutil.copytree(good, Path(folder, "copy"))
        (copy / name).write_bytes(after)
        found = verdict_of(copy)
    if isinstance(found, ToolOutputError) or found.verdict is not Verdict.PASS:
        return
    cut = before.startswith(after) and len(after) < len(before.rstrip())
    assert not cut or is_silent(name), (name, after[-60:])
    # What passes was measured as before, or is another valid number, which nobody can see.
    for one in samples(found):
        assert len(one) == healthy.REPETITIONS
        assert all(value > 0 for value in one)


def test_every_cut_of_what_the_verdict_rests_on(good):
    for name in ("phases.tsv", "open.json", "seen.n1.jsonl"):
        whole = (good / name).read_bytes()
        with TemporaryDirectory() as folder:
            copy = shutil.copytree(good, Path(folder, "copy"))
            end = len(whole.rstrip())
            for cut in [*range(0, end, 31), *range(end - 8, end)]:
                (copy / name).write_bytes(whole[:cut])
                found = verdict_of(copy)
                assert (
                    isinstance(found, ToolOutputError)
                    or found.verdict is not Verdict.PASS
                ), cut


def test_a_job_that_did_not_begin_tells_what_its_shell_said(tmp_path):
    stage = healthy.build(tmp_path / "stage")
    (stage / "open.json").unlink()
    said = "Welcome\nFatal Python error: init\nModuleNotFoundError: No module named 'encodings'\n\n  <no frame>\n"
    (stage / "rfm_job.err").write_text(said)
    told = str(verdict_of(stage))
    assert (
        "target (ModuleNotFoundError: No module named 'encodings', the job's exit status 0)"
        in told
    )


def test_a_file_that_grows_without_end_is_not_read(tmp_path):
    file = tmp_path / "out"
    with open(file, "wb") as opened:
        opened.truncate(untrusted.LIMIT_BYTES + 1)
    with pytest.raises(OSError, match=f"at most {untrusted.LIMIT_BYTES} are read"):
        untrusted.read_text(file)
