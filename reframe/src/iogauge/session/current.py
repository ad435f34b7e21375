"""One run of ReFrame: its name, its paths, its cleanup at the end, and a gate that guards itself. Also removes the remains of
killed sessions.
"""

import atexit
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType
from typing import Any, Final

from iogauge.core import commands, processes, untrusted
from iogauge.core.paths import (
    LIBRARY,
    logs_dir,
    project_root,
    stages_dir,
    state_dir,
)
from iogauge.core.text import visible_lines
from iogauge.session.life import DETAILS
from iogauge.workspace import directory, lock, removal

#: File in the state directory that lists every target that a session has used, for the janitor.
TARGETS = "targets.txt"

#: File in a session's stage directory that names its process and host.
OWNER: Final = ".iogauge-session"

#: What is said of a gate that would only list or plan.
NO_GATE: Final = (
    "a gate measures, and a listing or a dry run measures nothing: "
    "leave out --gate and unset IOGAUGE_GATE, or run the cases"
)


def known_targets() -> list[str]:
    """Return the targets that sessions have used, in order of first use."""
    try:
        lines = untrusted.read_text(state_dir() / TARGETS).split("\n")
    except OSError:
        return []
    return [line for line in lines if line.startswith("/") and line.isprintable()]


def is_gate() -> bool:
    """Return whether the run is a gate (``IOGAUGE_GATE=1``): then only PASS passes.

    A value other than yes or no ends the process: a gate must not be open by mistake.
    """
    value = os.environ.get("IOGAUGE_GATE", "")
    if value.lower() in ("1", "true", "yes", "on"):
        return True
    if value.lower() in ("", "0", "false", "no", "off"):
        return False
    raise SystemExit(f"iogauge: IOGAUGE_GATE is {value!r}: expected 1 or 0")


def gate_marks() -> dict[str, object]:
    """Return the fields of a gate's records that identify the selection (``records.missing``)."""
    chosen = os.environ.get("IOGAUGE_SELECTION")
    if chosen is None:
        return {}
    return {"selection": chosen}


@cache
def suite() -> str:
    """Return the version of the suite and, in a clone, its commit: ``1.0.0 commit 1a2b3c4d5e6f``.

    ReFrame may run the checks of a clone in which the library is not installed: then the version is
    not known.
    """
    root, known = project_root(), []
    with contextlib.suppress(PackageNotFoundError):
        known.append(version("iogauge"))
    # Not a repository that happens to hold an installed library.
    if (root / ".git").exists():
        describe = ["git", "-C", str(root), "describe"]
        options = ["--always", "--dirty", "--abbrev=12"]
        with contextlib.suppress(OSError):
            commit = commands.output(*describe, *options, seconds=10).strip()
            known.append(f"commit {commit}")
    return " ".join(known) or "unknown"


def confirms() -> str:
    """Return the session whose failures this run measures again; empty in any other run."""
    return os.environ.get("IOGAUGE_CONFIRMS", "")


def new_session_name() -> str:
    """Return a new name that sorts by time and is unique on this host."""
    host = re.sub(r"[^A-Za-z0-9]+", "-", socket.gethostname()).strip("-") or "host"
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{host}-{os.getpid()}"


def announce(name: str) -> None:
    """Add a session's name to the file ``$IOGAUGE_SESSIONS`` before the run, for the caller."""
    file = os.environ.get("IOGAUGE_SESSIONS")
    if not file:
        return
    # Without O_NONBLOCK, opening a pipe would wait for a reader.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
    with open(os.open(file, flags, 0o666), "w", encoding="utf-8") as lines:
        lines.write(name + "\n")


