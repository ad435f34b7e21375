"""How a case enters its target (lock, look, directory), takes samples of the contents, and leaves."""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from iogauge.core import deadline
from iogauge.core.paths import expand
from iogauge.core.text import visible
from iogauge.guards import finding
from iogauge.guards.preflight import (
    cores,
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
from iogauge.job.activity import EXACT, Recorder, note_found
from iogauge.job.looking import as_expected, identify
from iogauge.node import contents, directories, layouts
from iogauge.node import lustre as client_settings
from iogauge.node.contents import Block, Sample
from iogauge.node.directories import Directory
from iogauge.node.host import read_clock, usable_cores
from iogauge.node.layouts import LustreError, last_with_data
from iogauge.node.lustre import PROGRAM_SECONDS, look, with_lustre
from iogauge.node.mounts import StorageTarget, View
from iogauge.plan.stage import (
    CONTENTS,
    LOCKED,
    OPENED,
    REFUSAL,
    REFUSED,
    WORD,
    JobOrder,
    LockKept,
    Opened,
)
from iogauge.workspace import directory, lock, permission, removal

#: Seconds that a sample may take on storage that answers slowly; less than the job script waits.
_PATIENCE_S: Final = 5.0
#: Types of file systems whose map of a file says what is a hole and what is compressed.
_MAPPED: Final = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "overlay")


@dataclass(slots=True)
class Sampler:
    """Takes samples, and remembers which blocks of a directory were read after the last write."""

    type: str
    _written: dict[str, Sequence[Block]] = field(default_factory=dict)

    def take(self, repetition: int, after: str, directory: str) -> None:
        """Write a sample to the stage, or why there is none; raises OSError of the stage alone."""
        known = self._written.get(directory) if after == "read" else None
        way: Final = "read" if after == "read" else "write"
        try:
            blocks, files, direct = deadline.call(
                directory,
                lambda: contents.look(directory, known, self.type in _MAPPED),
                _PATIENCE_S,
            )
            sample = Sample(
                repetition=repetition,
                after=way,
                blocks=tuple(blocks),
                files=tuple(files),
                direct=direct,
            )
        except OSError as error:
            sample = Sample(repetition=repetition, after=way, problem=str(error))
        if way == "write":
            self._written[directory] = sample.blocks
        with open(CONTENTS, "a", encoding="utf-8") as file:
            file.write(json.dumps(sample.to_json()) + "\n")


def _striped(order: JobOrder) -> bool:
    return order.striping == "lustre"


def _pinned(targets: Sequence[StorageTarget], order: JobOrder) -> list[int]:
    """Return the storage target of each pinned file; empty without pins, or if still unknown."""
    if order.pins is None:
        return []
    try:
        return [*layouts.place(order.pins, targets).values()]
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
    view = with_lustre(view, _striped(order))
    seen = directories.look(view, order.pool, order.metadata) if _striped(order) else None
    return view, seen


def preflight(view: View, seen: Directory | None, order: JobOrder) -> list[finding.Finding]:
    """Return the findings of the guards that must hold before the first byte is written."""
    findings = [
        identify([view], order),
        room(
            space=view.space,
            need_bytes=order.held_bytes,
            max_fill=order.max_fill,
            keep_free=order.keep_free,
        ),
        share_of_free(
            space=view.space,
            need_bytes=order.held_bytes,
            max_of_free=order.max_of_free,
        ),
        inodes(space=view.space, need_files=order.files),
    ]
    if view.quotas or view.unanswered:
        findings.append(
            quota(
                quotas=view.quotas,
                need_bytes=order.held_bytes,
                need_files=order.files,
                unanswered=view.unanswered,
            )
        )
    if _striped(order):
        findings += _on_lustre(view, seen or Directory(), order)
    return findings


