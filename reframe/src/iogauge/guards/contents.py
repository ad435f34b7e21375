"""Guards of the contents: what was written is there, and stays (G8)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from iogauge.core.units import format_bytes
from iogauge.guards.finding import Finding, Outcome, Rule
from iogauge.guards.seen import CaseSeen
from iogauge.node.contents import GONE, Block, Held, Sample
from iogauge.node.programs import UNCOUNTED

#: Types of file systems whose st_blocks is what a file takes, as soon as it is written back.
_COUNTED: Final = frozenset(
    ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "overlay", "lustre", "gfs2", "ocfs2")
)
#: A smaller file may lie in its inode.
_LEAST_BYTES: Final = 64 << 10
_STORED: Final = 0.95
_EMPTY: Final = 0.1


def verification(*, tool: str, complaint: str, warm_up: bool = True) -> Finding:
    """G8: in the warm-up, which is not judged, the tool finds the data that it wrote. IOR checks
    with ``-R``, or with ``-W`` if nothing is read; fio checks with ``verify=crc32c``. Endurance
    checks the files that it lays out.
    """
    when = "in the warm-up" if warm_up else "when it laid out the files"
    saw = f"{tool} checked its data {when}"
    return Rule(
        "G8",
        "the data that were written",
        "Look for other programs that write these files, for a wrapper of the tool, and for errors of the storage",
    ).decide(not complaint, f"{saw}: {complaint}" if complaint else saw)


def verification_of(seen: CaseSeen) -> Iterator[Finding]:
    checks = {phase.name: phase.verifies for phase in seen.plan.phases if phase.verifies}
    complaints = [
        f"{name}: {warning}"
        for name, check in checks.items()
        for output in seen.evidence.cold.get(name, seen.evidence.outputs[name])
        for warning in output.warnings
        if re.search(check.complaint, warning)
    ]
    if checks:
        said, warmed = next(iter(complaints), ""), seen.plan.warm_up
        yield verification(tool=seen.plan.tool, complaint=said, warm_up=warmed)


def unchanged(*, pairs: Sequence[tuple[Sample, Sample]], reads: int) -> Finding:
    """G8: the first node reads a sample of 32 blocks of 4 KiB with O_DIRECT. The sample is the same
    after the last read of a repetition as after the last write. If the storage does not answer in
    two seconds, you get a remark.

    ``pairs`` holds the samples after the write and after the read, ``reads`` counts the repetitions
    that read.
    """
    rule = Rule(
        "G8",
        "the same contents after the read as after the write",
        "Look for other programs that write these files, and for a wrapper of the tool",
    )
    problems = [sample.problem for pair in pairs for sample in pair if sample.problem]
    compared = 0
    buffered = any(not sample.direct for pair in pairs for sample in pair)
    for written, read in pairs:
        before = {(block.file, block.offset): block.digest for block in written.blocks}
        for block in read.blocks:
            compared += 1
            if before.get((block.file, block.offset)) != block.digest:
                change = "the file is gone" if block.digest == GONE else "the block is another"
                return rule.invalid(
                    f"contents changed between write and read, repetition {read.repetition}: "
                    f"{block.place}: {change}"
                )
    way = "after POSIX_FADV_DONTNEED, without O_DIRECT" if buffered else "with O_DIRECT"
    saw = f"{compared} block(s) of {len(pairs)} repetition(s) read again {way}"
    if len(pairs) < reads:
        return rule.invalid(f"{saw}, {reads - len(pairs)} repetition(s) without a sample")
    if problems:
        return rule.warn(f"{saw}, {problems[0]}")
    return rule.decide(compared > 0, saw)


def unchanged_of(seen: CaseSeen) -> Iterator[Finding]:
    plan = seen.plan
    if not plan.sampled or not any(phase.access.direction == "read" for phase in plan.repeat):
        return
    yield unchanged(pairs=_pairs(seen.evidence.samples), reads=plan.repetitions)


def _pairs(samples: Sequence[Sample]) -> list[tuple[Sample, Sample]]:
    """Return samples after judged reads, each with the one after its write."""
    written: Mapping[int, Sample] = {s.repetition: s for s in samples if s.after == "write"}
    found = []
    for sample in samples:
        before = written.get(sample.repetition) or written.get(0)
        if sample.after == "read" and sample.repetition > 0 and before is not None:
            found.append((before, sample))
    return found


def stored(
    *, type: str, blocks: Sequence[Block], files: Sequence[Held], problem: str = ""
) -> Finding:
    """G8: files have the blocks that they claim. After the write st_blocks x 512 is at least 0.95 x
    the size of each file of 64 KiB or more in the sample (ext2 to ext4, xfs, btrfs, f2fs, overlay,
    lustre, gfs2, ocfs2). At most a tenth of the sample is zeros. The file's map shows no block of
    the sample in a hole or preallocated (FIEMAP, not on lustre, gfs2, ocfs2).
    """
    rule = Rule(
        "G8",
        f"at least {_STORED:.0%} of a file's size in blocks, at most {_EMPTY:.0%} zeros, no hole",
        "No device is read where nothing was written. Look for a program that made or shrank these files",
    )
    if problem:
        return rule.warn(problem)
    for block in blocks:
        if block.kind in ("hole", "unwritten"):
            return rule.invalid(f"{block.place}: {block.kind}")
    for held in files:
        if type in _COUNTED and held.size >= _LEAST_BYTES and held.stored < _STORED * held.size:
            return rule.invalid(
                f"{held.file}: {format_bytes(held.stored)} on storage for {format_bytes(held.size)}: "
                "holes, or compression"
            )
    empty = [block for block in blocks if block.empty]
    saw = f"{len(blocks)} block(s) of {len(files)} file(s)"
    if len(empty) > _EMPTY * len(blocks):
        return rule.invalid(f"{len(empty)} of {saw} are zeros: {empty[0].place}")
    if len(blocks) > 1 and len({block.digest for block in blocks}) == 1:
        saw += ", all of them equal"
    return rule.decide(bool(blocks), saw)


def stored_of(seen: CaseSeen) -> Iterator[Finding]:
    """Yield the first sample that is not believed, or the last one."""
    if not seen.plan.sampled:
        return
    findings = [
        stored(
            type=seen.extras.target.type,
            blocks=sample.blocks,
            files=sample.files,
            problem=sample.problem,
        )
        for sample in seen.evidence.samples
        if sample.after == "write"
    ] or [stored(type=seen.extras.target.type, blocks=(), files=())]
    yield next((f for f in findings if f.outcome is Outcome.INVALID), findings[-1])


def counted(*, uncounted: bool) -> Finding:
    """G8: IOR counts how many bytes MPI-IO moved in each transfer. An IOR that does not count them,
    such as 4.0.0, gives a remark: it reports a read beyond the end of a file as if all requested
    bytes had been read.
    """
    return Rule(
        "G8",
        "an IOR that counts what MPI-IO moved",
        "Install the stack 2026.2, whose IOR has upstream's correction: ci/build-stack",
    ).decide(
        not uncounted,
        "this IOR does not ask MPI-IO how many bytes it moved" if uncounted else "IOR counts",
        Outcome.WARN,
    )


def counted_of(seen: CaseSeen) -> Iterator[Finding]:
    """Yield G8 for MPI-IO, if any node has an IOR that does not count."""
    uses = any("MPIIO" in phase.command for phase in seen.plan.repeat)
    if uses and any(facts.get(UNCOUNTED) for facts in seen.evidence.nodes):
        yield counted(uncounted=True)
