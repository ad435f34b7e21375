"""Guards of the layout on Lustre: obtained, and covering the storage targets (G10, G11)."""

import math
from collections import Counter
from collections.abc import Iterator

from iogauge.evidence.model import Striping
from iogauge.guards.finding import Finding, Guard, Outcome
from iogauge.guards.views import CaseView
from iogauge.node.lustre.file_layout import FileLayout, Layouts
from iogauge.node.lustre.request import Layout


def _unlike(request: Layout, file: FileLayout, active: int) -> str:
    """Return how a file's layout differs from the requested layout; empty if it does not.

    All ``active`` targets are usable; a part without objects still says -1.
    """
    wanted = request.parts
    if len(file.parts) != len(wanted) or file.composite != (len(wanted) > 1):
        return f"has {len(file.parts)} component(s)"
    for want, part in zip(wanted, file.parts, strict=True):
        if (part.pattern, part.end_bytes) != (want.pattern, want.end_bytes):
            return f"has a component ({part}) up to {part.end_bytes}"
    last, count = file.parts[-1], request.stripe_count
    if count == -1 and last.objects:
        count = active
    if count not in (None, last.stripe_count):
        return f"has {last.stripe_count} stripe(s)"
    if request.stripe_bytes not in (None, last.stripe_bytes):
        return f"has stripes of {last.stripe_bytes} bytes"
    if request.start is not None and last.objects[:1] != (request.start,):
        return f"starts on target {file.start}"
    return ""


_LAYOUT = Guard(
    name="G10 layout",
    must="every file has the requested stripe count, size and start, and every pinned file lies on its storage target",
    remedy="Compare the layout with the active targets: lfs df, lfs getstripe. A recreated file loses its layout",
    against="a: somebody else's setstripe in mid-run",
    seen_on="Lustre 2.17",
    but="or a remark",
    more="Each file's layout is read after the last write, because `lfs setstripe -c 99` on four targets exits with 0 and gives "
    "four. If the case asks for no layout, the finding reports the layouts; several different layouts give a remark.",
)


def layout(case: CaseView) -> Iterator[Finding]:
    """Yield G10 for the layouts of each repetition."""
    for striping in case.evidence.striping:
        yield _layout(case, striping)


def _layout(case: CaseView, striping: Striping) -> Finding:
    """Return G10. Files, or directories with all files in them, may be pinned to a target: each must have a file. A file that
    is not pinned must be as the case asks.
    """
    noted, placed, request = striping.noted, striping.placed, case.plan.layout
    demands = []
    if request:
        demands.append(" ".join(["lfs setstripe", *request.arguments()]))
    if placed:
        demands.append(f"{len(placed)} file(s) pinned to a storage target")
    guard = _LAYOUT.saying(", ".join(demands) or "the layout of every file")
    otherwise = Outcome.INVALID if demands else Outcome.WARN
    if noted.problem or not noted.files:
        return guard.found(otherwise, noted.problem or "no file was found")
    if not demands:
        kinds = Counter(map(str, noted.files))
        shown = [f"{count} with {kind}" for kind, count in kinds.most_common(3)]
        saw = f"{_files(noted)}: {', '.join(shown)}"
        return guard.decide(len(kinds) == 1, saw, otherwise)
    wrong = _not_as_asked(case, striping)
    if wrong:
        return guard.invalid(
            f"{wrong[0]}; {len(wrong)} of {len(noted.files)} are not as asked"
        )
    return guard.ok(f"{_files(noted)} as asked")


def _files(noted: Layouts) -> str:
    """Return how many files were looked at."""
    count = len(noted.files)
    if count == noted.total:
        return f"{count} file(s)"
    return f"{count} of {noted.total} files, chosen at random"


def _not_as_asked(case: CaseView, striping: Striping) -> list[str]:
    """Return what is wrong with each file, and each pinned name without a file."""
    request, noted = case.plan.layout, striping.noted
    active = sum(target.active for target in case.targets)
    wrong, lacking = list[str](), set(striping.placed)
    for file in noted.files:
        differs = "was not pinned to a target"
        if request:
            differs = _unlike(request, file, active)
        for name, target in striping.placed.items():
            if f"{file.path}/".startswith(f"{name}/"):
                lacking.discard(name)
                there = ", ".join(map(str, file.osts)) or "none"
                differs = f"is on target {there} instead of {target}"
                if file.osts == (target,):
                    differs = ""
        if differs:
            wrong.append(f"{file.path} {differs}")
    if len(noted.files) == noted.total:
        wrong += [f"{name} was pinned and holds no file" for name in sorted(lacking)]
    return wrong


