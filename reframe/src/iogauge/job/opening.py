"""How a case enters its target (lock, look, directory), takes samples of the contents, and leaves."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

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
from iogauge.job.recorder import EXACT, Recorder, note_found
from iogauge.job.target import as_expected, identify
from iogauge.node import files as contents
from iogauge.node.below import resolve_device
from iogauge.node.files import Block, Sample
from iogauge.node.host import read_clock, usable_cores
from iogauge.node.identity import is_upper
from iogauge.node.kinds import kind_of
from iogauge.node.lustre import checksums, lov
from iogauge.node.lustre.directory import Directory, look_at_directory, passed_on
from iogauge.node.lustre.layout import last_with_data
from iogauge.node.lustre.programs import PROGRAM_SECONDS, LustreError
from iogauge.node.lustre.request import place
from iogauge.node.lustre.targets import StorageTarget
from iogauge.node.mounts import find_mount, upper_directory
from iogauge.node.view import View, look, with_lustre
from iogauge.plan.stage import (
    ALIVE,
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
from iogauge.workspace import alone, directory, lock, permission

#: Seconds that a sample may take on storage that answers slowly; less than the job script waits.
_ANSWER_S: Final = 5.0


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
            blocks, files, direct = processes.call_in_time(
                directory,
                lambda: contents.take_sample(directory, known, kind_of(self.type).maps),
                _ANSWER_S,
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
    yield health(
        targets=view.targets, declared=order.targets, out=order.out, space=view.whole_space
    )
    if order.pool is not None:
        yield pool(name=order.pool, targets=view.targets, seen=seen)
        if not seen.pool:
            return
    mdts = _mdts(seen, order)
    if _with_metadata(order):
        yield target_room(
            targets=[one for one in seen.metadata_space if not mdts or one.index in mdts],
            need_bytes=order.held_bytes,
            max_fill=order.max_fill,
            kind="metadata target",
        )
    else:
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
        yield metadata_room(targets=seen.metadata, mdts=mdts, need_files=order.files)
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
        say=_tell_of_lock,
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


def _may_lock(order: JobOrder, target: str, of_job: bool) -> View | None:
    """Return the target's view if it is the declared file system, and permitted: only then lock it."""
    view = look(target)
    if identify([view], order).outcome is not finding.Outcome.OK:
        return None
    for locked in {target, expand(order.lock or target)}:
        with permission.permitted(locked, of_job):
            pass
    return view


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
    if findings[0].outcome is finding.Outcome.OK:  # settings of another file system say nothing
        findings += as_expected(view, order)
    if order.bound_tasks:
        usable = usable_cores()
        findings.append(cores(bound_tasks=order.bound_tasks, usable=usable, declared=order.cores))
    if order.devices:
        findings.append(devices(below={name: resolve_device(name) for name in order.devices}))
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
        removals_per_second=order.removals_per_second,
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
        locked = processes.call_in_time(
            target, lambda: _may_lock(order, target, of_job), PROGRAM_SECONDS
        )
        if locked is not None:
            wait_until = time.monotonic() + order.lock_wait_s
            held = _lock(order)
            if held is not None:
                leaving.callback(_release, held)
                leaving.enter_context(_beating(held, order.lock_lease_s))
                opened = replace(opened, locked=True)
            if order.alone:
                # Whoever waits here waits for nobody who waits: each needs the lock of its target first.
                wait_s = max(0.0, wait_until - time.monotonic())
                wanted = alone.names(locked)
                leaving.enter_context(
                    alone.alone(wanted, wait_s=wait_s, pause=_ended, say=_tell_of_lock)
                )
            restore_settings(order.restore)
        view, seen, refused = processes.call_in_time(
            target, lambda: _enter(order, target, of_job), PROGRAM_SECONDS
        )
        disks = _disks(order)
        return replace(opened, view=view, directory_seen=seen, refused=refused, disks=disks)
    except processes.NoAnswer as error:
        return replace(opened, failed=str(error))
    except (OSError, LustreError) as error:
        return replace(opened, refused=(f"{order.target}: {error}",))
    except lock.Occupied as error:
        return replace(opened, occupied=str(error))


def open_case(order_file: str, run: Callable[[list[str]], int]) -> int:
    """Open a case by its order and keep the lock until the job script ends; return the status.

    ``run`` runs one of the agent's commands and returns its exit status.
    """
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
        held_by = opened.directory if _is_exact(order.type, view) else None
        recorder = Recorder(view.counters if view else (), held_by, opened.directory)
        try:
            _serve(recorder, Sampler(order.type), run)
        finally:
            recorder.write()
    return 0


