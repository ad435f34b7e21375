"""Facts of the software and hardware behind a record, so that a change can be named.

A fingerprint is a flat dictionary of plain values. :mod:`iogauge.node.inventory` gathers the facts of
a node, without root, from ``/proc``, ``/sys`` and one call of ``mpirun``.
:func:`merge` joins nodes, and :func:`of_case` adds the facts of the case. Facts that cannot be read
get no key. Facts that did not answer in time are neither absent nor changed: see :func:`unanswered`. A fingerprint never fails a run, and never holds a password or a key.
docs/guards.md lists the keys.
"""

import fnmatch
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from iogauge.core.paths import JOB_FILES, LIBRARY
from iogauge.core.text import digest, text_digest
from iogauge.core.vocabulary import Fingerprint, Value
from iogauge.node.inventory import READERS, SECRET, UNANSWERED
from iogauge.node.keys import starred

#: The starred keys that are no part of a series' name: records of before have no such key, and their
#: series goes on. iogauge.records.query divides a series by them.
FILE_SYSTEM = "fs.uuid"
LAYOUTS = ("layout.default", "layout.directory")

#: What a case is measured with: a digest of its commands, of the files that they read, and of its repetitions.
SETTINGS = "settings"

#: Keys that divide a series where two known values differ.
DIVIDING = (FILE_SYSTEM, *LAYOUTS, SETTINGS)

#: Number of distinct values that a merged key keeps; further values are only counted.
_DISTINCT = 8


#: Scripts of ours that have moved, with their first paths: a new path would start new series.
_MOVED = {str(JOB_FILES / "rounds.sh"): str(LIBRARY / "sweep.sh")}


def normalise(command: str, session: str = "") -> str:
    """Return a command line without the parts that differ from run to run.

    These are session, repetition, and the folders of programs. Command lines that do the
    same become equal. A command that cannot be split into words keeps the folders of programs.
    """
    for text, name in ((session, "SESSION"), *_MOVED.items()):
        if text:
            command = command.replace(text, name)
    command = re.sub(r"\$\{IOG_DIR\}|\$IOG_DIR\b", "DIR", command)
    command = re.sub(r"\$\{IOG_REP\}|\$IOG_REP\b", "REP", command)
    # Once the directories of all repetitions had one name. Their series go on.
    command = re.sub(r"DIR/(tree|objects)\.REP\b", r"DIR/\1", command)
    try:
        words = shlex.split(command)
    except ValueError:
        return " ".join(command.split())
    words[:1] = map(os.path.basename, words[:1])
    for place, word in enumerate(words):
        name, equals, _ = word.partition("=")
        if equals and SECRET.search(name.lstrip("-")):
            words[place] = f"{name}=***"
    return shlex.join(words)


def _anywhere(text: str, session: str, hosts: Sequence[str]) -> str:
    """Return a text without the names of its session and hosts, and without the place of this library."""
    names = dict.fromkeys(hosts, "HOST") | {str(LIBRARY): "LIBRARY"}
    if session:
        names[session] = "SESSION"
    for name in sorted(names, key=len, reverse=True):
        text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", names[name], text)
    return text


def fold(hosts: Sequence[str]) -> str:
    """Return the host names, each once and sorted, with runs of numbers folded: ``n[1-3,7]``."""
    from ClusterShell.NodeSet import (
        RESOLVER_NOGROUP,
        NodeSet,
        NodeSetException,
    )  # for cases alone

    try:
        return str(NodeSet.fromlist(hosts, resolver=RESOLVER_NOGROUP))
    except NodeSetException:  # a host may have any name
        return ",".join(sorted(set(hosts)))


# Uses of a fingerprint.
def series_subset(fingerprint: Mapping[str, Value]) -> Fingerprint:
    """Return the keys whose change starts a new series: those that fit :func:`~iogauge.node.keys.starred`."""
    return {key: value for key, value in fingerprint.items() if _fits(key, starred())}


_UNANSWERED = {f"{UNANSWERED}{name}": keys for name, (_, keys) in READERS.items()}


def unanswered(fingerprint: Mapping[str, Value]) -> tuple[str, ...]:
    """Return patterns (of fnmatch) of the keys that may be missing for want of an answer.

    A client of Lustre always knows its version: a record of before without it had no answer.
    """
    patterns = list[str]()
    for key in _UNANSWERED.keys() & fingerprint.keys():
        patterns += _UNANSWERED[key]
    if fingerprint.get("mount.type") == "lustre" and "lustre.client" not in fingerprint:
        patterns += READERS["lustre"][1]
    return tuple(dict.fromkeys(sorted(patterns)))


