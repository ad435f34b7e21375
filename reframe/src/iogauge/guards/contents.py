"""Guards of the contents: what was written is there, and stays (G8), and nothing shrinks it (G18)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from iogauge.core.units import format_bytes
from iogauge.guards.finding import Finding, Outcome
from iogauge.guards.rules import rule
from iogauge.guards.seen import CaseSeen, PhaseSeen
from iogauge.node.between import UNCOUNTED
from iogauge.node.files import GONE, Block, Held, Sample

#: A smaller file may lie in its inode.
_LEAST_BYTES: Final = 64 << 10
_STORED: Final = 0.95
_EMPTY: Final = 0.1


def data_entropy(
    *, compressing: str, tool: str, parameters: Sequence[Mapping[str, object]]
) -> Finding:
    """G18: ``compressing`` names what shrinks data on the target, empty if nothing is known.

    ``parameters`` holds the options that the tool reports, one mapping for each output. IOR's default repeats one block;
    its "incompressible" data shrink 136-fold (IOR 4.0.0).
    """
    if not compressing:
        return rule("G18 data", "plain").ok("nothing that compresses is known of the target")
    wrong = next(filter(None, (_not_random(tool, given) for given in parameters)), "")
    fine = "random data" if parameters else "no output"
    return rule("G18 data").decide(
        bool(parameters) and not wrong, f"{wrong or fine} on {compressing}"
    )


def _not_random(tool: str, given: Mapping[str, object]) -> str:
    """Return why the data of a tool with such options can be compressed or found twice; empty if they cannot."""
    if tool in ("ior", "io500"):
        kind = given.get("data_type", "of unknown kind")
        return "" if kind == "random" else f"data {kind}"
    if tool != "fio":
        return f"data of {tool}, which are not known to be random"
    for option in ("buffer_compress_percentage", "dedupe_percentage"):
        if str(given.get(option, "0")) != "0":
            return f"{option}={given[option]}"
    for option in ("zero_buffers", "buffer_pattern", "verify_pattern"):
        if str(given.get(option, "0")) != "0":
            return option
    refilled = str(given.get("refill_buffers", "0")) != "0"
    return "" if refilled else "buffers that are written again and again (no refill_buffers)"


def data_entropy_of(seen: PhaseSeen) -> Iterator[Finding]:
    if seen.moves_data and any("bw" in phase.rates for phase in seen.tool_phases):
        yield data_entropy(
            compressing=_compressing(seen.case),
            tool=seen.tool,
            parameters=[output.parameters for output in seen.outputs],
        )


def _compressing(seen: CaseSeen) -> str:
    """Return what shrinks the data, as seen in a sample or by a node, or as the site declares; empty if unknown."""
    declared = seen.extras.target.compresses
    found = [
        f"a target that stored {block.place} compressed"
        for sample in seen.evidence.samples
        for block in sample.blocks
        if block.kind == "compressed"
    ]
    found += [view.below.compresses for view in seen.evidence.views if view.below.compresses]
    if found:
        denied = ", though the site declares target.compresses: false"
        return f"{found[0]}{denied if declared is False else ''}"
    return "a target that compresses, as its site declares" if declared else ""


def verification(*, tool: str, complaint: str, warm_up: bool = True) -> Finding:
    """G8: ``complaint`` is what the tool says of wrong data, empty if it found none."""
    when = "in the warm-up" if warm_up else "when it laid out the files"
    saw = f"{tool} checked its data {when}"
    return rule("G8 verification").unless(complaint and f"{saw}: {complaint}", saw)


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
    """G8: ``pairs`` holds the samples after the write and after the read, ``reads`` counts the repetitions that read."""
    demanded = rule("G8 contents")
    problems = [sample.problem for pair in pairs for sample in pair if sample.problem]
    compared = sum(len(read.blocks) for _, read in pairs)
    buffered = any(not sample.direct for pair in pairs for sample in pair)
    for written, read in pairs:
        before = {(block.file, block.offset): block.digest for block in written.blocks}
        for block in read.blocks:
            if before.get((block.file, block.offset)) != block.digest:
                change = "the file is gone" if block.digest == GONE else "the block is another"
                return demanded.invalid(
                    f"contents changed between write and read, repetition {read.repetition}: "
                    f"{block.place}: {change}"
                )
    way = "after POSIX_FADV_DONTNEED, without O_DIRECT" if buffered else "with O_DIRECT"
    saw = f"{compared} block(s) of {len(pairs)} repetition(s) read again {way}"
    if len(pairs) < reads:
        return demanded.invalid(f"{saw}, {reads - len(pairs)} repetition(s) without a sample")
    if problems:
        return demanded.warn(f"{saw}, {problems[0]}")
    return demanded.decide(bool(pairs) and all(read.blocks for _, read in pairs), saw)


def unchanged_of(seen: CaseSeen) -> Iterator[Finding]:
    plan, samples = seen.plan, seen.evidence.samples
    if not plan.sampled or not any(phase.access.direction == "read" for phase in plan.repeat):
        return
    written = {sample.repetition: sample for sample in samples if sample.after == "write"}
    reads = [sample for sample in samples if sample.after == "read" and sample.repetition > 0]
    befores = [(written.get(read.repetition) or written.get(0), read) for read in reads]
    pairs = [(before, read) for before, read in befores if before is not None]
    yield unchanged(pairs=pairs, reads=plan.repetitions)


def stored(
    *, counted: bool, blocks: Sequence[Block], files: Sequence[Held], problem: str = ""
) -> Finding:
    """G8: ``counted`` says whether st_blocks is what a file takes on such a file system, as soon as it is written back."""
    demanded = rule("G8 holes", stored=_STORED, empty=_EMPTY)
    if problem:
        return demanded.warn(problem)
    for block in blocks:
        if block.kind in ("hole", "unwritten"):
            return demanded.invalid(f"{block.place}: {block.kind}")
    for held in files:
        if counted and held.size >= _LEAST_BYTES and held.stored < _STORED * held.size:
            return demanded.invalid(
                f"{held.file}: {format_bytes(held.stored)} on storage for {format_bytes(held.size)}: "
                "holes, or compression"
            )
    empty = [block for block in blocks if block.empty]
    saw = f"{len(blocks)} block(s) of {len(files)} file(s)"
    if len(empty) > _EMPTY * len(blocks):
        return demanded.invalid(f"{len(empty)} of {saw} are zeros: {empty[0].place}")
    if len(blocks) > 1 and len({block.digest for block in blocks}) == 1:
        saw += ", all of them equal"
    return demanded.decide(bool(blocks), saw)


def stored_of(seen: CaseSeen) -> Iterator[Finding]:
    """Yield the first sample that is not believed, or the last one."""
    if not seen.plan.sampled:
        return
    written = [sample for sample in seen.evidence.samples if sample.after == "write"]
    findings = [
        stored(counted=seen.kind.counts_blocks, blocks=s.blocks, files=s.files, problem=s.problem)
        for s in written or [Sample(repetition=0, after="write")]
    ]
    yield next((f for f in findings if f.outcome is Outcome.INVALID), findings[-1])


def counted(*, uncounted: bool) -> Finding:
    """G8: ``uncounted`` says that a node has an IOR that reports a short read as a whole one."""
    problem = "this IOR does not ask MPI-IO how many bytes it moved" if uncounted else ""
    return rule("G8 MPI-IO").unless(problem, "IOR counts")


def counted_of(seen: CaseSeen) -> Iterator[Finding]:
    """Yield G8 for MPI-IO, if any node has an IOR that does not count."""
    uses = any("MPIIO" in phase.command for phase in seen.plan.repeat)
    if uses and any(facts.get(UNCOUNTED) for facts in seen.evidence.nodes):
        yield counted(uncounted=True)
