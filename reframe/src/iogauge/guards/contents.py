"""Guards of the contents: what was written is there, and stays (G8), and nothing shrinks it (G18)."""

import re
from collections.abc import Mapping

from iogauge.core.text import because
from iogauge.core.units import format_bytes
from iogauge.guards.finding import Finding, Guard, Outcome
from iogauge.guards.views import CaseView, PhaseView
from iogauge.node.files import GONE, Sample

#: A smaller file may lie in its inode.
_LEAST_BYTES = 64 << 10
#: Share of a file's size that it has in blocks, at least, and of a sample that is zeros, at most.
_STORED = 0.95
_MOST_ZEROS = 0.1

#: fio's options for data that can be compressed, or found twice.
_SHRINKS = (
    "buffer_compress_percentage",
    "dedupe_percentage",
    "zero_buffers",
    "buffer_pattern",
    "verify_pattern",
)

DATA = Guard(
    name="G18 data",
    must="the data must be random if the target compresses",
    remedy="Declare target.compresses: true, and the cases write random data. The tool's options are: IOR -l random; fio "
    "refill_buffers=1 with buffer_compress_percentage=0 and dedupe_percentage=0",
    against="a: IOR's default block, 136 times smaller on btrfs with compress=zstd",
    seen_on="btrfs",
    limit="`target.compresses`",
    demands="data that cannot be compressed or found twice",
    more="It does if (1) a node sees it, (2) a block of the sample (G8) was stored compressed, or (3) the site declares it. A "
    "node sees the compression of zfs and dm-vdo, and of btrfs and f2fs by mount option, property or `chattr +c`. IOR "
    "needs `-l random`; fio needs `refill_buffers=1`, `buffer_compress_percentage=0`, `dedupe_percentage=0`.",
)


def data_entropy(phase: PhaseView) -> Finding | None:
    """Return G18 for what reports a bandwidth. IOR's default repeats one block; its "incompressible" data shrink 136-fold
    (IOR 4.0.0).
    """
    of_bandwidth = any("bw" in measured.rates for measured in phase.tool_phases)
    if not (phase.moves_data and of_bandwidth):
        return None
    compressing = _compressing(phase.case)
    if not compressing:
        guard = DATA.saying("random data")
        return guard.ok("nothing that compresses is known of the target")
    for output in phase.outputs:
        wrong = _not_random(phase.tool, output.parameters)
        if wrong:
            return DATA.invalid(f"{wrong} on {compressing}")
    return DATA.ok(f"random data on {compressing}")


def _not_random(tool: str, given: Mapping[str, object]) -> str:
    """Return why the data of a tool with such options can be compressed or found twice; empty if they cannot."""
    kind = given.get("data_type")
    if kind == "random":
        return ""
    if kind:
        return f"data {kind}"
    if "jobs" not in given:
        return f"data of {tool}, which are not known to be random"
    for option in _SHRINKS:
        if str(given.get(option, "0")) != "0":
            return f"{option}={given[option]}"
    if str(given.get("refill_buffers", "0")) != "0":
        return ""
    return "buffers that are written again and again (no refill_buffers)"


def _compressing(case: CaseView) -> str:
    """Return what shrinks the data, as a sample or a node shows it, or as the site declares; empty if unknown."""
    declared, found = case.extras.target.compresses, ""
    for sample in case.evidence.samples:
        for block in sample.blocks:
            if block.kind == "compressed":
                found = f"a target that stored {block.place} compressed"
    for view in case.evidence.views:
        found = found or view.below.compresses
    if found and declared is False:
        return f"{found}, though the site declares target.compresses: false"
    if declared:
        return found or "a target that compresses, as its site declares"
    return found


VERIFICATION = Guard(
    name="G8 verification",
    must="in the warm-up, which is not judged, the tool finds the data that it wrote",
    remedy="Look for other programs that write these files, for a wrapper of the tool, and for errors of the storage",
    against="a: another job wrote into the files of the case",
    seen_on="ext4, Lustre 2.17",
    demands="the data that were written",
    more="IOR checks with `-R`, or with `-W` if nothing is read; fio checks with `verify=crc32c`. Endurance checks the files "
    "that it lays out.",
)


def verification(case: CaseView) -> Finding | None:
    """Return G8 for tools that check their data. What they say before the first repetition may have ended the job."""
    evidence, complaint = case.evidence, case.evidence.mismatch
    checked = False
    for phase in case.plan.phases:
        if not phase.verifies:
            continue
        checked = True
        outputs = evidence.cold.get(phase.name, evidence.outputs.get(phase.name, ()))
        for output in outputs:
            for warning in output.warnings:
                if re.search(phase.verifies.complaint, warning):
                    complaint = complaint or f"{phase.name}: {warning}"
    if not checked and not complaint:
        return None
    when = "when it laid out the files"
    if case.plan.warm_up:
        when = "in the warm-up"
    saw = f"{case.plan.tool} checked its data {when}"
    return VERIFICATION.unless(saw, complaint and f"{saw}: {complaint}")


