"""The facts of software and hardware that a record was made with, so that a change can be named.

A fingerprint is a flat dictionary of plain values. :func:`collect` gathers what one node can tell, without
root, from ``/proc``, ``/sys``, one call of ``lctl`` and one of ``mpirun``; :func:`merge` joins nodes;
:func:`of_case` is what the case knows of itself. What cannot be read gives no key: a fingerprint never fails
a run, and never holds a password or a key. docs/fingerprint.md lists the keys.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from iogauge.core.text import digest, text_digest
from iogauge.core.words import Fingerprint, Value
from iogauge.node.probes import SECRET

#: Keys (patterns of fnmatch) whose change starts a new series: what a result depends on by design. Others
#: are kept to explain a change, and change nothing by themselves.
STARRED: Final = (
    "tool.*",
    "stack",
    "stack.*",
    "mpi",
    "kernel",
    "lustre.client",
    "lustre.mdts",
    "lustre.osts",
    "lustre.servers",
    "mount.options",
    "node.model",
    "cpu.model",
    "cpu.sockets",
    "cpu.cores",
    "cpu.smt",
    "cpu.numa_nodes",
    "nic.*.model",
    "nic.*.driver",
    "nic.*.firmware",
    "nic.*.speed_mbps",
    "ib.*.rate",
    "ib.*.firmware",
    "tunable.llite.hybrid_io*",
    "tunable.llite.fast_read",
    "tunable.llite.parallel_dio",
    "tunable.llite.unaligned_dio",
)

#: Values of a key that nodes may differ in before the rest is counted.
_DISTINCT: Final = 8


def normalise(command: str, directory: str = "", session: str = "") -> str:
    """A command line without what differs from run to run: directory, session, repetition, folders of programs.

    Two command lines that do the same become one; what cannot be split into words is only stripped.
    """
    for text, name in ((directory, "DIR"), (session, "SESSION")):
        command = command.replace(text, name) if text else command
    command = re.sub(r"\$\{IOG_DIR\}|\$IOG_DIR\b", "DIR", command)
    command = re.sub(r"\$\{IOG_REP\}|\$IOG_REP\b", "REP", command)
    try:
        words = shlex.split(command)
    except ValueError:
        return " ".join(command.split())
    words = [os.path.basename(word) if n == 0 else word for n, word in enumerate(words)]
    pairs = (word.partition("=") for word in words)
    return shlex.join(
        f"{name}=***" if equals and SECRET.search(name.lstrip("-")) else f"{name}{equals}{value}"
        for name, equals, value in pairs
    )


def fold(hosts: Sequence[str]) -> str:
    """Host names, each once, runs of numbers folded: ``n[1-3,7]``, ``c[01-02]-ib``; sorted."""
    parts = {host: re.fullmatch(r"(.*?)([0-9]{1,18})([^0-9]*)", host) for host in hosts}
    padded = {(m[1], m[3]) for m in parts.values() if m and m[2] != str(int(m[2]))}
    folded = [host for host, match in parts.items() if match is None]
    groups: dict[tuple[str, int, str], list[int]] = {}
    for match in parts.values():
        if match:
            # Where one name has leading zeros, only names of the same width are neighbours.
            width = len(match[2]) if (match[1], match[3]) in padded else 0
            groups.setdefault((match[1], width, match[3]), []).append(int(match[2]))
    for (prefix, width, suffix), numbers in groups.items():
        runs: list[list[int]] = []
        for number in sorted(numbers):
            if runs and number == runs[-1][-1] + 1:
                runs[-1].append(number)
            else:
                runs.append([number])
        texts = [
            f"{run[0]:0{width}d}" + (f"-{run[-1]:0{width}d}" if len(run) > 1 else "")
            for run in runs
        ]
        inner = texts[0] if len(numbers) == 1 else f"[{','.join(texts)}]"
        folded.append(f"{prefix}{inner}{suffix}")
    return ",".join(sorted(folded))


# What a fingerprint is used for.
def series_subset(fingerprint: Mapping[str, Value]) -> Fingerprint:
    """The part whose change starts a new series: keys that fit :data:`STARRED`."""
    return {
        key: value
        for key, value in fingerprint.items()
        if any(fnmatch.fnmatchcase(key, pattern) for pattern in STARRED)
    }


def identity(fingerprint: Mapping[str, Value]) -> str:
    """12 hexadecimal digits that name the content, whatever the order of its keys."""
    return digest(dict(fingerprint))


def changed(
    old: Mapping[str, Value], new: Mapping[str, Value]
) -> list[tuple[str, Value | None, Value | None]]:
    """Keys that differ, with both values, in order; None: there was none. Starred keys come first."""
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    starred = series_subset(dict.fromkeys(keys, True))
    return [
        (key, old.get(key), new.get(key))
        for key in sorted(keys, key=lambda k: (k not in starred, k))
    ]


def merge(nodes: Sequence[Mapping[str, Value]]) -> Fingerprint:
    """One fingerprint of several looks: values that differ are joined as text, sorted, with `` | ``.

    Of more than :data:`_DISTINCT` the first are kept, with how many the others are and a digest of them: a
    thousand nodes must not make a record of megabytes. A key that one look lacks, because a probe was late,
    is taken from the others.
    """
    seen: dict[str, dict[Value, None]] = {}
    for node in nodes:
        for key, value in node.items():
            seen.setdefault(key, {})[value] = None

    def joined(values: Sequence[Value]) -> Value:
        texts = sorted(map(str, values))
        more = texts[_DISTINCT:]
        said = [f"and {len(more)} more ({text_digest(' | '.join(more))})"] if more else []
        return values[0] if len(values) == 1 else " | ".join([*texts[:_DISTINCT], *said])

    return {key: joined(list(values)) for key, values in sorted(seen.items())}


def of_case(
    *,
    hosts: Sequence[str],
    tools: Sequence[str],
    commands: Sequence[str],
    stack: Mapping[str, object] | None = None,
    hints: str = "",
    data_types: Sequence[str] = (),
    directory: str = "",
    session: str = "",
) -> Fingerprint:
    """What the case itself knows: node names, tools as ``name version``, stack, commands, hints, data.

    ``stack`` is what :meth:`iogauge.site.stack.Stack.to_record` gives.
    """
    found: Fingerprint = {"nodes": fold(hosts)} if hosts else {}
    for tool in tools:
        name, _, version = tool.partition(" ")
        found[f"tool.{name}"] = version
    if stack and stack.get("fingerprint"):
        found["stack"] = str(stack["fingerprint"])
        hashes = stack.get("hashes")
        if isinstance(hashes, Mapping):
            found |= {f"stack.{name}": str(value) for name, value in hashes.items()}
    if commands:
        text = "; ".join(normalise(command, directory, session) for command in commands)
        found |= {"command": text_digest(text), "command.text": text}
    if hints:
        found["hints"] = hints
    if data_types:
        found["data_type"] = ",".join(sorted(set(data_types)))
    return found
