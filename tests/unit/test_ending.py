"""The word and the sentence that a session ends with: ok needs a PASS and leaves nothing open."""

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iogauge.cli.reporting import Asked
from iogauge.judge.verdict import Verdict
from iogauge.records import selected
from iogauge.records.selected import (
    NotedCase,
    NotedEnvironment,
    NotedPlace,
    Unmeasured,
    UnrunCase,
)
from iogauge.report.endings import SessionRecords, Word
from iogauge.report.export import junit
from iogauge_extras.page import news, page
from support import records


def left_out(check="MdtestEasy", **change):
    plain = {
        "case": check,
        "feature": "mdtest",
        "place": "s:p",
        "holder": "environment e",
    }
    return UnrunCase(**{"check": check, "why": "no such program"} | plain | change)


COUNTS = st.dictionaries(st.sampled_from(Verdict), st.integers(0, 3))
LACKS = st.builds(
    Unmeasured,
    gate=st.booleans(),
    left_out=st.sampled_from([(), (left_out(),)]),
    unfit=st.sampled_from([(), ("TargetNeedle",)]),
    unmatched=st.sampled_from([(), ("-n X selects no case",)]),
    gone=st.sampled_from([(), ("a was recorded, and is gone",)]),
    nothing=st.sampled_from(["", "-t quik"]),
)
SMALL = st.integers(0, 2)
PROBLEMS = st.sampled_from([(), ("ReFrame ended with status 1",)])


RECORDS = {verdict: records.record(verdict.value) for verdict in Verdict}
EXPECTED = records.record("FAIL", expected=True)


def of(counts, lack=None, expected=0, **more):
    found = [EXPECTED] * expected
    for verdict, number in counts.items():
        found += [RECORDS[verdict]] * number
    return SessionRecords(found).ending(**{"gate": False, "unmeasured": lack, **more})


@given(COUNTS, st.booleans(), SMALL, LACKS, PROBLEMS)
def test_without_a_pass_the_word_is_never_ok(counts, gate, expected, lack, problems):
    counts[Verdict.PASS] = 0
    ending = of(counts, lack, expected, gate=gate, problems=problems)
    assert ending.word in (Word.NOTHING_PROVEN, Word.FAILED)
    assert "ok" not in str(ending).split(":")[0] and "passed" not in ending.sentence
    assert not gate or ending.status == 1
    assert ending.sentence and "\n" not in ending.sentence


@given(COUNTS, LACKS, PROBLEMS)
def test_a_gate_is_never_milder(counts, lack, problems):
    mild, strict = (
        of(counts, lack, gate=gate, problems=problems) for gate in (False, True)
    )
    assert strict.status >= mild.status
    assert strict.sentence == mild.sentence + " (gate)"


@pytest.mark.parametrize(
    "counts, lack, text",
    [
        (
            {"PASS": 5, "UNREFERENCED": 2},
            {},
            "partly proven: 5 passed; 2 unproven (UNREFERENCED)",
        ),
        (
            {"PASS": 4, "UNSTABLE": 1, "UNREFERENCED": 1, "FAIL": 1, "ERROR": 2},
            {},
            "FAILED: 4 passed; 3 failed (1 FAIL, 2 ERROR); 2 unproven (1 UNREFERENCED, 1 UNSTABLE)",
        ),
        (
            {},
            {"unfit": ("TargetNeedle",)},
            "nothing proven: no case was measured; TargetNeedle: not for this site",
        ),
        (
            {},
            {"left_out": (left_out(),)},
            "nothing proven: 1 not run; no case was measured",
        ),
    ],
)
def test_sentences(counts, lack, text):
    found = of({Verdict(name): n for name, n in counts.items()}, Unmeasured(**lack))
    assert str(found) == text


def test_text_from_outside_is_shown_not_obeyed():
    lack = Unmeasured(
        left_out=(left_out("\x1b[2J", why="\x07"),), unmatched=("-n \x1b",)
    )
    ending = of({}, lack)
    assert "\x1b" not in "".join([str(ending), *ending.besides, *ending.remarks])


def test_passes_on_the_word_of_the_tool_alone_are_counted():
    saw = "no second witness: nothing under the mount counts bytes that this user may read"
    unseen = records.FINDING | {"guard": "G8", "saw": saw}
    found = SessionRecords(
        [
            records.record(),
            records.record(findings=[unseen]),
            records.record("UNSTABLE", findings=[unseen]),
        ]
    )
    assert str(found.ending(gate=False)) == (
        "partly proven: 2 passed, 1 of them without a second witness; 1 unproven (UNSTABLE)"
    )


