"""What a job runs on the nodes themselves: look at the target, make the directory, empty the page cache.

``python -m iogauge.agent open CASE.json`` checks the target and makes the case's directory, or refuses
with status 3; ``view PATH OUT`` says what this host sees of a path, ``evict DIR OUT`` drops the page cache
of all files below a directory: each writes its answer to ``OUT.<host>.json``, a file for each node, because
launchers mix what the nodes print.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from iogauge import guards, pagecache, workdir
from iogauge.filesystem import (
    Quota,
    View,
    cache_id,
    cached_below,
    find_mount,
    parse_lfs_quota,
    space_of,
)

#: Exit status of a refusal, as against a crash.
REFUSED: Final = 3
#: File in the stage directory with what ``open`` saw and decided.
OPENED: Final = "open.json"


def _lustre_quotas(path: str) -> tuple[Quota, ...]:
    """Quota of the user and the group on Lustre; empty where ``lfs`` is missing or does not answer."""
    if shutil.which("lfs") is None:
        return ()
    quotas = []
    for flag, number, owner in (("-u", os.getuid(), "user"), ("-g", os.getgid(), "group")):
        try:
            done = subprocess.run(
                ["lfs", "quota", "-q", flag, str(number), path],
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        quota = parse_lfs_quota(done.stdout, f"{owner} {number}")
        if quota:
            quotas.append(quota)
    return tuple(quotas)


def look(path: str) -> View:
    """What this host sees of a path; raises OSError where it cannot be looked at."""
    mount = find_mount(path)
    quotas = _lustre_quotas(path) if mount and mount.type == "lustre" else ()
    below = mount is not None and cached_below(mount)
    return View(os.uname().nodename, path, mount, space_of(path), quotas, cache_id(path), below)


def preflight(view: View, case: dict[str, Any]) -> list[guards.Finding]:
    """Guards that must hold before the first byte is written."""
    return [
        guards.identity(declared_type=case["type"], declared_source=case["source"], views=[view]),
        guards.room(
            space=view.space,
            need_bytes=case["held_bytes"],
            max_fill=case["max_fill"],
            keep_free=case["keep_free"],
        ),
        guards.inodes(
            space=view.space,
            quotas=view.quotas,
            need_bytes=case["held_bytes"],
            need_files=case["files"],
        ),
    ]


def _open(case_file: str) -> int:
    case = json.loads(Path(case_file).read_text(encoding="utf-8"))
    try:
        view = look(case["target"])
        findings = preflight(view, case)
        refused = [str(f) for f in findings if f.outcome is guards.Outcome.INVALID]
        seen: dict[str, Any] = {"view": view.to_json(), "refused": refused}
        if not refused:
            workdir.create(case["target"], case["session"], case["case"], case["host"])
    except OSError as error:
        seen = {"view": None, "refused": [f"{case['target']}: {error}"]}
    seen |= {"session": case["session"], "case": case["case"]}
    Path(OPENED).write_text(json.dumps(seen), encoding="utf-8")
    for reason in seen["refused"]:
        print(f"iogauge: refused: {reason}", file=sys.stderr)
    return REFUSED if seen["refused"] else 0


def _answer(out: str, answer: dict[str, Any]) -> int:
    """Write what this node has to say; the file is there whole or not at all."""
    file = Path(f"{out}.{os.uname().nodename}.json")
    scratch = file.with_suffix(f".{os.getpid()}")
    scratch.write_text(json.dumps(answer), encoding="utf-8")
    scratch.replace(file)
    return 0


def main(argv: list[str]) -> int:
    """Run one of the agent's commands; returns the exit status."""
    match argv:
        case ["open", case_file]:
            return _open(case_file)
        case ["view", path, out]:
            return _answer(out, look(path).to_json())
        case ["evict", directory, out]:
            done = pagecache.evict(pagecache.files_below(directory))
            return _answer(out, done.to_json())
    usage = "open FILE | view PATH OUT | evict DIR OUT"
    print(f"usage: python -m iogauge.agent {usage}, not {argv}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
