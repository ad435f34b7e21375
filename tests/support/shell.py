"""Programs that are written, run to their end for what they say, and killed; work of another user."""

import contextlib
import os
import signal
import subprocess


def completed(words, **more):
    """Run words; ``more`` is subprocess.run's. A failure is the caller's to look at, unless it says ``check``."""
    given = {
        "capture_output": True,
        "text": True,
        "check": False,
        "timeout": 600,
    }
    return subprocess.run(words, **given | more)


def script(path, text):
    """Write a program; returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def kill(*pids):
    """Kill processes; some may be gone."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def as_user(uid, work):
    """What a function returns, or raises, in a process of another user."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            said = str(work())
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as answer:
        said = answer.read()
    os.waitpid(pid, 0)
    return said
