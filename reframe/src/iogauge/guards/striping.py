"""Guards of the layout: obtained, covering, fitting the size (G10, G11, G23)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from iogauge.core.units import format_bytes
from iogauge.evidence.model import (
    DIRECTORIES_READ,
    Striping,
    on_metadata_targets_in,
    passed_on_in,
)
from iogauge.guards.finding import Finding, Outcome
from iogauge.guards.preflight import stripes_against_size
from iogauge.guards.rules import rule
from iogauge.guards.views import CaseView
from iogauge.node.lustre.layout import FileLayout, Layouts, Part, last_with_data
from iogauge.node.lustre.request import Layout


def _unlike(request: Layout, file: FileLayout, active: int) -> str | None:
    """Return how a file's layout differs from the requested layout, or None if it does not."""
    if request.begins_on_metadata and file.parts[0].pattern != "mdt":
        return f"has its first bytes in {file.parts[0]}"
    last = next(
        (one for one in reversed(file.instantiated) if one.pattern != "mdt"),
        file.parts[-1],
    )
    if request.pool is not None and last.pool != request.pool:
        return f"is in pool {last.pool or 'none'}"
    parts = file.parts if file.composite else ()
    wanted = request.parts if request.begins_on_metadata else ()
    if len(parts) != len(wanted):
        return f"has {len(parts)} components"
    for number, (want, part) in enumerate(zip(wanted, parts, strict=True), start=1):
        if part.end_bytes != want.end_bytes:
            return f"has component {number} up to {part.end_bytes}"
    # A plain layout is its own only component.
    if differs := _other_stripes(request, parts[-1] if parts else file.last, active):
        return differs
    if request.start is not None and file.last.objects[:1] != (request.start,):
        return f"starts on target {file.start}"
    return None


def _other_stripes(want: Layout, part: Part, active: int) -> str:
    """Return how stripes differ from those that are asked for; empty if they do not. -1 still means all targets if there are
    no objects.
    """
    count = want.stripe_count
    if count is not None and part.stripe_count not in (
        count,
        active if count == -1 else count,
    ):
        return f"has {part.stripe_count} stripe(s)"
    if want.stripe_bytes not in (None, part.stripe_bytes):
        return f"has stripes of {part.stripe_bytes} bytes"
    return ""


def _active(case: CaseView) -> list[int]:
    """Return the numbers of the active storage targets, of those in the declared pool."""
    passed_on, targets = case.evidence.passed_on, case.targets
    usable = passed_on.usable(targets) if passed_on else targets
    return [target.index for target in usable if target.active]


def layout(seen: tuple[CaseView, Striping]) -> Finding:
    """Return G10. Files, or directories with all files in them, may be pinned to a target: each must have a file. A file that
    is not pinned must be as the case asks.
    """
    (case, striping), noted = seen, seen[1].noted
    request, placed = case.plan.layout, striping.placed
    demands = [" ".join(["lfs setstripe", *request.arguments()])] if request else []
    demands += [f"{len(placed)} file(s) pinned to a storage target"] if placed else []
    demanded = rule(
        "G10 layout", wanted=", ".join(demands) or "the layout of every file"
    )
    otherwise = None if demands else Outcome.WARN
    if noted.problem or not noted.files:
        why = f"not answered: {noted.problem}" if noted.problem else "no file was found"
        return demanded.decide(False, why, otherwise)
    if not demands:
        kinds = Counter(map(str, noted.files)).most_common()
        texts = [f"{count} with {kind}" for kind, count in kinds[:3]]
        more = [f"{len(kinds) - 3} other layouts"] if len(kinds) > 3 else []
        saw = f"{_files(noted)}: {', '.join([*texts, *more])}"
        return demanded.decide(len(kinds) == 1, saw, otherwise)
    wrong = _not_as_asked(request, placed, noted, _active(case))
    more_than = f"{len(wrong)} of {max(len(noted.files), len(wrong))} are not as asked"
    return demanded.unless(
        f"{_files(noted)} as asked", *(f"{one}; {more_than}" for one in wrong)
    )


def _files(noted: Layouts) -> str:
    """Return how many files were looked at, and what a sample proves (the rule of three)."""
    seen = len(noted.files)
    if seen == noted.total:
        return f"{seen} file(s)"
    return (
        f"{seen} of {noted.total} files, chosen at random (seed {noted.seed}; what none of them shows, "
        f"fewer than {3 / seen:.1%} of all do, with 95 % confidence)"
    )


