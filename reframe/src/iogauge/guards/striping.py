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
from iogauge.guards.finding import Finding, Guard, Outcome
from iogauge.guards.preflight import stripes_against_size
from iogauge.guards.views import CaseView
from iogauge.node.lustre.layout import FileLayout, Layouts, Part, last_with_data
from iogauge.node.lustre.request import Layout


def _unlike(request: Layout, file: FileLayout, active: int) -> str:
    """Return how a file's layout differs from the requested layout; empty if it does not."""
    if request.begins_on_metadata and file.parts[0].pattern != "mdt":
        return f"has its first bytes in {file.parts[0]}"
    last = file.parts[-1]
    for part in file.instantiated:
        if part.pattern != "mdt":
            last = part
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
    differs = _other_stripes(request, parts[-1] if parts else file.last, active)
    elsewhere = file.last.objects[:1] != (request.start,)
    if not differs and request.start is not None and elsewhere:
        return f"starts on target {file.start}"
    return differs


def _other_stripes(want: Layout, part: Part, active: int) -> str:
    """Return how stripes differ from those that are asked for; empty if they do not. -1 still means all targets if there are
    no objects.
    """
    count = want.stripe_count
    counts = [count, part.stripe_count if count is None else count]
    if count == -1:
        counts.append(active)
    if part.stripe_count not in counts:
        return f"has {part.stripe_count} stripe(s)"
    if want.stripe_bytes not in (None, part.stripe_bytes):
        return f"has stripes of {part.stripe_bytes} bytes"
    return ""


def _active(case: CaseView) -> list[int]:
    """Return the numbers of the active storage targets, of those in the declared pool."""
    passed_on, targets = case.evidence.passed_on, case.targets
    usable = passed_on.usable(targets) if passed_on else targets
    return [target.index for target in usable if target.active]


_LAYOUT: Final = Guard(
    "G10 layout",
    "every file has the requested stripe count, size, pool and start, and every pinned file lies on its storage target",
    "Compare the layout with the active targets and the pool: lfs df, lfs getstripe. A recreated file loses its layout",
    "a: somebody else's setstripe in mid-run",
    "Lustre 2.17",
    but="or a remark",
    limit="`target.pool`",
    more="If a pool is requested, all targets of the file belong to it. Each file's layout is read after the last write, "
    "because `lfs setstripe -c 99` on four targets exits with 0 and gives four. If the case asks for no layout, the finding "
    "reports the layouts; several different layouts give a remark.",
)


def layout(repetition: tuple[CaseView, Striping]) -> Finding:
    """Return G10. Files, or directories with all files in them, may be pinned to a target: each must have a file. A file that
    is not pinned must be as the case asks.
    """
    case, striping = repetition
    noted, placed, request = striping.noted, striping.placed, case.plan.layout
    demands = []
    if request:
        demands.append(" ".join(["lfs setstripe", *request.arguments()]))
    if placed:
        demands.append(f"{len(placed)} file(s) pinned to a storage target")
    guard = _LAYOUT.saying(", ".join(demands) or "the layout of every file")
    otherwise = Outcome.INVALID if demands else Outcome.WARN
    if noted.problem or not noted.files:
        why = f"not answered: {noted.problem}" if noted.problem else "no file was found"
        return guard.found(otherwise, why)
    if not demands:
        kinds = Counter(map(str, noted.files)).most_common()
        shown = [f"{count} with {kind}" for kind, count in kinds[:3]]
        if len(kinds) > 3:
            shown.append(f"{len(kinds) - 3} other layouts")
        saw = f"{_files(noted)}: {', '.join(shown)}"
        return guard.decide(len(kinds) == 1, saw, otherwise)
    wrong = _not_as_asked(request, placed, noted, _active(case))
    if wrong:
        of = max(len(noted.files), len(wrong))
        return guard.invalid(f"{wrong[0]}; {len(wrong)} of {of} are not as asked")
    return guard.ok(f"{_files(noted)} as asked")


