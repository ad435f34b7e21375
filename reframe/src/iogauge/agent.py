"""What a job runs on the nodes themselves: look at the target, make the directory, empty the page cache.

``python -m iogauge.agent open CASE.json`` waits for the target's lock, checks the target and makes the case's
directory, or refuses with status 3; it says "opened", and keeps the lock until its standard input ends; ``view PATH OUT`` says what this host sees of a path, ``evict DIR OUT`` drops the page cache
of all files below a directory, ``pin PINS.json DIR OUT`` puts files or directories on storage targets of
Lustre, ``stripes DIR OUT`` reads back the layout of every file: each writes its answer to
``OUT.<host>.json``, a file for each node, because launchers mix what the nodes print. ``facts DIR OUT`` does so
with the node's fingerprint and counters, and never fails. ``checksums on|off DIR
KEEP`` switches Lustre's checksums after it has kept in the directory KEEP what it found, ``restore KEEP`` puts
that back; ``open`` does so too, for jobs that were killed before they could. ``remove DIR SECONDS`` removes
a case's directory, or as much of it as the time allows (0: all), ``empty DIR`` what is in it. What cannot be done ends with status 1 and a line that says why. Paths may begin with a variable, see :func:`expand`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from iogauge import (
    allowed,
    fingerprint,
    guards,
    load,
    lock,
    lustre,
    pagecache,
    patience,
    process,
    removal,
    tunables,
    workdir,
)
from iogauge.filesystem import (
    Quota,
    View,
    cache_id,
    cached_below,
    find_mount,
    parse_lfs_quota,
    space_of,
)
from iogauge.lustre import FileLayout, LustreError, Pins, StorageTarget
from iogauge.units import visible

_T = TypeVar("_T")

#: What no target's path may hold, see :class:`iogauge.target.Target`.
_ODD: Final = re.compile(r"[^A-Za-z0-9_./+,=%~-]")
#: Exit status of a refusal, as against a crash.
REFUSED: Final = 3
#: File in the stage directory with what ``open`` saw and decided.
OPENED: Final = "open.json"
#: File in the stage directory that says whether the lock was held to the end. The job script waits for the word.
LOCKED: Final = "lock.json"
WORD: Final = "opened"
#: Programs that run at a time, names on one command line, seconds that one program may take.
_WORKERS: Final = 16
_NAMES: Final = 200
_TIMEOUT: Final = 120


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


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    """A finished program, whatever its status; raises :class:`LustreError` where it cannot run or hangs."""
    try:
        return subprocess.run(
            words, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LustreError(
            f"{words[0]} cannot be run on {os.uname().nodename} ({error}): a target that Lustre stripes "
            "needs it on every node"
        ) from error


def _lfs(*words: str) -> str:
    """What ``lfs`` prints; raises :class:`LustreError` with its complaint where it fails."""
    done = _run("lfs", *words)
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "it printed nothing").splitlines()
        shown = " ".join(["lfs", *words[:6], *(["..."] if len(words) > 6 else [])])
        raise LustreError(f"{shown}: exit status {done.returncode}: {said[0]}")
    return done.stdout


def _each(work: Callable[[str], _T], items: Sequence[str]) -> list[_T]:
    """``work`` on every item, several at a time; the answers in the order of the items."""
    with ThreadPoolExecutor(_WORKERS) as pool:
        return list(pool.map(work, items))


def storage_targets(path: str) -> tuple[StorageTarget, ...]:
    """Storage targets behind a path on Lustre; raises :class:`LustreError` where ``lfs`` does not tell."""
    room = lustre.parse_df(_lfs("df", path))
    osts = lustre.parse_osts(_lfs("osts", path))
    checked = _run("lfs", "check", "osts")
    failed = lustre.parse_check(checked.stdout + checked.stderr)
    named = ""
    # Without an answer, which the exit status of lctl says nothing about, the servers are not known.
    with contextlib.suppress(LustreError):
        named = _run("lctl", "get_param", "osc.*.ost_conn_uuid").stdout
    return lustre.join_targets(
        osts=osts, room=room, servers=lustre.parse_servers(named), failed=failed
    )


def _lustre_quotas(path: str) -> tuple[Quota, ...]:
    """Quota of the user and the group on Lustre; empty where ``lfs`` is missing or does not answer."""
    if shutil.which("lfs") is None:
        return ()
    quotas = []
    for flag, number, owner in (("-u", os.getuid(), "user"), ("-g", os.getgid(), "group")):
        try:
            done = _run("lfs", "quota", "-q", flag, str(number), path)
        except LustreError:
            continue
        quota = parse_lfs_quota(done.stdout, f"{owner} {number}")
        if quota:
            quotas.append(quota)
    return tuple(quotas)


def look(path: str, striped: bool = False) -> View:
    """What this host sees of a path; raises OSError where it cannot be looked at.

    ``striped``: Lustre lays its files out, whose storage targets are looked at too. Raises
    :class:`LustreError` where they cannot be.
    """
    mount = find_mount(path)
    on_lustre = striped or (mount is not None and mount.type == "lustre")
    return View(
        host=os.uname().nodename,
        path=path,
        mount=mount,
        space=space_of(path),
        quotas=_lustre_quotas(path) if on_lustre else (),
        cache_id=cache_id(path),
        cached_below=mount is not None and cached_below(mount),
        targets=storage_targets(path) if striped else (),
    )


def _striped(case: dict[str, Any]) -> bool:
    return bool(case.get("striping", "none") == "lustre")


def _identity(view: View, case: dict[str, Any]) -> guards.Finding:
    return guards.identity(declared_type=case["type"], declared_source=case["source"], views=[view])


def _pinned(view: View, case: dict[str, Any]) -> list[int]:
    """Storage target of each file that the case puts on one; empty where it does not, or cannot yet."""
    if case["pins"] is None:
        return []
    try:
        return [*lustre.place(Pins.from_json(case["pins"]), view.targets).values()]
    except ValueError:  # the job's own step says what is wrong with the targets
        return []


def look_as_declared(target: str, case: dict[str, Any]) -> View:
    """What this host sees of a case's target: its storage targets too, if it is what was declared.

    What is not the declared file system need not be asked for them. Raises as :func:`look` does.
    """
    view = look(target)
    if _striped(case) and _identity(view, case).outcome is guards.Outcome.OK:
        return look(target, striped=True)
    return view


def preflight(view: View, case: dict[str, Any]) -> list[guards.Finding]:
    """Guards that must hold before the first byte is written."""
    findings = [
        _identity(view, case),
        guards.room(
            space=view.space,
            need_bytes=case["held_bytes"],
            max_fill=case["max_fill"],
            keep_free=case["keep_free"],
        ),
        guards.share_of_free(
            space=view.space,
            need_bytes=case["held_bytes"],
            max_of_free=case["max_of_free"],
        ),
        guards.inodes(
            space=view.space,
            quotas=view.quotas,
            need_bytes=case["held_bytes"],
            need_files=case["files"],
        ),
    ]
    if _striped(case):
        findings += [
            guards.health(targets=view.targets, declared=case["targets"]),
            guards.target_room(
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
    """The lock of the target, None where it needs none; raises what :func:`iogauge.lock.take` raises."""
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
    if _identity(look(target), case).outcome is not guards.Outcome.OK:
        return False
    for place in {target, expand(case["lock"] or target)}:
        with allowed.opened(place, of_job):
            pass
    return True


def _enter(case: dict[str, Any], target: str, of_job: bool) -> dict[str, Any]:
    """Look at the target and, if nothing speaks against it, make the case's directory; what was seen."""
    view = look_as_declared(target, case)
    findings = preflight(view, case)
    refused = [str(f) for f in findings if f.outcome is guards.Outcome.INVALID]
    if not refused:
        workdir.create(
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
        if patience.ask(target, lambda: _may_lock(case, target, of_job), _TIMEOUT):
            held = _lock(case)
            if held is not None:
                leaving.callback(_release, held)
                leaving.enter_context(_beating(held, case["lock_lease_s"]))
                seen["locked"] = True
            _restore(case["restore"])
        seen |= patience.ask(target, lambda: _enter(case, target, of_job), _TIMEOUT)
    except patience.NoAnswer as error:
        seen["failed"] = str(error)
    except (OSError, LustreError) as error:
        seen["refused"] = [f"{case['target']}: {error}"]
    except lock.Occupied as error:
        seen["occupied"] = str(error)
    return seen | {"session": case["session"], "case": case["case"]}


def _open(case_file: str) -> int:
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


def _answer(out: str, answer: dict[str, Any]) -> int:
    """Write what this node has to say; the file is there whole or not at all."""
    file = Path(f"{out}.{os.uname().nodename}.json")
    scratch = file.with_suffix(f".{os.getpid()}")
    scratch.write_text(json.dumps(answer), encoding="utf-8")
    scratch.replace(file)
    return 0


def _pin(pins_file: str, directory: str, out: str) -> int:
    """Put every name on its storage target, and say where it was asked to be and where it is.

    Files must not be there before: ``lfs setstripe`` makes them.
    """
    pins = Pins.from_json(json.loads(Path(pins_file).read_text(encoding="utf-8")))
    placed = lustre.place(pins, storage_targets(directory))
    paths = {name: os.path.join(directory, name) for name in pins.names}
    for path in paths.values():
        if pins.kind == "directory":
            os.makedirs(path)
        else:
            os.makedirs(os.path.dirname(path), exist_ok=True)
    for target in dict.fromkeys(placed.values()):
        mine = [paths[name] for name in pins.names if placed[name] == target]
        wish = lustre.Layout(stripe_count=1, start=target, stripe_bytes=pins.stripe_bytes)
        for first in range(0, len(mine), _NAMES):
            _lfs("setstripe", *wish.arguments(), *mine[first : first + _NAMES])

    def landed(name: str) -> int | None:
        path = paths[name]
        if pins.kind == "directory":
            return lustre.parse_default_start(_lfs("getstripe", "-d", "-y", path), path)
        osts = lustre.parse_getstripe(_lfs("getstripe", "-y", path), path).osts
        return osts[0] if len(osts) == 1 else None

    found = dict(zip(pins.names, _each(landed, pins.names), strict=True))
    return _answer(out, {"placed": placed, "found": found})


def _stripes(directory: str, out: str) -> int:
    """Layouts of all regular files below a directory, by their path from there, in order of it."""
    _lfs("getstripe", "-d", "-y", directory)  # Without a file, too, it must be Lustre that answers.
    names = sorted(os.path.relpath(path, directory) for path in pagecache.files_below(directory))

    def read(name: str) -> FileLayout:
        text = _lfs("getstripe", "-y", os.path.join(directory, name))
        return lustre.parse_getstripe(text, name)

    return _answer(out, {"files": [layout.to_json() for layout in _each(read, names)]})


def _facts(directory: str, out: str) -> int:
    """What this node is, and what it has counted until now. A run does not depend on it: always 0."""
    try:
        path = expand(directory)
        counted = load.look(path)
        _answer(out, {"load": counted.to_json(), "fingerprint": fingerprint.collect(path)})
    except (OSError, ValueError) as error:
        print(visible(f"iogauge: facts: left out: {error}"), file=sys.stderr)
    return 0


def _checksums(state: str, directory: str, folder: str) -> int:
    mount = find_mount(expand(directory))
    tunables.switch_checksums(state == "on", mount.source if mount else "", Path(folder))
    return 0


def _progress(directory: str) -> removal.Progress:
    return removal.Progress(
        directory, lambda text: print(visible(text), file=sys.stderr, flush=True)
    )


def _remove(directory: str, seconds: float) -> int:
    for told in process.end(directory):
        print(visible(f"iogauge: {told}"), file=sys.stderr, flush=True)
    if not os.path.lexists(directory):
        text = (
            f"iogauge: {directory} was gone before this job could remove it: if its file system is not mounted "
            "any more, what was written lies there still; remove it with iogauge clean when it is"
        )
        print(visible(text), file=sys.stderr, flush=True)
    workdir.remove_case(directory, seconds=seconds or None, tell=_progress(directory))
    return 0


def _empty(directory: str) -> int:
    workdir.empty_case(directory, tell=_progress(directory))
    return 0


def _restore(folder: str) -> int:
    for done in tunables.restore(Path(folder)):
        print(visible(f"iogauge: put back: {done}"))
    return 0


def _command(argv: list[str]) -> int | None:
    """Exit status of one of the agent's commands, None where it is not one."""
    match argv:
        case ["open", case_file]:
            return _open(case_file)
        case ["view", path, out]:
            return _answer(out, look(expand(path)).to_json())
        case ["evict", directory, out]:
            done = pagecache.evict(pagecache.files_below(expand(directory)))
            return _answer(out, done.to_json())
        case ["pin", pins_file, directory, out]:
            return _pin(pins_file, expand(directory), out)
        case ["checksums", ("on" | "off") as state, directory, folder]:
            return _checksums(state, directory, folder)
        case ["restore", folder]:
            return _restore(folder)
        case ["empty", directory]:
            return _empty(directory)
        case ["remove", directory, seconds]:
            return _remove(directory, float(seconds))
        case ["stripes", directory, out]:
            return _stripes(expand(directory), out)
        case ["facts", directory, out]:
            return _facts(directory, out)
    return None


def main(argv: list[str]) -> int:
    """Run one of the agent's commands; returns the exit status."""
    try:
        status = _command(argv)
    except (OSError, ValueError) as error:
        print(visible(f"iogauge: {' '.join(argv[:1])}: {error}"), file=sys.stderr)
        return 1
    if status is not None:
        return status
    usage = (
        "open FILE | view PATH OUT | evict DIR OUT | pin PINS DIR OUT | stripes DIR OUT | "
        "facts DIR OUT | empty DIR | remove DIR SECONDS | checksums on|off DIR KEEP | restore KEEP"
    )
    print(visible(f"usage: python -m iogauge.agent {usage}, not {argv}"), file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
