"""The rules as data: :data:`rules.ini` has a row for each, with its words and limits; :func:`rule` fills one in."""

from __future__ import annotations

import configparser
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from iogauge.core.words import NO_WITNESS
from iogauge.guards.finding import Finding, Outcome

#: Outcomes by the first word of a row's ``otherwise``.
_OUTCOMES: Final = {
    "remark": Outcome.WARN,
    **{outcome.name: outcome for outcome in Outcome},
}
_BRACES: Final = re.compile(r"\{\{|\}\}|\{[^{}]*\}")


@dataclass(frozen=True, slots=True)
class RuleText:
    """A rule's row: its name, such as ``G8 contents``, and the row's texts by their keys."""

    name: str
    texts: Mapping[str, str]

    def __getitem__(self, key: str) -> str:
        """Return a text of the row; empty if it has none of that key."""
        return self.texts.get(key, "")

    @property
    def number(self) -> str:
        """Return the guard's number, such as ``G8``."""
        return self.name.partition(" ")[0]

    @property
    def outcome(self) -> Outcome:
        """Return the outcome if the rule does not hold."""
        return _OUTCOMES[self["otherwise"].replace(",", " ").split()[0]]

    @property
    def remedies(self) -> list[str]:
        """Return all remedies, the usual one first, with the name of each figure in capitals."""
        signs = {"{{": "{", "}}": "}"}
        texts = [text for key, text in self.texts.items() if key.startswith("remedy")]

        def told(found: re.Match[str]) -> str:
            return signs.get(found[0], found[0].strip("{}").partition(":")[0].upper())

        whole = [text for text in texts if not re.fullmatch(_BRACES, text)]
        return list(
            dict.fromkeys(re.sub(_BRACES, told, text) for text in whole if text)
        )

    def of(self, kind: str, case: str) -> str:
        """Return the text of a kind (``demand``, ``remedy``) in a special case, else the usual one."""
        return self.texts.get(f"{kind}.{case}", self[kind])


@functools.cache
def rows() -> dict[str, RuleText]:
    """Return all rows by name, in the order of rules.ini."""
    table = configparser.ConfigParser(delimiters="=", interpolation=None)
    table.read(Path(__file__).with_name("rules.ini"), encoding="utf-8")
    return {name: RuleText(name, dict(table[name])) for name in table.sections()}


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule in one case: its demand, and the remedy if that does not hold."""

    name: str
    demands: str
    remedy: str
    otherwise: Outcome

    def found(self, outcome: Outcome, saw: str) -> Finding:
        """Return a finding, with the remedy unless all is well."""
        guard, _, subject = self.name.partition(" ")
        remedy = self.remedy if outcome is not Outcome.OK else ""
        return Finding(guard, outcome, saw, self.demands, remedy, subject=subject)

    def ok(self, saw: str) -> Finding:
        """Return a finding that believes what was seen."""
        return self.found(Outcome.OK, saw)

    def warn(self, saw: str) -> Finding:
        """Return a finding that believes, with a remark on what was seen."""
        return self.found(Outcome.WARN, saw)

    def invalid(self, saw: str) -> Finding:
        """Return a finding that does not believe."""
        return self.found(Outcome.INVALID, saw)

    def decide(
        self, holds: bool, saw: str, otherwise: Outcome | None = None
    ) -> Finding:
        """Return OK if the demand holds, else ``otherwise``, by default the outcome of the rule's row."""
        return self.found(Outcome.OK if holds else otherwise or self.otherwise, saw)

    def unless(
        self,
        fine: str,
        *problems: str,
        doubt: str = "",
        otherwise: Outcome | None = None,
    ) -> Finding:
        """Return OK if there is no problem, of which the first counts, and a remark if there is a doubt alone."""
        if problem := next(filter(None, problems), ""):
            return self.decide(False, problem, otherwise)
        return self.warn(doubt) if doubt else self.ok(fine)

    def unwitnessed(self, missing: str, required: bool) -> Finding:
        """Return the remark that a witness is missing, or an objection if the site requires one (``limits.witness``)."""
        saw = f"{NO_WITNESS}: {missing}"
        return self.invalid(saw) if required else self.warn(saw)


def rule(name: str, case: str = "", /, **figures: object) -> Rule:
    """Return a rule by its name, with figures in its texts; ``case`` chooses those of a special case."""
    row = rows()[name]
    demand, remedy = row.of("demand", case) or row["must"], row.of("remedy", case)
    return Rule(name, demand.format(**figures), remedy.format(**figures), row.outcome)
