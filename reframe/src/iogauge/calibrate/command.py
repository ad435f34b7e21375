"""Read a site's files, propose references and write them: ``iogauge calibrate``."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from iogauge.calibrate.proposal import Settings, propose
from iogauge.calibrate.runs import CalibrateError, RunChoice, newest_record, runs_of
from iogauge.calibrate.statistics import Refused
from iogauge.core import untrusted
from iogauge.core.paths import written_beside
from iogauge.core.yamlfile import LIMIT_BYTES
from iogauge.records import query
from iogauge.site.extras import PartitionExtras
from iogauge.site.folders import LOCAL, NAME, site_dir
from iogauge.site.references import FILE
from iogauge.site.settings import read_site


def site_limits(folder: Path) -> Callable[[str, str], float]:
    """Return a site's limit of noise by partition and check.

    Raises :class:`CalibrateError` for a broken site.
    """
    if not folder.is_dir():
        raise CalibrateError(
            f"{folder}: no such site; its records have nothing to be a reference of"
        )
    data, mistakes = read_site(folder)
    if mistakes:
        raise CalibrateError("; ".join(map(str, mistakes)))
    partitions = {
        partition["name"]: PartitionExtras.of_partition(partition["extras"])
        for partition in data["systems"][0]["partitions"]
    }

    def limit(partition: str, check: str) -> float:
        if partition not in partitions:
            raise Refused(f"{folder.name} has no partition {partition} (any more)")
        return partitions[partition].for_check(check).limits.max_spread

    return limit


def calibrate(
    history_folder: Path,
    choice: RunChoice,
    settings: Settings,
    *,
    write: bool,
    say: Callable[[str], None],
) -> bool:
    """Say what follows for every system's references, and write them if asked to.

    Returns whether nothing was refused. Raises :class:`CalibrateError` for an impossible choice and
    for a broken site.
    """
    chosen = choice.of(query.load(history_folder))
    contents = query.fingerprints(history_folder, chosen["fingerprint"].unique().to_list())
    find, refused = newest_record(history_folder), False
    for (system,), frame in chosen.sort("system").group_by(["system"], maintain_order=True):
        if not NAME.fullmatch(str(system)):  # a record may say anything
            raise CalibrateError(
                f"records of a system named {str(system)!r}: no site has such a name"
            )
        if system == LOCAL and not choice.system and chosen["system"].n_unique() > 1:
            say(
                f"{LOCAL}: left out, because nobody described that machine; name it with --system={LOCAL}"
            )
            continue
        file = site_dir(str(system)) / FILE
        proposal = propose(
            read_text(file),
            runs_of(frame, find, contents, choice.newest),
            site_limits(file.parent),
            settings,
        )
        for outcome in proposal.outcomes:
            say(f"{system}: {outcome.name}: {outcome.state}: {outcome.text}")
        refused = refused or proposal.refused
        diff = proposal.diff(str(file))
        if not diff:
            say(f"{file}: nothing to change")
            continue
        say(diff)
        if write:
            try:
                write_text(file, proposal.after)
            except OSError as error:
                raise CalibrateError(f"{file}: not written: {error}") from error
        say(f"{file}: " + ("written" if write else "not written: review, then --write"))
    return not refused


def read_text(file: Path) -> str:
    """Return a file's text with its own line ends; returns "" if there is no file.

    Raises :class:`CalibrateError`.
    """
    try:
        return untrusted.read_bytes(file, LIMIT_BYTES).decode("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise CalibrateError(f"{file}: {error}") from error


def write_text(file: Path, text: str) -> None:
    """Replace a file's text in one step and keep its mode; raises OSError."""
    file = file.resolve()
    with written_beside(file, text.encode()) as scratch:
        os.chmod(scratch, file.stat().st_mode & 0o777 if file.exists() else 0o644)
        os.rename(scratch, file)
