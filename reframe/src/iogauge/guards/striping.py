"""Guards of the layout: obtained, covering, fitting the size (G10, G11)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from iogauge.core.units import format_bytes
from iogauge.evidence.model import DIRECTORIES_READ, on_metadata_targets_in, passed_on_in
from iogauge.guards.finding import Finding, Outcome, Rule
from iogauge.guards.seen import CaseSeen, LayoutSeen
from iogauge.node.lustre.layout import FileLayout, Layouts, Part
from iogauge.node.lustre.request import DirectoryLayout, Layout


def _unlike(request: Layout, file: FileLayout, active: int) -> str | None:
    """Return how a file's layout differs from the requested layout, or None if it does not."""
    if request.begins_on_metadata and file.parts[0].pattern != "mdt":
        return f"has its first bytes in {file.parts[0]}"
    last = next(
        (one for one in reversed(file.instantiated) if one.pattern != "mdt"), file.parts[-1]
    )
    if request.pool is not None and last.pool != request.pool:
        return f"is in pool {last.pool or 'none'}"
    components = file.parts if file.composite else ()
    if len(components) != len(request.components):
        return f"has {len(components)} components"
    for number, (want, got) in enumerate(zip(request.components, components, strict=True), start=1):
        if got.end_bytes != want.end_bytes:
            return f"has component {number} up to {got.end_bytes}"
        if want.on_metadata:
            continue
        # A component without objects repeats the request: -1 still means all targets.
        if got.stripe_count not in (want.stripe_count, _wanted(want.stripe_count, active)):
            return f"has {got.stripe_count} stripe(s) in component {number}"
        if want.stripe_bytes not in (None, got.stripe_bytes):
            return f"has stripes of {got.stripe_bytes} bytes in component {number}"
    return _unlike_plain(request, file.last, active)


def _wanted(count: int, active: int) -> int:
    return active if count == -1 else count


def _unlike_plain(request: Layout, part: Part, active: int) -> str | None:
    if request.stripe_count is not None and (
        part.stripe_count != _wanted(request.stripe_count, active)
    ):
        return f"has {part.stripe_count} stripe(s)"
    if request.stripe_bytes not in (None, part.stripe_bytes):
        return f"has stripes of {part.stripe_bytes} bytes"
    if request.start is not None and part.objects[:1] != (request.start,):
        return f"starts on target {part.objects[0] if part.objects else None}"
    return None


def layout(
    *,
    request: Layout | None,
    placed: Mapping[str, int],
    noted: Layouts,
    usable: Collection[int],
) -> Finding:
    """G10: every file has the requested stripe count, size, pool and start, and every pinned file
    lies on its storage target. If a pool is requested, all targets of the file belong to it. Each
    file's layout is read after the last write, because ``lfs setstripe -c 99`` on four targets
    exits with 0 and gives four. If the case asks for no layout, the finding reports the layouts;
    several different layouts give a remark.

    ``placed`` maps a file, or a directory with all files in it, to the target that it was pinned
    to. Every such name must have a file. A file that is not pinned must be as ``request`` says.
    ``usable`` are the active targets, of the pool if one is declared; a count of -1 stands for all.
    """
    demands = " ".join(["lfs setstripe", *request.arguments()]) if request else ""
    if placed:
        also = f"{len(placed)} file(s) pinned to a storage target"
        demands = f"{demands}, {also}" if demands else also
    rule = Rule(
        "G10",
        demands or "the layout of every file",
        "Compare the layout with the active targets and the pool (lfs df, lfs getstripe). A tool that "
        "recreates a file loses its layout",
    )
    otherwise = Outcome.INVALID if demands else Outcome.WARN
    if noted.problem:
        return rule.decide(False, f"not answered: {noted.problem}", otherwise)
    if not noted.files:
        return rule.decide(False, "no file was found", otherwise)
    if not demands:
        kinds = Counter(map(str, noted.files)).most_common()
        texts = [f"{count} with {kind}" for kind, count in kinds[:3]]
        more = [f"{len(kinds) - 3} other layouts"] if len(kinds) > 3 else []
        return rule.decide(
            len(kinds) == 1, f"{_files(noted)}: {', '.join([*texts, *more])}", otherwise
        )
    wrong = _not_as_asked(request, placed, noted, usable)
    if wrong:
        count = max(len(noted.files), len(wrong))
        return rule.invalid(f"{wrong[0]}; {len(wrong)} of {count} are not as asked")
    return rule.ok(f"{_files(noted)} as asked")


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
    request: Layout | None, placed: Mapping[str, int], noted: Layouts, usable: Collection[int]
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
                wrong.append(f"{file.path} is on target {where} instead of {placed[name]}")
        elif request is None:
            wrong.append(f"{file.path} was not pinned to a target")
        elif differs := _unlike(request, file, len(usable)):
            wrong.append(f"{file.path} {differs}")
        elif in_pool and (foreign := [ost for ost in file.osts if ost not in usable]):
            wrong.append(f"{file.path} is on target {foreign[0]}, which is not in the pool")
    if len(noted.files) == noted.total:
        wrong += [f"{name} was pinned and holds no file" for name in placed if name not in pinned]
    return wrong