#: Files on a target over the mean that give a remark, and share of the targets that must be hit.
_MOST_OVER_MEAN = 1.5
_LEAST_HIT = 0.9
#: So many files on half of the targets, or all on the same, are not the allocator's doing.
_MANY_FILES = 16
#: Lustre weighs its targets by free space if that differs by more (qos_threshold_rr, 17 %).
_WEIGHED = 0.17

_COVERAGE = Guard(
    name="G11 coverage",
    must="if each process has a file, the files are spread over the storage targets",
    remedy="The file system chose the targets: lfs getstripe shows them. See whether a default layout names a start (lfs getstripe "
    "-d DIR), or use more files",
    against="a: a default layout with a fixed start put all files on one target",
    seen_on="Lustre 2.17",
    but="or a remark",
    demands=f"at least {_LEAST_HIT:g} x min(targets, files) targets with files, at most {_MOST_OVER_MEAN:g} x mean on one",
    more=f"You get a remark if fewer than {_LEAST_HIT:g} x min(targets, files) of the targets are hit, or if one target has more "
    f"than {_MOST_OVER_MEAN:g} x the mean number of files. The case is INVALID only if {_MANY_FILES} files or more lie on half of the "
    "targets or all on the same, all targets are about equally full, and the case drives the target to its limit or asks for the layout. A shared "
    "file that asks for no layout should lie on all targets; otherwise you get a remark.",
)


def coverage(case: CaseView) -> Iterator[Finding]:
    """Yield G11 for the layouts of each repetition, unless their files need no storage target."""
    request = case.plan.layout
    if request is None or not request.begins_on_metadata:
        for striping in case.evidence.striping:
            yield _coverage(case, striping)


def _coverage(case: CaseView, striping: Striping) -> Finding:
    """Return G11: whether the file system spread the files.

    Its allocator may let stripes overlap: 32 new files of 2 stripes on 4 targets were seen on 0 1; 2 3; 1 2; 3 0; 2 3.
    A shared file hits as many targets as it has stripes, which G10 demands if the case asks for a layout. Pinned files are G10's.
    """
    plan, noted = case.plan, striping.noted
    wanted = {target.index for target in case.targets if target.active}
    if plan.pins:
        wanted = set(striping.placed.values())
    on = Counter[int]()
    for file in noted.files:
        on.update(file.osts)
    hit, files = len(wanted & set(on)), len(noted.files)
    saw = f"{_files(noted)} on {hit} of {len(wanted)} storage targets"
    if noted.problem or not files or not wanted:
        # A tool may remove its files itself: then nothing shows where they were.
        outcome = Outcome.WARN
        if plan.striped:
            outcome = Outcome.INVALID
        return _COVERAGE.found(outcome, saw)
    if plan.shared_file:
        if plan.striped:
            return _COVERAGE.saying("as many targets as stripes (G10)").ok(saw)
        guard = _COVERAGE.saying(
            "a shared file on every storage target",
            "Compare the figure only with figures of the same number of storage targets. Or set the default layout: lfs "
            "setstripe -c -1 DIR. That starts a new series",
        )
        return guard.decide(hit == len(wanted), saw, Outcome.WARN)
    if not hit:
        return _COVERAGE.warn(saw)
    mean = on.total() / min(len(wanted), on.total())
    target, most = on.most_common(1)[0]
    saw += f", at most {most} on one (target {target}), mean {mean:.3g}"
    all_hit = hit >= _LEAST_HIT * min(len(wanted), files)
    if all_hit and most <= max(math.ceil(mean), _MOST_OVER_MEAN * mean):
        return _COVERAGE.ok(saw)
    free = [ost.bytes_free for ost in case.targets if ost.index in wanted] or [0]
    weighed = max(free) - min(free) > _WEIGHED * max(free)
    saturates = any(phase.access.saturates for phase in plan.phases)
    half = 2 * hit <= min(len(wanted), on.total())
    uneven = half or (most == files and hit < len(wanted))
    if files >= _MANY_FILES and uneven and not weighed and (plan.striped or saturates):
        return _COVERAGE.invalid(saw)
    return _COVERAGE.warn(saw)
