"""What this host is asked: where records go, the programs, a target as this host sees it, and its own hardware."""

import getpass
import os
import socket
from collections.abc import Iterator
from functools import partial

from iogauge.cli.answers import Answer, Place, objections
from iogauge.core.paths import state_dir
from iogauge.core.text import after
from iogauge.core.units import format_bytes
from iogauge.guards import expected
from iogauge.guards.placement import declared_node
from iogauge.node import inventory
from iogauge.node.activity import usable_cores
from iogauge.node.kernel import memory_bytes
from iogauge.node.kinds import kind_of
from iogauge.node.view import View
from iogauge.site import programs
from iogauge.site.extras import Target
from iogauge.workspace import directory, lock, permission


def state_directory() -> Iterator[Answer]:
    """Look at the directory of records, stage files and logs."""
    place = state_dir()
    above = next(path for path in (place, *place.parents) if path.exists())
    if os.access(above, os.W_OK | os.X_OK):
        yield Answer("ok", "state", f"records and logs go to {place}")
    else:
        yield Answer(
            "problem",
            "state",
            f"{place}: user {getpass.getuser()} may not write there",
            "set IOGAUGE_HOME to a directory of your own, with an absolute path",
        )


def tools() -> Iterator[Answer]:
    """Look at the programs that cases of this suite need."""
    here = programs.machine().programs
    for name, tool in programs.TOOLS.items():
        program = here.get(name)
        if program is None:
            if tool.needed_for:
                text = f"not on PATH; needed for {tool.needed_for}"
                yield Answer("note", name, text, programs.brings(name))
        elif program.problem:
            text = f"{program.path}: {program.problem}"
            yield Answer("problem", name, text, tool.brings)
        else:
            text = f"{program.path} {program.version}".rstrip()
            if program.features:
                text += f", offers {', '.join(program.features)}"
            yield Answer("ok", name, text)


def file_system(target: Target, view: View) -> Iterator[Answer]:
    """Look at what is mounted; whether it is as declared is asked for each case."""
    subject = f"target {target.path}"
    room = view.space
    kind, source = view.mount.type, view.mount.source
    text = (
        f"{kind} from {source}, {format_bytes(room.bytes_free)} free of "
        f"{format_bytes(room.bytes_total)} ({room.fill:.0%} full), {room.inodes_free} inodes free"
    )
    yield Answer("ok", subject, text)
    if view.uuid:
        yield Answer("ok", subject, f"UUID {view.uuid} (target.uuid)")
    else:
        yield Answer(
            "note",
            subject,
            f"{kind} shows no UUID: if another file system is mounted there, iogauge does not notice",
            f"declare target.source: {source}",
        )


def promises(target: Target, view: View) -> Iterator[Answer]:
    """Look at what the stack below the mount takes away."""
    note = partial(Answer, "note", f"target {target.path}")
    kind = view.mount.type
    known = kind_of(kind).over(view.below)
    if known.cache == "memory":
        yield note(
            f"memory, not storage ({known.why or kind}): every figure is INVALID",
            "choose a directory on storage",
        )
    elif known.why:
        text = f"reads may come from a cache, O_DIRECT or not ({known.why})"
        remedy = "use two nodes or more, data of twice the memory, or another directory"
        yield note(text, remedy)
    elif known.cache != "page-cache":
        yield note(
            f"a client of {kind} keeps data in a cache that iogauge cannot check: buffered reads on one node are INVALID",
            "use two nodes or more, or say what is true: target.cache, target.honours_o_direct",
        )
    if known.unsynced:
        yield note(
            f"fsync does not wait for storage ({known.unsynced}): writes and metadata are INVALID",
            "choose another directory",
        )
    shrinks = view.below.compresses
    if shrinks and not target.compresses:
        text = f"G18 data: data may be compressed, or stored once ({shrinks})"
        if target.compresses is None:
            yield note(text, "declare target.compresses: true")
        else:
            remedy = "Correct target.compresses: the site declares false"
            yield Answer("problem", f"target {target.path}", text, remedy)


def not_writable(path: str, options: str = "") -> Answer:
    """Return the answer about a target in which this user may not write; ``options`` are those of its mount."""
    you = getpass.getuser()
    text = f"user {you} may not write there"
    remedy = f"mkdir {path}/{you}, owned by {you}, and make it the target, or ask its owner for: chmod 1777 {path}"
    if "ro" in options.split(","):
        text = "its file system is mounted read-only"
        remedy = "mount it for writing (mount -o remount,rw), or name another target"
    return Answer("problem", f"target {path}", text, remedy)


def permitted(target: Target, view: View) -> Iterator[Answer]:
    """Look at the permission, the lock, and what dead sessions have left."""
    path = target.path
    subject = f"target {path}"
    try:
        allowed = permission.reason(path)
    except OSError as error:
        yield Answer(
            "problem",
            subject,
            after(path, error.strerror or str(error)),
            "set IOGAUGE_TARGET to a directory of your own, or correct target.path of the site",
        )
        return
    if os.access(path, os.W_OK | os.X_OK):
        yield Answer("ok", subject, f"allowed: {allowed}")
    else:
        yield not_writable(path, view.mount.options)
    holder = lock.standing(target.lock_place or path)
    if holder:
        text = f"locked by {holder}"
        remedy = "wait until it has ended; if it is dead, run: iogauge clean"
        if holder.gone:
            text += ", whose processes have ended"
            remedy = "run: iogauge clean"
        yield Answer("note", subject, text, remedy)
    dead = []
    for session in directory.sessions(path):
        if not directory.may_be_alive(session):
            dead.append(session.path)
    if dead:
        text = f"left by dead sessions: {', '.join(dead)}"
        yield Answer("note", subject, text, "run: iogauge clean")


def declared(place: Place) -> Iterator[Answer]:
    """Compare this host with the declared node, if the partition's cases run here."""
    extras = place.extras
    if not place.is_local:
        return
    subject = f"partition {place.name}"
    if extras.scale.nodes > 1:
        yield Answer(
            "problem",
            subject,
            f"scale.nodes is {extras.scale.nodes}, and the scheduler local starts all tasks on this host",
            "name a scheduler, or the nodes (extras.hosts)",
        )
    findings = [declared_node(extras.node, [usable_cores()], [memory_bytes()])]
    if extras.expect:
        facts = inventory.collect(extras.target.path)
        expect = {key: extras.expect[key] for key in extras.expect if key in facts}
        finding = expected.settings(expect, facts, socket.gethostname())
        findings.append(finding)
    yield from objections(subject, findings)
