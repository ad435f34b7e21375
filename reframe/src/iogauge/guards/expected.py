"""Guard of settings: what a site expects of its nodes and its file system is so (G25)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from iogauge.core.words import Value
from iogauge.guards.finding import Finding, Rule

#: How to set a fact, by a pattern of its key; ``{fs}`` is the file system's name on Lustre.
_SETS: Final = (
    (
        r"tunable\.(llite|osc|mdc)\.(\w+)",
        r"lctl set_param \1.{fs}-*.\2={value} (as root, on every client; lctl set_param -P on the "
        "MGS keeps it)",
    ),
    (r"mount\.options", "mount -o remount,{value} {path} (as root)"),
    (r"cpu\.governor", "cpupower frequency-set -g {value} (as root)"),
    (r"mem\.thp", "echo {value} > /sys/kernel/mm/transparent_hugepage/enabled (as root)"),
    (r"nic\.(\w+)\.mtu", r"ip link set \1 mtu {value} (as root)"),
    (r"layout\.stripe_count", "lfs setstripe -c {value} {path}"),
    (r"layout\.stripe_bytes", "lfs setstripe -S {value} {path}"),
    (
        r"lustre\.(servers|osts|mdts)",
        "lfs check servers, lctl get_param osc.*.ost_conn_uuid show them",
    ),
)


def _differs(key: str, expected: Value, fact: Value | None) -> bool:
    """Return whether a fact is not as expected, or unknown.

    A text ``>= N`` or ``<= N`` is a bound. Of ``mount.options`` each expected option must be there.
    """
    if fact is None:
        return True
    if key == "mount.options":
        return not set(str(expected).split(",")) <= set(str(fact).split(","))
    bound = re.fullmatch(r"([<>]=)\s*(\d{1,18})", str(expected))
    if bound is None:
        return str(expected) != str(fact)
    # A fact has several values if devices differ.
    values = re.findall(r"[^,\s]+", str(fact))
    if not values or not all(re.fullmatch(r"\d{1,18}", value) for value in values):
        return True
    limit = int(bound[2])
    return not all(int(v) >= limit if bound[1] == ">=" else int(v) <= limit for v in values)


def _sets(key: str, expected: Value, path: str, fsname: str) -> str:
    """Return how to set a fact, or the advice to correct the expectation."""
    value = re.sub(r"^[<>]=\s*", "", str(expected))
    for pattern, command in _SETS:
        if match := re.fullmatch(pattern, key):
            return match.expand(command).format(fs=fsname, value=value, path=path)
    return f"set it, or correct expect.{key}"


def settings(
    *, expect: Mapping[str, Value], facts: Mapping[str, Value], host: str, path: str, fsname: str
) -> Finding:
    """G25: every setting that the site expects is so on every node.

    ``expect`` and ``facts`` have the keys of a fingerprint. ``fsname`` is the name of the file
    system on Lustre, for the commands that set something. A fact that is not known is not as
    expected.
    """
    wrong = [key for key in expect if _differs(key, expect[key], facts.get(key))]
    demands = ", ".join(f"{key} {expect[key]}" for key in wrong or expect)
    remedy = "; ".join(dict.fromkeys(_sets(key, expect[key], path, fsname) for key in wrong))
    rule = Rule("G25", demands, f"{remedy}. Or correct the partition's extras.expect")
    if wrong:
        saw = ", ".join(f"{key} is {facts.get(key, 'not known')}" for key in wrong)
        return rule.invalid(f"{host}: {saw}")
    return rule.ok(f"{host}: {len(expect)} setting(s) as expected")
