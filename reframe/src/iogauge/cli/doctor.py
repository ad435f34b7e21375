"""Examine the machine: what is available, what is missing, and the one command that provides it.

Of a target on Lustre it also says what this user cannot see.
"""

from __future__ import annotations

import getpass
import json
import os
import socket
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from iogauge.core import commands, processes
from iogauge.core.paths import state_dir
from iogauge.core.text import after, some
from iogauge.core.units import format_bytes
from iogauge.guards.finding import Finding, Outcome
from iogauge.guards.nodes import declared_node
from iogauge.guards.preflight import cores, expected_settings, health, identity
from iogauge.node import probes
from iogauge.node.host import usable_cores
from iogauge.node.kernel import memory_bytes
from iogauge.node.kinds import traits
from iogauge.node.layers import loop_remedy
from iogauge.node.lustre import client
from iogauge.node.lustre.programs import LustreError, ask_lctl, run_lfs
from iogauge.node.lustre.quotas import Quota
from iogauge.node.lustre.targets import StorageTarget
from iogauge.node.mounts import fsname_of
from iogauge.node.view import View, look, with_lustre
from iogauge.plan.script import binding_options
from iogauge.site import folders, programs
from iogauge.site.extras import PartitionExtras
from iogauge.site.programs import BRINGS, Machine, brings, mpi_environment
from iogauge.workspace import directory, lock, permission

Answer = Literal["ok", "note", "problem"]


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor's report."""

    state: Answer
    subject: str
    text: str
    remedy: str = ""

    @property
    def told(self) -> str:
        """Return the text with its remedy."""
        return ". ".join(filter(None, [self.text, self.remedy]))

    def __str__(self) -> str:
        """Return the line with its remedy."""
        return f"{self.subject}: {self.told}"


#: Names of a list that one line shows.
_SHOWN: Final = 8


def lustre_checks(path: str, extras: PartitionExtras) -> list[Check]:
    """Return the lines about the Lustre file system of a path; raises OSError or :class:`LustreError`.

    They tell what Lustre itself says, and what this user cannot see, and who could.
    """
    subject, topology = f"target {path}", extras.topology
    view = with_lustre(look(path), True)
    fsname = fsname_of(view.mount.source if view.mount else "")
    facts = client.facts(fsname)
    found = health(
        targets=view.targets, declared=topology.targets if topology else None
    )
    release = facts.get(
        "lustre.client", "of an unknown version (the kernel did not tell)"
    )
    served = facts.get("lustre.server", "of a version that only root sees")
    addresses = sorted({target.server for target in view.targets if target.server})
    directory = _asked("getdirstripe", "-y", path).partition(" lmv_objects:")[0]
    pools = _asked("pool_list", view.targets[0].uuid.rpartition("-OST")[0])
    told = [
        f"Lustre client {release}, servers {served}",
        f"{len(view.targets)} storage target(s) (OST), {facts.get('lustre.mdts', '?')} metadata target(s) (MDT), "
        f"storage served from {some(addresses, _SHOWN) or 'unknown addresses'}",
        *([f"{found.name}: {found.saw}"] if found.outcome is Outcome.OK else []),
        _fill(view.targets),
        _quotas(view.quotas),
        f"new files get: {_asked('getstripe', '-d', path)}",
        f"the directory itself: {directory}",
        f"pools: {pools.partition(':')[2].strip() or 'none'}",
    ]
    lines = [Check("ok", subject, text) for text in told]
    lines += objections(subject, [found])
    if "lustre.server" not in facts:
        text = (
            "hidden from you: evictions, lost connections (G20), the servers' versions"
        )
        what = "root sees them: lctl get_param 'osc.*.state' 'osc.*.import'"
        lines.append(Check("note", subject, text, what))
    # One device by its whole name: a pattern gives ordinary users values under wrong names.
    devices = client.read_parameters(fsname, {"osc": ("ost_conn_uuid",)})
    names = [name.rpartition(".")[0] for name in devices][:1]
    if not names or "snapshot_time" not in ask_lctl(f"{names[0]}.stats"):
        text = (
            "hidden from you: what the client moved for each storage target (G8, G19)"
        )
        what = "root sees it: lctl get_param 'osc.*.stats'; so do users from Lustre 2.17 on"
        lines.append(Check("note", subject, text, what))
    return lines


