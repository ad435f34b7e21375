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
    words = _launch(partition, extras)
    if not words:
        if partition["scheduler"] not in ("local", "slurm", "squeue"):
            text = f"not asked: the scheduler is {partition['scheduler']}"
            yield Check("note", subject, text, "the first run says what they lack")
        return
    environments = [
        e for e in site.get("environments", ()) if e["name"] in partition["environs"]
    ]
    modules = dict.fromkeys(
        _module(one) for e in environments for one in e.get("modules", ())
    )
    target = "/" if extras.target.of_job else extras.target.path
    places = {"clone": str(project_root()), "state": str(state_dir()), "target": target}
    state_dir().mkdir(parents=True, exist_ok=True)
    given = [
        places["clone"],
        sys.executable,
        places["state"],
        target,
        " ".join(modules),
    ]
    try:
        asked = [*words, "sh", "-c", _SCRIPT, "sh", *given, "ior mdtest fio"]
        done = commands.run(*asked, seconds=_ANSWERED, cwd="/")
        printed, complaint = done.stdout, done.stderr.strip()
    except OSError as error:
        printed, complaint = "", str(error)
    answers = [
        line.split()[1:] for line in printed.splitlines() if line.startswith("iogauge ")
    ]
    if not answers:
        lines = complaint.splitlines() or ["no answer"]
        refused = [line for line in lines if _REFUSED.search(line)]
        said = visible(refused[0] if refused else lines[-1])
        # A full queue answers later. A scheduler that refuses will refuse the jobs too.
        yield Check(
            "problem" if refused else "note",
            subject,
            f"no node answered: {said}",
            f"try: {shlex.join(words)} hostname",
        )
        return
    yield from _judged(subject, answers, places)


#: What srun says of options, queues, accounts and features that do not exist.
_REFUSED: Final = re.compile(r"(?i)\binvalid\b|unrecognized|unknown option|--help")


def _launch(partition: Mapping[str, Any], extras: PartitionExtras) -> list[str]:
    """Return the command that runs a program once on each node of a case; empty if it is not known."""
    if partition["scheduler"] in ("slurm", "squeue"):
        count = str(extras.scale.nodes)
        words = [
            "srun",
            "--quiet",
            f"--nodes={count}",
            f"--ntasks={count}",
            "--ntasks-per-node=1",
        ]
        access = [word for word in partition.get("access", ()) if word.startswith("-")]
        return [*words, "--time=2", f"--immediate={_GIVEN}", "--mpi=none", *access]
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
    for host, thing, found in (answer for answer in answers if len(answer) == 3):
        if found == "no":
            lacking.setdefault(thing, []).append(host)
    gone = lacking.get("target", ())
    for thing, named in lacking.items():
        kind, _, name = thing.partition(":")
        named = [host for host in named if kind != "writable" or host not in gone]
        shown = some(sorted(named))
        if kind == "tool" and len(named) == len(hosts):
            yield Check(
                "note",
                subject,
                f"none of them has {name} on PATH",
                "load its module, or ci/build-stack",
            )
        elif kind == "tool":
            yield Check(
                "problem",
                subject,
                f"{shown} lack {name}, others have it",
                "make the nodes alike",
            )
        elif named:
            text, remedy = _MEANS[kind]
            yield Check(
                "problem",
                subject,
                f"{shown}: {text.format(name=name, **places)}",
                remedy,
            )
    yield Check("ok", subject, f"{len(hosts)} answered: {', '.join(hosts[:6])}")
