"""Programs: run one to its end, within a time, without a terminal. Exit statuses are for the caller to judge."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping


def run(
    *words: str,
    seconds: float | None = None,
    environment: Mapping[str, str] | None = None,
    given: str | None = None,
    cwd: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end with ``given`` as its input; raises OSError if it cannot run, TimeoutError if it is late."""
    try:
        return subprocess.run(
            words,
            input=given or "",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
            env=environment,
            cwd=cwd,
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"{words[0]}: no answer in {seconds:g} s") from error


def complaint(done: subprocess.CompletedProcess[str]) -> str:
    """Return the last line of what a program printed, of its errors if it printed any."""
    printed = done.stderr.strip() or done.stdout.strip() or "it printed nothing"
    return printed.splitlines()[-1]


def output(
    *words: str,
    seconds: float | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Return what a program prints; raises OSError with its complaint if it fails or is late."""
    done = run(*words, seconds=seconds, environment=environment)
    if done.returncode != 0:
        raise OSError(f"{words[0]}: exit status {done.returncode}: {complaint(done)}")
    return done.stdout
