"""What a vendor needs of some sessions, in one file: raw outputs, commands, records, the page, and hashes.

Names of users, homes, hosts and addresses are replaced by stand-ins, the same one everywhere.
"""

from __future__ import annotations

import getpass
import gzip
import hashlib
import io
import os
import re
import socket
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from iogauge.core import untrusted
from iogauge.records.record import Record, short_name
from iogauge_extras.page.sweeps import texts

#: Larger files are left out: they are data, not text that says how a case went.
_LARGEST: Final = 4 << 20

#: Seconds after a case in which ReFrame has moved what it keeps of it.
_MOVED_S: Final = 600.0

_ADDRESS: Final = re.compile(
    r"\b\d{1,3}(?:\.\d{1,3}){3}\b|\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b", re.I
)


def contents(state: Path, records: Sequence[Record], page: str) -> dict[str, str]:
    """Return the files of a bundle by name, with stand-ins for what is private. Raises OSError."""
    files = {
        "page.html": page,
        "records.jsonl": "".join(one.to_line().decode() + "\n" for one in records),
    }
    files["commands.sh"] = "\n".join(_commands(records)) + "\n"
    for session in dict.fromkeys(record.session for record in records):
        files |= _raw(state / "reports" / f"run-{session}.json", session)
    hosts = {socket.gethostname()} | {
        host for r in records for host in _hosts(r.fingerprint)
    }
    clean = _stand_ins(hosts)
    files = {clean(name): clean(text) for name, text in files.items()}
    sums = [
        f"{hashlib.sha256(t.encode()).hexdigest()}  {name}\n"
        for name, t in files.items()
    ]
    return files | {"SHA256SUMS": "".join(sums)}


def packed(files: Mapping[str, str], name: str) -> bytes:
    """Return files as a .tar.gz below one folder; equal files give equal bytes."""
    out = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as tar,
    ):
        for file, text in files.items():
            data = text.encode("utf-8", "replace")
            info = tarfile.TarInfo(f"{name}/{file}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def _commands(records: Sequence[Record]) -> Iterator[str]:
    """Yield a script with the commands of each case, to be run by hand in an empty directory."""
    yield "#!/bin/sh"
    yield "# What each case ran. Begin in an empty directory on the storage, with as many nodes and tasks."
    yield "# A job file such as read.fio lies in raw/, in the folder of its case."
    yield "IOG_REP=1"
    for one in records:
        yield f"\n# {one.system}:{one.partition} {one.short_name}: {one.nodes} node(s) x {one.tasks_per_node} task(s)"
        yield f"# {', '.join(texts(one.tools))}; {one.verdict.value}: {' '.join(one.reason.split())}"
        yield from texts(one.commands)


def _raw(report: Path, session: str) -> dict[str, str]:
    """Return what ReFrame keeps of the cases of a session; none of those that a newer run has replaced."""
    found: dict[str, str] = {}
    try:
        runs: Any = untrusted.read_json(report)["runs"]
        cases = [case for tests in runs for case in tests["testcases"]]
    except (OSError, ValueError, LookupError, TypeError):
        return {}
    for case in cases:
        ended = float(case.get("job_completion_time_unix") or 0)
        for place in map(Path, texts([case.get("stagedir"), case.get("outputdir")])):
            for file in sorted(place.rglob("*")) if place.is_dir() else ():
                fresh = file.is_file() and file.stat().st_size <= _LARGEST
                if fresh and abs(file.stat().st_mtime - ended) < _MOVED_S:
                    data = file.read_bytes()
                    folder = re.sub(
                        r"[^\w.=-]+", "_", short_name(str(case["display_name"]))
                    )
                    name = f"raw/{session}/{folder}/{file.relative_to(place)}"
                    if b"\0" not in data:
                        found.setdefault(name, data.decode("utf-8", "replace"))
    return found


def _hosts(fingerprint: Mapping[str, Any]) -> Iterator[str]:
    """Return the names of nodes in a fingerprint; ``n[1-4]`` stands for its prefix."""
    for word in re.findall(
        r"[\w.-]+", re.sub(r"\[.*?\]", "", str(fingerprint.get("nodes", "")))
    ):
        if len(word) > 2:  # a short one would meet parts of words
            yield word


def _stand_ins(hosts: set[str]) -> Callable[[str], str]:
    """Return what puts stand-ins in the place of what is private in a text."""
    names = {host: f"host{n}" for n, host in enumerate(sorted(hosts), 1)}
    names[os.path.expanduser("~")] = "/home/user"
    if (user := getpass.getuser()) != "root":
        names[user] = "user"
    longest_first = sorted(names, key=len, reverse=True)
    words = re.compile(
        "|".join(rf"(?<![\w]){re.escape(n)}(?![A-Za-z])" for n in longest_first)
    )
    addresses: dict[str, str] = {}

    def clean(text: str) -> str:
        text = words.sub(lambda found: names[found[0]], text)
        return _ADDRESS.sub(
            lambda found: addresses.setdefault(
                found[0], f"address{len(addresses) + 1}"
            ),
            text,
        )

    return clean
