"""How a case enters its target: it takes the lock, looks, and makes its directory unless a guard refuses."""

import contextlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from iogauge.core import processes
from iogauge.core.paths import expand
from iogauge.core.text import say
from iogauge.guards.finding import Finding, Outcome, refusals
from iogauge.guards.preflight import identity
from iogauge.job import locking, looking
from iogauge.job.target import as_expected
from iogauge.node.lustre import checksums, lov
from iogauge.node.lustre.inherited import Directory, passed_on
from iogauge.node.lustre.lfs import PROGRAM_SECONDS, LustreError
from iogauge.node.view import View, look
from iogauge.plan.stage import JobOrder, Opened
from iogauge.workspace import directory, lock, permission


def prepare(order: JobOrder, leaving: contextlib.ExitStack) -> Opened:
    """Take the lock, look at the target and make the directory, or record the reason against it."""
    opened = Opened(session=order.session, case=order.case)
    try:
        path = expand(order.target)
        if _is_of_job(order):
            # A link in it is the resource manager's own.
            path = os.path.realpath(path)
        session = directory.session_dir(expand(order.target), order.session)
        opened = replace(opened, directory=os.path.join(session, order.case))
        place = _in_time(path, lambda: _place_to_lock(order, path))
        if place:
            locking.hold(order, place, leaving)
            opened = replace(opened, locked=True)
        if place is not None:
            restore_settings(order.restore)
        return _in_time(path, lambda: _enter(opened, order, path))
    except processes.NoAnswer as error:
        return replace(opened, failed=str(error))
    except (OSError, LustreError) as error:
        why = getattr(error, "strerror", None) or error
        return replace(opened, refused=(f"{order.target}: {why}",))
    except lock.Occupied as error:
        return replace(opened, occupied=str(error))


T = TypeVar("T")


def _in_time(path: str, work: Callable[[], T]) -> T:
    return processes.call_in_time(path, work, PROGRAM_SECONDS)


def _is_of_job(order: JobOrder) -> bool:
    """Return whether a resource manager made the target for this job: a variable names it."""
    return expand(order.target) != order.target


def _place_to_lock(order: JobOrder, path: str) -> str | None:
    """Return the directory with the lock, see :func:`locking.place_of`; None unless the target is the declared file system.

    Raises as :func:`permission.permitted` does for both.
    """
    if identity(order, [look(path)]).outcome is not Outcome.OK:
        return None
    place = locking.place_of(order)
    for written in {path, place or path}:
        with permission.permitted(written, _is_of_job(order)):
            pass
    return place


def _enter(opened: Opened, order: JobOrder, path: str) -> Opened:
    """Return what the target is, with the case's directory made in it unless a guard refuses."""
    lock.await_probes(path)
    view, seen = looking.look_as_declared(path, order)
    opened = replace(opened, view=view, directory_seen=seen)
    refused = refusals(_findings(view, seen, order))
    if refused:
        return replace(opened, refused=refused)
    owner = None
    if order.process:
        owner = list(order.process)
    made = directory.create(
        path,
        order.session,
        order.case,
        order.host,
        owner_process=owner,
        of_job=_is_of_job(order),
        time_limit_s=order.time_limit_s,
    )
    if seen is None:
        return opened
    # Lustre may put a new directory on another metadata target, and those above it may pass on an older default.
    try:
        lov.adopt_default(made, path)
        seen = seen.at(passed_on(made, view.mount))
        refused = refusals(looking.on_lustre(view, seen, order))
    except LustreError as error:
        refused = (str(error),)
    if refused:
        directory.remove_case(made)
    return replace(opened, directory_seen=seen, refused=refused)


def _findings(view: View, seen: Directory | None, order: JobOrder) -> list[Finding]:
    """Return the findings of all guards that must hold on this node before the first byte is written."""
    findings = looking.preflight(view, seen, order)
    # Settings of another file system say nothing.
    if findings[0].outcome is Outcome.OK:
        findings += as_expected(view, order)
    return findings


def restore_settings(folder: str) -> int:
    for done in checksums.restore(Path(folder)):
        say(f"iogauge: put back: {done}")
    return 0
