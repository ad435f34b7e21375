"""What the first node sees of a case's target, and the guards that must hold before the first byte is written."""

from collections.abc import Iterator, Sequence

from iogauge.guards.finding import Finding, Outcome
from iogauge.guards.preflight import (
    health,
    identity,
    inodes,
    metadata_room,
    quota,
    room,
    share_of_free,
    stripes_against_size,
    target_room,
    undeclared,
)
from iogauge.node.lustre.file_layout import last_with_data
from iogauge.node.lustre.inherited import Directory, look_at_directory
from iogauge.node.lustre.request import place
from iogauge.node.lustre.targets import StorageTarget
from iogauge.node.view import View, look, with_lustre
from iogauge.plan.stage import JobOrder


def _pinned(targets: Sequence[StorageTarget], order: JobOrder) -> list[int]:
    """Return the storage target of each pinned file; empty without pins, or if still unknown."""
    if order.pins is None:
        return []
    try:
        return [*place(order.pins, targets).values()]
    except ValueError:  # the job's own step reports what is wrong with the targets
        return []


def look_as_declared(target: str, order: JobOrder) -> tuple[View, Directory | None]:
    """Return this host's view of a case's target, with quotas and storage targets if it is as declared.

    On Lustre also return what the target passes on. On another file system than declared, Lustre is
    not asked. Raises as :func:`look` and :func:`with_lustre` do.
    """
    view = look(target)
    if identity(order, [view]).outcome is not Outcome.OK:
        return view, None
    is_striped = order.striping == "lustre"
    view = with_lustre(view, is_striped)
    if not is_striped:
        return view, None
    return view, look_at_directory(view)


def preflight(view: View, seen: Directory | None, order: JobOrder) -> list[Finding]:
    """Return the findings of the guards that must hold before the first byte is written."""
    findings = [
        identity(order, [view]),
        room(view.space, order),
        share_of_free(view.space, order),
        inodes(view.space, order.files),
    ]
    if order.gate:
        findings += filter(None, [undeclared(order, [view], gate=True)])
    findings += filter(None, [quota(view, order.held_bytes, order.files)])
    if order.striping == "lustre":
        findings += on_lustre(view, seen or Directory(), order)
    return findings


def on_lustre(view: View, seen: Directory, order: JobOrder) -> Iterator[Finding]:
    """Yield the findings of the guards that hold on Lustre alone."""
    yield health(view.targets, order.targets)
    if order.layout and order.layout.begins_on_metadata:
        own = seen.metadata_space
        if seen.mdts:
            own = tuple(target for target in own if target.index in seen.mdts)
        yield target_room(own, order, kind="metadata target")
    else:
        yield target_room(view.targets, order, _pinned(view.targets, order))
    if seen.metadata:
        yield metadata_room(seen.metadata, seen.mdts, order.files)
    # A shared file must be large enough for its stripes, if these are known by now.
    part = last_with_data(seen.parts_of(order.layout, view.targets), order.shared_bytes)
    if part:
        yield stripes_against_size(order.shared_bytes, part)
