"""What the nodes of a partition lack: one launch asks each of them a table of questions."""

import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from iogauge.cli.answers import Answer, Place
from iogauge.core import commands
from iogauge.core.paths import project_root, state_dir
from iogauge.core.text import some, visible
from iogauge.site.extras import PartitionExtras

#: Tools that cases need on every node.
_TOOLS: Final = ("ior", "mdtest", "fio")

#: Seconds for nodes to be given, and for all of them to answer.
_GIVEN: Final = 30
_ANSWERED: Final = 120


@dataclass(frozen=True, slots=True)
class NodeQuestion:
    """A question to each node: a command of the shell, and what it means if its status is not 0."""

    name: str
    test: str
    lacks: str
    remedy: str


def _questions(place: Place) -> Iterator[NodeQuestion]:
    """Yield what the nodes of a partition are asked."""
    clone = shlex.quote(str(project_root()))
    python = shlex.quote(sys.executable)
    state = shlex.quote(str(state_dir()))
    yield NodeQuestion(
        "clone",
        f"[ -e {clone}/checks ] && [ -x {python} ]",
        f"does not see {clone}",
        "put the clone on a file system that all nodes mount",
    )
    yield NodeQuestion(
        "state",
        f"[ -d {state} ] && [ -w {state} ]",
        f"cannot write in {state}, where the job's files go",
        "set IOGAUGE_HOME to a directory on a file system that all nodes mount",
    )
    if not place.extras.target.of_job:
        target = shlex.quote(place.extras.target.path)
        yield NodeQuestion(
            "target",
            f"[ -d {target} ]",
            f"does not see the target {target}",
            "mount it there, or correct target.path",
        )
        yield NodeQuestion(
            "writable",
            f"[ ! -d {target} ] || [ -w {target} ]",
            f"may not write in {target}",
            "make a directory of your own, or ask its owner",
        )
    for environment in place.site.get("environments", ()):
        if environment["name"] not in place.partition["environs"]:
            continue
        for module in environment.get("modules", ()):
            name = module
            if isinstance(module, Mapping):
                name = module["name"]
            load = f"module load {shlex.quote(str(name))} >/dev/null 2>&1"
            yield NodeQuestion(
                f"module {name}",
                f"command -v module >/dev/null && {load}",
                f"cannot load the module {name}",
                "correct modules of the environment",
            )
    for tool in _TOOLS:
        yield NodeQuestion(
            tool,
            f"command -v {tool} >/dev/null",
            f"lack {tool}, others have it",
            "make the nodes alike",
        )
        yield NodeQuestion(
            f"libraries of {tool}",
            f"! ldd $(command -v {tool}) 2>/dev/null | grep -q 'not found'",
            f"lacks libraries of {tool}",
            "name the modules of its MPI in the environment (ldd says which)",
        )


#: How a node answers: a line with its name, and a line for each question that it does not meet.
_SAY: Final = """
h=$(hostname 2>/dev/null || uname -n)
lacks() { eval "$2" || echo "iogauge|$h|$1"; }
echo "iogauge|$h|"
"""


def lack(place: Place) -> Iterator[Answer]:
    """Ask the nodes of a partition of Slurm, or of a list of hosts."""
    subject = f"nodes of {place.name}"
    words = launch(place.partition, place.extras)
    if not words:
        if not place.is_local:
            text = f"not asked: the scheduler is {place.partition['scheduler']}"
            yield Answer("note", subject, text, "the first run says what they lack")
        return
    state_dir().mkdir(parents=True, exist_ok=True)
    questions = list(_questions(place))
    script = _SAY
    for question in questions:
        script += f"lacks {shlex.quote(question.name)} {shlex.quote(question.test)}\n"
    printed, complaint = "", ""
    try:
        done = commands.run(
            *words, "sh", "-c", f"{script}true", seconds=_ANSWERED, cwd="/"
        )
        printed, complaint = done.stdout, done.stderr.strip()
    except OSError as error:
        complaint = str(error)
    lacking: dict[str, set[str]] = {}
    for host, name in re.findall(r"^iogauge\|([^|]*)\|(.*)$", printed, re.MULTILINE):
        lacking.setdefault(name, set()).add(host)
    hosts = sorted(lacking.get("", ()))
    if not hosts:
        yield _silent(subject, complaint, f"try: {shlex.join(words)} hostname")
        return
    for question in questions:
        names = sorted(lacking.get(question.name, ()))
        if question.name in _TOOLS and names == hosts:
            text = f"none of them has {question.name} on PATH"
            yield Answer("note", subject, text, "load its module, or ci/build-stack")
        elif names:
            text = f"{some(names)}: {question.lacks}"
            yield Answer("problem", subject, text, question.remedy)
    yield Answer("ok", subject, f"{len(hosts)} answered: {', '.join(hosts[:6])}")


#: What srun says of options, queues, accounts and features that do not exist.
_REFUSED: Final = re.compile(r"(?i)\binvalid\b|unrecognized|unknown option|--help")


def _silent(subject: str, complaint: str, remedy: str) -> Answer:
    """Return the answer that no node answered: a full queue does later, a scheduler that refuses will refuse the jobs too."""
    lines = complaint.splitlines() or ["no answer"]
    for line in lines:
        if _REFUSED.search(line):
            text = f"no node answered: {visible(line)}"
            return Answer("problem", subject, text, remedy)
    return Answer("note", subject, f"no node answered: {visible(lines[-1])}", remedy)


def launch(partition: Mapping[str, Any], extras: PartitionExtras) -> list[str]:
    """Return the command that runs a program once on each node of a case; empty if it is not known."""
    if partition["scheduler"] in ("slurm", "squeue"):
        nodes = extras.scale.nodes
        launch = ["srun", "--quiet", f"--nodes={nodes}", f"--ntasks={nodes}"]
        launch += ["--ntasks-per-node=1", "--time=2", f"--immediate={_GIVEN}"]
        if partition["launcher"] != "srun":
            launch.append("--mpi=none")
        return launch + [w for w in partition.get("access", ()) if w.startswith("-")]
    if extras.hosts:
        # As a job, they have the partition's variables (which network MPI takes, whether root may start it). A host that
        # mpirun reaches by ssh has another PATH.
        variables = dict(partition.get("env_vars", ()))
        given = [f"{name}={value}" for name, value in variables.items()]
        words = ["env", *given, "mpirun", "-x", "PATH"]
        return [*words, "--host", ",".join(extras.hosts), "-N", "1"]
    return []