@dataclass
class Session:
    """State of this process's run."""

    name: str
    #: Paths on which it may have left a directory.
    targets: set[str] = field(default_factory=set)
    #: Cases.
    passed: int = 0
    #: Cases.
    failed: int = 0
    #: Cases that are set up and undecided: check, partition, environment, name of the case.
    open_cases: set[tuple[str, str, str, str]] = field(default_factory=set)
    #: For each case whose job began and that is undecided: a function to call at the end, with the
    #: problem of the targets.
    undecided: dict[tuple[str, str, str, str], Callable[[str], None]] = field(
        default_factory=dict
    )
    #: The first signal that told this session to end (``SIGTERM``); empty if there was none.
    ended_by: str = ""

    def note_signals(self) -> None:
        """Note the signal that ends this session before ReFrame, whose handler stays, acts on it."""
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(number)
            if callable(handler) and not isinstance(handler, _Handler):
                signal.signal(number, _Handler(self, handler))

    def track(self, target: str) -> None:
        """Note a target, so that this session's directory on it is removed even by the janitor."""
        if target in self.targets:
            return
        self.targets.add(target)
        stage = stages_dir() / self.name
        stage.mkdir(parents=True, exist_ok=True)
        owner = {
            "host": socket.gethostname(),
            "process": processes.identity(os.getpid()),
        }
        (stage / OWNER).write_text(json.dumps(owner), encoding="utf-8")
        if target not in known_targets():
            file = state_dir() / TARGETS
            file.parent.mkdir(parents=True, exist_ok=True)
            with open(file, "a", encoding="utf-8") as lines:
                lines.write(target + "\n")

    def clean(self) -> None:
        """Remove this session's directories; report failures with the command to retry.

        Undecided cases are then decided: the target may now show what their job was waiting for.
        """
        silent = []
        for target in sorted(self.targets):
            text = self._clean(target)
            if text:
                silent.append(text)
        while self.undecided:
            self.undecided.popitem()[1]("; ".join(silent))

    def _clean(self, target: str) -> str:
        """Remove this session's directory on a target; return a message if the target is silent."""
        path = directory.session_dir(target, self.name)
        retry = f"iogauge clean --target {target}"

        def work(report: processes.Report) -> list[str] | None:
            if not os.path.isdir(target):
                return None
            ended = processes.end(path)
            directory.remove(path, report=report)
            holder = lock.standing(target)
            if holder is not None and holder.gone:
                lock.remove(holder)
            lock.tidy(target)
            return ended

        try:
            ended = processes.watch(target, work, removal.Progress(path, say))
            for message in ended or ():
                say(f"iogauge: {message}")
            if ended is None:
                say(
                    f"iogauge: {target} is not to be seen from here; if a job was killed, run on a node "
                    f"that sees it: {retry}"
                )
        except processes.NoAnswer as error:
            say(f"iogauge: {error}")
            return str(error)
        except OSError as error:
            say(f"iogauge: {error}; left behind, remove it with: {retry}")
        return ""


@dataclass(frozen=True)
class _Handler:
    """A signal's handler that tells the session of the signal first."""

    session: Session
    handler: Callable[[int, FrameType | None], object]

    def __call__(self, number: int, frame: FrameType | None) -> None:
        first = not self.session.ended_by
        if first:
            self.session.ended_by = signal.Signals(number).name
        # `iogauge run` passes on what its group gets too.
        if first or number == signal.SIGINT:
            self.handler(number, frame)


def say(text: str) -> None:
    """Print to standard error; what follows is done even if nobody reads it any more."""
    with contextlib.suppress(OSError, ValueError):
        print(visible_lines(text), file=sys.stderr, flush=True)


_current: Session | None = None


def current() -> Session:
    """Return the session of this process; a caller may set its name by ``$IOGAUGE_SESSION``."""
    global _current
    if _current is None:
        name = os.environ.get("IOGAUGE_SESSION") or new_session_name()
        try:
            directory.require_name(name)
        except OSError as error:
            raise SystemExit(f"iogauge: IOGAUGE_SESSION: {error}") from error
        _current = Session(name)
        atexit.register(_current.clean)
    return _current


def runs_cases(argv: list[str]) -> bool:
    """Return whether a ReFrame command line runs tests (``-r``, ``--run``, or ``r`` among flags).

    Only R, q, r and v are flags without a value; text behind any other letter is its value.
    """
    options = re.compile(r"--run?|-[Rqv]*r.*")
    return any(map(options.fullmatch, argv))