def _not_as_asked(
    request: Layout | None,
    placed: Mapping[str, int],
    noted: Layouts,
    usable: Collection[int],
) -> list[str]:
    """Return what is wrong with each file, and each pinned name without a file."""
    wrong: list[str] = []
    pinned: set[str] = set()
    in_pool = request is not None and request.pool is not None
    for file in noted.files:
        parts = file.path.split("/")
        above = ("/".join(parts[: i + 1]) for i in range(len(parts)))
        name = next((path for path in above if path in placed), None)
        if name is not None:
            pinned.add(name)
            if file.osts != (placed[name],):
                where = ", ".join(map(str, file.osts)) or "none"
                wrong.append(
                    f"{file.path} is on target {where} instead of {placed[name]}"
                )
        elif request is None:
            wrong.append(f"{file.path} was not pinned to a target")
        elif differs := _unlike(request, file, len(usable)):
            wrong.append(f"{file.path} {differs}")
        elif in_pool and (foreign := [ost for ost in file.osts if ost not in usable]):
            wrong.append(
                f"{file.path} is on target {foreign[0]}, which is not in the pool"
            )
    if len(noted.files) == noted.total:
        wrong += [
            f"{name} was pinned and holds no file"
            for name in placed
            if name not in pinned
        ]
    return wrong


def passed_on(seen: CaseView) -> Finding | None:
    """Return G10 on Lustre for the default that the target passes on, and for its metadata targets."""
    told, demanded = seen.evidence.passed_on, rule("G10 passed on")
    return (
        demanded.unless("both were answered", "; ".join(told.unanswered))
        if told
        else None
    )


def directories(seen: CaseView) -> Finding | None:
    """Return G10 for a tool that makes its files in directories with layouts of their own."""
    asked, outputs = seen.plan.directories, seen.evidence.outputs
    if not asked:
        return None
    found, unanswered = passed_on_in(outputs), dict[str, str]()
    for output in outputs.get(DIRECTORIES_READ, ()):
        unanswered.update(output.parameters["unanswered"])  # type: ignore[call-overload]
    active = sum(target.active for target in seen.targets)
    wanted = [
        f"{name}: {' '.join(layout.arguments())}"
        for name, layout in asked.items()
        if layout
    ]
    demanded = rule(
        "G10 directories",
        wanted="; ".join(wanted) or "the layouts of IO500's directories",
    )
    for name, request in asked.items():
        if name in unanswered or name not in found:
            saw = f"{name}: {unanswered.get(name, 'nobody read its layout')}"
            return demanded.decide(
                False, saw, Outcome.WARN if request is None else None
            )
        told = found[name]
        of_pool = told and request and request.pool in (None, told.last.pool)
        if request and not (
            told and of_pool and not _other_stripes(request, told.last, active)
        ):
            return demanded.invalid(f"{name} has {told or 'no layout of its own'}")
    return demanded.ok("; ".join(f"{name}: {found[name] or 'none'}" for name in asked))


def components(seen: tuple[CaseView, Striping]) -> Finding | None:
    """Return G10 for the components that hold the bytes; None if no bytes are known."""
    asked = seen[0].plan.layout
    held: Counter[Part] = Counter()
    for file in seen[1].noted.files:
        for part, size in file.held:
            held[replace(part, objects=())] += size
    if not held:
        return None
    whole = held.total()
    there = {part.pattern == "mdt" for part in held}
    saw = "; ".join(
        f"{size / whole:.0%} of {format_bytes(whole)} in the component from {format_bytes(part.begin_bytes)} on "
        f"({part})"
        for part, size in sorted(held.items(), key=lambda item: item[0].begin_bytes)
    )
    if asked is not None and asked.begins_on_metadata:
        return rule("G10 components", "metadata").decide(
            there == {True}, saw, Outcome.INVALID
        )
    return rule("G10 components").decide(len(held) == 1 and there == {False}, saw)


