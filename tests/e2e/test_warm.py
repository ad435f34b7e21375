"""A forked command is the literal one in all that can be seen of a process and from inside it.

So are the cases of a check if no other check is loaded.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from e2e import warm
from e2e.rig import Rig, checks_of

#: Site settings that write what the process sees of itself, and what is seen of it and of its children.
PROBE = """
import json, locale, os, pathlib, resource, signal, subprocess, sys, tempfile, threading
if "IOGAUGE_PROBE" in os.environ:
    me = pathlib.Path("/proc/self")
    status = dict(line.split(":", 1) for line in (me / "status").read_text().splitlines())
    words = lambda file: file.read_bytes().rstrip(b"\\0").decode().split("\\0")
    show = "import os, sys; print(sorted(os.environ.items()), sys.path, os.getcwd(), os.listdir('/proc/self/fd'))"
    seen = {
        "environment": dict(os.environ),
        "argv": sys.argv,
        "path": sys.path,
        "cwd": os.getcwd(),
        "session": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
        "comm": (me / "comm").read_text(),
        "cmdline": words(me / "cmdline"),
        "environ": sorted(words(me / "environ")),
        "streams": [os.readlink(f"/proc/self/fd/{n}").split(":")[0] for n in range(3)],
        "open": len(os.listdir("/proc/self/fd")),
        "text": [[f.encoding, f.errors, f.line_buffering, f.isatty()] for f in (sys.stdout, sys.stderr)],
        "signals": {k: status[k].strip() for k in ("SigBlk", "SigIgn", "SigCgt")},
        "umask": status["Umask"].strip(),
        "threads": status["Threads"].strip(),
        "limits": [resource.getrlimit(n) for n in range(10)],
        "flags": repr(sys.flags),
        "locale": locale.getlocale(),
        "temporary": tempfile.gettempdir(),
        "spaces": [os.readlink(me / "ns" / kind) for kind in ("mnt", "uts", "net", "pid", "user", "ipc")],
        "cores": sorted(os.sched_getaffinity(0)),
        "main": threading.current_thread() is threading.main_thread(),
        "numeric": sorted(m for m in sys.modules if m in ("numpy", "polars", "scipy")),
        "child": subprocess.run([sys.executable, "-c", show], capture_output=True, text=True).stdout,
    }
    pathlib.Path(os.environ["IOGAUGE_PROBE"]).write_text(json.dumps(seen))
    if how := os.environ.get("IOGAUGE_END"):
        exec(how)
"""


def probed(rig: Rig) -> Rig:
    settings = rig.sites / "settings.py"
    settings.write_text(PROBE + settings.read_text())
    return rig


@pytest.fixture(params=["cold", "fork"])
def rig(request: pytest.FixtureRequest, make_rig: Callable[..., Rig]) -> Rig:
    return probed(make_rig(cold=request.param == "cold"))


def seen_by(rig: Rig) -> dict[str, Any]:
    file = rig.base / "probe.json"
    done = rig.reframe("-c", "checks/", "-l", "-n", "FioMetadata", IOGAUGE_PROBE=str(file))
    assert done.rc == 0 and "FioMetadata" in done.out, done.out
    return json.loads(file.read_text().replace(str(rig.base), "BASE"))


@pytest.mark.quick
def test_a_fork_sees_what_a_cold_start_sees(make_rig: Callable[..., Rig]) -> None:
    cold, fork = (seen_by(probed(make_rig(cold=cold))) for cold in (True, False))
    assert cold.keys() == fork.keys()
    for name in cold:
        assert cold[name] == fork[name], name


def test_what_an_import_may_read_needs_a_cold_start(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    own = rig.environment()
    assert warm.server().suits(own)
    for name in ("HOME", "LANG", "PYTHONHASHSEED", "TZ", "SOMETHING_NEW"):
        assert not warm.server().suits({**own, name: "x"}), name


def test_a_check_is_the_same_without_the_others(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(tools=("fio", "ior", "mdtest"))
    names = ("-n", "^FioMetadata$|IorPosix%files=shared", "-n", "FioRandomRead")
    alone = checks_of(names)
    assert alone == [
        f"checks/{name}.py" for name in ("fio_metadata", "fio_random_read", "ior_posix")
    ]
    listed = []
    for places in (["checks/"], alone):
        words = [word for place in places for word in ("-c", place)]
        done = rig.reframe(*words, "-L", *names)
        listed.append(done.out.partition("[List of matched checks]")[2].partition("Log file")[0])
        assert done.rc == 0 and "Found 8 check(s)" in listed[-1], done.out
    assert listed[0] == listed[1]