def _is_exact(kind: str, view: View | None) -> bool:
    """Return whether a file system says at any time how many inodes are in use; an overlay says it of its upper directory's."""
    mount = view.mount if view else None
    upper = upper_directory(mount) if mount else None
    if mount and upper and is_upper(mount, upper) and (beneath := find_mount(upper)):
        kind = beneath.type
    return kind in EXACT


def _heard(recorder: Recorder) -> bytes:
    """Return what the job script says next; meanwhile record what the target's devices move."""
    while not select.select([0], [], [], recorder.pause_s)[0]:
        recorder.look()
    recorder.look()
    return os.read(0, 4096)


def _serve(recorder: Recorder, sampler: Sampler, run: Callable[[list[str]], int]) -> None:
    """Obey the job script until it says "end", or is gone with all its children.

    A line ``phase N FILE`` says that a phase begins whose tool prints to FILE. A line ``empty N`` empties the case's directory, ``$IOG_DIR``. A line ``sample N AFTER DIR``
    reads a sample of the contents, ``layouts N DIR`` the layouts of all files. ``run N WORDS`` runs a command of the
    agent, with a tab between two words; meanwhile a line ``alive`` comes now and then. The answer is the line, after ``done``
    or ``failed``.
    """
    waiting = b""
    while chunk := _heard(recorder):
        *lines, waiting = (waiting + chunk).split(b"\n")
        for line in lines:
            if line == b"end":
                return
            done = _obey(os.fsdecode(line), recorder, sampler, run)
            if done is not None:
                sys.stdout.flush()  # What the command said comes before the answer.
                # On a line of its own, even if the script has lost the end of one for which it waited in vain.
                sys.stdout.buffer.write(b"\ndone " if done else b"\nfailed ")
                sys.stdout.buffer.write(line + b"\n")
                sys.stdout.flush()


def _obey(
    line: str, recorder: Recorder, sampler: Sampler, run: Callable[[list[str]], int]
) -> bool | None:
    """Obey a line of the job script and return whether that succeeded; None for other words."""
    word, _, rest = line.partition(" ")
    number, _, words = rest.partition(" ")
    match word:
        case "phase":
            return _began(recorder, words)
        case "empty":
            return _emptied()
        case "layouts":
            return _noted(int(number), words)
        case "sample":
            after, _, directory = words.partition(" ")
            return _sampled(sampler, int(number), after, directory)
        case "run":
            return _ran(words.split("\t"), run)
    return None


#: Modules that the agent's commands need and this one does not. Imported once here, each fork has them.
_MODULES: Final = {
    "evict": ("iogauge.node.files",),
    "facts": ("iogauge.node.host", "iogauge.node.probes"),
}


def _ran(words: list[str], run: Callable[[list[str]], int]) -> bool:
    """Run a command of the agent in a process of its own.

    Nothing of it goes on while a phase is measured. It ends if the job script waits no longer, which then gets the lock released at once.
    """
    for module in _MODULES.get(words[0], ()):
        importlib.import_module(module)

    def work() -> bool:
        with contextlib.redirect_stderr(sys.stdout):
            return run(words) == 0

    return processes.attended(work, 0, lambda: _say(ALIVE))


def _began(recorder: Recorder, output: str) -> bool:
    """Look before a phase; on failure, which is the stage's, print why and return False."""
    try:
        note_found(os.environ["IOG_DIR"])
        recorder.begin(output)
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
    from iogauge.job import target

    try:
        target.note_layouts(number, directory)
    except OSError as error:
        _say(f"iogauge: layouts: {error}")
        return False
    return True


def _emptied() -> bool:
    """Empty the case's directory and print progress; on failure print why and return False."""
    path = os.environ["IOG_DIR"]
    try:
        # The script waits for lines: it does not give up a slow removal that reports progress.
        directory.empty_case(path, report=directory.Progress(path, _say))
    except OSError as error:
        _say(f"iogauge: empty: {error}")
        return False
    return True


def _say(text: str) -> None:
    """Print a line for the job script to pass on."""
    print(visible(text), flush=True)


def restore_settings(folder: str) -> int:
    for done in checksums.restore(Path(folder)):
        print(visible(f"iogauge: put back: {done}"))
    return 0
