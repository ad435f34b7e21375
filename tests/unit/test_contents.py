"""Samples of the contents of real files, and what the guards say of them."""

import errno
import os
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from iogauge.guards import contents as guards
from iogauge.guards.finding import Outcome
from iogauge.job import lead_agent
from iogauge.node import files, mounts
from iogauge.node.files import Block, Held, Sample
from iogauge.plan.case import Verification
from iogauge.plan.observations import CONTENTS, read
from support.shell import completed
from support.whole import data

MIB = 1 << 20


@pytest.fixture
def disk():
    """A directory on a file system whose maps and blocks can be believed."""
    with TemporaryDirectory(prefix="iogauge-test-", dir="/var/tmp") as name:
        mount = mounts.find_mount(name)
        if mount is None or mount.type not in ("ext4", "xfs", "btrfs"):
            pytest.skip(
                f"needs ext4, xfs or btrfs: /var/tmp is on {mount and mount.type}"
            )
        yield Path(name)


def look(directory, known=None):
    return files.take_sample(str(directory), known)


class TestLook:
    def test_what_nobody_touches_stays_the_same(self, disk):
        (disk / "a b").mkdir()
        for name in ("x", "a b/.y"):
            (disk / name).write_bytes(os.urandom(2 * MIB + 5))
        blocks, held = look(disk)
        assert (
            {block.file for block in blocks}
            == {file.file for file in held}
            == {"x", "a b/.y"}
        )
        assert len(blocks) > 25
        assert len({block.digest for block in blocks}) == len(blocks)
        assert all(file.size == 2 * MIB + 5 <= file.stored for file in held)
        assert look(disk, blocks) == (blocks, [])

    def test_nothing_stays_in_the_page_cache(self, disk):
        """Otherwise the sample itself would break the proof that it is empty."""
        (disk / "x").write_bytes(os.urandom(4 * MIB))
        files.evict([str(disk / "x")])
        blocks, _ = look(disk)
        with (disk / "x").open("rb") as file:
            assert files.resident_bytes(file.fileno(), 4 * MIB) == 0
        assert len(blocks) > 25

    def test_without_o_direct_pages_are_dropped_before_and_after(
        self, disk, monkeypatch
    ):
        (disk / "x").write_bytes(os.urandom(4 * MIB))
        # The kernel reads ahead from the start of a file.
        cached, _ = look(disk, [Block("x", 0, "")])
        files.evict([str(disk / "x")])
        same, _ = look(disk, cached)
        assert [block.kind for block in (*cached, *same)] == ["cached", ""]
        plainly = files._open

        def refuse(path, direct):
            if direct:
                raise OSError(errno.EINVAL, "no O_DIRECT here")
            return plainly(path, direct)

        monkeypatch.setattr(files, "_open", refuse)
        assert look(disk, same) == (same, [])
        with (disk / "x").open("rb") as file:
            assert files.resident_bytes(file.fileno(), 4 * MIB) == 0

    @pytest.mark.parametrize(
        "fill, kind", [("truncate -s", "hole"), ("fallocate -l", "unwritten")]
    )
    def test_what_was_never_written(self, disk, fill, kind):
        completed([*fill.split(), str(MIB), str(disk / "x")], check=True)
        blocks, (held,) = look(disk)
        assert {(block.kind, block.empty) for block in blocks} == {(kind, True)}
        assert (held.stored >= MIB) == (kind == "unwritten")

    def test_a_file_that_is_gone_or_shorter(self, disk):
        for name in ("x", "y"):
            (disk / name).write_bytes(os.urandom(MIB))
        blocks, _ = look(disk)
        (disk / "x").unlink()
        os.truncate(disk / "y", 100)
        again, _ = look(disk, blocks)
        assert {block.digest for block in again if block.file == "x"} == {files.GONE}
        changed = [
            new
            for old, new in zip(blocks, again, strict=True)
            if old.digest != new.digest
        ]
        assert changed == again


class TestSampler:
    def lines(self):
        return [Sample.from_json(value) for _, _, value in read(Path()).each(CONTENTS)]

    @pytest.fixture(autouse=True)
    def _stage(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)

    def test_the_blocks_of_the_last_write_are_read_again(self, disk):
        (disk / "x").write_bytes(os.urandom(MIB))
        sampler = lead_agent.Sampler("ext4")
        for repetition, after in ((0, "write"), (1, "read"), (2, "read")):
            sampler.take(repetition, after, str(disk))
        first, second, third = self.lines()
        assert (first.after, first.repetition, third.repetition) == ("write", 0, 2)
        assert first.blocks == second.blocks == third.blocks
        assert (len(first.files), second.files) == (1, ())

    def test_storage_that_hangs_takes_a_limited_time(self, disk, monkeypatch):
        monkeypatch.setattr(lead_agent, "_ANSWER_S", 0.2)
        monkeypatch.setattr(files, "take_sample", lambda *_: time.sleep(60))
        lead_agent.Sampler("ext4").take(1, "write", str(disk))
        assert self.lines()[0].problem == f"{disk} did not answer in 0 s"

    def test_a_directory_that_is_gone_is_a_problem(self, tmp_path):
        lead_agent.Sampler("ext4").take(1, "read", str(tmp_path / "none"))
        assert "No such file" in self.lines()[0].problem


