"""Settings of the Lustre client that a case may change, and how they come back.

Only where the site gives the right, and only by root: ``lctl set_param``. The values that were found are on
disk before the first of them is changed, and are put back when the job ends; where a job was killed before it
could, by the next job of this suite on that node. ``lctl``'s exit status says nothing (as an ordinary user
it prints data and exits with 2): what was obtained is read back.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from iogauge.core import untrusted
from iogauge.core.files import replace_file

#: Checksums of bulk data, one parameter for each storage target that this client is connected to. The
#: metadata servers' own connections, seen where client and server share a node, end in ``-MDT0000``.
_CHECKSUMS: Final = "osc.{fsname}-OST*-osc-[!M]*.checksums"
_IS_CHECKSUMS: Final = re.compile(r"osc\.[A-Za-z0-9_-]+\.checksums=[01]")


class TunableError(OSError):
    """A setting could not be read, changed or put back; the message names it and what to do."""


def fsname_of(source: str) -> str:
    """Name of the file system in a Lustre mount's source (``10.0.0.1@tcp:/scratch``); ``*`` in any other."""
    match = re.search(r":/([A-Za-z0-9_-]{1,8})(?:/|$)", source)
    return match[1] if match else "*"


def parse_params(text: str) -> dict[str, str]:
    """``lctl get_param`` output, ``name=value`` a line; lines that are none are left out."""
    lines = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, _, value in lines}


def _lctl(*words: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["lctl", *words], capture_output=True, text=True, timeout=60, check=False
        )
    except FileNotFoundError:
        raise TunableError(
            "lctl is not on PATH: checksums cannot be switched; take the right lustre-checksums away, or "
            "install the Lustre client's tools on this node"
        ) from None
    except subprocess.TimeoutExpired:
        raise TunableError(f"lctl {' '.join(words)} did not answer in 60 s") from None


def _read(pattern: str) -> dict[str, str]:
    found = parse_params(_lctl("get_param", pattern).stdout)
    if not found:
        raise TunableError(
            f"lctl get_param {pattern}: nothing found: no storage target of this file system is connected "
            "here"
        )
    return found


def _write(values: Mapping[str, str]) -> None:
    """Set parameters, and read back that they are so; raises :class:`TunableError`."""
    done = _lctl("set_param", *(f"{name}={value}" for name, value in values.items()))
    for name, value in values.items():
        now = parse_params(_lctl("get_param", name).stdout).get(name)
        if now != value:
            said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise TunableError(
                f"{name} is {now!r} after lctl set_param {name}={value} ({said}): only root may set it"
            )


def _file(folder: Path, fsname: str) -> Path:
    return folder / f"{os.uname().nodename}.{fsname.replace('*', 'any')}.json"


def switch_checksums(on: bool, source: str, folder: Path) -> None:
    """Switch the checksums of a file system's bulk data; what was found is kept in ``folder`` first.

    ``source`` is the mount's source. Raises :class:`TunableError`.
    """
    fsname = fsname_of(source)
    found = _read(_CHECKSUMS.format(fsname=fsname))
    file = _file(folder, fsname)
    if not file.exists():  # else a change is under way, and the file holds what was found before it
        folder.mkdir(parents=True, exist_ok=True)
        kept = {"since": time.time(), "found": found}
        replace_file(file, json.dumps(kept).encode(), sync=True)
    _write(dict.fromkeys(found, "1" if on else "0"))


def restore(folder: Path) -> list[str]:
    """Put back what this node's jobs changed; returns what was put back, as text for people.

    A file is kept until all its values are as they were: raises :class:`TunableError` where they are not.
    """
    done = []
    for file in sorted(folder.glob(f"{os.uname().nodename}.*.json")):
        try:
            found = untrusted.build(Mapping[str, str], untrusted.read_json(file)["found"])
            if wrong := [
                pair for pair in found.items() if not _IS_CHECKSUMS.fullmatch("=".join(pair))
            ]:
                raise ValueError(f"{'='.join(wrong[0])[:80]!r} is no parameter that a case changes")
        except (ValueError, KeyError, TypeError) as error:
            raise TunableError(
                f"{file}: not what this suite wrote ({error!r}): look at 'lctl get_param "
                "osc.*.checksums', set what your site wants, and remove the file"
            ) from error
        # A storage target that is gone needs nothing put back.
        present = parse_params(_lctl("get_param", *found).stdout)
        changed = {n: v for n, v in found.items() if n in present and present[n] != v}
        if changed:
            _write(changed)
            done += [f"{name}={value}" for name, value in changed.items()]
        with contextlib.suppress(FileNotFoundError):
            file.unlink()
    return done
