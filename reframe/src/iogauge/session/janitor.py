"""Removes the remains of killed sessions."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from iogauge.core import deadline, processes, untrusted
from iogauge.core.paths import logs_dir, stages_dir
from iogauge.session.current import OWNER, known_targets
from iogauge.workspace import directory, lock, removal


@dataclass
class Janitor:
    """Removes session directories and locks of dead sessions, and stage directories a week old.

    On a target nothing without our marker is touched. ``dry_run`` only says what would be removed.
    ``everything`` includes sessions that may be alive, and their locks. ``say`` gets every line for
    the user.
    """

    dry_run: bool
    everything: bool
    say: Callable[[str], None]
    #: Places that did not answer once; the janitor does not wait for them again.
    silent: set[str] = field(default_factory=set)
    failed: bool = False

    @property
    def _done(self) -> str:
        return "would remove" if self.dry_run else "removed"

    def clean_targets(self, targets: Sequence[str], default: str) -> None:
        """Clean the given targets, else those of earlier sessions, else ``default``.

        Remove old stages in any case.
        """
        places = list(targets) or known_targets() or [default]
        doomed = [
            session for place in places for session in self._dead_sessions(place, bool(targets))
        ]
        for place, path in doomed:
            self._remove(place, path, is_named=False)
        locks = [self._clean_lock(place) for place in places if place not in self.silent]
        stages = self._clean_stages()
        self.failed = self.failed or bool(self.silent)
        if not doomed and not any(locks) and not stages:
            self.say("nothing to remove")

    def clean_directories(self, paths: Sequence[str]) -> None:
        """Remove session directories that the user has named."""
        for path in paths:
            target = os.path.abspath(os.path.join(path, *[".."] * 3))
            self._remove(target, path, is_named=True)
        self.failed = self.failed or bool(self.silent)

    def _dead_sessions(self, place: str, is_named: bool) -> list[tuple[str, str]]:
        """Return place and directory of each session on a place that may be removed."""
        dead = []
        try:
            for session in deadline.call(place, partial(directory.sessions, place)):
                if self.everything or not directory.may_be_alive(session):
                    dead.append((place, session.path))
                else:
                    self.say(f"kept: {session.path}: its session may be alive (--all removes it)")
        except deadline.NoAnswer as error:
            self.say(str(error))
            self.silent.add(place)
        except FileNotFoundError:
            self.say(f"{place} is not there: if it is not mounted, clean it when it is")
            self.failed = self.failed or is_named
        except OSError as error:
            self.say(f"{place} cannot be looked at: {error}")
            self.failed = True
        return dead

    def _remove(self, place: str, path: str, is_named: bool) -> None:
        """Remove a session's directory, unless its place is silent."""
        if place in self.silent:
            self.say(f"left: {path}")
            return
        try:
            work = partial(_remove_directory, path, self.dry_run, is_named)
            for message in deadline.watch(place, work, removal.Progress(path, self.say)):
                self.say(message)
            self.say(f"{self._done}: {path}")
        except deadline.NoAnswer as error:
            self.say(f"left: {path}: {error}")
            self.silent.add(place)
        except OSError as error:
            self.say(f"refused: {error}")
            self.failed = True

    def _clean_lock(self, place: str) -> bool:
        """Break the lock of a place if its holder is dead; return whether there was such a lock."""
        try:
            holder = deadline.call(place, partial(lock.standing, place))
            if holder is not None and not holder.name:
                raise lock.LockError(f"{holder}: remove it by hand")
            if holder is not None and not self.everything:
                if not holder.gone:
                    self.say(f"watching the lock of {holder} for at most {holder.lease_s:g} s")
                dead = deadline.watch(place, partial(_watch_lock, place), lambda _: None)
                if dead is None:
                    self.say(f"kept: the lock of {holder}: it is in use (--all breaks it)")
                    return False
                holder = dead
            if not self.dry_run:
                deadline.call(place, partial(_break_lock, place, holder))
        except OSError as error:
            self.say(f"refused: {error}")
            self.failed = True
            return True
        if holder is None:
            return False
        self.say(f"{self._done}: the lock of {holder}")
        return True

    def _clean_stages(self) -> list[Path]:
        """Remove stage directories of sessions that began a week ago, and ReFrame's logs of then."""
        old = [*old_stages(), *old_logs()]
        for path in old:
            if not self.dry_run and path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif not self.dry_run:
                with contextlib.suppress(OSError):
                    path.unlink()
            word = "left" if not self.dry_run and path.exists() else self._done
            self.say(f"{word}: {path} (a week old)")
        return old


def _watch_lock(place: str, report: deadline.Report) -> lock.Holder | None:
    """Return the holder of a place's lock if it is dead; report at each look."""

    def pause(seconds: float) -> None:
        report(0)
        time.sleep(seconds)

    return lock.find_dead(place, pause)


def _break_lock(place: str, holder: lock.Holder | None) -> None:
    if holder is not None:
        lock.remove(holder)
    lock.tidy(place)


def _remove_directory(
    path: str, dry_run: bool, is_named: bool, report: deadline.Report
) -> list[str]:
    """Remove a session's directory and end the processes that work in it; return their messages.

    A directory that is gone meanwhile is an error only if the user has named it.
    """
    try:
        directory.check_ours(path)
    except FileNotFoundError:
        if is_named:
            raise
        return []
    if dry_run:
        return []
    ended = processes.end(os.path.abspath(path))
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