@pytest.mark.parametrize("verdict", [v.value for v in Verdict])
@pytest.mark.parametrize("gate", [False, True])
def test_page_junit_and_alarm_say_the_same_sentence(verdict, gate, tmp_path):
    found = SessionRecords([records.record(verdict)])
    lack = Unmeasured(
        gate=gate, left_out=(left_out(),), unmatched=("-n X selects no case",)
    )
    ending = found.ending(gate, lack)
    alarm = news.collect(tmp_path, Asked(found, lack), gate=gate)
    assert alarm.ending == ending
    assert str(ending) in alarm.text and ending.remarks[0] in alarm.text
    text = page.page(alarm, found)
    assert f'<header class="{ending.word.style}">' in text
    assert f'<span class="word">{ending.word.value}</span>' in text
    assert (
        f'<p class="ending">{ending}</p>' in text
        and f"<p>{ending.remarks[0]}</p>" in text
    )
    top = ElementTree.fromstring(junit(found, gate, ending, lack.left_out).encode())
    assert top.get("name") == f"iogauge: {ending}"
    told = {str(case.get("name")): case for case in top.iter("testcase")}
    (session,) = told["session"]
    assert (session.tag, session.get("message")) == (
        "failure" if ending.status else "skipped",
        str(ending),
    )
    (skipped,) = told["MdtestEasy"]
    assert skipped.tag == "skipped" and "lacks mdtest" in str(skipped.get("message"))


# --- what is kept beside the records --------------------------------------------------------------


@given(LACKS)
def test_what_was_not_measured_is_kept(tmp_path_factory, lack):
    file = tmp_path_factory.mktemp("kept") / "site" / "session.json"
    selected.save_unmeasured(file, lack)
    assert selected.load_unmeasured(file) == lack


# --- which cases cannot run -----------------------------------------------------------------------


def noted(*facts, monkeypatch, folder):
    """The notes of a listing, as ReFrame's process writes them."""
    monkeypatch.setenv(selected.LISTING, str(folder / "notes"))
    for fact in facts:
        selected.note(fact)
    return (folder / "notes").read_text()


def place(name="s:p", *features, **environments):
    inside = tuple(
        NotedEnvironment(name=one, features=has, why={"ior": "ior is gone"})
        for one, has in environments.items()
    )
    return NotedPlace(place=name, features=("target", *features), environments=inside)


def asks(check, *environments, **change):
    plain = {
        "hash": check.lower(),
        "case": f"{check} %x=1",
        "check": check,
        "derived": False,
    }
    plain |= {
        "systems": ("+target",),
        "environments": environments or ("+ior",),
        "runs_on": (),
    }
    plain |= {"values": {}}
    return NotedCase(**plain | change)


def chosen(*facts, **more):
    names = [f"{one.case} /{one.hash}" for one in facts if isinstance(one, NotedCase)]
    return selected.select(names, noted(*facts, **more))


@pytest.fixture
def kept(monkeypatch, tmp_path):
    return {"monkeypatch": monkeypatch, "folder": tmp_path}


def test_a_missing_feature_of_an_environment_is_named(kept):
    found = chosen(
        place(e=("fio",)), asks("Ior"), asks("Fio", "+fio", runs_on=("s:p",)), **kept
    )
    assert found.runnable == ("Fio %x=1 /fio",)
    (out,) = found.left_out
    assert (out.check, out.place, out.holder) == ("Ior", "s:p", "environment e")
    assert (out.feature, out.why) == ("ior", "ior is gone")
    assert (found.unfit, found.systems) == ((), ("s",))


def test_a_check_that_is_not_for_a_site_is_no_loss(kept):
    found = chosen(
        place(e=("ior",)), asks("Needle", systems=()), asks("B", "other"), **kept
    )
    assert (found.left_out, found.runnable) == ((), ())
    assert found.unfit == ("Needle", "B")
    fits = asks("B", "+ior", hash="b2", runs_on=("s:p",))
    found = chosen(place(e=("ior",)), asks("B", "other"), fits, **kept)
    assert (found.runnable, found.unfit) == (("B %x=1 /b2",), ())


def test_a_case_by_name_of_the_partition_may_lack_a_tool(kept):
    (out,) = chosen(place(e=()), asks("Scaling", systems=("s:p",)), **kept).left_out
    assert out.feature == "ior"
