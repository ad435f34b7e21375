"""Base class of the scenario that asks the clients of a job what they agree on."""

from dataclasses import replace
from typing import Any

from iogauge.cases.storage import StorageCheck
from iogauge.core.measurement import (
    Metric,
    Phase,
    Quantity,
    Reference,
    ToolOutput,
    ToolOutputError,
)
from iogauge.core.text import some, visible
from iogauge.core.untrusted import parse_json
from iogauge.plan.case import DIR, REP, CasePlan, PhasePlan
from iogauge_extras.clients.meeting import Noted
from iogauge_extras.clients.questions import QUESTIONS

KEPT = Metric("semantics_kept", "1")

#: Files beside those of the long listing.
_FILES = 200


class SemanticsCheck(StorageCheck):
    """Clients write, rename, append, lock and list in one directory, and compare what they see."""

    valid_prog_environs = ["*"]
    own_processes = 1

    def promise(self) -> tuple[Metric, ...]:
        """Return the share of what the file system claims that it keeps."""
        return (KEPT,)

    def standing_references(self) -> dict[str, Reference]:
        """Return that all of it is kept."""
        return {KEPT.name: Reference(1.0, 0.0, None, "1", "POSIX, as far as claimed")}

    def declared(self) -> dict[str, Any]:
        """Return the defaults of every check, but one repetition and one task a node."""
        return {**super().declared(), "repetitions": 1, "tasks_per_node": 1}

    def plan(self) -> CasePlan:
        """Ask every question; the listing has as many names as the limits allow, 100,000 at most."""
        entries = min(100_000, self.site.limits.case_files - _FILES) * 9 // 10
        if entries < 100:
            raise ValueError(
                f"limits.case_files is {self.site.limits.case_files}: expected 400 or more"
            )
        output = f"semantics.{REP}.json"
        phase = PhasePlan(
            name="semantics",
            command=["semantics", DIR, str(self.nodes), str(entries), output],
            launch="nodes",
            parse=lambda printed: parse(printed.result, self.nodes),
            rates={KEPT.name: ("semantics", KEPT.name)},
            output=output,
        )
        files = entries + entries // 10 + _FILES
        case = self.case("semantics", [phase], held_bytes=16 << 20, files=files)
        return replace(case, warm_up=False)


def parse(text: str, nodes: int) -> ToolOutput:
    """Parse the answers of clients on so many nodes: one phase with the share that holds; raises ToolOutputError."""
    try:
        noted = Noted.from_json(parse_json(text))
    except (ValueError, TypeError) as error:
        why = visible(str(error))
        raise ToolOutputError(f"semantics: no answers: {why}") from error
    hosts = {name.partition("#")[0] for name in noted.clients}
    claimed = [answer for answer in noted.answers if answer.state != "not claimed"]
    asked = len(noted.answers), len(hosts), len(noted.clients) > 1, bool(claimed)
    if asked != (len(QUESTIONS), nodes, True, True):
        raise ToolOutputError(
            f"semantics: {len(noted.answers)} answers, {len(claimed)} of them claimed, of {some(noted.clients)}: expected "
            f"{len(QUESTIONS)}, some of them claimed, of clients on {nodes} node(s)"
        )
    broken = [str(answer) for answer in claimed if answer.state != "holds"]
    kept = len(claimed) - len(broken)
    note = f"{kept} of {len(claimed)} hold between {some(noted.clients)}"
    quantity = Quantity(kept / len(claimed), "1")
    return ToolOutput(
        tool="semantics",
        version=noted.version,
        command=" ".join(noted.command),
        phases=(Phase("semantics", {KEPT.name: quantity}, 1.0),),
        notes={KEPT.name: "; ".join(broken) or note},
    )
