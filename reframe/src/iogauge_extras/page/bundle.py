"""What a vendor needs of some sessions, in one file: raw outputs, commands, records, the page, and hashes.

Names of users, homes, hosts and addresses are replaced by stand-ins, the same one everywhere.
"""

import getpass
import gzip
import hashlib
import io
import os
import re
import shlex
import socket
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from iogauge.core import untrusted
from iogauge.core.text import visible
from iogauge.records.record import Record

#: Larger files are left out: they are data, not text that says how a case went.
_LARGEST: Final = 4 << 20

#: Seconds after a case in which ReFrame has moved what it keeps of it.
_MOVED_S: Final = 600.0

_ADDRESS: Final = re.compile(
    r"\b\d{1,3}(?:\.\d{1,3}){3}\b|\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b", re.I
)

#: The functions that a case's job script calls, for a machine without iogauge.
_BY_HAND: Final = Path(__file__).with_name("by_hand.sh")


def contents(state: Path, records: Sequence[Record], page: str) -> dict[str, str]:
    """Return the files of a bundle by name, with stand-ins for what is private. Raises OSError."""
    files = {
        "page.html": page,
        "records.jsonl": "".join(r.to_line().decode() + "\n" for r in records),
        "commands.sh": _commands(records),
    }
    for session in dict.fromkeys(record.session for record in records):
        files |= _raw(state / "reports" / f"run-{session}.json", session)
    clean = _stand_ins(_private(records))
    files = {clean(name): clean(text) for name, text in files.items()}
    sums = ""
    for name, text in files.items():
        sums += f"{hashlib.sha256(text.encode()).hexdigest()}  {name}\n"
    return {**files, "SHA256SUMS": sums}


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


def _commands(records: Sequence[Record]) -> str:
    """Return the script of shell that runs the job scripts of the cases by hand."""
    text = _BY_HAND.read_text(encoding="utf-8")
    for number, record in enumerate(records, 1):
        scale = f"{record.nodes} node(s) x {record.tasks_per_node} task(s)"
        title = f"case {number}: {record.where} {record.case}, {scale}, {', '.join(record.tools)}"
        reason = " ".join(record.reason.split())
        folder = _folder(
            record.session, record.partition, record.environment, record.case
        )
        text += f"\n# {visible(title)}: {record.verdict.value}\n# {visible(reason)}\n"
        text += f"case_{number}() {{ job {shlex.quote(folder)}; }}\n"
    return text + '\nmain "$@"\n'


def _folder(session: str, *case: str) -> str:
    """Return the folder of a case's raw files, by its partition, its environment and its name with the repeat."""
    parts = [re.sub(r"[^\w.=-]+", "_", text) for text in case]
    return "/".join(["raw", session, *parts])


def _raw(report: Path, session: str) -> dict[str, str]:
    """Return what ReFrame keeps of the cases of a session; none of those that a newer run has replaced."""
    found: dict[str, str] = {}
    cases: list[Any] = []
    try:
        for tests in untrusted.read_json(report)["runs"]:
            cases += tests["testcases"]
    except (OSError, ValueError, LookupError, TypeError):
        return {}
    for case in cases:
        ended = float(case.get("job_completion_time_unix") or 0)
        keys = [str(case[key]) for key in ("partition", "environ", "display_name")]
        folder = _folder(session, *keys)
        for place in map(str, [case.get("stagedir"), case.get("outputdir")]):
            for name, text in _texts_below(Path(place), ended).items():
                found.setdefault(f"{folder}/{name}", text)
    return found


def _texts_below(place: Path, ended: float) -> dict[str, str]:
    """Return the files of text of a case that ended at a time; none if the newest file is of another run."""
    files = [file for file in sorted(place.rglob("*")) if file.is_file()]
    newest = max((file.stat().st_mtime for file in files), default=0.0)
    if abs(newest - ended) > _MOVED_S:
        return {}
    found = {}
    for file in files:
        if file.stat().st_size > _LARGEST:
            continue
        data = file.read_bytes()
        if b"\0" not in data:
            found[str(file.relative_to(place))] = data.decode("utf-8", "replace")
    return found


def _private(records: Sequence[Record]) -> dict[str, str]:
    """Return the stand-in of each private name: hosts, the home, the user."""
    hosts = {socket.gethostname()}
    for record in records:
        nodes = re.sub(r"\[.*?\]", "", str(record.fingerprint.get("nodes", "")))
        # A short prefix, as of n[1-4], would meet parts of words.
        hosts.update(name for name in re.findall(r"[\w.-]+", nodes) if len(name) > 2)
    names = {host: f"host{n}" for n, host in enumerate(sorted(hosts), 1)}
    names[os.path.expanduser("~")] = "/home/user"
    if getpass.getuser() != "root":
        names[getpass.getuser()] = "user"
    return names


def _stand_ins(names: Mapping[str, str]) -> Callable[[str], str]:
    """Return what puts stand-ins in the place of what is private in a text; a part of a path is no host."""
    patterns = []
    for name in sorted(names, key=len, reverse=True):
        pattern = rf"(?<![\w]){re.escape(name)}(?![A-Za-z])"
        if names[name].startswith("host"):
            pattern = rf"(?<!(?<!/)/){pattern}(?!/)"
        patterns.append(pattern)
    private = re.compile("|".join(patterns))
    addresses: dict[str, str] = {}

    def address(found: re.Match[str]) -> str:
        return addresses.setdefault(found[0], f"address{len(addresses) + 1}")

    def clean(text: str) -> str:
        return _ADDRESS.sub(address, private.sub(lambda found: names[found[0]], text))

    return clean
