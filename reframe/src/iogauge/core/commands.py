"""Programs: run one to its end, within a time, without a terminal. Exit statuses are for the caller to judge."""

import os
import re
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


#: What healthy programs may print on standard error: the loader in a strange environment, and warnings.
_HARMLESS = r"ERROR: ld\.so: object .* cannot be preloaded.*|(?i:.*\bwarning: .*)"


def whole(done: subprocess.CompletedProcess[str], ends: str = "") -> str:
    """Return what a program printed, proven whole: an exit status of 0 is no proof.

    Nothing unknown is on standard error, and the text ends as a regular expression says. Raises OSError that says what lacks.
    """
    name = " ".join([os.path.basename(done.args[0]), *done.args[1:6]])
    if done.returncode != 0:
        raise OSError(f"{name}: exit status {done.returncode}: {complaint(done)}")
    for line in done.stderr.splitlines():
        if line.strip() and not re.fullmatch(_HARMLESS, line):
            raise OSError(
                f"{name}: it complains, so its answer may lack something: {line}"
            )
    if not re.search(rf"(?:{ends})\s*\Z", done.stdout):
        last = done.stdout.strip().splitlines()[-1:]
        raise OSError(f"{name}: its answer is cut off, it ends with {last}")
    return done.stdout


def output(
    *words: str,
    seconds: float | None = None,
    environment: Mapping[str, str] | None = None,
    ends: str = "",
) -> str:
    """Return what a program prints, as :func:`whole` proves it; raises OSError also if it is late."""
    return whole(run(*words, seconds=seconds, environment=environment), ends)
