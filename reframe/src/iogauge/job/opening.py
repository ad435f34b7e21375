"""How a case enters its target: lock, look, directory; and how it leaves."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from iogauge.core import deadline
from iogauge.core.text import visible
from iogauge.guards import finding
from iogauge.guards.preflight import health, identity, inodes, room, share_of_free, target_room
from iogauge.node import client_settings, layouts
from iogauge.node.layouts import LustreError, Pins
from iogauge.node.lustre_targets import PROGRAM_SECONDS, look
from iogauge.node.mounts import View
from iogauge.plan.stage import LOCKED, OPENED, REFUSED, WORD
from iogauge.workspace import directory, lock, permission

#: What no target's path may hold, see :class:`iogauge.site.extras.Target`.
_ODD: Final = re.compile(r"[^A-Za-z0-9_./+,=%~-]")


def expand(path: str) -> str:
    """A path whose first component is exactly one variable (``$DW_JOB_STRIPED/x``), with its value.

    Every other path is returned as it is. Raises OSError where the variable holds no absolute path.
    """
    first, slash, rest = path.partition("/")
    if not re.fullmatch(r"\$[A-Z][A-Z0-9_]*", first):
        return path
    value = os.environ.get(first[1:], "")
    if not value.startswith("/"):
        raise OSError(
            f"{first} is {repr(value) if value else 'not set'} in this job: expected an absolute path, "
            "which the resource manager sets for a job that asks for the space"
        )
    if odd := sorted(set(_ODD.findall(value))):
        raise OSError(
            f"{first} is {value!r} in this job, which holds {' '.join(map(repr, odd))}: IOR and mdtest would "
            "write elsewhere (they split a path at '@', fio at ':')"
        )
    return os.path.join(value, rest) if slash else value


def _striped(case: dict[str, Any]) -> bool:
    return bool(case.get("striping", "none") == "lustre")


def _identity(view: View, case: dict[str, Any]) -> finding.Finding:
    return identity(declared_type=case["type"], declared_source=case["source"], views=[view])


def _pinned(view: View, case: dict[str, Any]) -> list[int]:
    """Storage target of each file that the case puts on one; empty where it does not, or cannot yet."""
    if case["pins"] is None:
        return []
    try:
        return [*layouts.place(Pins.from_json(case["pins"]), view.targets).values()]
    except ValueError:  # the job's own step says what is wrong with the targets
        return []


def look_as_declared(target: str, case: dict[str, Any]) -> View:
    """What this host sees of a case's target: its storage targets too, if it is what was declared.

    What is not the declared file system need not be asked for them. Raises as :func:`look` does.
    """
    view = look(target)
    if _striped(case) and _identity(view, case).outcome is finding.Outcome.OK:
        return look(target, striped=True)
    return view


def preflight(view: View, case: dict[str, Any]) -> list[finding.Finding]:
    """Guards that must hold before the first byte is written."""
    findings = [
        _identity(view, case),
        room(
            space=view.space,
            need_bytes=case["held_bytes"],
            max_fill=case["max_fill"],
            keep_free=case["keep_free"],
        ),
        share_of_free(
            space=view.space,
            need_bytes=case["held_bytes"],
            max_of_free=case["max_of_free"],
        ),
        inodes(
            space=view.space,
            quotas=view.quotas,
            need_bytes=case["held_bytes"],
            need_files=case["files"],
        ),
    ]
    if _striped(case):
        findings += [
            health(targets=view.targets, declared=case["targets"]),
            target_room(
                targets=view.targets,
                need_bytes=case["held_bytes"],
                max_fill=case["max_fill"],
                pieces=case["pieces"],
                pinned=_pinned(view, case),
            ),
        ]
    return findings


def _ended(seconds: float | None = None) -> bool:
    """Sleep for so many seconds, or until the job script says that it ends, or is gone with all that it started."""
    return bool(select.select([0], [], [], seconds)[0])


def _lock(case: dict[str, Any]) -> lock.Lock | None:
    """The lock of the target, None where it needs none; raises what :func:`iogauge.workspace.lock.take` raises."""
    if case["lock"] is None:
        return None
    content = lock.describe(
        session=case["session"],
        case=case["case"],
        lease_s=case["lock_lease_s"],
        processes=(os.getpid(), os.getppid()),
    )
    return lock.take(
        expand(case["lock"]),
        content,
        wait_s=case["lock_wait_s"],
        pause=_ended,
        say=lambda text: print(visible(f"iogauge: lock: {text}"), flush=True),
    )


@contextlib.contextmanager
def _beating(held: lock.Lock, lease_s: float) -> Iterator[None]:
    """Give signs of life meanwhile, whatever else this process waits for."""
    done = threading.Event()

    def beat() -> None:
        kept = True
        while not done.wait(lease_s / lock.BEATS):
            with contextlib.suppress(OSError):  # the storage may answer again; the end tells
                if kept and not held.beat():
                    kept = False
                    now = lock.standing(held.place) or "nobody"
                    print(
                        visible(f"iogauge: lock: lost; held now by {now}"),
                        file=sys.stderr,
                        flush=True,
                    )

    threading.Thread(target=beat, daemon=True).start()
    try:
        yield
    finally:
        done.set()


def _release(held: lock.Lock) -> None:
    """Give the lock up, and leave word whether the case had it until now."""
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
    Path(LOCKED).write_text(json.dumps({"lost": lost}), encoding="utf-8")


def _may_lock(case: dict[str, Any], target: str, of_job: bool) -> bool:
    """Whether the target is the declared file system, and allowed: only there a lock is made."""
    if _identity(look(target), case).outcome is not finding.Outcome.OK:
        return False
    for place in {target, expand(case["lock"] or target)}:
        with permission.opened(place, of_job):
            pass
    return True


def _enter(case: dict[str, Any], target: str, of_job: bool) -> dict[str, Any]:
    """Look at the target and, if nothing speaks against it, make the case's directory; what was seen."""
    view = look_as_declared(target, case)
    findings = preflight(view, case)
    refused = [str(f) for f in findings if f.outcome is finding.Outcome.INVALID]
    if not refused:
        directory.create(
            target,
            case["session"],
            case["case"],
            case["host"],
            owner_process=case["process"],
            of_job=of_job,
            time_limit_s=case["time_limit_s"],
            removals_per_second=case["removals_per_second"],
        )
    return {"view": view.to_json(), "refused": refused}


