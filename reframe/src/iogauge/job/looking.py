"""What a node sees of the target, and whether that is the file system that the case was opened on."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from iogauge.guards.finding import Finding, Outcome
from iogauge.guards.preflight import identity
from iogauge.job.expecting import as_expected
from iogauge.node.lustre_targets import look
from iogauge.node.mounts import View, existing_parent
from iogauge.plan.stage import OPENED, ORDER, JobOrder, Opened


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