def _asked(*words: str) -> str:
    """Return an answer of ``lfs`` on one line, or its complaint."""
    try:
        return " ".join(run_lfs(*words).split()) or "nothing"
    except LustreError as error:
        return str(error)


def _fill(targets: Sequence[StorageTarget]) -> str:
    active = [target for target in targets if target.active]
    if not active:
        return "no active storage target reports its free space"
    worst = max(active, key=lambda target: target.fill)
    return (
        f"fullest storage target: {worst.uuid}, {worst.fill:.0%} full, "
        f"{format_bytes(worst.bytes_free)} free"
    )


def _quotas(quotas: Sequence[Quota]) -> str:
    if not quotas:
        return "quota: lfs quota reports no quota"
    owners = []
    for quota in quotas:
        left = []
        if quota.bytes_left is not None:
            left.append(format_bytes(quota.bytes_left))
        if quota.files_left is not None:
            left.append(f"{quota.files_left} files")
        room = "no limit"
        if left:
            room = f"{' and '.join(left)} left"
        owners.append(f"{quota.owner}: {room}")
    return f"quota of {', '.join(owners)}"


#: The checks that need a program, in words.
NEEDED_FOR: Final = {
    "ior": "bandwidth with IOR (IorPosix, IorMpiio)",
    "mdtest": "metadata rates with mdtest (MdtestEasy, MdtestHard)",
    "fio": "bandwidth, random reads and metadata with fio (FioSequential, FioRandomRead, FioMetadata)",
    "mpirun": "everything that runs IOR or mdtest",
}


#: What to do about a declaration under which a PASS means little.
DOUBT: Final = "a PASS means little there: correct it; if it is meant, let the file's sources say why"


def launch_check(machine: Machine) -> Check | None:
    """Run IOR on two tasks over a few KiB, to see whether launcher and program use the same MPI.

    Returns None if IOR or mpirun is missing.
    """
    if not {"ior", "mpirun"} <= set(machine.programs):
        return None
    ior = machine.programs["ior"].path
    mpirun = machine.programs["mpirun"].path
    with tempfile.TemporaryDirectory(prefix="iogauge-doctor-") as scratch:
        words = [mpirun, "-np", "2", ior, "-w", "-t", "64k", "-b", "64k"]
        words += ["-o", f"{scratch}/data", "-O", "summaryFormat=JSON"]
        words += ["-O", f"summaryFile={scratch}/out.json"]
        try:
            environment = os.environ | mpi_environment()
            done = commands.run(*words, seconds=120, environment=environment)
            out = json.loads(Path(scratch, "out.json").read_text(encoding="utf-8"))
            tasks = out["tests"][0]["Options"]["tasks"]
        except (OSError, ValueError, LookupError) as error:
            text = f"two tasks did not run: {error}"
            return Check("problem", "mpirun and ior", text, " ".join(words))
    if done.returncode == 0 and tasks == 2:
        return Check("ok", "mpirun and ior", "two tasks ran together")
    text = f"asked for 2 tasks, ior saw {tasks}: {mpirun} is not of the MPI that {ior} was built with"
    what = f"put the right mpirun first on PATH (see: ldd {ior} | grep libmpi)"
    return Check("problem", "mpirun and ior", text, what)


def of_programs(machine: Machine) -> Iterator[Check]:
    """Yield a line for each program that cases of this suite need."""
    for name in ("ior", "mdtest", "fio", "mpirun"):
        program = machine.programs.get(name)
        if program is None:
            text = f"not on PATH; needed for {NEEDED_FOR[name]}"
            yield Check("note", name, text, brings(name))
        elif program.problem:
            text = f"{program.path}: {program.problem}"
            yield Check("problem", name, text, BRINGS[name])
        else:
            text = f"{program.path} {program.version}".rstrip()
            if program.features:
                text += f", offers {', '.join(program.features)}"
            yield Check("ok", name, text)


