"""The scenario of a cold walk: a software stack unpacked, listed, imported, cloned and removed, by nodes that did not make it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final

from iogauge.cases.storage import StorageCheck
from iogauge.core import untrusted
from iogauge.core.measurement import (
    Metric,
    Moment,
    Phase,
    Quantity,
    ToolOutput,
    ToolOutputError,
)
from iogauge.evidence.model import SECONDS
from iogauge.plan.case import AGENT, DIR, REP, Access, CasePlan, PhasePlan
from iogauge.tools import parsing
from iogauge_extras.loads import walking
from iogauge_extras.loads.walking import Walked

#: What each phase does, in the words of the guards.
_KINDS: Final = {
    "unpack": "create",
    "list": "stat",
    "import": "read",
    "clone": "create",
    "remove": "remove",
}
_IMPORT: Final = Metric("import_time", "s", "less")
_RATES: Final = {
    name: Metric(f"{name}_rate", "ops/s") for name in _KINDS if name != "import"
}
#: A clone of one part is made beside the tree, and the tree beside its archive.
_COPIES: Final = len(walking.PARTS) + 1


def parse(text: str, files: int, data_bytes: int) -> ToolOutput:
    """Return the reports of all tasks as one phase; raises ToolOutputError.

    ``files`` and ``data_bytes`` are those of each task. The rate is that of all files over the seconds of the slowest task.
    """
    reports: list[Walked] = []
    try:
        # A launcher may join the lines of several tasks.
        for begin in re.finditer(r'\{"walk"', text):
            values, _ = untrusted.decode_json(text, begin.start())
            reports.append(Walked.from_json(values))
    except (ValueError, TypeError) as error:
        raise ToolOutputError(f"walk: a report is damaged: {error}") from error
    if not reports:
        raise ToolOutputError(f"walk: no report: {parsing.excerpt(text)}")
    count, words = len(reports), reports[0].words
    if any(report.words != words for report in reports) or len(words) != 6:
        raise ToolOutputError("walk: the tasks were told different words, or not six")
    ranks = sorted(report.rank for report in reports)
    if ranks != list(range(count)) or words[-1] != str(count):
        raise ToolOutputError(f"walk: reports of {count} task(s), expected {words[-1]}")
    moments: list[Moment] = []
    for report in reports:
        if report.files != files or report.seconds <= 0:
            raise ToolOutputError(
                f"walk: task {report.rank} handled {report.files} files, expected {files}; it took {report.seconds} s"
            )
        for key in ("began", "ended"):
            moments.append(parsing.moment(report.to_json(), key, "walk"))
    times = tuple(report.seconds for report in reports)
    name, longest = words[1].removesuffix("-changed"), max(times)
    versions = parsing.unique(parsing.excerpt(report.walk) for report in reports)
    phase = Phase(
        _KINDS.get(name, name),
        {"rate": Quantity(files * count / longest, "ops/s")},
        longest,
        operations=files * count,
        rank_seconds=times,
    )
    if name == "import":
        phase = replace(phase, bytes_moved=data_bytes * count)
    output = ToolOutput(
        tool="walk",
        version="+".join(versions),
        phases=(phase,),
        tasks=count,
        nodes=len({report.host for report in reports}),
        command=" ".join(words),
        moments=tuple(moments),
    )
    if name == "unpack":
        return output
    return replace(output, parameters={"shift": 1})


class ColdWalkCheck(StorageCheck):
    """Each node unpacks a tree; then each works on the tree of the next node, which it has never seen.

    A subclass sets ``meanwhile``: ``alone``, or ``changed`` if each node changes the times of its own files while another
    lists them. On one node the client would answer from what it keeps.
    """

    meanwhile: str

    def promise(self) -> tuple[Metric, ...]:
        """Return the rates of the phases, and the seconds of the import."""
        return (*_RATES.values(), _IMPORT)

    def declared(self) -> dict[str, Any]:
        """Return the defaults of every check; one task a node."""
        return {**super().declared(), "tasks_per_node": 1}

    @property
    def _files(self) -> int:
        """Return the files of each part of a tree; raises ValueError if the limits allow less than a directory."""
        limits, trees = self.site.limits, _COPIES * self.nodes
        mean = walking.bytes_of(1000) // 1000 + 2048
        files = min(limits.case_files // trees, limits.case_bytes // (2 * trees * mean))
        files -= files // walking.FILES_OF_DIRECTORY + 2
        if files < walking.FILES_OF_DIRECTORY:
            raise ValueError(
                f"limits.case_files is {limits.case_files} and limits.case_bytes {limits.case_bytes}: expected "
                f"{30 * trees} files or more, and {80 * mean * trees} bytes"
            )
        return int(files)

    def _phase(self, name: str) -> PhasePlan:
        files, data = self._files, walking.bytes_of(self._files)
        handled = files * {"unpack": len(walking.PARTS), "remove": _COPIES}.get(name, 1)
        words, access = name, Access(direction="metadata", task_offset=1)
        if name == "unpack":
            access = Access(direction="metadata")
        if name == "list" and self.meanwhile == "changed":
            words = "list-changed"
        phase = PhasePlan(
            name=name,
            command=self._words(words, f"tree.{REP}"),
            launch="tasks",
            parse=lambda printed: parse(printed.result, handled, data),
            access=access,
            syncs=name in ("unpack", "clone", "remove"),
            follows=True,
        )
        if name == "import":
            return replace(
                phase,
                rates={_IMPORT.name: (_KINDS[name], SECONDS)},
                access=Access(direction="read", task_offset=1),
                data_bytes=data * self.nodes,
            )
        phase = replace(phase, rates={_RATES[name].name: (_KINDS[name], "rate")})
        if _KINDS[name] == "create":
            stored = data * self.nodes * (handled // files)
            phase = replace(phase, stored_bytes=stored)
        return phase

    def _words(self, phase: str, tree: str) -> list[str]:
        return [AGENT, "walk", phase, DIR, tree, str(self._files), str(self.nodes)]

    def plan(self) -> CasePlan:
        """Unpack, list, import, clone and remove, each by all nodes at once."""
        self.need_nodes("on one node the client answers from what it keeps")
        if self.tasks_per_node != 1:
            raise ValueError(f"tasks_per_node is {self.tasks_per_node}: leave it alone")
        files, data = self._files, walking.bytes_of(self._files)
        packed = self.nodes * len(walking.PARTS) * (data + walking.HEADER_BYTES * files)
        words = self._words("pack", "pack")
        pack = PhasePlan(
            name="pack", command=words, launch="tasks", stored_bytes=packed
        )
        return self.case(
            "walk",
            [self._phase(name) for name in _KINDS],
            prepare=[pack],
            held_bytes=packed + _COPIES * self.nodes * (data + 2048 * files),
            files=_COPIES * self.nodes * (files + walking.directories_of(files) + 4),
        )
