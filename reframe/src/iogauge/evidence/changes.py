"""What a node's counters show between two looks."""

from __future__ import annotations

from dataclasses import dataclass

from iogauge.node.counters import HARMLESS, OWN, Load


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeActivity:
    """Activity of a node between two looks.

    ``troubles`` describes troubles of connections to servers. ``watched`` names the places that
    show such troubles. ``jobs_own`` and ``jobs_foreign`` are the bytes that the servers on this
    node moved for this job and for others. They are None if the servers keep no such account or do
    not list this job. ``uuid`` names the target's file system at the last look, "" if unknown.
    """

    host: str
    cache_id: str
    seconds: float
    troubles: tuple[str, ...] = ()
    watched: tuple[str, ...] = ()
    jobs_own: int | None = None
    jobs_foreign: int | None = None
    uuid: str = ""


def change(before: Load, after: Load) -> NodeActivity:
    """Return the activity of a node between two looks."""
    troubles = [
        f"{device} is {state}" for device, state in after.states.items() if state not in HARMLESS
    ]
    earlier = set(before.history)
    troubles += [
        f"{device} went through {state}"
        for when, device, state in after.history
        if (when, device, state) not in earlier
        and when >= int(before.time)
        and state not in HARMLESS
    ]
    if before.timeouts is not None and (after.timeouts or 0) > before.timeouts:
        troubles.append(f"{(after.timeouts or 0) - before.timeouts} request(s) timed out")
    watched = ["the state of the connections"] if after.states else []
    if before.log_end is not None and after.log_end is not None:
        watched.append("the kernel's log")
        troubles += [text for number, text in after.complaints if number > before.log_end]
    jobs: dict[str, int] = {}
    for job, count in after.jobs.items():
        first = before.jobs.get(job, 0)
        jobs[job] = count - first if count >= first else count  # the account was cleared meanwhile
    accounted = OWN in after.jobs
    return NodeActivity(
        host=after.host,
        cache_id=after.cache_id,
        seconds=after.time - before.time,
        troubles=tuple(dict.fromkeys(troubles)),
        watched=tuple(watched),
        jobs_own=jobs[OWN] if accounted else None,
        jobs_foreign=sum(n for job, n in jobs.items() if job != OWN) if accounted else None,
        uuid=after.uuid,
    )


def changes(before: list[Load], after: list[Load]) -> tuple[NodeActivity, ...]:
    """Return the activity of all hosts with two looks, in order of their names."""
    first = {load.host: load for load in before}
    return tuple(
        change(first[load.host], load)
        for load in sorted(after, key=lambda load: load.host)
        if load.host in first
    )