def _on_lustre(view: View, seen: Directory, order: JobOrder) -> Iterator[finding.Finding]:
    """Yield the findings of the guards that hold on Lustre alone."""
    targets = seen.usable(view.targets)
    yield health(targets=view.targets, declared=order.targets, out=order.out)
    if order.pool is not None:
        yield pool(name=order.pool, targets=view.targets, seen=seen)
        if not seen.pool:
            return
    yield target_room(
        targets=targets,
        need_bytes=order.held_bytes,
        max_fill=order.max_fill,
        pieces=order.pieces,
        pinned=_pinned(targets, order),
    )
    if order.mdts:
        yield metadata_health(targets=seen.metadata, declared=order.mdts)
    if seen.metadata:
        mdts = range(order.mdts) if order.mdts else seen.mdts
        yield metadata_room(targets=seen.metadata, mdts=mdts, need_files=order.files)
    yield from stripes_of(view, seen, order)


def stripes_of(view: View, seen: Directory | None, order: JobOrder) -> Iterator[finding.Finding]:
    """Yield whether a shared file is large enough for its stripes, if these are known by now."""
    parts = seen.parts_of(order.layout, view.targets) if seen else ()
    if part := last_with_data(parts, order.shared_bytes):
        yield stripes_against_size(file_bytes=order.shared_bytes, part=part)


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
        say=lambda text: print(visible(f"iogauge: lock: {text}"), flush=True),
    )


@contextlib.contextmanager
def _beating(held: lock.Lock, lease_s: float) -> Iterator[None]:
    """Beat in the background, whatever else this process waits for."""
    done = threading.Event()

    def beat() -> None:
        kept = True
        while not done.wait(lease_s / lock.BEATS):
            with contextlib.suppress(OSError):  # the storage may recover; the release shows it
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
    Path(LOCKED).write_text(json.dumps(LockKept(lost).to_json()), encoding="utf-8")


def _may_lock(order: JobOrder, target: str, of_job: bool) -> bool:
    """Return whether the target is the declared file system, and permitted: only then lock it."""
    if identify([look(target)], order).outcome is not finding.Outcome.OK:
        return False
    for place in {target, expand(order.lock or target)}:
        with permission.permitted(place, of_job):
            pass
    return True


def _enter(
    order: JobOrder, target: str, of_job: bool
) -> tuple[View, Directory | None, tuple[str, ...]]:
    """Look at the target and make the case's directory unless a guard refuses.

    Return the view, what the target passes on, and the refusals.
    """
    view, seen = look_as_declared(target, order)
    findings = preflight(view, seen, order)
    if findings[0].outcome is finding.Outcome.OK:  # settings of another file system say nothing
        findings += as_expected(view, order)
    if order.bound_tasks:
        usable = usable_cores()
        findings.append(cores(bound_tasks=order.bound_tasks, usable=usable, declared=order.cores))
    refused = tuple(str(f) for f in findings if f.outcome is finding.Outcome.INVALID)
    if not refused:
        directory.create(
            target,
            order.session,
            order.case,
            order.host,
            owner_process=list(order.process) if order.process else None,
            of_job=of_job,
            time_limit_s=order.time_limit_s,
            removals_per_second=order.removals_per_second,
        )
    return view, seen, refused


def _prepare(order: JobOrder, leaving: contextlib.ExitStack) -> Opened:
    """Take the lock, look at the target and make the directory, or record the reason against it."""
    opened = Opened(session=order.session, case=order.case, clock=read_clock())
    try:
        target = expand(order.target)
        session = directory.session_dir(target, order.session)
        opened = replace(opened, directory=os.path.join(session, order.case))
        of_job = target != order.target
        if of_job:  # a link in it is the resource manager's own
            target = os.path.realpath(target)
        if deadline.call(target, lambda: _may_lock(order, target, of_job), PROGRAM_SECONDS):
            held = _lock(order)
            if held is not None:
                leaving.callback(_release, held)
                leaving.enter_context(_beating(held, order.lock_lease_s))
                opened = replace(opened, locked=True)
            restore_settings(order.restore)
        view, seen, refused = deadline.call(
            target, lambda: _enter(order, target, of_job), PROGRAM_SECONDS
        )
        return replace(opened, view=view, directory_seen=seen, refused=refused)
    except deadline.NoAnswer as error:
        return replace(opened, failed=str(error))
    except (OSError, LustreError) as error:
        return replace(opened, refused=(f"{order.target}: {error}",))
    except lock.Occupied as error:
        return replace(opened, occupied=str(error))


