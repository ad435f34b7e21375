"""Job scripts as a script of shell that a person runs on any machine: the tools' commands, with their launchers.

What iogauge does beside them (observing, locking, sampling) is left out. A case whose load is iogauge's own cannot be
run so, and says why.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from iogauge.core.text import visible
from iogauge.core.untrusted import texts
from iogauge.plan.script import shell_command, shell_word
from iogauge.records.record import Record

#: The functions that the cases use, and the head of the script.
_HEAD: Final = Path(__file__).with_name("by_hand.sh")

#: Functions of the job script, each with its name here.
_FUNCTIONS: Final = {
    "iog_prepare": "prepare",
    "iog_write": "write_files",
    "iog_case": "measure",
}

#: First words of lines that only observe, or set up what observes.
_OBSERVING: Final = frozenset(
    [
        "iog_open",
        "iog_agents",
        "iog_sample",
        "iog_layouts",
        "iog_verify",
        "iog_at_close",
        "[",
        ".",
        "IOG_WARNED",
    ]
)
_AGENT: Final = "iogauge.job.agent"
_CLIENT: Final = '"--client=$here/servers"'


class NotByHand(Exception):
    """A case cannot be run without iogauge; the message says why."""


@dataclass
class _Case:
    """What of a job script a person can run."""

    #: Files of the job's stage directory that are kept.
    kept: Collection[str]
    #: Lines of shell.
    lines: list[str] = field(default_factory=list)
    #: Programs that must be on PATH.
    programs: dict[str, None] = field(default_factory=dict)
    #: Kept files that the tools read.
    inputs: dict[str, None] = field(default_factory=dict)
    #: Command line that starts the tasks; empty if no phase has one.
    launcher: str = ""

    def add(self, line: str) -> None:
        """Add a line of a job script; raises NotByHand."""
        text = line.strip()
        name = text.partition("(")[0]
        if text == "}":
            self.lines += [":", "}"]
        elif name in _FUNCTIONS and text.endswith("() {"):
            self.lines.append(f"{_FUNCTIONS[name]}() {{")
        elif text.startswith("mkdir "):
            self.lines.append(text)
        elif text.startswith("export "):
            if not text.startswith("export IOG_"):
                self.lines.append(text)
        else:
            self._add_command(text)

    def _add_command(self, text: str) -> None:
        try:
            words = shlex.split(text)
        except ValueError:
            words = []
        first = words[0].partition("=")[0] if words else ""
        if first in ("iog_phase", "iog_client"):
            self._add_phase(first, words[1], words[2:])
        elif first == "iog_repeat":
            self.lines.append(f"repeat {words[1]} {words[2]} {_FUNCTIONS[words[3]]}")
        elif first == "iog_prepare":
            self.lines.append("prepare")
        elif first == "iog_reset":
            self.lines.append("empty")
        elif first and first not in _OBSERVING:
            self.lines.append(f"# the site's own: {visible(text)}")

    def _add_phase(self, function: str, name: str, words: Sequence[str]) -> None:
        if name.startswith(("facts-", "look-")):
            return
        if name.startswith("evict-"):
            self.lines.append("drop_caches")
            return
        if words[0] == "iog_do" or _AGENT in words:
            raise NotByHand(f"{name} is done by iogauge itself")
        command = [word for word in words if word != "${IOG_VERIFY[@]}"]
        if function == "iog_client":
            job, output = command[:2]
            command = ["fio", "--output-format=json", f"--output={output}"]
            command += ["--client=$here/servers", job]
        launcher, command = _parted(command)
        self.inputs.update(dict.fromkeys(w for w in command if w in self.kept))
        for word in command:
            if word.endswith(".fio") and word not in self.kept:
                raise NotByHand(f"the job file {word} of {name} was not kept")
        self.programs.update(dict.fromkeys([*launcher[:1], command[0]]))
        if launcher:
            self.launcher = shell_command(launcher)
            command = ["tasks", *command]
        text = shell_command(command).replace("'--client=$here/servers'", _CLIENT)
        self.lines.append(f"run {shell_word(name)} {text}")


def _parted(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the launcher, and the tool's command without the observer before it."""
    places = [n for n, word in enumerate(words) if word.endswith("/witness.sh")]
    if not places:
        return [], list(words)
    at = places[0]
    rest = list(words[at + 3 :])
    if rest[0] == "--sync":
        rest = rest[2:]
    return list(words[: at - 1]), rest


def _function(record: Record, folder: str, script: str, kept: Collection[str]) -> str:
    """Return the commands of a case as the body of a function; raises NotByHand."""
    case = _Case(kept)
    for line in script.splitlines():
        if not line.startswith("#"):
            case.add(line)
    needs = [f"needs {shell_command(list(case.programs))}"]
    if any(_CLIENT in line for line in case.lines):
        needs.append(f"servers {record.nodes}")
    if case.launcher:
        needs.append(f'tasks() {{ {case.launcher} "$@"; }}')
    begin = f"begin {shell_command([folder, *case.inputs])}"
    return "\n".join([*needs, begin, *case.lines])


def commands(records: Sequence[Record], kept: dict[str, str]) -> str:
    """Return the script; ``kept`` are the raw files by name, below :func:`folder_of` each record."""
    parts = [_HEAD.read_text(encoding="utf-8")]
    for number, record in enumerate(records, 1):
        folder = folder_of(record)
        names = {
            name.removeprefix(f"{folder}/")
            for name in kept
            if name.startswith(f"{folder}/")
        }
        title = (
            f"# case {number}: {record.where} {record.case}, {record.nodes} node(s) x {record.tasks_per_node} task(s), "
            f"{', '.join(texts(record.tools))}: {record.verdict.value}"
        )
        reason = f"# {' '.join(record.reason.split())}"
        try:
            script = kept.get(f"{folder}/rfm_job.sh")
            if script is None:
                raise NotByHand("its job script is no longer kept")
            body = _function(record, folder, script, names)
        except NotByHand as error:
            body = (
                f"refuse {shlex.quote(f'case {number} cannot be run by hand: {error}')}"
            )
            for command in texts(record.commands):
                body += f"\n# {visible(command)}"
        indented = re.sub("^", "    ", body, flags=re.MULTILINE)
        parts.append(
            f"{visible(title)}\n{visible(reason)}\ncase_{number}() {{\n{indented}\n}}\n"
        )
    return "\n".join([*parts, 'main "$@"\n'])


def folder_of(record: Record) -> str:
    """Return the folder of the raw files of a case: one for each partition, environment and repeat."""
    return folder_name(
        record.session, record.partition, record.environment, record.case
    )


def folder_name(session: str, partition: str, environment: str, case: str) -> str:
    """Return the folder of a case in a bundle."""
    parts = [re.sub(r"[^\w.=-]+", "_", text) for text in (partition, environment, case)]
    return "/".join(["raw", session, *parts])
