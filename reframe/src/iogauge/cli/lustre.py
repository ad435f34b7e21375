"""What the doctor says of a target on Lustre, and what this user cannot see of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from iogauge.cli.remark import Check, State
from iogauge.core.units import format_bytes
from iogauge.core.words import Fingerprint
from iogauge.guards.finding import Outcome
from iogauge.guards.preflight import health
from iogauge.node import lustre_client
from iogauge.node.layouts import LustreError
from iogauge.node.lustre_targets import ask_lctl, look, run_lfs, with_lustre
from iogauge.node.mounts import Quota, StorageTarget, View, fsname_of

#: Names of a list that one line shows.
_SHOWN: Final = 8

_STATES: Final[Mapping[Outcome, State]] = {Outcome.OK: "ok", Outcome.WARN: "note"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What this host sees of a Lustre file system.

    ``facts`` are those of the fingerprint. ``default``, ``directory`` and ``pools`` are Lustre's own
    words: the layout of new files, the metadata targets of the directory, the pools. ``counted``
    says whether a device told its counters.
    """

    view: View
    facts: Fingerprint
    default: str
    directory: str
    pools: str
    counted: bool


def see(path: str) -> Seen:
    """Look at the Lustre file system of a path; raises OSError or :class:`LustreError`."""
    view = with_lustre(look(path), True)
    fsname = fsname_of(view.mount.source if view.mount else "")
    devices = lustre_client.read(fsname, {"osc": ("ost_conn_uuid",)})
    # One device by its whole name: a pattern gives ordinary users values under wrong names.
    names = [name.rpartition(".")[0] for name in devices][:1]
    counters = ask_lctl(*(f"{name}.stats" for name in names)) if names else ""
    return Seen(
        view=view,
        facts=lustre_client.facts(fsname),
        default=_asked("getstripe", "-d", path),
        directory=_asked("getdirstripe", "-y", path).partition(" lmv_objects:")[0],
        pools=_asked("pool_list", view.targets[0].uuid.rpartition("-OST")[0]),
        counted="snapshot_time" in counters,
    )


def _asked(*words: str) -> str:
    """Return an answer of ``lfs`` on one line, or its complaint."""
    try:
        return " ".join(run_lfs(*words).split()) or "nothing"
    except LustreError as error:
        return str(error)


def checks(subject: str, seen: Seen, declared: int | None) -> Iterator[Check]:
    """Yield the doctor's lines; ``declared`` is the site's number of storage targets, if any."""
    yield Check("ok", subject, _versions(seen.facts))
    yield Check("ok", subject, _parts(seen.view.targets, seen.facts))
    found = health(targets=seen.view.targets, declared=declared)
    state = _STATES.get(found.outcome, "problem")
    yield Check(
        state, subject, f"{found.guard}: {found.saw}", "" if state == "ok" else found.remedy
    )
    yield Check("ok", subject, _fill(seen.view.targets))
    yield Check("ok", subject, _quotas(seen.view.quotas))
    yield Check("ok", subject, f"new files get: {seen.default}")
    yield Check("ok", subject, f"the directory itself: {seen.directory}")
    yield Check("ok", subject, f"pools: {seen.pools.partition(':')[2].strip() or 'none'}")
    yield from _hidden(subject, seen)


def _versions(facts: Fingerprint) -> str:
    client = facts.get("lustre.client", "of an unknown version (the kernel did not tell)")
    servers = facts.get("lustre.server", "of a version that only root sees")
    return f"Lustre client {client}, servers {servers}"


def _parts(targets: Sequence[StorageTarget], facts: Fingerprint) -> str:
    addresses = sorted({target.server for target in targets if target.server})
    more = f" and {len(addresses) - _SHOWN} more" if len(addresses) > _SHOWN else ""
    at = f"{', '.join(addresses[:_SHOWN])}{more}" if addresses else "unknown addresses"
    return (
        f"{len(targets)} storage target(s) (OST), {facts.get('lustre.mdts', '?')} metadata target(s) (MDT), "
        f"storage served from {at}"
    )


def _fill(targets: Sequence[StorageTarget]) -> str:
    active = [target for target in targets if target.active]
    if not active:
        return "no storage target tells its room"
    worst = max(active, key=lambda target: target.fill)
    return (
        f"fullest storage target: {worst.uuid}, {worst.fill:.0%} full, "
        f"{format_bytes(worst.bytes_free)} free"
    )


def _quotas(quotas: Sequence[Quota]) -> str:
    if not quotas:
        return "quota: lfs quota tells none"
    words = []
    for quota in quotas:
        size = None if quota.bytes_left is None else format_bytes(quota.bytes_left)
        files = None if quota.files_left is None else f"{quota.files_left} files"
        left = " and ".join(word for word in (size, files) if word)
        words.append(f"{quota.owner}: {f'{left} left' if left else 'no limit'}")
    return f"quota of {', '.join(words)}"


def _hidden(subject: str, seen: Seen) -> Iterator[Check]:
    """Yield what this user cannot see, and who could."""
    if "lustre.server" not in seen.facts:
        yield Check(
            "note",
            subject,
            "hidden from you: evictions, lost connections (G20), the servers' versions",
            "root sees them: lctl get_param 'osc.*.state' 'osc.*.import'",
        )
    if not seen.counted:
        yield Check(
            "note",
            subject,
            "hidden from you: what the client moved for each storage target (G8, G19)",
            "root sees it: lctl get_param 'osc.*.stats'; so do users from Lustre 2.17 on",
        )