def _files(noted: Layouts) -> str:
    """Return how many files were looked at, and what a sample proves (the rule of three)."""
    count = len(noted.files)
    if count == noted.total:
        return f"{count} file(s)"
    return (
        f"{count} of {noted.total} files, chosen at random (seed {noted.seed}; what none of them shows, "
        f"fewer than {3 / count:.1%} of all do, with 95 % confidence)"
    )


def _not_as_asked(
    request: Layout | None,
    placed: Mapping[str, int],
    noted: Layouts,
    usable: Collection[int],
) -> list[str]:
    """Return what is wrong with each file, and each pinned name without a file."""
    wrong, pinned = list[str](), set[str]()
    for file in noted.files:
        parts, name = file.path.split("/"), ""
        for length in range(len(parts), 0, -1):
            above = "/".join(parts[:length])
            name = above if above in placed else name
        if name:
            pinned.add(name)
            if file.osts != (placed[name],):
                where = ", ".join(map(str, file.osts)) or "none"
                wrong.append(
                    f"{file.path} is on target {where} instead of {placed[name]}"
                )
            continue
        if request is None:
            wrong.append(f"{file.path} was not pinned to a target")
            continue
        differs = _unlike(request, file, len(usable))
        outside = [ost for ost in file.osts if ost not in usable]
        if request.pool is not None and outside and not differs:
            differs = f"is on target {outside[0]}, which is not in the pool"
        if differs:
            wrong.append(f"{file.path} {differs}")
    if len(noted.files) == noted.total:
        lacking = [name for name in placed if name not in pinned]
        wrong += [f"{name} was pinned and holds no file" for name in lacking]
    return wrong


_PASSED_ON: Final = Guard(
    "G10 passed on",
    "the default layout that the target passes on to new files is known, and so are its metadata targets",
    "Ask on this node: getfattr -n lustre.lov, lfs getdirstripe",
    "a: lfs did not answer in time on a busy node",
    "Lustre 2.17",
    Outcome.WARN,
    demands="the default layout and the metadata targets of the target's directory",
    more="A change of either starts a new series.",
)


def passed_on(case: CaseView) -> Finding | None:
    """Return G10 on Lustre for the default that the target passes on, and for its metadata targets."""
    directory = case.evidence.passed_on
    if directory is None:
        return None
    return _PASSED_ON.unless("both were answered", "; ".join(directory.unanswered))


_DIRECTORIES: Final = Guard(
    "G10 directories",
    "IO500's directories have the layouts that the site asks for",
    "Compare the layouts with the active targets and the pool: lfs df, lfs getstripe -d",
    "a: a stripe count above the number of targets",
    "Lustre 2.17",
    but="or a remark",
    limit="`io500.striping`",
    more="The job reads them before IO500 starts. It cannot read the layouts of the files, because IO500 removes them itself. "
    "For a directory without a requested layout, the finding reports the layout that it has.",
)


def directories(case: CaseView) -> Finding | None:
    """Return G10 for a tool that makes its files in directories with layouts of their own."""
    asked, outputs = case.plan.directories, case.evidence.outputs
    if not asked:
        return None
    found, unanswered = passed_on_in(outputs), dict[str, str]()
    for output in outputs.get(DIRECTORIES_READ, ()):
        unanswered.update(output.parameters["unanswered"])  # type: ignore[call-overload]
    active = sum(target.active for target in case.targets)
    wanted = [
        f"{name}: {' '.join(request.arguments())}"
        for name, request in asked.items()
        if request
    ]
    guard = _DIRECTORIES.saying(
        "; ".join(wanted) or "the layouts of IO500's directories"
    )
    for name, request in asked.items():
        if name in unanswered or name not in found:
            why = unanswered.get(name, "nobody read its layout")
            outcome = Outcome.WARN if request is None else Outcome.INVALID
            return guard.found(outcome, f"{name}: {why}")
        own = found[name]
        if request is None:
            continue
        as_asked = own and request.pool in (None, own.last.pool)
        if not own or not as_asked or _other_stripes(request, own.last, active):
            return guard.invalid(f"{name} has {own or 'no layout of its own'}")
    return guard.ok("; ".join(f"{name}: {found[name] or 'none'}" for name in asked))