def _state() -> Check:
    """Return the line about the directory of records, stage files and logs."""
    place = state_dir()
    above = next(path for path in (place, *place.parents) if path.exists())
    if os.access(above, os.W_OK | os.X_OK):
        return Check("ok", "state", f"records and logs go to {place}")
    what = "set IOGAUGE_HOME to a directory of your own, with an absolute path"
    text = f"{place}: user {getpass.getuser()} may not write there"
    return Check("problem", "state", text, what)


def of_target(extras: PartitionExtras) -> list[Check]:
    """Return the lines about a site's target."""
    path = extras.target.path
    subject = f"target {path}"
    if extras.target.of_job:
        return [Check("note", subject, "made for each job: only a job sees it")]
    try:
        view = processes.call_in_time(path, lambda: look(path))
    except OSError as error:
        what = "correct target.path, or look on a node that mounts it"
        return [Check("problem", subject, error.strerror or str(error), what)]
    checks = list(_target_mount(path, view, extras.target.compresses is not None))
    checks += _target_otherwise(subject, extras, view)
    on_lustre = view.on_lustre or extras.target.striped_by == "lustre"
    if on_lustre:
        try:
            checks += processes.call_in_time(path, partial(lustre_checks, path, extras))
        except (OSError, LustreError) as error:
            what = "put lfs of the client on PATH; ask the administrators of the file system"
            checks.append(Check("problem", subject, str(error), what))
    guarded = extras.target.lock_place or path
    try:
        by, writable, sessions, holder = processes.call_in_time(
            path,
            lambda: (
                permission.reason(path),
                os.access(path, os.W_OK | os.X_OK),
                directory.sessions(path),
                lock.standing(guarded),
            ),
        )
    except OSError as error:
        what = "set IOGAUGE_TARGET to a directory of your own, or correct target.path of the site"
        text = after(path, error.strerror or str(error))
        return [*checks, Check("problem", subject, text, what)]
    if writable:
        checks.append(Check("ok", subject, f"allowed: {by}"))
    else:
        checks.append(not_writable(path))
    if on_lustre and holder is None:
        checks.append(Check("ok", subject, "nobody holds its lock"))
    return [*checks, *_target_sessions(path, sessions, holder)]


def not_writable(path: str) -> Check:
    """Return the line about a target in which this user may not write."""
    you = getpass.getuser()
    what = f"mkdir {path}/{you}, owned by {you}, and make it the target, or ask its owner for: chmod 1777 {path}"
    return Check("problem", f"target {path}", f"user {you} may not write there", what)


def _target_otherwise(
    subject: str, extras: PartitionExtras, view: View
) -> Iterator[Check]:
    """Yield the lines about what a site declares of a target, if this host sees it otherwise."""
    target = extras.target
    yield from objections(subject, [identity(target, [view])])
    if view.below.compresses and target.compresses is False:
        text = f"G18 data: data may be compressed, or stored once ({view.below.compresses})"
        what = "Correct target.compresses: the site declares false"
        yield Check("problem", subject, text, what)


def objections(
    subject: str, findings: Iterable[Finding], of: str = ""
) -> Iterator[Check]:
    """Yield a line for each finding that is not in order; ``of`` says whom it concerns."""
    for finding in findings:
        if finding.outcome is Outcome.OK:
            continue
        state: Answer = "problem"
        if finding.outcome is Outcome.WARN:
            state = "note"
        text = f"{replace(finding, remedy='')}{of}"
        yield Check(state, subject, text, finding.remedy)


