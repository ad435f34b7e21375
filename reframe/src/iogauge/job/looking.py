"""What a node sees of the target and of the settings that the site expects, and whether the file
system is that of the case.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from iogauge.core.paths import expand
from iogauge.core.words import Fingerprint
from iogauge.guards.finding import Finding, Outcome
from iogauge.guards.preflight import expected_settings, identity
from iogauge.node import layouts
from iogauge.node.layouts import LustreError
from iogauge.node.lustre import look
from iogauge.node.mounts import View, existing_parent, fsname_of
from iogauge.plan.stage import OPENED, ORDER, JobOrder, Opened

#: Looks at a node, and seconds for the probes of each: on a busy node a program may be late.
_LOOKS: Final = 3
_SECONDS: Final = 2.0


def _default_layout(path: str) -> Fingerprint:
    """Return stripe count and size of new files; nothing if Lustre does not tell, or has several."""
    with contextlib.suppress(LustreError):
        layout = layouts.read_default_lov(path)
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
        expected_settings(
            expect=order.expect,
            facts=_facts(path, order),
            host=os.uname().nodename,
            path=path,
            fsname=fsname_of(view.mount.source) if view.mount else "*",
        )
    ]


def identify(views: Sequence[View], order: JobOrder) -> Finding:
    """Return whether views are of the file system that an order declares."""
    return identity(
        declared_type=order.type,
        declared_source=order.source,
        declared_uuid=order.uuid,
        views=views,
    )


def look_again(path: str) -> tuple[View, str]:
    """Return this node's view of a case's directory, and why the case must not run there, or "".

    The order and the first node's view lie in the current directory. A node without the directory
    may see another file system there. Raises OSError if it sees the right one without it.
    """
    view = replace(look(existing_parent(path)), path=path)
    order = JobOrder.from_json(json.loads(Path(ORDER).read_text(encoding="utf-8")))
    opened = Opened.from_json(json.loads(Path(OPENED).read_text(encoding="utf-8")))
    found = identify([*filter(None, [opened.view]), view], order)
    if found.outcome is Outcome.INVALID:
        return view, str(found)
    os.stat(path)
    wrong = [one for one in as_expected(view, order) if one.outcome is Outcome.INVALID]
    return view, "; ".join(map(str, wrong))