_COMPONENTS: Final = Guard(
    "G10 components",
    "in a progressive layout, the finding names the component that holds the measured bytes",
    "To measure one layout, set a plain layout on the target (lfs setstripe -c N DIR), or use larger files",
    "a: the site's default layout had three components, and the bytes lay in all",
    "Lustre 2.17",
    Outcome.WARN,
    demands="all bytes in one component, on storage targets",
    more="If bytes lie in several components, or on metadata targets, you get a remark, because the figure does not belong to "
    "a single layout. If the case asks for data with the metadata, all bytes must lie there.",
)


def components(repetition: tuple[CaseView, Striping]) -> Finding | None:
    """Return G10 for the components that hold the bytes; None if no bytes are known."""
    case, striping = repetition
    asked, held = case.plan.layout, Counter[Part]()
    for file in striping.noted.files:
        for part, size in file.held:
            held[replace(part, objects=())] += size
    if not held:
        return None
    whole = held.total()
    there = {part.pattern == "mdt" for part in held}
    saw = "; ".join(
        f"{held[part] / whole:.0%} of {format_bytes(whole)} in the component from {format_bytes(part.begin_bytes)} on "
        f"({part})"
        for part in sorted(held, key=lambda part: part.begin_bytes)
    )
    if asked is None or not asked.begins_on_metadata:
        return _COMPONENTS.decide(len(held) == 1 and there == {False}, saw)
    guard = _COMPONENTS.saying(
        "all bytes with the metadata",
        "The servers may allow less there: lctl get_param lod.*.dom_stripesize (as root, on the metadata servers)",
    )
    return guard.decide(there == {True}, saw, Outcome.INVALID)


_METADATA: Final = Guard(
    "G10 metadata targets",
    "the directories in which the tool made its files lie on the metadata targets that the case asks for",
    "Compare topology.metadata_targets with lfs df -i, and the directories with lfs getdirstripe; the metadata servers must "
    "allow it: lctl get_param mdt.*.enable_striped_dir mdt.*.enable_remote_dir",
    "a: the servers gave fewer stripes than asked for",
    "Lustre 2.17",
    limit="`topology.metadata_targets`",
    more="The job asks for their layout after the files were made. `lfs setdirstripe -D` promises nothing: it holds for new "
    "directories alone, and the servers may give fewer stripes.",
)


def on_metadata_targets(case: CaseView) -> Finding | None:
    """Return G10 for the directories with files in each repetition; -1 stripes stand for all declared metadata targets."""
    request, topology = case.plan.directory_layout, case.extras.topology
    if request is None:
        return None
    count: int | None = request.stripes
    if count == -1:
        count = topology.metadata_targets if topology else None
    where = f"over {count} metadata target(s)"
    if request.target is not None:
        where = f"on metadata target {request.target}"
    guard = _METADATA.saying(f"each directory with files {where}")
    found, seen_in = on_metadata_targets_in(case.evidence.outputs), 0
    for directories_of in found:
        for path, targets in directories_of.items():
            seen_in += 1
            on = sorted(set(targets))
            as_asked = len(on) == count
            if request.target is not None:
                as_asked = on == [request.target]
            if not as_asked:
                where = ", ".join(map(str, on))
                return guard.invalid(f"{path} lies on metadata target(s) {where}")
    if not found or not all(found):
        return guard.invalid("no directory with files was found")
    return guard.ok(f"{seen_in} director(ies), each as asked")


#: Files on a target over the mean that give a remark, and share of the targets that must be hit.
_MOST_OVER_MEAN: Final = 1.5
_LEAST_HIT: Final = 0.9
#: An uneven placement is not the allocator's if chance makes it so rarely (1 of a million cases).
_BY_CHANCE: Final = 1e-6
#: Lustre weighs its targets by free space if that differs by more (qos_threshold_rr, 17 %).
_WEIGHED: Final = 0.17