def agree(one: Mapping[str, Value], other: Mapping[str, Value]) -> bool:
    """Return whether no starred key differs that both have, or could have had with an answer.

    File system and settings are left aside: they divide a series in a way of their own.
    """
    unknown = [*unanswered(one), *unanswered(other)]
    for key, old, new in _differences(one, other):
        if key in (FILE_SYSTEM, SETTINGS) or not _fits(key, starred()):
            continue
        if None not in (old, new) or not _fits(key, unknown):
            return False
    return True


def _fits(key: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(key, pattern) for pattern in patterns)


def _differences(
    old: Mapping[str, Value], new: Mapping[str, Value]
) -> Iterator[tuple[str, Value | None, Value | None]]:
    for key in {**old, **new}:
        if old.get(key) != new.get(key):
            yield key, old.get(key), new.get(key)


def identity(fingerprint: Mapping[str, Value]) -> str:
    """Return 12 hexadecimal digits that identify the content, whatever the order of its keys."""
    return digest(dict(fingerprint))


def is_of_node(fingerprint: Mapping[str, Value]) -> bool:
    """Return whether somebody looked at a node: before that, a case may be refused."""
    return "kernel" in fingerprint or f"{UNANSWERED}system" in fingerprint


def changed(
    old: Mapping[str, Value], new: Mapping[str, Value]
) -> list[tuple[str, Value | None, Value | None]]:
    """Return the keys that differ with old and new value, None if absent; starred keys first.

    A key that one side lacks for want of an answer has not changed: a reader was late, or nobody looked at a node.
    """
    unknown = [*unanswered(old), *unanswered(new), f"{UNANSWERED}*"]
    if not (is_of_node(old) and is_of_node(new)):
        unknown = ["*"]
    changes = []
    for change in _differences(old, new):
        if None not in change[1:] or not _fits(change[0], unknown):
            changes.append(change)
    changes.sort(key=lambda change: (not _fits(change[0], starred()), change[0]))
    return changes


def merge(nodes: Sequence[Mapping[str, Value]]) -> Fingerprint:
    """Merge several looks into a fingerprint; differing values are joined as sorted text with `` |
    ``.

    If a key has more than :data:`_DISTINCT` values, the others become their number and a digest.
    Otherwise a thousand nodes would make a record of megabytes. If a look lacks a key, because a
    reader was late, the others give it; what any look answered is answered.
    """
    by_key: dict[str, dict[Value, None]] = {}
    for node in nodes:
        for key, value in node.items():
            by_key.setdefault(key, {})[value] = None
    merged: Fingerprint = {}
    for key, values in sorted(by_key.items()):
        texts = sorted(map(str, values))
        more = texts[_DISTINCT:]
        if more:
            digested = text_digest(" | ".join(more))
            texts = [*texts[:_DISTINCT], f"and {len(more)} more ({digested})"]
        merged[key] = " | ".join(texts)
        if len(values) == 1:
            (merged[key],) = values
        if key.startswith(UNANSWERED) and not all(key in node for node in nodes):
            del merged[key]
    return merged


def of_case(
    *,
    hosts: Sequence[str],
    file_systems: Sequence[str] = (),
    layouts: Mapping[str, str] = MappingProxyType({}),
    tools: Sequence[str],
    commands: Sequence[str],
    inputs: Mapping[str, str] = MappingProxyType({}),
    repetitions: int = 1,
    stack: Mapping[str, object] | None = None,
    data_types: Sequence[str] = (),
    session: str = "",
) -> Fingerprint:
    """Return the facts of the case: nodes, UUIDs and layouts of the target, tools as ``name
    version``, stack, commands with the files that they read (``inputs``), repetitions, data.

    ``stack`` is the value of :meth:`iogauge.site.stack.Stack.to_record`.
    """
    facts: Fingerprint = {}
    if hosts:
        facts["nodes"] = fold(hosts)
    known = sorted({name for name in file_systems if name})
    if known:
        facts[FILE_SYSTEM] = " | ".join(known)
    facts |= layouts
    for tool in tools:
        name, _, version = tool.partition(" ")
        facts[f"tool.{name}"] = version
    if stack and stack.get("fingerprint"):
        facts["stack"] = str(stack["fingerprint"])
        hashes = stack.get("hashes")
        if isinstance(hashes, Mapping):
            facts |= {f"stack.{name}": str(value) for name, value in hashes.items()}
    if commands:
        text = "; ".join(normalise(command, session) for command in commands)
        facts |= {"command": text_digest(text), "command.text": text}
        files = [f"{name}: {' '.join(inputs[name].split())}" for name in sorted(inputs)]
        settings = "; ".join([f"repetitions {repetitions}", *files])
        facts["settings.text"] = _anywhere(settings, session, hosts)
        measured = _anywhere(f"{text}; {settings}", session, hosts)
        facts[SETTINGS] = text_digest(measured)
    if data_types:
        facts["data_type"] = ",".join(sorted(set(data_types)))
    return facts
