"""What the records of a session mean for its ending: a word, and the sentence that says why.

``ok`` needs a PASS, and nothing that is left unproven: no UNREFERENCED, UNSTABLE or CONTAMINATED
case, no case that a missing feature keeps from running, no name or tag that fits no case.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Final

from iogauge.core.groups import grouped
from iogauge.core.text import some, visible
from iogauge.core.vocabulary import NO_WITNESS
from iogauge.judge.verdict import Verdict
from iogauge.records import journal
from iogauge.records.record import REPEATED, Record
from iogauge.records.selected import Unmeasured

#: Verdicts that neither fail a run nor prove anything.
UNPROVEN: Final = (Verdict.UNREFERENCED, Verdict.UNSTABLE, Verdict.CONTAMINATED)


class Word(Enum):
    """What a session has shown, in a word."""

    OK = "ok"
    PARTLY_PROVEN = "partly proven"
    NOTHING_PROVEN = "nothing proven"
    FAILED = "FAILED"

    @property
    def style(self) -> str:
        """Return the word as a name of a style: ``nothing-proven``."""
        return self.value.replace(" ", "-").lower()


@dataclass(frozen=True, slots=True)
class Ending:
    """The word of a session and its sentence, safe for a terminal."""

    word: Word
    sentence: str
    #: Parts of the sentence that no case shows.
    besides: tuple[str, ...] = ()
    #: A line each, on what was not run and how that is changed.
    remarks: tuple[str, ...] = ()

    @property
    def status(self) -> int:
        """Return the exit status that the word stands for."""
        return int(self.word is Word.FAILED)

    def to_json(self) -> dict[str, object]:
        """Return word, sentence and exit status as JSON values."""
        return {
            "word": self.word.value,
            "sentence": self.sentence,
            "status": self.status,
        }

    def __str__(self) -> str:
        """Return word and sentence: ``ok: 5 passed``."""
        return f"{self.word.value}: {self.sentence}"


def _passed(passed: int, unwitnessed: int) -> str:
    """Return how many cases passed, and how many of them on a figure that nothing but the tool confirms."""
    text = f"{passed} passed"
    if unwitnessed:
        text += f", {unwitnessed} of them without a second witness"
    return text


def _kinds(counts: Mapping[Verdict, int]) -> str:
    """Return the verdicts of a group, with their numbers if there are several."""
    ordered = [verdict for verdict in Verdict if verdict in counts]
    if len(ordered) == 1:
        return ordered[0].value
    return ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in ordered)


def _nothing_measured(lack: Unmeasured) -> Iterator[str]:
    """Yield why there is no record."""
    yield "no case was measured"
    if lack.nothing:
        yield f"these options select no case: {lack.nothing}"
    if lack.unfit:
        yield f"{_names(lack.unfit)}: not for this site"


def _names(names: Iterable[str]) -> str:
    return some(list(dict.fromkeys(names)))


def remarks(lack: Unmeasured) -> list[str]:
    """Return a line for each reason why cases were not run, safe for a terminal."""
    lacking = grouped(lack.left_out, lambda case: (case.holder, case.feature, case.why))
    lines = []
    for (holder, feature, why), mine in lacking.items():
        checks = _names(case.check for case in mine)
        lines.append(
            f"not run: {checks} ({len(mine)} case(s)): {holder} lacks {feature}: {why}"
        )
    if lack.unfit:
        lines.append(
            f"not for this site: {_names(lack.unfit)}: no partition declares the points, nodes, "
            "hosts or targets that they need (docs/checks.md)"
        )
    return list(map(visible, lines))


def _is_unwitnessed(record: Record) -> bool:
    """Return whether a PASS rests on a figure that nothing but the tool confirms."""
    if record.verdict is not Verdict.PASS:
        return False
    return any(finding.saw.startswith(NO_WITNESS) for finding in record.findings)


class SessionRecords(tuple[Record, ...]):
    """The records of a session, and of the sessions that measured its failures once more."""

    @cached_property
    def _passed_again(self) -> frozenset[tuple[object, ...]]:
        return frozenset(
            (record.confirms, *record.place, REPEATED.sub("", record.case))
            for record in self
            if record.confirms and record.verdict is Verdict.PASS
        )

    def is_unconfirmed(self, record: Record) -> bool:
        """Return whether a record is of a failure whose case passed in a later run."""
        case = (record.session, *record.place, REPEATED.sub("", record.case))
        return record.needs_confirmation and case in self._passed_again

    def counts(self, record: Record) -> bool:
        """Return whether a record counts: neither expected nor unconfirmed failures do."""
        return not record.expected and not self.is_unconfirmed(record)

    def ending(
        self,
        gate: bool,
        unmeasured: Unmeasured | None = None,
        problems: Collection[str] = (),
    ) -> Ending:
        """Return the word and the sentence of the session.

        Failures that a reference expects, or that a second run refuted, do not count. ``problems`` are sentences about
        what fails the session besides its cases. A gate fails on all but PASS, and if nothing passed.
        """
        lack = unmeasured or Unmeasured()
        counted = [record for record in self if self.counts(record)]
        counts = Counter(record.verdict for record in counted)
        passed = counts[Verdict.PASS]
        failed: dict[Verdict, int] = {v: counts[v] for v in counts if v.fails_run}
        unproven: dict[Verdict, int] = {v: counts[v] for v in counts if v in UNPROVEN}
        trouble = any(verdict.is_trouble(gate) for verdict in counts)
        absent = [*lack.unmatched, *lack.gone]
        besides = [*absent, *problems]
        if not self:
            besides = [*_nothing_measured(lack), *besides]
        parts = []
        if passed:
            parts.append(_passed(passed, sum(map(_is_unwitnessed, counted))))
        if failed:
            parts.append(f"{sum(failed.values())} failed ({_kinds(failed)})")
        expected = sum(bool(record.expected) for record in self)
        if expected:
            parts.append(f"{expected} failed as expected")
        refuted = sum(map(self.is_unconfirmed, self))
        if refuted:
            parts.append(f"{refuted} FAIL not confirmed by a second run")
        if unproven:
            parts.append(f"{sum(unproven.values())} unproven ({_kinds(unproven)})")
        if lack.left_out:
            parts.append(f"{len(lack.left_out)} not run")
        parts += besides
        if problems or trouble or (gate and (absent or not passed)):
            word = Word.FAILED
        elif not passed:
            word = Word.NOTHING_PROVEN
        elif unproven or lack.left_out or absent:
            word = Word.PARTLY_PROVEN
        else:
            word = Word.OK
        sentence = "; ".join(parts)
        if gate:
            sentence += " (gate)"
        shown = tuple(map(visible, besides))
        return Ending(word, visible(sentence), shown, tuple(remarks(lack)))


def of_damage(damaged: Sequence[journal.Damaged]) -> list[str]:
    """Return a sentence that damaged lines fail a session: each may have been a failure."""
    if not damaged:
        return []
    return [f"{len(damaged)} line(s) of the history are no record"]
