"""Checksums of bulk data: the one setting of Lustre's client that a case may switch.

Settings are changed by ``lctl set_param``, only if the site grants the right, and only by root. The
old values are on disk before the first change, and are restored when the job ends. If a job is
killed before it restores them, the suite's next job on that node does. ``lctl``'s exit status says
nothing: for an ordinary user it prints data and exits with 2. So every change is read back.
"""

import contextlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess

from iogauge.core import commands, untrusted
from iogauge.core.paths import replace_file
from iogauge.node.mounts import fsname_of

#: Checksums of bulk data: one parameter for each storage target that this client is connected to.
#: The metadata servers' own connections, seen if client and server share a node, have none. A pattern
#: is sound for single values only, and lctl 2.17 dies of brackets in it.
_CHECKSUMS = "osc.{fsname}-OST*-osc-*.checksums"
_IS_CHECKSUMS = re.compile(r"osc\.[A-Za-z0-9_-]+\.checksums=[01]")


class TunableError(OSError):
    """A setting could not be read, changed or restored; the message names it and the remedy."""


def parse_params(text: str) -> dict[str, str]:
    """Parse ``lctl get_param`` output, ``name=value`` a line; other lines are left out."""
    lines = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, _, value in lines}


def _lctl(*words: str) -> CompletedProcess[str]:
    try:
        return commands.run("lctl", *words, seconds=60)
    except FileNotFoundError:
        raise TunableError(
            "lctl is not on PATH: checksums cannot be switched; remove lustre-checksums from extras.rights, or "
            "install the Lustre client's tools on this node"
        ) from None
    except TimeoutError:
        raise TunableError(f"lctl {' '.join(words)} did not answer in 60 s") from None


def _read(pattern: str) -> dict[str, str]:
    values = parse_params(_lctl("get_param", pattern).stdout)
    if not values:
        raise TunableError(
            f"lctl get_param {pattern}: nothing found: no storage target of this file system is connected "
            "here"
        )
    return values


def _write(values: Mapping[str, str]) -> None:
    """Set parameters, and read them back to check; raises :class:`TunableError`."""
    done = _lctl("set_param", *(f"{name}={value}" for name, value in values.items()))
    found = parse_params(_lctl("get_param", *values).stdout)
    for name, value in values.items():
        now = found.get(name)
        if now != value:
            complaint = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise TunableError(
                f"{name} is {now!r} after lctl set_param {name}={value} ({complaint}): only root may set it"
            )


def _file(folder: Path, fsname: str) -> Path:
    return folder / f"{os.uname().nodename}.{fsname.replace('*', 'any')}.json"


def switch_checksums(on: bool, source: str, folder: Path) -> None:
    """Switch the checksums of a file system's bulk data; first save the old values in ``folder``.

    ``source`` is the mount's source. Raises :class:`TunableError`.
    """
    fsname = fsname_of(source)
    values = _read(_CHECKSUMS.format(fsname=fsname))
    file = _file(folder, fsname)
    if (
        not file.exists()
    ):  # else a change is under way, and the file holds the values before it
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(file, json.dumps({"found": values}).encode(), sync=True)
    wanted = "0"
    if on:
        wanted = "1"
    _write(dict.fromkeys(values, wanted))


def restore(folder: Path) -> list[str]:
    """Restore what this node's jobs changed; return the restored values as text for people.

    A file is kept until all of its values are restored. Raises :class:`TunableError` on failure.
    """
    done = []
    for file in sorted(folder.glob(f"{os.uname().nodename}.*.json")):
        try:
            saved = untrusted.build(
                Mapping[str, str], untrusted.read_json(file)["found"]
            )
            for name, value in saved.items():
                if not _IS_CHECKSUMS.fullmatch(f"{name}={value}"):
                    raise ValueError(
                        f"{name[:80]!r} is not a parameter that a case may change"
                    )
        except (ValueError, KeyError, TypeError) as error:
            raise TunableError(
                f"{file}: not what this suite wrote ({error!r}): look at 'lctl get_param "
                "osc.*.checksums', set what your site wants, and remove the file"
            ) from error
        # A storage target that is gone needs no restoration.
        present = parse_params(_lctl("get_param", *saved).stdout)
        changed = {n: v for n, v in saved.items() if n in present and present[n] != v}
        if changed:
            _write(changed)
            done += [f"{name}={value}" for name, value in changed.items()]
        with contextlib.suppress(FileNotFoundError):
            file.unlink()
    return done