def _prepare(case: dict[str, Any], leaving: contextlib.ExitStack) -> dict[str, Any]:
    """Take the lock, look at the target and make the directory, or say what stands against it."""
    seen: dict[str, Any] = {"view": None, "refused": [], "occupied": "", "locked": False}
    try:
        target = expand(case["target"])
        of_job = target != case["target"]
        if of_job:  # a link in it is the resource manager's own
            target = os.path.realpath(target)
        if deadline.ask(target, lambda: _may_lock(case, target, of_job), PROGRAM_SECONDS):
            held = _lock(case)
            if held is not None:
                leaving.callback(_release, held)
                leaving.enter_context(_beating(held, case["lock_lease_s"]))
                seen["locked"] = True
            restore_settings(case["restore"])
        seen |= deadline.ask(target, lambda: _enter(case, target, of_job), PROGRAM_SECONDS)
    except deadline.NoAnswer as error:
        seen["failed"] = str(error)
    except (OSError, LustreError) as error:
        seen["refused"] = [f"{case['target']}: {error}"]
    except lock.Occupied as error:
        seen["occupied"] = str(error)
    return seen | {"session": case["session"], "case": case["case"]}


def open_case(case_file: str) -> int:
    case = json.loads(Path(case_file).read_text(encoding="utf-8"))
    with contextlib.ExitStack() as leaving:
        seen = _prepare(case, leaving)
        Path(OPENED).write_text(json.dumps(seen), encoding="utf-8")
        if "failed" in seen:
            print(visible(f"iogauge: {seen['failed']}"), file=sys.stderr)
            return 1
        reasons = [*seen["refused"], *filter(None, [seen["occupied"]])]
        for reason in reasons:
            print(visible(f"iogauge: refused: {reason}"), file=sys.stderr)
        if reasons:
            return REFUSED
        print(WORD, flush=True)
        if seen["locked"]:
            _ended()
    return 0


def restore_settings(folder: str) -> int:
    for done in client_settings.restore(Path(folder)):
        print(visible(f"iogauge: put back: {done}"))
    return 0
