"""Ask the nodes of a partition by one launch: do they see the clone, the state, the target; modules, MPI, tools?"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from iogauge.cli.doctor import Check
from iogauge.core import commands
from iogauge.core.paths import project_root, state_dir
from iogauge.core.text import some, visible
from iogauge.site.extras import PartitionExtras

#: Seconds for nodes to be given, and for all of them to answer.
_GIVEN: Final = 30
_ANSWERED: Final = 120

#: What a node runs: a line for each thing, ``iogauge HOST THING yes`` or ``no``, and what it found.
_SCRIPT: Final = """
h=$(hostname 2>/dev/null || uname -n)
say() { if eval "$2"; then echo "iogauge $h $1 yes"; else echo "iogauge $h $1 no"; fi; }
say clone "[ -e \\"$1/checks\\" ] && [ -x \\"$2\\" ]"
say state "[ -d \\"$3\\" ] && [ -w \\"$3\\" ]"
say target "[ -d \\"$4\\" ]"
say writable "[ -w \\"$4\\" ]"
for m in $5; do say "module:$m" "command -v module >/dev/null && module load $m >/dev/null 2>&1"; done
for t in $6; do say "tool:$t" "command -v $t >/dev/null"; done
for t in ior mdtest; do
    p=$(command -v $t) && say "libraries:$t" "! ldd $p 2>/dev/null | grep -q 'not found'"
done
true
"""

#: What is missing if a node says no, and what to do; ``{0}`` is the place, ``{1}`` the name.
_MEANS: Final = {
    "clone": (
        "does not see {clone}",
        "put the clone on a file system that all nodes mount",
    ),
    "state": (
        "cannot write in {state}, where the job's files go",
        "set IOGAUGE_HOME to a directory on a file system that all nodes mount",
    ),
    "target": (
        "does not see the target {target}",
        "mount it there, or correct target.path",
    ),
    "writable": (
        "may not write in {target}",
        "make a directory of your own, or ask its owner",
    ),
    "module": ("cannot load the module {name}", "correct modules of the environment"),
    "libraries": (
        "lacks libraries of {name}",
        "name the modules of its MPI in the environment (ldd says which)",
    ),
}


def ask(partition: Mapping[str, Any], site: Mapping[str, Any]) -> Iterator[Check]:
    """Yield what the nodes of a partition of Slurm, or of a list of hosts, do not have; else that they are in order."""
    extras = PartitionExtras.of_partition(partition["extras"])
    subject = f"nodes of {partition['name']}"
    launch = _launch(partition, extras)
    if not launch:
        if partition["scheduler"] not in ("local", "slurm", "squeue"):
            text = f"not asked: the scheduler is {partition['scheduler']}"
            yield Check("note", subject, text, "the first run says what they lack")
        return
    modules: dict[str, None] = {}
    for environment in site.get("environments", ()):
        if environment["name"] in partition["environs"]:
            modules |= dict.fromkeys(map(_module, environment.get("modules", ())))
    target = extras.target.path
    if extras.target.of_job:
        target = "/"
    places = {"clone": str(project_root()), "state": str(state_dir()), "target": target}
    state_dir().mkdir(parents=True, exist_ok=True)
    launched = [*launch, "sh", "-c", _SCRIPT, "sh"]
    launched += [places["clone"], sys.executable, places["state"], target]
    launched += [" ".join(modules), "ior mdtest fio"]
    try:
        done = commands.run(*launched, seconds=_ANSWERED, cwd="/")
        printed = done.stdout
        complaint = done.stderr.strip()
    except OSError as error:
        printed = ""
        complaint = str(error)
    answers = []
    for line in printed.splitlines():
        if line.startswith("iogauge "):
            answers.append(line.split()[1:])
    if answers:
        yield from _judged(subject, answers, places)
        return
    lines = complaint.splitlines() or ["no answer"]
    remedy = f"try: {shlex.join(launch)} hostname"
    # A full queue answers later. A scheduler that refuses will refuse the jobs too.
    for line in lines:
        if _REFUSED.search(line):
            text = f"no node answered: {visible(line)}"
            yield Check("problem", subject, text, remedy)
            return
    yield Check("note", subject, f"no node answered: {visible(lines[-1])}", remedy)


#: What srun says of options, queues, accounts and features that do not exist.
_REFUSED: Final = re.compile(r"(?i)\binvalid\b|unrecognized|unknown option|--help")


def _launch(partition: Mapping[str, Any], extras: PartitionExtras) -> list[str]:
    """Return the command that runs a program once on each node of a case; empty if it is not known."""
    if partition["scheduler"] in ("slurm", "squeue"):
        count = extras.scale.nodes
        launch = ["srun", "--quiet", f"--nodes={count}", f"--ntasks={count}"]
        launch += ["--ntasks-per-node=1", "--time=2", f"--immediate={_GIVEN}"]
        access = [word for word in partition.get("access", ()) if word.startswith("-")]
        return [*launch, "--mpi=none", *access]
    if extras.hosts:
        hosts = ",".join(extras.hosts)
        return ["mpirun", "--host", hosts, "-N", "1"]
    return []


def _module(one: object) -> str:
    return shlex.quote(str(one["name"] if isinstance(one, Mapping) else one))


def _judged(
    subject: str, answers: Sequence[Sequence[str]], places: Mapping[str, str]
) -> Iterator[Check]:
    """Yield a line for each thing that nodes lack, with the nodes' names."""
    hosts = sorted({answer[0] for answer in answers})
    lacking: dict[str, list[str]] = {}
    for answer in answers:
        if len(answer) == 3 and answer[2] == "no":
            lacking.setdefault(answer[1], []).append(answer[0])
    without_target = lacking.get("target", [])
    for thing, lacking_hosts in lacking.items():
        kind, _, name = thing.partition(":")
        if kind == "writable":
            lacking_hosts = sorted(set(lacking_hosts) - set(without_target))
        shown = some(sorted(lacking_hosts))
        if kind == "tool" and len(lacking_hosts) == len(hosts):
            text = f"none of them has {name} on PATH"
            yield Check("note", subject, text, "load its module, or ci/build-stack")
        elif kind == "tool":
            text = f"{shown} lack {name}, others have it"
            yield Check("problem", subject, text, "make the nodes alike")
        elif lacking_hosts:
            text, remedy = _MEANS[kind]
            text = f"{shown}: {text.format(name=name, **places)}"
            yield Check("problem", subject, text, remedy)
    yield Check("ok", subject, f"{len(hosts)} answered: {', '.join(hosts[:6])}")
