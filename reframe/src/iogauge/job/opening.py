"""How a case enters its target (lock, look, directory), takes samples of the contents, and leaves."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from iogauge.core import processes
from iogauge.core.paths import expand
from iogauge.core.text import visible
from iogauge.guards import finding
from iogauge.guards.preflight import (
    cores,
    devices,
    health,
    inodes,
    metadata_health,
    metadata_room,
    pool,
    quota,
    room,
    share_of_free,
    stripes_against_size,
    target_room,
)
from iogauge.job.target import as_expected, identify
from iogauge.node.host import read_clock, usable_cores
from iogauge.node.layers import resolve_device
from iogauge.node.lustre import checksums, lov
from iogauge.node.lustre.directory import Directory, look_at_directory, passed_on
from iogauge.node.lustre.layout import last_with_data
from iogauge.node.lustre.programs import PROGRAM_SECONDS, LustreError
from iogauge.node.lustre.request import place
from iogauge.node.lustre.targets import StorageTarget
from iogauge.node.view import View, look, with_lustre
from iogauge.plan.observations import LOST, note
from iogauge.plan.stage import JobOrder, Opened
from iogauge.workspace import directory, lock, permission


def _striped(order: JobOrder) -> bool:
    return order.striping == "lustre"


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
    if identify([view], order).outcome is not finding.Outcome.OK:
        return view, None
    view = with_lustre(view, _striped(order), order.pool)
    return view, look_at_directory(view, order.pool) if _striped(order) else None


def preflight(
    view: View, seen: Directory | None, order: JobOrder
) -> list[finding.Finding]:
    """Return the findings of the guards that must hold before the first byte is written."""
    findings = [
        identify([view], order),
        room(view.space, order),
        share_of_free(view.space, order),
        inodes(view.space, order.files),
    ]
    if left := quota(view, order.held_bytes, order.files):
        findings.append(left)
    if _striped(order):
        findings += _on_lustre(view, seen or Directory(), order)
    return findings


def _on_lustre(
    view: View, seen: Directory, order: JobOrder
) -> Iterator[finding.Finding]:
    """Yield the findings of the guards that hold on Lustre alone."""
    targets = seen.usable(view.targets)
    yield health(
        targets=view.targets,
        declared=order.targets,
        out=order.out,
        space=view.whole_space,
    )
    if order.pool is not None:
        yield pool(order.pool, view.targets, seen)
        if not seen.pool:
            return
    mdts = _mdts(seen, order)
    if _with_metadata(order):
        own = [one for one in seen.metadata_space if not mdts or one.index in mdts]
        yield target_room(own, order, kind="metadata target")
    else:
        yield target_room(targets, order, _pinned(targets, order))
    if order.mdts:
        yield metadata_health(seen.metadata, order.mdts)
    if seen.metadata:
        yield metadata_room(seen.metadata, mdts, order.files)
    yield from stripes_of(view, seen, order)


def _with_metadata(order: JobOrder) -> bool:
    """Return whether the case's data lie with their metadata."""
    return order.layout is not None and order.layout.begins_on_metadata


def _mdts(seen: Directory, order: JobOrder) -> Collection[int]:
    """Return the metadata targets that get the case's files; empty for all of them."""
    if order.mdts:
        return range(order.mdts)
    if (asked := order.directory_layout) is not None:
        return () if asked.target is None else (asked.target,)
    return seen.mdts


def stripes_of(
    view: View, seen: Directory | None, order: JobOrder
) -> Iterator[finding.Finding]:
    """Yield whether a shared file is large enough for its stripes, if these are known by now."""
    parts = seen.parts_of(order.layout, view.targets) if seen else ()
    if part := last_with_data(parts, order.shared_bytes):
        yield stripes_against_size(order.shared_bytes, part)


def _ended(seconds: float | None = None) -> bool:
    """Sleep for ``seconds``, or until the job script ends or is gone with all its children."""
    return bool(select.select([0], [], [], seconds)[0])


def _lock(order: JobOrder) -> lock.Lock | None:
    """Take the target's lock, if it needs one; raises as :func:`~iogauge.workspace.lock.take`."""
    if order.lock is None:
        return None
    content = lock.describe(
        session=order.session,
        case=order.case,
        lease_s=order.lock_lease_s,
        processes=(os.getpid(), os.getppid()),
    )
    return lock.take(
        expand(order.lock),
        content,
        wait_s=order.lock_wait_s,
        pause=_ended,
        say=_tell_of_lock,
    )


