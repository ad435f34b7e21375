"""Guards of the contents: what was written is there, and stays (G8), and nothing shrinks it (G18)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from iogauge.core.text import because
from iogauge.core.units import format_bytes
from iogauge.guards.finding import Finding, Outcome
from iogauge.guards.rules import rule
from iogauge.guards.views import CaseView, PhaseView
from iogauge.node.files import GONE, Sample

#: A smaller file may lie in its inode.
_LEAST_BYTES: Final = 64 << 10
_STORED: Final = 0.95
_EMPTY: Final = 0.1


def data_entropy(seen: PhaseView) -> Finding | None:
    """Return G18 for what reports a bandwidth. IOR's default repeats one block; its "incompressible" data shrink 136-fold
    (IOR 4.0.0).
    """
    if not (seen.moves_data and any("bw" in phase.rates for phase in seen.tool_phases)):
        return None
    compressing = _compressing(seen.case)
    if not compressing:
        return rule("G18 data", "plain").ok(
            "nothing that compresses is known of the target"
        )
    given = [_not_random(seen.tool, output.parameters) for output in seen.outputs]
    wrong = next(filter(None, given), "")
    return rule("G18 data").decide(
        not wrong, f"{wrong or 'random data'} on {compressing}"
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
    return (
        ""
        if refilled
        else "buffers that are written again and again (no refill_buffers)"
    )


def _compressing(seen: CaseView) -> str:
    """Return what shrinks the data, as seen in a sample or by a node, or as the site declares; empty if unknown."""
    declared = seen.extras.target.compresses
    found = [
        f"a target that stored {block.place} compressed"
        for sample in seen.evidence.samples
        for block in sample.blocks
        if block.kind == "compressed"
    ]
    found += [
        view.below.compresses for view in seen.evidence.views if view.below.compresses
    ]
    if found:
        denied = ", though the site declares target.compresses: false"
        return f"{found[0]}{denied if declared is False else ''}"
    return "a target that compresses, as its site declares" if declared else ""


def verification(seen: CaseView) -> Finding | None:
    """Return G8 for tools that check their data. What they say before the first repetition may have ended the job."""
    checks = {
        phase.name: phase.verifies for phase in seen.plan.phases if phase.verifies
    }
    complaints = [
        f"{name}: {warning}"
        for name, check in checks.items()
        for output in seen.evidence.cold.get(name, seen.evidence.outputs.get(name, ()))
        for warning in output.warnings
        if re.search(check.complaint, warning)
    ]
    complaint = seen.evidence.mismatch or next(iter(complaints), "")
    if not checks and not complaint:
        return None
    when = "in the warm-up" if seen.plan.warm_up else "when it laid out the files"
    saw = f"{seen.plan.tool} checked its data {when}"
    return rule("G8 verification").unless(saw, complaint and f"{saw}: {complaint}")


def unchanged(seen: CaseView) -> Finding | None:
    """Return G8 for the samples after the write and after the read of each repetition that reads."""
    plan, samples = seen.plan, seen.evidence.samples
    if not plan.sampled or not any(
        phase.access.direction == "read" for phase in plan.repeat
    ):
        return None
    writes = {
        sample.repetition: sample for sample in samples if sample.after == "write"
    }
    reads = [
        sample for sample in samples if sample.after == "read" and sample.repetition > 0
    ]
    befores = [(writes.get(read.repetition) or writes.get(0), read) for read in reads]
    pairs = [(before, read) for before, read in befores if before is not None]
    changed = ""
    for written, read in reversed(pairs):
        before = {(block.file, block.offset): block.digest for block in written.blocks}
        for block in reversed(read.blocks):
            if before.get((block.file, block.offset)) != block.digest:
                change = (
                    "the file is gone"
                    if block.digest == GONE
                    else "the block is another"
                )
                changed = (
                    f"contents changed between write and read, repetition {read.repetition}: "
                    f"{block.place}: {change}"
                )
    buffered = any(not sample.direct for pair in pairs for sample in pair)
    way = "after POSIX_FADV_DONTNEED, without O_DIRECT" if buffered else "with O_DIRECT"
    compared = sum(len(read.blocks) for _, read in pairs)
    saw = f"{compared} block(s) of {len(pairs)} repetition(s) read again {way}"
    missing = plan.repetitions - len(pairs)
    lost = (
        f"{saw}, {missing} repetition(s) without a sample{because(seen.evidence.lost)}"
    )
    doubt = next(
        (f"{saw}, {one.problem}" for pair in pairs for one in pair if one.problem), ""
    )
    empty = "" if doubt or all(read.blocks for _, read in pairs) else saw
    return rule("G8 contents").unless(
        saw, changed, lost if missing > 0 else "", empty, doubt=doubt
    )


def stored(seen: CaseView) -> Finding | None:
    """Return G8 for the first sample of what was written that is not believed, or for the last one."""
    if not seen.plan.sampled:
        return None
    written = [sample for sample in seen.evidence.samples if sample.after == "write"]
    found = [
        _stored(seen, sample)
        for sample in written or [Sample(repetition=0, after="write")]
    ]
    return next((one for one in found if one.outcome is Outcome.INVALID), found[-1])


def _stored(seen: CaseView, sample: Sample) -> Finding:
    demanded, blocks = rule("G8 holes", stored=_STORED, empty=_EMPTY), sample.blocks
    if sample.problem:
        return demanded.warn(sample.problem)
    saw = f"{len(blocks)} block(s) of {len(sample.files)} file(s)"
    holes = [
        f"{one.place}: {one.kind}"
        for one in blocks
        if one.kind in ("hole", "unwritten")
    ]
    # Where st_blocks is what a file takes, as soon as it is written back.
    holes += [
        f"{held.file}: {format_bytes(held.stored)} on storage for {format_bytes(held.size)}: holes, or compression"
        for held in (sample.files if seen.kind.counts_blocks else ())
        if held.size >= _LEAST_BYTES and held.stored < _STORED * held.size
    ]
    empty = [block for block in blocks if block.empty]
    if len(empty) > _EMPTY * len(blocks):
        holes.append(f"{len(empty)} of {saw} are zeros: {empty[0].place}")
    alike = len(blocks) > 1 and len({block.digest for block in blocks}) == 1
    fine = f"{saw}, all of them equal" if alike else saw
    return demanded.unless(fine, *holes, "" if blocks else saw)