def foreign_modules() -> list[str]:
    """Return the folders of PYTHONPATH from which Python takes modules before its own; that of the library is none."""
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    own = str(LIBRARY.parent)
    return [folder for folder in folders if folder and os.path.realpath(folder) != own]


@cache
def guard_gate() -> None:
    """As a gate, make a run end with status 1 unless a case passed and no case failed on the way.

    ReFrame itself says "PASSED" and ends with 0 if it selected nothing, or if a retry passed after a failure. Without a
    gate, a run of no case says that it proved nothing; ``iogauge run`` says more. Called
    when the site configuration is loaded: exit handlers run in reverse order, so this one is last.
    A gate that only lists or plans ends the process with status 2.
    """
    gate = is_gate()
    if not runs_cases(sys.argv[1:]):
        if gate:
            say(f"iogauge: {NO_GATE}")
            raise SystemExit(2)
        return
    if gate and foreign_modules():
        say(
            f"iogauge: PYTHONPATH names {', '.join(foreign_modules())}: modules from there may replace those that judge, "
            "which no gate allows. Unset PYTHONPATH"
        )
        raise SystemExit(2)
    end = _warn_if_nothing
    if gate:
        end = _fail_unless_passed
    atexit.register(end, current())


_NOTHING: Final = (
    "no case was measured and passed. Expected at least one: check the options -n, "
    "-t, -c and --system, and see what 'reframe -c checks/ -l' lists"
)


def _warn_if_nothing(session: Session) -> None:
    if not session.failed and not session.passed and DETAILS not in os.environ:
        say(f"iogauge: nothing proven: {_NOTHING}")


def _fail_unless_passed(session: Session) -> None:
    reason = _NOTHING
    if session.failed:
        reason = f"{session.failed} case(s) did not pass at first"
    elif session.passed:
        return
    say(f"iogauge: FAILED: this run is a gate and {reason}")
    session.clean()
    processes.flush()
    os._exit(1)


