"""One trouble, and all troubles of some sessions, in words that need no context."""

from dataclasses import dataclass, fields
from typing import Any, Final

from iogauge.core.text import some, visible
from iogauge.report.endings import Ending, Word
from iogauge.report.ranking import Rank
from iogauge_extras.page.charts import Curve
from iogauge_extras.page.notices import Incident
from iogauge_extras.page.past import History

#: Kind of trouble for a series that has become worse although its newest run met its reference.
DRIFT: Final = "DRIFT"

#: Runs of a trouble in JSON.
RUNS: Final = 30

#: Names of the facts beside a headline, in their order.
_FACTS: Final = (
    "acknowledged",
    "expected",
    "reason",
    "cases",
    "repeats",
    "guilty",
    "since",
    "trend",
    "cause",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One problem that somebody must look at; all text becomes safe for a terminal.

    A text is empty if there is nothing to say.
    """

    #: A verdict, or :data:`DRIFT`.
    kind: str
    #: Its place among the others.
    rank: Rank = Rank.ERROR
    #: Share of the expected value that is lost; 0 if none is, or if it is not known.
    loss: float = 0.0
    #: System and partition: ``mysite:scratch``.
    where: str
    #: The case, or how many cases it stands for: ``17 cases``.
    case: str = ""
    metric: str = ""
    measured: str = ""
    expected: str = ""
    reason: str = ""
    #: Names of the cases if there are several.
    cases: str = ""
    #: Who knows of it until when, and why.
    acknowledged: str = ""
    #: How many runs of this session passed, if it measured the case several times.
    repeats: str = ""
    #: The slow node, link or storage target.
    guilty: str = ""
    #: First bad run, and the last good run.
    since: str = ""
    trend: str = ""
    cause: str = ""
    remedy: str = ""
    #: Runs of the metric; None if it has no valid run.
    curve: Curve | None = None
    #: What it is made of if it stands for several troubles.
    parts: tuple[Incident, ...] = ()

    def __post_init__(self) -> None:
        """Make the texts safe."""
        for name in _TEXTS:
            object.__setattr__(self, name, visible(getattr(self, name)))

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """Return what somebody is told once; nothing of a metric that is back at its level.

        A metric that fails and drifts is one incident; so is a dead target, and all noise of a kind.
        """
        if self.parts or self.rank is Rank.BACK:
            return self.parts
        kind, case, metric = self.rank.name, self.case, ""
        if self.rank in (Rank.FAIL, Rank.DRIFT):
            kind, metric = "loss", self.metric
        elif self.rank is Rank.DEAD_TARGET or self.rank.is_noise:
            case = ""
        return (Incident(kind, self.where, case, metric),)

    @property
    def is_of_history(self) -> bool:
        """Return whether the runs before it say more of it than its record."""
        return self.rank in (Rank.FAIL, Rank.DRIFT, Rank.BACK) and bool(self.metric)

    def is_meant(self, name: str) -> bool:
        """Return whether a name is that of the case, of one of the cases, or of their place."""
        names = [self.where, self.case, f"{self.where} {self.case}"]
        names += self.cases.split(", ")
        return name in names

    @property
    def text(self) -> str:
        """Return what is wrong: the reason, or else the guilty part or the loss, and since when."""
        if self.reason:
            return self.reason
        text = self.guilty.partition(";")[0] or self.measured
        if self.since:
            text += f" since {self.since[:10]}"
        return text

    @property
    def headline(self) -> str:
        """Return one line: ``FAIL mysite:scratch IorPosix shared write_bw: 24.9 MiB/s, 29.8% below its reference``."""
        name = " ".join(filter(None, [self.kind, self.where, self.case, self.metric]))
        return f"{name}: {self.text}"

    @property
    def facts(self) -> dict[str, str]:
        """Return what is known beside the name, by the name of the fact; the reason has the remedy."""
        facts = {name: getattr(self, name) for name in _FACTS}
        facts["acknowledged"] = self.acknowledged.removeprefix("acknowledged ")
        return {name: text for name, text in facts.items() if text}

    @property
    def paragraph(self) -> str:
        """Return the headline, and a line for each fact that it leaves out."""
        lines = [self.headline]
        for name, text in self.facts.items():
            if text not in self.headline:
                lines.append(f"  {name + ':':<9} {text}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return the same facts as JSON values."""
        values: dict[str, Any] = {name: getattr(self, name) for name in _TEXTS}
        values |= {"unit": "", "runs": []}
        if self.curve:
            values["unit"] = self.curve.unit
            values["runs"] = [run.value for run in self.curve.points[-RUNS:]]
        return values


_TEXTS: Final = tuple(f.name for f in fields(Trouble) if f.type == "str")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """The state of some sessions; the ending may be FAILED without any trouble."""

    sessions: tuple[str, ...] = ()
    systems: tuple[str, ...]
    ending: Ending
    #: The gravest first.
    troubles: tuple[Trouble, ...] = ()
    history: History | None = None
    #: What was told, and is no trouble any more.
    over: tuple[Incident, ...] = ()
    #: Address of the whole report; empty where there is none.
    link: str = ""

    @property
    def failed(self) -> bool:
        """Return whether there is a trouble that nobody has acknowledged."""
        known = all(trouble.acknowledged for trouble in self.troubles)
        return bool(self.ending.status) and not known

    @property
    def gist(self) -> str:
        """Return the guilty part, its loss, and since when, and where else; without a trouble what the session has shown."""
        grave = [trouble for trouble in self.troubles if trouble.rank < Rank.BACK]
        if not grave:
            return self.ending.sentence
        others = dict.fromkeys(t.where for t in grave if t.rank <= Rank.ERROR)
        others.pop(grave[0].where, None)
        text = grave[0].headline.partition("; demanded")[0]
        if others:
            text += f"; also {some(list(others), 2)}"
        return text

    @property
    def title(self) -> str:
        """Return the first line of a message: the systems, the session's word, and what weighs most."""
        systems = ", ".join(self.systems) or "-"
        return f"iogauge {systems}: {self.ending.word.value}: {self.gist}"

    @property
    def text(self) -> str:
        """Return the title, the ending, what was not run, what is over, and a paragraph for each trouble."""
        lines = [self.title]
        if self.gist != self.ending.sentence:
            lines.append(str(self.ending))
        lines += self.ending.remarks
        lines += [f"over: {incident}" for incident in self.over]
        paragraphs = [trouble.paragraph for trouble in self.troubles]
        return "\n\n".join(["\n".join(lines), *paragraphs])


#: What ``iogauge alarm --test`` sends.
TEST: Final = Alarm(
    systems=("test",),
    ending=Ending(Word.OK, "a test of the alarm's way, nothing has happened"),
)