def open_case(order_file: str) -> int:
    """Open a case by its order and keep the lock until the job script ends; return the status."""
    order = JobOrder.from_json(json.loads(Path(order_file).read_text(encoding="utf-8")))
    with contextlib.ExitStack() as leaving:
        opened = _prepare(order, leaving)
        Path(OPENED).write_text(json.dumps(opened.to_json()), encoding="utf-8")
        if opened.failed:
            print(visible(f"iogauge: {opened.failed}"), file=sys.stderr)
            return 1
        reasons = [*opened.refused, *filter(None, [opened.occupied])]
        for reason in reasons:
            print(visible(f"{REFUSAL}{reason}"), file=sys.stderr)
        if reasons:
            return REFUSED
        print(WORD, flush=True)
        view = opened.view
        held_by = opened.directory if order.type in EXACT else None
        recorder = Recorder(view.counters if view else (), held_by)
        try:
            _serve(recorder, Sampler(order.type))
        finally:
            recorder.write()
    return 0


def _heard(recorder: Recorder) -> bytes:
    """Return what the job script says next; meanwhile record what the target's devices move."""
    while not select.select([0], [], [], recorder.pause_s)[0]:
        recorder.look()
    recorder.look()
    return os.read(0, 4096)


def _serve(recorder: Recorder, sampler: Sampler) -> None:
    """Obey the job script until it says "end", or is gone with all its children.

    A line ``phase N`` says that a phase begins. A line ``empty N`` empties the case's directory, ``$IOG_DIR``. A line ``sample N AFTER DIR``
    reads a sample of the contents, ``layouts N DIR`` the layouts of all files. The answer is the
    line, after ``done`` or ``failed``.
    """
    waiting = b""
    while chunk := _heard(recorder):
        *lines, waiting = (waiting + chunk).split(b"\n")
        for line in map(os.fsdecode, lines):
            if line == "end":
                return
            match line.split(" ", 3):
                case ["phase", _]:
                    done = _began(recorder)
                case ["empty", _]:
                    done = _emptied()
                case ["layouts", number, directory]:
                    done = _noted(int(number), directory)
                case ["sample", number, after, directory]:
                    done = _sampled(sampler, int(number), after, directory)
                case _:
                    continue
            _say(f"{'done' if done else 'failed'} {line}")


def _began(recorder: Recorder) -> bool:
    """Look before a phase; on failure, which is the stage's, print why and return False."""
    try:
        note_found(os.environ["IOG_DIR"])
        recorder.begin()
    except OSError as error:
        _say(f"iogauge: phase: {error}")
        return False
    return True


def _sampled(sampler: Sampler, number: int, after: str, directory: str) -> bool:
    """Take a sample; on failure, which is the stage's, print why and return False."""
    try:
        sampler.take(number, after, directory)
    except OSError as error:
        _say(f"iogauge: sample: {error}")
        return False
    return True


def _noted(number: int, directory: str) -> bool:
    """Note the layouts of all files; on failure, which is the stage's, print why and return False."""
    from iogauge.job import lustre

    try:
        lustre.note_layouts(number, directory)
    except OSError as error:
        _say(f"iogauge: layouts: {error}")
        return False
    return True


def _emptied() -> bool:
    """Empty the case's directory and print progress; on failure print why and return False."""
    path = os.environ["IOG_DIR"]
    try:
        # The script waits for lines: it does not give up a slow removal that reports progress.
        directory.empty_case(path, report=removal.Progress(path, _say))
    except OSError as error:
        _say(f"iogauge: empty: {error}")
        return False
    return True


def _say(text: str) -> None:
    """Print a line for the job script to pass on."""
    print(visible(text), flush=True)


def restore_settings(folder: str) -> int:
    for done in client_settings.restore(Path(folder)):
        print(visible(f"iogauge: put back: {done}"))
    return 0