@dataclass
class Janitor:
    """Removes session directories and locks of dead sessions, and stage directories a week old.

    On a target nothing without our marker is touched.
    """

    #: It only says what would be removed.
    dry_run: bool
    #: Sessions that may be alive, and their locks, are removed too.
    everything: bool
    #: Gets every line for the user.
    say: Callable[[str], None]
    #: Places that did not answer once; the janitor does not wait for them again.
    silent: set[str] = field(default_factory=set)
    failed: bool = False

    @property
    def _done(self) -> str:
        if self.dry_run:
            return "would remove"
        return "removed"

    def clean_targets(self, targets: Sequence[str], default: str) -> None:
        """Clean the given targets, else those of earlier sessions, else ``default``.

        Remove old stages in any case.
        """
        places = list(targets) or known_targets() or [default]
        nothing = True
        for place in places:
            for path in self._dead_sessions(place, bool(targets)):
                self._remove(place, path)
                nothing = False
        for place in places:
            if place not in self.silent and self._clean_lock(place):
                nothing = False
        if self._clean_stages():
            nothing = False
        self.failed = self.failed or bool(self.silent)
        if nothing:
            self.say("nothing to remove")

    @contextlib.contextmanager
    def _answers(self, place: str, what: str) -> Iterator[None]:
        """Say what is left because its place does not answer, or because something was refused."""
        try:
            yield
        except processes.NoAnswer as error:
            self.say(f"left: {what}: {error}")
            self.silent.add(place)
        except OSError as error:
            self.say(f"refused: {error}")
            self.failed = True

    def _dead_sessions(self, place: str, is_named: bool) -> list[str]:
        """Return the directories of sessions on a place that may be removed."""
        dead: list[str] = []
        found: list[directory.FoundSession] = []
        with self._answers(place, place):
            try:
                look = partial(directory.sessions, place)
                found = processes.call_in_time(place, look)
            except FileNotFoundError:
                self.say(
                    f"{place} is not there: if it is not mounted, clean it when it is"
                )
                self.failed = self.failed or is_named
        for session in found:
            if self.everything or not directory.may_be_alive(session):
                dead.append(session.path)
            else:
                self.say(
                    f"kept: {session.path}: its session may be alive (--all removes it)"
                )
        return dead

    def _remove(self, place: str, path: str) -> None:
        """Remove a session's directory, unless its place is silent."""
        if place in self.silent:
            self.say(f"left: {path}")
            return
        with self._answers(place, path):
            work = partial(_remove_directory, path, self.dry_run)
            shown = removal.Progress(path, self.say)
            for message in processes.watch(place, work, shown):
                self.say(message)
            self.say(f"{self._done}: {path}")

    def _clean_lock(self, place: str) -> bool:
        """Break the lock of a place if its holder is dead; return whether there was anything to say of it."""
        done = True
        with self._answers(place, f"the lock of {place}"):
            done = self._break(place)
        return done

    def _break(self, place: str) -> bool:
        """As :meth:`_clean_lock`; raises OSError."""
        holder = processes.call_in_time(place, partial(lock.standing, place))
        if holder is not None and not holder.name:
            raise lock.LockError(f"{holder}: remove it by hand")
        if holder is not None and not (self.everything or holder.gone):
            self.say(
                f"kept: the lock of {holder}: it is in use, as far as this host can tell. A case that waits for it "
                "breaks it if it is dead (--all breaks it now)"
            )
            return False
        broken = self.dry_run or processes.call_in_time(
            place, partial(_break_lock, place, holder)
        )
        if not broken:
            self.say(
                f"kept: the lock of {holder}: it gave a sign of life just now. Run again"
            )
        elif holder is not None:
            self.say(f"{self._done}: the lock of {holder}")
        return holder is not None

    def _clean_stages(self) -> list[Path]:
        """Remove stage directories of sessions that began a week ago, and ReFrame's logs of then."""
        old = [*old_stages(), *old_logs()]
        for path in old:
            if not self.dry_run and path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif not self.dry_run:
                with contextlib.suppress(OSError):
                    path.unlink()
            done = self._done
            if not self.dry_run and path.exists():
                done = "left"
            self.say(f"{done}: {path} (a week old)")
        return old


def _break_lock(place: str, holder: lock.Holder | None) -> bool:
    """Break a lock and remove what is empty; return False if the holder has it still."""
    broken = holder is None or lock.remove(holder)
    lock.tidy(place)
    return broken


def _remove_directory(path: str, dry_run: bool, report: processes.Report) -> list[str]:
    """Remove a session's directory and end the processes that work in it; return their messages."""
    try:
        directory.check_ours(path)
    except FileNotFoundError:
        return []
    if dry_run:
        return []
    ended = processes.end(path)
    directory.remove(path, report=report)
    return ended


def old_stages(days: float = 7.0) -> list[Path]:
    """Return stage directories, one for each session, of sessions that began ``days`` ago.

    Running sessions are left out. Sessions of other hosts cannot be checked: they need four times
    as many days.
    """
    old = []
    for path in sorted(stages_dir().glob("*")):
        with contextlib.suppress(OSError):
            info = path.lstat()
            age = (time.time() - info.st_mtime) / 86400
            if stat.S_ISDIR(info.st_mode) and age > days:
                owner = _owner(path)
                if owner.get("host", socket.gethostname()) != socket.gethostname():
                    runs = age <= 4 * days
                else:
                    runs = "process" in owner and processes.runs(owner["process"])
                if not runs:
                    old.append(path)
    return old


def old_logs(days: float = 7.0) -> list[Path]:
    """Return ReFrame's logs that nothing was written to for ``days``."""
    old = []
    for path in sorted(logs_dir().glob("*.log*")):
        with contextlib.suppress(OSError):
            if time.time() - path.lstat().st_mtime > days * 86400:
                old.append(path)
    return old


def _owner(stage: Path) -> dict[str, Any]:
    """Return process and host of a stage directory's session; empty if unknown."""
    with contextlib.suppress(OSError, ValueError):
        owner = untrusted.read_json(stage / OWNER)
        if isinstance(owner, dict):
            return owner
    return {}