CONTENTS = Guard(
    name="G8 contents",
    must="a sample of 32 blocks of 4 KiB is the same after the last read of a repetition as after the last write",
    remedy="Look for other programs that write these files, and for a wrapper of the tool",
    against="a: another program truncated the files between write and read",
    seen_on="ext4, Lustre 2.17",
    demands="the same contents after the read as after the write",
    more="The first node reads it with O_DIRECT. If the storage does not answer in two seconds, you get a remark.",
)


def unchanged(case: CaseView) -> Finding | None:
    """Return G8 for the samples after the write and after the read of each repetition that reads."""
    plan, samples = case.plan, case.evidence.samples
    reading = any(phase.access.direction == "read" for phase in plan.repeat)
    if not plan.sampled or not reading:
        return None
    writes = {}
    for sample in samples:
        if sample.after == "write":
            writes[sample.repetition] = sample
    changes, problems = list[str](), list[str]()
    blocks = pairs = 0
    for read in samples:
        written = writes.get(read.repetition) or writes.get(0)
        if read.after != "read" or not read.repetition or not written:
            continue
        pairs += 1
        blocks += len(read.blocks)
        changes.append(_change(written, read))
        problems += [written.problem, read.problem]
        if not read.blocks and not any(problems):
            changes.append(f"repetition {read.repetition}: 0 block(s) read again")
    saw = f"{blocks} block(s) of {pairs} repetition(s) read again"
    if pairs < plan.repetitions:
        changes.append(
            f"{saw}, {plan.repetitions - pairs} repetition(s) without a sample{because(case.evidence.lost)}"
        )
    problem = next(filter(None, problems), "")
    return CONTENTS.unless(saw, *changes, doubt=problem and f"{saw}, {problem}")


def _change(written: Sample, read: Sample) -> str:
    """Return which block of a sample changed after the write, and how; empty if none did."""
    before = {(block.file, block.offset): block.digest for block in written.blocks}
    for block in read.blocks:
        if before.get((block.file, block.offset)) != block.digest:
            how = "the block is another"
            if block.digest == GONE:
                how = "the file is gone"
            return f"contents changed between write and read, repetition {read.repetition}: {block.place}: {how}"
    return ""


HOLES = Guard(
    name="G8 holes",
    must="files have the blocks that they claim",
    remedy="A read of a hole does not reach the device. Look for a program that made or shrank these files",
    against="a: truncate -s 1G instead of a layout: the read took no byte from the disk",
    seen_on="ext4, XFS, btrfs, Lustre 2.17",
    demands=f"at least {_STORED:.0%} of a file's size in blocks, at most {_MOST_ZEROS:.0%} zeros, no hole",
    more=f"After the write st_blocks x 512 is at least {_STORED:g} x the size of each file of {_LEAST_BYTES >> 10} KiB or more in "
    f"the sample, where st_blocks counts that. At most {_MOST_ZEROS:.0%} of the sample is zeros. The file's map shows no block "
    "of the sample in a hole or preallocated (FIEMAP, not on lustre).",
)


def stored(case: CaseView) -> Finding | None:
    """Return G8 for the first sample of what was written that is not believed, or for the last one."""
    if not case.plan.sampled:
        return None
    finding = None
    for sample in case.evidence.samples:
        if sample.after == "write":
            finding = _stored(case, sample)
            if finding.outcome is Outcome.INVALID:
                return finding
    return finding or HOLES.invalid("0 block(s) of 0 file(s)")


def _stored(case: CaseView, sample: Sample) -> Finding:
    """Return G8 for a sample of what was written."""
    blocks = sample.blocks
    if sample.problem:
        return HOLES.warn(sample.problem)
    saw = f"{len(blocks)} block(s) of {len(sample.files)} file(s)"
    if not blocks:
        return HOLES.invalid(saw)
    for block in blocks:
        if block.kind in ("hole", "unwritten"):
            return HOLES.invalid(f"{block.place}: {block.kind}")
    # Where st_blocks is what a file takes, as soon as it is written back.
    for file in sample.files:
        is_short = file.size >= _LEAST_BYTES and file.stored < _STORED * file.size
        if is_short and case.kind.counts_blocks:
            return HOLES.invalid(
                f"{file.file}: {format_bytes(file.stored)} on storage for {format_bytes(file.size)}: holes, or compression"
            )
    zeros = [block for block in blocks if block.empty]
    if len(zeros) > _MOST_ZEROS * len(blocks):
        return HOLES.invalid(f"{len(zeros)} of {saw} are zeros: {zeros[0].place}")
    return HOLES.ok(saw)
