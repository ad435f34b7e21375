"""Guards of the settings that a site expects of its nodes (G25)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from iogauge.core.vocabulary import Value
from iogauge.guards.finding import Finding, Guard, Outcome
from iogauge.guards.preflight import BEFORE

if TYPE_CHECKING:
    from iogauge.guards.views import CaseView


def _differs(key: str, expected: Value, fact: Value) -> bool:
    """Return whether a fact is not as expected.

    A text ``>= N`` or ``<= N`` is a bound. Of ``mount.options`` each expected option must be there.
    """
    if key == "mount.options":
        return not set(str(expected).split(",")) <= set(str(fact).split(","))
    bound = re.fullmatch(r"([<>]=)\s*(\d{1,18})", str(expected))
    if bound is None:
        return str(expected) != str(fact)
    limit = int(bound[2])
    # A fact has several values if devices differ.
    for value in str(fact).split(","):
        if not re.fullmatch(r"\s*\d{1,18}\s*", value):
            return True
        over = int(value) - limit
        if (over > 0 and bound[1] == "<=") or (over < 0 and bound[1] == ">="):
            return True
    return False


_SETTINGS = Guard(
    name="G25 settings",
    must="every setting that the site expects has the expected value on every node",
    remedy="Set it on every node (mount -o remount, lctl set_param, lfs setstripe), or correct the partition's extras.expect",
    against="a: max_dirty_mb was lowered for a test, and stayed so",
    seen_on="ext4, Lustre 2.17",
    but=BEFORE,
    limit="`expect`",
    more="They are read before the first byte, and again while the case runs. A setting that a node does not tell is unknown: "
    "you get a remark.",
)


def settings(
    expect: Mapping[str, Value], facts: Mapping[str, Value], host: str
) -> Finding:
    """G25: ``expect`` and ``facts`` have the keys of a fingerprint. A fact that nobody told is unknown, which is no change."""
    wrong, unknown = [], []
    for key, value in expect.items():
        if key not in facts:
            unknown.append(key)
        elif _differs(key, value, facts[key]):
            wrong.append(key)
    shown = ", ".join(f"{key} {expect[key]}" for key in wrong or unknown or expect)
    guard = _SETTINGS.saying(shown)
    if wrong:
        saw = ", ".join(f"{key} is {facts[key]}" for key in wrong)
        return guard.invalid(f"{host}: {saw}")
    if unknown:
        guard = guard.saying(
            remedy="Run again. If it stays so, the node was too busy to answer, or does not show it to your user: compare "
            "'iogauge check' as root"
        )
        return guard.warn(f"{host} did not tell {', '.join(unknown)}")
    return guard.ok(f"{host}: {len(expect)} setting(s) as expected")


def of_case(case: CaseView) -> Finding | None:
    """Return G25 by what the nodes told while the case ran: what differs first, then what is unknown."""
    expect, evidence = case.extras.expect, case.evidence
    layout: Mapping[str, Value] = {}
    if evidence.passed_on:
        layout = evidence.passed_on.stripes
    worst = None
    for host, facts in evidence.nodes.items():
        if not expect:
            break
        finding = settings(expect, {**layout, **facts}, host)
        if finding.outcome is Outcome.INVALID:
            return finding
        if worst is None or worst.outcome is Outcome.OK:
            worst = finding
    return worst
