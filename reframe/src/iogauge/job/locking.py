"""The lock of a target, which the first node holds for as long as its job runs."""

import contextlib
import os
import select
import threading
from collections.abc import Iterator

from iogauge.core.paths import expand
from iogauge.core.text import complain, say
from iogauge.plan.observations import LOST, note
from iogauge.plan.stage import JobOrder
from iogauge.workspace import lock


def _ended(seconds: float) -> bool:
    """Sleep for ``seconds``, or until the job script ends or is gone with all its children."""
    return bool(select.select([0], [], [], seconds)[0])


def place_of(order: JobOrder) -> str:
    """Return the directory with the lock: that of another partition, if this node sees it on the same file system.

    It is empty if the target needs no lock.
    """
    if not order.locks:
        return ""
    *shared, own = map(expand, order.locks)
    for of_other in shared:
        with contextlib.suppress(OSError):
            if os.stat(of_other).st_dev == os.stat(own).st_dev:
                return of_other
    return own


def hold(order: JobOrder, place: str, leaving: contextlib.ExitStack) -> None:
    """Take the target's lock in a directory, and beat until the job ends; raises as :func:`~iogauge.workspace.lock.take`."""
    content = lock.describe(
        session=order.session,
        case=order.case,
        lease_s=order.lock_lease_s,
        processes=(os.getpid(), os.getppid()),
    )
    held = lock.take(place, content, wait_s=order.lock_wait_s, pause=_ended, say=_say)
    leaving.callback(_release, held)
    leaving.enter_context(_beating(held, order.lock_lease_s))


def _say(text: str) -> None:
    say(f"iogauge: lock: {text}")


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
                if kept and not held.beat() and not done.is_set():
                    kept = False
                    now = lock.standing(held.place) or "nobody"
                    complain(f"iogauge: lock: lost; held now by {now}")

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