def layout_of(seen: LayoutSeen) -> Iterator[Finding]:
    yield layout(
        request=seen.case.plan.layout,
        placed=seen.striping.placed,
        noted=seen.noted,
        usable=seen.active,
    )


def passed_on(*, unanswered: Sequence[str]) -> Finding:
    """G10: the default layout that the target passes on to new files is known, and so are its
    metadata targets. A change of either starts a new series.
    """
    return Rule(
        "G10",
        "the default layout and the metadata targets of the target's directory",
        "Ask on this node: getfattr -n lustre.lov, lfs getdirstripe",
    ).decide(not unanswered, "; ".join(unanswered) or "both were answered", Outcome.WARN)


def passed_on_of(seen: CaseSeen) -> Iterator[Finding]:
    if seen.evidence.passed_on is not None:
        yield passed_on(unanswered=seen.evidence.passed_on.unanswered)


def directories(
    *,
    asked: Mapping[str, Layout | None],
    found: Mapping[str, FileLayout | None],
    unanswered: Mapping[str, str],
    active: int,
) -> Finding:
    """G10: IO500's directories have the layouts that the site asks for. The job reads them before
    IO500 starts. It cannot read the layouts of the files, because IO500 removes them itself. For a
    directory without a requested layout, the finding reports the layout that it has.
    """
    wanted = {name: request for name, request in asked.items() if request is not None}
    rule = Rule(
        "G10",
        "; ".join(f"{name}: {' '.join(request.arguments())}" for name, request in wanted.items())
        or "the layouts of IO500's directories",
        "Compare the layouts with the active targets and the pool: lfs df, lfs getstripe -d",
    )
    for name, request in asked.items():
        otherwise = Outcome.WARN if request is None else Outcome.INVALID
        if name in unanswered or name not in found:
            saw = f"{name}: {unanswered.get(name, 'nobody read its layout')}"
            return rule.decide(False, saw, otherwise)
        if request is not None and not _passes_on(request, found[name], active):
            return rule.invalid(f"{name} has {found[name] or 'no layout of its own'}")
    return rule.ok("; ".join(f"{name}: {found[name] or 'none'}" for name in asked))


def _passes_on(request: Layout, layout: FileLayout | None, active: int) -> bool:
    """Return whether a directory passes on what is requested; -1 still means all targets."""
    if layout is None:
        return False
    part, count = layout.last, request.stripe_count
    return (
        request.pool in (None, part.pool)
        and (count is None or part.stripe_count in (count, _wanted(count, active)))
        and request.stripe_bytes in (None, part.stripe_bytes)
    )


def directories_of(seen: CaseSeen) -> Iterator[Finding]:
    """Yield G10 for a tool that makes its files in directories with layouts of their own."""
    if not seen.plan.directories:
        return
    outputs = seen.evidence.outputs
    unanswered: dict[str, str] = {}
    for output in outputs.get(DIRECTORIES_READ, ()):
        unanswered.update(output.parameters["unanswered"])  # type: ignore[call-overload]
    opened = seen.evidence.opened
    targets = opened.targets if opened else ()
    yield directories(
        asked=seen.plan.directories,
        found=passed_on_in(outputs),
        unanswered=unanswered,
        active=sum(target.active for target in targets),
    )


def components(*, files: Sequence[FileLayout], on_metadata: bool = False) -> Finding | None:
    """G10: in a progressive layout, the finding names the component that holds the measured bytes.
    If bytes lie in several components, or on metadata targets, you get a remark, because the figure
    does not belong to a single layout. If the case asks for data with the metadata, all bytes must lie there.

    ``on_metadata`` tells that it does.
    """
    held: Counter[Part] = Counter()
    for file in files:
        for part, size in file.held:
            held[replace(part, objects=())] += size
    if not held:
        return None
    ordered = sorted(held.items(), key=lambda item: item[0].begin_bytes)
    whole = held.total()
    there = {part.pattern == "mdt" for part in held}
    texts = [
        f"{size / whole:.0%} of {format_bytes(whole)} in the component from {format_bytes(part.begin_bytes)} on "
        f"({part})"
        for part, size in ordered
    ]
    if on_metadata:
        return Rule(
            "G10",
            "all bytes with the metadata",
            "The servers may allow less there: lctl get_param lod.*.dom_stripesize (as root, on the "
            "metadata servers)",
        ).decide(there == {True}, "; ".join(texts))
    return Rule(
        "G10",
        "all bytes in one component, on storage targets",
        "To measure one layout, set a plain layout on the target (lfs setstripe -c N DIR), or use larger "
        "files",
    ).decide(len(held) == 1 and there == {False}, "; ".join(texts), Outcome.WARN)


def components_of(seen: LayoutSeen) -> Iterator[Finding]:
    asked = seen.case.plan.layout
    there = asked is not None and asked.begins_on_metadata
    if finding := components(files=seen.noted.files, on_metadata=there):
        yield finding


