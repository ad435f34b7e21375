"""The page in a real browser: it fetches nothing, its script has no error, and what it does works.

The records are those of five published systems, replayed, and of this suite on a disk that was
slowed (tests/data/history), beside names that try to be markup.
"""

import gzip
import json
from pathlib import Path

import pytest

from iogauge.records import journal, query
from iogauge.records.record import Record, decode
from iogauge.report import history_table
from iogauge.report.endings import SessionRecords
from iogauge_extras.ceilings import table as ceilings
from iogauge_extras.page import news, page
from support import browser, npm, records

pytestmark = pytest.mark.slow

DATA = Path(__file__).parents[1] / "data" / "history"
NASTY = "<script>document.title='obeyed'</script><img src=x onerror=document.title='obeyed'>"


def of(name):
    lines = gzip.decompress((DATA / f"{name}.jsonl.gz").read_bytes()).splitlines()
    return [Record.from_json(decode(line)) for line in lines]


@pytest.fixture(scope="module")
def published():
    return of("published")


@pytest.fixture(scope="module")
def written(tmp_path_factory, published):
    """The page of the newest run of every case, after the disk was slowed."""
    folder = tmp_path_factory.mktemp("page") / "history"
    slowed = of("real_series")[:-28]
    odd = records.record(
        "FAIL", partition=NASTY, case=f"IorPosix %files={NASTY}", reason=NASTY
    )
    for record in [*published, *slowed, odd]:
        journal.append(
            folder / record.system / f"{record.session}.jsonl", record.to_line()
        )
    found, _ = history_table.newest_records(folder, query.Choice())
    alarm = news.collect(folder, SessionRecords(found), gate=False)
    file = folder.with_name("page.html")
    layers = ceilings.of_systems(folder, sorted({record.system for record in found}))
    file.write_text(page.page(alarm, found, layers), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def chromium(written, tmp_path_factory):
    if browser.program() is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    with browser.browser(tmp_path_factory.mktemp("profile")) as started:
        started.open(written)
        yield started


def visible(chromium, choice):
    script = f"[...document.querySelectorAll({json.dumps(choice)})].filter(e => e.checkVisibility()).length"
    return chromium.ask(script)


def test_nothing_is_fetched_and_nothing_goes_wrong(chromium, written):
    assert chromium.requests == [written.as_uri()]
    assert chromium.complaints == []
    assert chromium.ask("document.title").startswith("FAILED: azure-cyclecloud")


def test_filters_show_what_is_asked_for(chromium):
    every = visible(chromium, ".results tbody")
    fill = "document.getElementById('words').value = {}; document.getElementById('words').dispatchEvent(new Event('input', {{bubbles: true}}))"
    chromium.ask(fill.format("'TaskScaling oss12 write'"))
    some = visible(chromium, ".results [data-text]")
    assert 0 < some < every
    assert (
        chromium.ask("document.getElementById('count').textContent")
        == f"{some} of {every} cases"
    )
    chromium.ask(fill.format("''"))
    chromium.ask("document.querySelector('#tools [value=PASS]').click()")
    assert visible(chromium, ".results [data-verdict='PASS PASS']") == 0
    chromium.ask("document.querySelector('#tools [value=PASS]').click()")
    assert visible(chromium, ".results tbody") == every


OVERLAPPING = """[...document.querySelectorAll('figure svg.iog')].flatMap(svg => {
  const texts = [...svg.querySelectorAll('text')].filter(e => e.checkVisibility()).map(e => [e.textContent, e.getBoundingClientRect()]);
  const whole = svg.getBoundingClientRect();
  return texts.flatMap(([one, a], k) => [
    ...(a.right > whole.right + 1 || a.bottom > whole.bottom + 1 || a.left < whole.left - 1 ? [one + ' is cut'] : []),
    ...texts.slice(k + 1).filter(([, b]) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2 &&
      Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3).map(([other]) => one + ' lies over ' + other)]);
})"""


@pytest.mark.parametrize("width", [1280, 390])
def test_no_text_of_a_figure_is_cut_or_lies_over_another(chromium, width):
    chromium.wide(width)
    assert chromium.ask(OVERLAPPING) == []
    chromium.wide(1280)


@pytest.mark.parametrize("look", ["light", "dark"])
def test_axe_finds_no_violation(chromium, look):
    axe = npm.modules({"axe-core": "4.14.1"}) / "axe-core" / "axe.min.js"
    try:
        chromium.look(look)
        chromium.ask(f"{axe.read_text(encoding='utf-8')}; 1")
        found = chromium.ask(
            "axe.run().then(r => r.violations.map(v => v.id + ': ' + v.help))"
        )
    finally:
        chromium.look("light")
    assert found == []


# --- without scripts ------------------------------------------------------------------------------

#: What a reader sees of each part: all its text.
SEEN = """[...document.querySelectorAll('header, h2, h3, p, dl, ul.legend, ol.notes, table, figure')].filter(
  e => !e.closest('#tools') && e.checkVisibility()).map(e => e.innerText.trim())"""


def test_without_scripts_all_is_there_to_be_read(chromium, written):
    chromium.open(written)
    with_script = chromium.ask(SEEN)
    chromium.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        chromium.open(written)
        assert (
            chromium.ask("document.documentElement.className") == ""
        )  # page.js did not run
        assert chromium.ask(SEEN) == with_script
        assert len(with_script) > 50 and visible(chromium, "#tools") == 0
        assert visible(chromium, ".ending, .tiles li") == 6
        for part in (
            ".results",
            ".results tbody tr",
            ".trouble",
        ):
            every = chromium.ask(f"document.querySelectorAll('{part}').length")
            assert visible(chromium, part) == every > 0, part
        empty = "[...document.querySelectorAll('main svg.iog')].filter(e => e.getBoundingClientRect().height < 5).length"
        assert chromium.ask(empty) == 0
    finally:
        chromium.call("Emulation.setScriptExecutionDisabled", value=False)
        chromium.open(written)
