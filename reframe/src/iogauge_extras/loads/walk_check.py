"""The scenario of a cold walk: a software stack unpacked, listed, imported, cloned and removed, by nodes that did not make it."""

from __future__ import annotations

import re
from typing import Any, Final

from iogauge.cases.storage import StorageCheck
from iogauge.core import untrusted
from iogauge.core.measurement import (
    Metric,
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
    # A launcher may join the lines of several tasks.
    begins = [match.start() for match in re.finditer(r'\{"walk"', text)]
    try:
        reports = [
            Walked.from_json(untrusted.decode_json(text, at)[0]) for at in begins
        ]
    except (ValueError, TypeError) as error:
        raise ToolOutputError(f"walk: a report is damaged: {error}") from error
    if not reports:
        raise ToolOutputError(f"walk: no report: {parsing.excerpt(text)}")
    count, words = len(reports), reports[0].words
    if len({one.words for one in reports}) > 1 or len(words) != 6:
        raise ToolOutputError("walk: the tasks were told different words, or not six")
    if sorted(one.rank for one in reports) != list(range(count)) or words[-1] != str(
        count
    ):
        raise ToolOutputError(f"walk: reports of {count} task(s), expected {words[-1]}")
    for one in reports:
        if one.files != files or one.seconds <= 0:
            raise ToolOutputError(
                f"walk: task {one.rank} handled {one.files} files, expected {files}; it took {one.seconds} s"
            )
    times = tuple(one.seconds for one in reports)
    name, longest = words[1].removesuffix("-changed"), max(times)
    phase = Phase(
        _KINDS.get(name, name),
        {"rate": Quantity(files * count / longest, "ops/s")},
        longest,
        bytes_moved=data_bytes * count if name == "import" else None,
        operations=files * count,
        rank_seconds=times,
    )
    clocks = ((one.to_json(), key) for one in reports for key in ("began", "ended"))
    return ToolOutput(
        tool="walk",
        version="+".join(parsing.unique(parsing.excerpt(one.walk) for one in reports)),
        phases=(phase,),
        tasks=count,
        nodes=len({one.host for one in reports}),
        command=" ".join(words),
        parameters={} if name == "unpack" else {"shift": 1},
        moments=tuple(parsing.moment(said, key, "walk") for said, key in clocks),
    )


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
        told = (
            f"{name}-changed" if (name, self.meanwhile) == ("list", "changed") else name
        )
        metric, quantity = (
            (_IMPORT, SECONDS) if name == "import" else (_RATES[name], "rate")
        )
        makes = _KINDS[name] == "create"
        return PhasePlan(
            name=name,
            command=self._words(told, f"tree.{REP}"),
            launch="tasks",
            parse=lambda printed: parse(printed.result, handled, data),
            rates={metric.name: (_KINDS[name], quantity)},
            access=Access(
                direction="read" if name == "import" else "metadata",
                task_offset=None if name == "unpack" else 1,
            ),
            data_bytes=data * self.nodes if name == "import" else None,
            stored_bytes=data * self.nodes * (handled // files) if makes else 0,
            syncs=makes or name == "remove",
            follows=True,
        )

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