def on_metadata_targets(
    *, request: DirectoryLayout, found: Sequence[Mapping[str, Collection[int]]], every: int | None
) -> Finding:
    """G10: the directories in which the tool made its files lie on the metadata targets that the case asks for. The job
    asks for their layout after the files were made. ``lfs setdirstripe -D`` promises nothing: it holds for new
    directories alone, and the servers may give fewer stripes.

    ``found`` maps each directory with files to its metadata targets, in each repetition. ``every`` is the declared
    number of metadata targets, for which -1 stripes stand.
    """
    count = every if request.stripes == -1 else request.stripes
    where = (
        f"on metadata target {request.target}"
        if request.target is not None
        else f"over {count} metadata target(s)"
    )
    rule = Rule(
        "G10",
        f"each directory with files {where}",
        "Compare topology.metadata_targets with lfs df -i, and the directories with lfs getdirstripe; the metadata "
        "servers must allow it: lctl get_param mdt.*.enable_striped_dir mdt.*.enable_remote_dir",
    )
    for of_repetition in found:
        for path, targets in of_repetition.items():
            on = sorted(set(targets))
            right = on == [request.target] if request.target is not None else len(on) == count
            if not right:
                return rule.invalid(f"{path} lies on metadata target(s) {', '.join(map(str, on))}")
    if not found or not all(found):
        return rule.invalid("no directory with files was found")
    return rule.ok(f"{sum(map(len, found))} director(ies), each as asked")


def on_metadata_targets_of(seen: CaseSeen) -> Iterator[Finding]:
    request, topology = seen.plan.directory_layout, seen.extras.topology
    if request is not None:
        yield on_metadata_targets(
            request=request,
            found=on_metadata_targets_in(seen.evidence.outputs),
            every=topology.metadata_targets if topology else None,
        )


def coverage(
    *,
    noted: Layouts,
    targets: Sequence[int],
    shared: bool,
    asked: bool,
    saturates: bool,
) -> Finding:
    """G11: if each process has a file, at least 0.9 x min(targets, files) of the targets are hit.
    At most 1.5 x the mean number of files, or the mean rounded up, lie on one target. Otherwise,
    you get only a remark if the case neither asks for a layout nor drives the target to its limit.
    A shared file that asks for no layout should lie on all targets; otherwise you get a remark.

    No placement can be better than the mean rounded up. A shared file hits as many targets as it
    has stripes, which G10 demands if the case asks for a layout.
    """
    rule = Rule(
        "G11",
        "k >= 0.9 x min(targets, files), most files on a target <= 1.5 x mean",
        "The file system chose the targets. Pin the files to targets, or use more files",
    )
    otherwise = Outcome.INVALID if asked or (saturates and not shared) else Outcome.WARN
    wanted = set(targets)
    on = Counter(ost for file in noted.files for ost in file.osts)
    hit = len(wanted & set(on))
    saw = f"{_files(noted)} on {hit} of {len(wanted)} storage targets"
    if noted.problem or not noted.files or not wanted:
        # A tool may remove its files itself: then nothing shows where they were.
        return rule.decide(False, saw, Outcome.INVALID if asked else Outcome.WARN)
    if shared:
        return _coverage_of_one(saw, everywhere=asked or hit == len(wanted), saturates=saturates)
    possible = min(len(wanted), len(noted.files))
    if hit < 0.9 * possible:
        by_chance = len(wanted) * (1 - (1 - 1 / len(wanted)) ** len(noted.files))
        return rule.decide(False, f"{saw} (placed at random: {by_chance:.1f})", otherwise)
    mean = on.total() / min(len(wanted), on.total())
    target, most = max(on.items(), key=lambda item: (item[1], -item[0]))
    return rule.decide(
        most <= max(math.ceil(mean), 1.5 * mean),
        f"{saw}, at most {most} on one (target {target}), mean {mean:.3g}",
        otherwise,
    )


def _coverage_of_one(saw: str, *, everywhere: bool, saturates: bool) -> Finding:
    """Return what a shared file on one or more targets proves."""
    claims = "; the case claims what the whole target carries" if saturates else ""
    return Rule(
        "G11",
        "as many targets as stripes (G10)"
        if everywhere
        else "a shared file on every storage target",
        ""
        if everywhere
        else "Compare the figure only with figures of the same number of storage targets. Or set the default "
        "layout: lfs setstripe -c -1 DIR. That starts a new series",
    ).decide(everywhere, saw if everywhere else f"{saw}{claims}", Outcome.WARN)


def coverage_of(seen: LayoutSeen) -> Iterator[Finding]:
    plan, striping = seen.case.plan, seen.striping
    if plan.layout is not None and plan.layout.begins_on_metadata:
        return  # They need no storage target.
    targets = sorted(set(striping.placed.values())) if plan.pins else seen.active
    yield coverage(
        noted=striping.noted,
        targets=targets,
        shared=plan.shared_file,
        asked=plan.striped,
        saturates=seen.saturates,
    )
