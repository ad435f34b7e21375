"""Guards of the layout: obtained, covering, fitting the size (G10, G11, G23)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from iogauge.core.units import format_bytes
from iogauge.guards.finding import Finding, Rule
from iogauge.guards.seen import LayoutSeen
from iogauge.node.layouts import FileLayout, Layout


def _unlike(request: Layout, file: FileLayout, active: int) -> str | None:
    """Return how a file's layout differs from the requested layout, or None if it does not."""

    def count_differs(wanted: int, got: int, pool: str | None) -> bool:
        if wanted != -1:
            return got != wanted
        # The number of targets in a pool is not known here.
        return not 1 <= got <= active if pool else got != active

    if request.pool is not None and file.pool != request.pool:
        return f"is in pool {file.pool or 'none'}"
    if len(file.components) != len(request.components):
        return f"has {len(file.components)} components"
    for number, (want, got) in enumerate(
        zip(request.components, file.components, strict=True), start=1
    ):
        if got.end_bytes != want.end_bytes:
            return f"has component {number} up to {got.end_bytes}"
        # A component without objects repeats the request: -1 still means all targets.
        if got.stripe_count != want.stripe_count and count_differs(
            want.stripe_count, got.stripe_count, request.pool
        ):
            return f"has {got.stripe_count} stripe(s) in component {number}"
        if want.stripe_bytes not in (None, got.stripe_bytes):
            return f"has stripes of {got.stripe_bytes} bytes in component {number}"
    if request.stripe_count is not None and count_differs(
        request.stripe_count, file.stripe_count, request.pool
    ):
        return f"has {file.stripe_count} stripe(s)"
    if request.stripe_bytes not in (None, file.stripe_bytes):
        return f"has stripes of {file.stripe_bytes} bytes"
    if request.start not in (None, file.start):
        return f"starts on target {file.start}"
    return None


def layout(
    *,
    request: Layout | None,
    placed: Mapping[str, int],
    files: Sequence[FileLayout],
    active: int,
) -> Finding:
    """G10: every file has the requested stripe count, size, pool and start, and every pinned file
    lies on its storage target. Each file's layout is read back after the first write: ``lfs
    setstripe -c 99`` on four targets exits with 0 and gives four.

    ``placed`` maps a file, or a directory with all files in it, to the target that it was pinned
    to. Every such name must have a file. A file that is not pinned must be as ``request`` says.
    ``active`` is the number of targets that a count of -1 stands for.
    """
    demands = " ".join(["lfs setstripe", *request.arguments()]) if request else ""
    if placed:
        also = f"{len(placed)} name(s) on the storage target of their own"
        demands = f"{demands}, {also}" if demands else also
    remedy = (
        "Compare the layout with the active targets and the pool (lfs df, lfs getstripe); a tool that "
        "makes the file anew loses its layout"
    )
    wrong: list[str] = []
    pinned: set[str] = set()
    for file in files:
        parts = file.path.split("/")
        above = ("/".join(parts[: i + 1]) for i in range(len(parts)))
        name = next((path for path in above if path in placed), None)
        if name is not None:
            pinned.add(name)
            if file.osts != (placed[name],):
                where = ", ".join(map(str, file.osts)) or "none"
                wrong.append(f"{file.path} is on target {where}, asked was {placed[name]}")
        elif request is None:
            wrong.append(f"{file.path} was pinned to no target")
        elif differs := _unlike(request, file, active):
            wrong.append(f"{file.path} {differs}")
    wrong += [f"{name} was pinned and holds no file" for name in placed if name not in pinned]
    if not files:
        saw = "no file was found"
    elif wrong:
        saw = f"{wrong[0]}; {len(wrong)} of {max(len(files), len(wrong))} are not as asked"
    else:
        saw = f"{len(files)} file(s) as asked"
    return Rule("G10", demands, remedy).decide(bool(files) and not wrong, saw)


def layout_of(seen: LayoutSeen) -> Iterator[Finding]:
    striping = seen.striping
    yield layout(
        request=seen.case.plan.layout,
        placed=striping.placed,
        files=striping.files,
        active=len(seen.active),
    )


def coverage(*, files: Sequence[FileLayout], targets: Sequence[int], shared: bool) -> Finding:
    """G11: if each process has a file, at least 0.9 x min(targets, files) of the targets are hit.
    At most 1.5 x the mean, or the mean rounded up, lie on one target.

    No placement can be better than the mean rounded up. A shared file hits as many targets as it
    has stripes, which G10 demands.
    """
    rule = Rule(
        "G11",
        "k >= 0.9 x min(targets, files), most files on a target <= 1.5 x mean",
        "Pin the files to targets, or use more files: the allocator of the file system chose",
    )
    wanted = set(targets)
    on = Counter(ost for file in files for ost in file.osts)
    hit = len(wanted & set(on))
    saw = f"{len(files)} file(s) on {hit} of {len(wanted)} storage targets"
    if not files or not wanted:
        return rule.invalid(saw)
    if shared:
        return Rule("G11", "as many targets as stripes (G10)").ok(saw)
    possible = min(len(wanted), len(files))
    if hit < 0.9 * possible:
        by_chance = len(wanted) * (1 - (1 - 1 / len(wanted)) ** len(files))
        return rule.invalid(f"{saw} (placed at random: {by_chance:.1f})")
    mean = on.total() / min(len(wanted), on.total())
    target, most = max(on.items(), key=lambda item: (item[1], -item[0]))
    return rule.decide(
        most <= max(math.ceil(mean), 1.5 * mean),
        f"{saw}, at most {most} on one (target {target}), mean {mean:.3g}",
    )


def coverage_of(seen: LayoutSeen) -> Iterator[Finding]:
    plan, striping = seen.case.plan, seen.striping
    targets = sorted(set(striping.placed.values())) if plan.pins else seen.active
    yield coverage(files=striping.files, targets=targets, shared=plan.shared_file)


def stripes_against_size(*, file_bytes: int, stripe_bytes: int, stripe_count: int) -> Finding:
    """G23: a shared file has at least 8 stripes on each of its targets."""
    size = f"{format_bytes(file_bytes)} in stripes of {format_bytes(stripe_bytes)}"
    holds = stripe_bytes > 0 and stripe_count > 0 and file_bytes / stripe_bytes >= 8 * stripe_count
    return Rule(
        "G23",
        "file size / stripe size >= 8 x stripe count",
        "Raise limits.case_bytes to "
        f"{format_bytes(8 * max(1, stripe_count) * max(1, stripe_bytes))} or lower the stripe size or count",
    ).decide(holds, f"{size} over {stripe_count} storage target(s)")


def stripes_against_size_of(seen: LayoutSeen) -> Iterator[Finding]:
    plan, files = seen.case.plan, seen.striping.files
    if plan.shared_file and files:
        yield stripes_against_size(
            file_bytes=plan.held_bytes // (plan.executions if plan.writes_first else 1),
            stripe_bytes=files[0].stripe_bytes,
            stripe_count=files[0].stripe_count,
        )
