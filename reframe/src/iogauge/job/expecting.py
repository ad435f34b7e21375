"""What a node has of the settings that the site expects, before anything is written."""

from __future__ import annotations

import contextlib
import os
from typing import Final

from iogauge.core.paths import expand
from iogauge.core.words import Fingerprint
from iogauge.guards.expected import settings
from iogauge.guards.finding import Finding
from iogauge.node import lov
from iogauge.node.layouts import LustreError
from iogauge.node.mounts import View, fsname_of
from iogauge.plan.stage import JobOrder

#: Looks at a node, and seconds for the probes of each: on a busy node a program may be late.
_LOOKS: Final = 3
_SECONDS: Final = 2.0


def _default_layout(path: str) -> Fingerprint:
    """Return stripe count and size of new files; nothing if Lustre does not tell, or has several."""
    with contextlib.suppress(LustreError):
        layout = lov.read_default(path)
        if layout is not None and len(layout.parts) == 1:
            (part,) = layout.parts
            return {
                "layout.stripe_count": part.stripe_count,
                "layout.stripe_bytes": part.stripe_bytes,
            }
    return {}


def _facts(path: str, order: JobOrder) -> Fingerprint:
    """Return this node's facts; look again if an expected one is missing."""
    from iogauge.node import probes  # most sites expect nothing

    facts = _default_layout(path)
    for _ in range(_LOOKS):
        facts |= probes.collect(path, deadline=_SECONDS)
        if order.expect.keys() <= facts.keys():
            break
    return facts


def as_expected(view: View, order: JobOrder) -> list[Finding]:
    """Return what this node has of the expected settings; nothing if the site expects none."""
    if not order.expect:
        return []
    path = expand(order.target)
    return [
        settings(
            expect=order.expect,
            facts=_facts(path, order),
            host=os.uname().nodename,
            path=path,
            fsname=fsname_of(view.mount.source) if view.mount else "*",
        )
    ]