@contextlib.contextmanager
def _beating(held: lock.Lock, lease_s: float) -> Iterator[None]:
    """Beat in the background, whatever else this process waits for."""
    done = threading.Event()

    def beat() -> None:
        kept = True
        while not done.wait(lease_s / lock.BEATS):
            with contextlib.suppress(
                OSError
            ):  # the storage may recover; the release shows it
                if kept and not held.beat():
                    kept = False
                    now = lock.standing(held.place) or "nobody"
                    text = f"iogauge: lock: lost; held now by {now}"
                    print(visible(text), file=sys.stderr, flush=True)

    threading.Thread(target=beat, daemon=True).start()
    try:
        yield
    finally:
        done.set()


def _release(held: lock.Lock) -> None:
    """Give the lock up, and record whether the case held it until now."""
    lost = ""
    try:
        if not held.release():
            lost = (
                "this case lost the lock of the target, which is held now by "
                f"{lock.standing(held.place) or 'nobody'}: it gave no sign of life in time and was taken for "
                "dead, or somebody has removed the lock (iogauge clean --all)"
            )
    except OSError as error:
        lost = f"the lock of the target could not be given up: {error}"
    note(LOST, lost)


def _may_lock(order: JobOrder, target: str, of_job: bool) -> bool:
    """Return whether the target is the declared file system, and permitted: only then lock it."""
    if identify([look(target)], order).outcome is not finding.Outcome.OK:
        return False
    for locked in {target, expand(order.lock or target)}:
        with permission.permitted(locked, of_job):
            pass
    return True


def _tell_of_lock(text: str) -> None:
    print(visible(f"iogauge: lock: {text}"), flush=True)


def _enter(
    order: JobOrder, target: str, of_job: bool
) -> tuple[View, Directory | None, tuple[str, ...]]:
    """Look at the target and make the case's directory unless a guard refuses.

    Return the view, what the target passes on, and the refusals.
    """
    view, seen = look_as_declared(target, order)
    findings = preflight(view, seen, order)
    if (
        findings[0].outcome is finding.Outcome.OK
    ):  # settings of another file system say nothing
        findings += as_expected(view, order)
    if order.bound_tasks:
        findings.append(cores(order.bound_tasks, usable_cores(), order.cores))
    if order.devices:
        findings.append(devices({name: resolve_device(name) for name in order.devices}))
    refused = _refusals(findings)
    if refused:
        return view, seen, refused
    made = directory.create(
        target,
        order.session,
        order.case,
        order.host,
        owner_process=list(order.process) if order.process else None,
        of_job=of_job,
        time_limit_s=order.time_limit_s,
    )
    if seen is None:
        return view, seen, ()
    # Lustre may put a new directory on another metadata target, and those above it may pass on an older default.
    try:
        lov.adopt_default(made, target)
        seen = seen.at(passed_on(made, view.mount))
        refused = _refusals(_on_lustre(view, seen, order))
    except LustreError as error:
        refused = (str(error),)
    if refused:
        directory.remove_case(made)
    return view, seen, refused


def _refusals(findings: Iterable[finding.Finding]) -> tuple[str, ...]:
    return tuple(str(f) for f in findings if f.outcome is finding.Outcome.INVALID)


def _disks(order: JobOrder) -> tuple[str, ...]:
    """Return the counters of the disks below the devices that a case reads; empty if one does not count."""
    below = [resolve_device(name) for name in order.devices]
    if any(one.unsure or not one.disks for one in below):
        return ()
    return tuple(dict.fromkeys(disk for one in below for disk in one.disks))


def prepare(order: JobOrder, leaving: contextlib.ExitStack) -> Opened:
    """Take the lock, look at the target and make the directory, or record the reason against it."""
    opened = Opened(session=order.session, case=order.case, clock=read_clock())
    try:
        target = expand(order.target)
        session = directory.session_dir(target, order.session)
        opened = replace(opened, directory=os.path.join(session, order.case))
        of_job = target != order.target
        if of_job:  # a link in it is the resource manager's own
            target = os.path.realpath(target)
        if processes.call_in_time(
            target, lambda: _may_lock(order, target, of_job), PROGRAM_SECONDS
        ):
            held = _lock(order)
            if held is not None:
                leaving.callback(_release, held)
                leaving.enter_context(_beating(held, order.lock_lease_s))
                opened = replace(opened, locked=True)
            restore_settings(order.restore)
        view, seen, refused = processes.call_in_time(
            target, lambda: _enter(order, target, of_job), PROGRAM_SECONDS
        )
        disks = _disks(order)
        return replace(
            opened, view=view, directory_seen=seen, refused=refused, disks=disks
        )
    except processes.NoAnswer as error:
        return replace(opened, failed=str(error))
    except (OSError, LustreError) as error:
        return replace(
            opened,
            refused=(f"{order.target}: {getattr(error, 'strerror', None) or error}",),
        )
    except lock.Occupied as error:
        return replace(opened, occupied=str(error))


def restore_settings(folder: str) -> int:
    for done in checksums.restore(Path(folder)):
        print(visible(f"iogauge: put back: {done}"))
    return 0