SAMPLE = Sample(
    repetition=1,
    after="write",
    blocks=(Block("x", 0, "1"), Block("x", 4096, "2")),
    files=(),
)
READ = replace(SAMPLE, after="read")


def decided(finding, outcome, *words):
    assert finding.outcome is outcome, finding
    assert all(word in finding.saw for word in words), finding.saw


def unchanged(*pairs, repetitions=1):
    """G8 of the samples of the repetitions of a case that writes and reads."""
    numbered = [
        replace(one, repetition=n) for n, pair in enumerate(pairs, 1) for one in pair
    ]
    whole = data().alter(samples=tuple(numbered))
    plan = replace(whole.plan, repetitions=repetitions)
    finding = guards.unchanged(replace(whole, plan=plan).seen())
    return finding


class TestUnchanged:
    def test_no_sample_is_no_proof(self):
        decided(unchanged(), Outcome.INVALID, "without a sample")
        decided(unchanged((SAMPLE, READ), repetitions=2), Outcome.INVALID, "1 repet")
        alone = guards.unchanged(data().alter(samples=(READ,)).seen())
        assert alone
        decided(alone, Outcome.INVALID, "2 repetition(s) without a sample")
        empty = replace(READ, blocks=())
        decided(unchanged((SAMPLE, empty)), Outcome.INVALID, "0 block")

    def test_storage_that_is_slow_is_no_lie(self):
        slow = replace(READ, blocks=(), problem="nothing was read in 2 s")
        decided(unchanged((SAMPLE, slow)), Outcome.WARN, "nothing was read in 2 s")


ZERO = Block("x", 0, files._EMPTY)


def stored(*blocks, type="ext4", held=(), problem=""):
    """G8 of a sample of what was written; a later one is as it should be."""
    odd = Sample(
        repetition=1, after="write", blocks=blocks, files=held, problem=problem
    )
    samples = (odd,) if problem else (odd, replace(SAMPLE, repetition=2))
    finding = guards.stored(
        data().declared(target={"type": type}).alter(samples=samples).seen()
    )
    return finding


class TestStored:
    @pytest.mark.parametrize(
        "type, size, taken, holds",
        [
            ("ext4", 65536, 62260, True),
            ("ext4", 65536, 62208, False),
            ("ext4", 65535, 0, True),  # in its inode
            # counted after its next transaction
            ("nfs4", 1 << 30, 0, True),
        ],
    )
    def test_blocks_of_files(self, type, size, taken, holds):
        found = stored(*SAMPLE.blocks, type=type, held=(Held("x", size, taken),))
        decided(
            found,
            Outcome.OK if holds else Outcome.INVALID,
            "" if holds else "on storage",
        )

    def test_zeros(self):
        others = [Block("y", n, str(n)) for n in range(9)]
        decided(stored(*others, ZERO), Outcome.OK)
        found = stored(*others, ZERO, ZERO)
        decided(found, Outcome.INVALID, "2 of 11 block(s)", "zeros: x at 0")

    def test_nothing_written(self):
        decided(stored(), Outcome.INVALID, "0 block")
        decided(stored(problem="does not answer"), Outcome.WARN, "does not answer")


@pytest.mark.parametrize(
    "complaint, outcome, words",
    [
        ("", Outcome.OK, "ior checked its data"),
        (
            "WARNING: Incorrect",
            Outcome.INVALID,
            "in the warm-up: read: WARNING: Incorrect",
        ),
    ],
)
def test_an_answer_of_the_tool(complaint, outcome, words):
    whole = data().planned("read", verifies=Verification(("-R",), "Incorrect"))
    whole = replace(whole, plan=replace(whole.plan, warm_up=True))
    (one, *_) = whole.evidence.outputs["read"]
    cold = replace(one, warnings=("odd", complaint))
    found = guards.verification(whole.alter(cold={"read": (cold,)}).seen())
    assert found
    decided(found, outcome, words)
    assert guards.verification(data().seen()) is None