_COVERAGE: Final = Guard(
    "G11 coverage",
    "if each process has a file, the files are spread over the targets no worse than chance would spread them",
    "The file system chose the targets: lfs getstripe shows them. See whether a default layout names a start (lfs getstripe "
    "-d DIR), or use more files",
    "a: a default layout with a fixed start put all files on one target",
    "Lustre 2.17",
    but="or a remark",
    demands=f"at least {_LEAST_HIT:g} x min(targets, files) targets with files, at most {_MOST_OVER_MEAN:g} x mean on one",
    more=f"You get a remark if fewer than {_LEAST_HIT:g} x min(targets, files) of the targets are hit, or if one target has more "
    f"than {_MOST_OVER_MEAN:g} x the mean number of files. The case is INVALID only if chance would make such a placement in "
    "fewer than 1 of a million cases, the targets are about equally full, and the case drives the target to its limit or "
    "asks for the layout. A shared file that asks for no layout should lie on all targets; otherwise you get a remark.",
)


def _likely(files: int, most: int, share: float) -> float:
    """Return how often, at most, chance puts ``most`` files or more on a target that takes a ``share`` of them.

    Chernoff's bound of the binomial distribution.
    """
    there = most / files
    if there <= share or share >= 1:
        return 1.0
    distance = there * math.log(there / share)
    if there < 1:
        distance += (1 - there) * math.log((1 - there) / (1 - share))
    return math.exp(-files * distance)


def coverage(repetition: tuple[CaseView, Striping]) -> Finding | None:
    """Return G11: whether the file system spread the files.

    Its allocator may let stripes overlap: 32 new files of 2 stripes on 4 targets were seen on 0 1; 2 3; 1 2; 3 0; 2 3.
    A shared file hits as many targets as it has stripes, which G10 demands if the case asks for a layout. Pinned files are G10's.
    """
    case, striping = repetition
    plan, noted = case.plan, striping.noted
    saturates = any(phase.access.saturates for phase in plan.phases)
    if plan.layout is not None and plan.layout.begins_on_metadata:
        return None  # They need no storage target.
    wanted = set(striping.placed.values() if plan.pins else _active(case))
    on = Counter(ost for file in noted.files for ost in file.osts)
    hit, files = len(wanted & set(on)), len(noted.files)
    saw = f"{_files(noted)} on {hit} of {len(wanted)} storage targets"
    if noted.problem or not files or not wanted:
        # A tool may remove its files itself: then nothing shows where they were.
        return _COVERAGE.found(Outcome.INVALID if plan.places else Outcome.WARN, saw)
    if plan.shared_file:
        if plan.places or hit == len(wanted):
            return _COVERAGE.saying("as many targets as stripes (G10)").ok(saw)
        if saturates:
            saw += "; the case claims what the whole target carries"
        guard = _COVERAGE.saying(
            "a shared file on every storage target",
            "Compare the figure only with figures of the same number of storage targets. Or set the default layout: lfs "
            "setstripe -c -1 DIR. That starts a new series",
        )
        return guard.warn(saw)
    if not hit:
        return _COVERAGE.warn(saw)
    mean = on.total() / min(len(wanted), on.total())
    target = max(sorted(on), key=lambda ost: on[ost])
    most = on[target]
    saw += f", at most {most} on one (target {target}), mean {mean:.3g}"
    all_hit = hit >= _LEAST_HIT * min(len(wanted), files)
    if all_hit and most <= max(math.ceil(mean), _MOST_OVER_MEAN * mean):
        return _COVERAGE.ok(saw)
    free = [t.bytes_free for t in case.targets if t.index in wanted] or [0]
    weighed = max(free) - min(free) > _WEIGHED * max(free)
    share = on.total() / (len(wanted) * files)
    chance = len(wanted) * _likely(files, most, share)
    if chance < _BY_CHANCE and not weighed and (plan.places or saturates):
        return _COVERAGE.invalid(saw)
    return _COVERAGE.warn(saw)


def stripes(repetition: tuple[CaseView, Striping]) -> Finding | None:
    """Return G23 for a file that all tasks share."""
    size, files = repetition[0].plan.shared_bytes, repetition[1].noted.files
    part = last_with_data(files[0].parts, size) if size and files else None
    return stripes_against_size(size, part) if part else None