def _target_mount(path: str, view: View, compression_declared: bool) -> Iterator[Check]:
    """Yield the lines about the file system of a target, and what it and the stack below it do not promise."""
    room = view.space
    note = partial(Check, "note", f"target {path}")
    kind, source = "unknown", "?"
    if view.mount:
        kind, source = view.mount.type, view.mount.source
    text = (
        f"{kind} from {source}, {format_bytes(room.bytes_free)} free of "
        f"{format_bytes(room.bytes_total)} ({room.fill:.0%} full), {room.inodes_free} inodes free"
    )
    yield Check("ok", f"target {path}", text)
    if view.uuid:
        yield Check("ok", f"target {path}", f"UUID {view.uuid} (target.uuid)")
    else:
        text = f"{kind} shows no UUID: if another file system is mounted there, iogauge does not notice"
        yield note(text, "declare target.source")
    known = traits(kind).over(view.below)
    if known.why and known.cache == "memory":
        text = f"memory, not storage ({known.why}): every figure is INVALID"
        yield note(text, "choose a directory on storage")
    elif known.why:
        text = f"reads may come from a cache, O_DIRECT or not ({known.why})"
        what = "use two nodes or more, data of twice the memory, or another directory"
        yield note(text, loop_remedy(known.why) or what)
    elif known.cache != "page-cache":
        text = f"a client of {kind} keeps data in a cache that iogauge cannot check: buffered reads on one node are INVALID"
        what = "use two nodes or more, or say what is true: target.cache, target.honours_o_direct"
        yield note(text, what)
    if known.unsynced:
        text = (
            f"fsync proves nothing ({known.unsynced}): writes and metadata are INVALID"
        )
        yield note(text, "choose another directory")
    if view.below.compresses and not compression_declared:
        text = f"data may be compressed, or stored once ({view.below.compresses})"
        yield note(text, "declare target.compresses: true")


def _target_sessions(
    path: str, sessions: Sequence[directory.FoundSession], holder: lock.Holder | None
) -> Iterator[Check]:
    """Yield the lines about a lock on a target, and about what dead sessions left there."""
    if holder is not None:
        state = ""
        remedy = "wait until it has ended. If it is dead, run: iogauge clean"
        if holder.alive:
            state = ", whose processes run"
            remedy = "wait until it has ended"
        elif holder.alive is False:
            state = ", whose processes have ended"
            remedy = "run: iogauge clean, which breaks the lock"
        yield Check("note", f"target {path}", f"locked by {holder}{state}", remedy)
    dead = [session.path for session in sessions if not directory.may_be_alive(session)]
    if dead:
        text = f"left by dead sessions: {', '.join(dead)}"
        yield Check("note", f"target {path}", text, "run: iogauge clean")


def site_of_host(found: Sequence[Path]) -> Path | None:
    """Return the folder of the site that ReFrame selects on this host, or None."""
    return next(iter(folders.sites_of_host(found, socket.gethostname())), None)


def declared_nodes(
    site: str, partition: Mapping[str, Any], extras: PartitionExtras
) -> Iterator[Check]:
    """Yield lines about a partition that runs on this machine and declares it as another one."""
    if partition["scheduler"] != "local" or extras.hosts:
        return
    usable = usable_cores()
    bound = 0
    tasks = extras.scale.tasks_per_node
    declared = extras.node
    if "core" in binding_options(partition["launcher"], tasks, declared.cores):
        bound = tasks
    findings = [
        cores(bound, usable, declared.cores),
        declared_node(declared, [usable], [memory_bytes()]),
    ]
    path = extras.target.path
    facts: Mapping[str, str | int | float | bool] = {}
    if extras.expect:
        facts = probes.collect(path)
    expect = {key: value for key, value in extras.expect.items() if key in facts}
    if expect:
        findings.append(
            expected_settings(
                expect=expect,
                facts=facts,
                host=socket.gethostname(),
                path=path,
                fsname=fsname_of(extras.target.source or "*"),
            )
        )
    subject = f"site {site}, partition {partition['name']}"
    if extras.scale.nodes > 1:
        text = f"scale.nodes is {extras.scale.nodes}, and the scheduler local starts all tasks on this host"
        yield Check(
            "problem", subject, text, "name a scheduler, or the nodes (extras.hosts)"
        )
    yield from objections(subject, findings)


def of_this_host() -> list[Check]:
    """Return the lines about the state directory, the programs and the MPI of this host."""
    machine = programs.machine()
    launch = launch_check(machine)
    return [_state(), *of_programs(machine), *([launch] if launch else [])]