def on_metadata_targets(seen: CaseView) -> Finding | None:
    """Return G10 for the directories with files in each repetition; -1 stripes stand for all declared metadata targets."""
    request, topology = seen.plan.directory_layout, seen.extras.topology
    if request is None:
        return None
    every = topology.metadata_targets if topology else None
    count = every if request.stripes == -1 else request.stripes
    where = (
        f"on metadata target {request.target}"
        if request.target is not None
        else f"over {count} metadata target(s)"
    )
    found = on_metadata_targets_in(seen.evidence.outputs)
    lies = [(path, sorted(set(on))) for each in found for path, on in each.items()]
    wrong = [
        f"{path} lies on metadata target(s) {', '.join(map(str, on))}"
        for path, on in lies
        if (on != [request.target] if request.target is not None else len(on) != count)
    ]
    none = "" if found and all(found) else "no directory with files was found"
    fine = f"{len(lies)} director(ies), each as asked"
    return rule("G10 metadata targets", where=where).unless(fine, *wrong, none)


#: Files on a target over the mean that give a remark, and share of the targets that must be hit.
_MOST_OVER_MEAN: Final = 1.5
_LEAST_HIT: Final = 0.9
#: An uneven placement is not the allocator's if chance makes it so rarely (1 of a million cases).
_BY_CHANCE: Final = 1e-6
#: Lustre weighs its targets by free space if that differs by more (qos_threshold_rr, 17 %).
_WEIGHED: Final = 0.17


def _likely(files: int, most: int, share: float) -> float:
    """Return how often, at most, chance puts ``most`` files or more on a target that takes a ``share`` of them.

    Chernoff's bound of the binomial distribution.
    """
    there = most / files
    if there <= share or share >= 1:
        return 1.0
    bits = there * math.log(there / share)
    if there < 1:
        bits += (1 - there) * math.log((1 - there) / (1 - share))
    return math.exp(-files * bits)


def coverage(seen: tuple[CaseView, Striping]) -> Finding | None:
    """Return G11: whether the file system spread the files.

    Its allocator may let stripes overlap: 32 new files of 2 stripes on 4 targets were seen on 0 1; 2 3; 1 2; 3 0; 2 3.
    A shared file hits as many targets as it has stripes, which G10 demands if the case asks for a layout. Pinned files are G10's.
    """
    (case, striping), plan, noted = seen, seen[0].plan, seen[1].noted
    saturates = any(phase.access.saturates for phase in plan.phases)
    if plan.layout is not None and plan.layout.begins_on_metadata:
        return None  # They need no storage target.
    demanded = rule("G11 coverage")
    wanted = set(striping.placed.values() if plan.pins else _active(case))
    on = Counter(ost for file in noted.files for ost in file.osts)
    hit = len(wanted & set(on))
    saw = f"{_files(noted)} on {hit} of {len(wanted)} storage targets"
    if noted.problem or not noted.files or not wanted:
        # A tool may remove its files itself: then nothing shows where they were.
        return demanded.invalid(saw) if plan.places else demanded.warn(saw)
    if plan.shared_file:
        everywhere = plan.places or hit == len(wanted)
        claims = "; the case claims what the whole target carries" if saturates else ""
        found = rule("G11 coverage", "everywhere" if everywhere else "shared")
        return found.ok(saw) if everywhere else found.warn(f"{saw}{claims}")
    if not hit:
        return demanded.warn(saw)
    files = len(noted.files)
    mean = on.total() / min(len(wanted), on.total())
    target, most = max(on.items(), key=lambda item: (item[1], -item[0]))
    saw += f", at most {most} on one (target {target}), mean {mean:.3g}"
    spread = hit >= _LEAST_HIT * min(len(wanted), files)
    if spread and most <= max(math.ceil(mean), _MOST_OVER_MEAN * mean):
        return demanded.ok(saw)
    free = [t.bytes_free for t in case.targets if t.index in wanted] or [0]
    weighed = max(free) - min(free) > _WEIGHED * max(free)
    share = on.total() / (len(wanted) * files)
    chance = len(wanted) * _likely(files, most, share)
    refused = chance < _BY_CHANCE and not weighed and (plan.places or saturates)
    return demanded.invalid(saw) if refused else demanded.warn(saw)


def stripes(seen: tuple[CaseView, Striping]) -> Finding | None:
    """Return G23 for a file that all tasks share."""
    size, files = seen[0].plan.shared_bytes, seen[1].noted.files
    part = last_with_data(files[0].parts, size) if size and files else None
    return stripes_against_size(size, part) if part else None
