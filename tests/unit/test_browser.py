"""The page in a real browser: it fetches nothing, and nothing of it is cut or lies over another.

The records are those of five published systems, replayed, and of this suite on a disk that was
slowed (tests/data/history), beside names that try to be markup.
"""

import gzip
from pathlib import Path

import pytest

from iogauge.records import journal, query
from iogauge.records.record import Record, decode
from iogauge.report import history_table
from iogauge.report.endings import SessionRecords
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
    file.write_text(page.page(alarm, found), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def chromium(written, tmp_path_factory):
    if browser.program() is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    with browser.browser(tmp_path_factory.mktemp("profile")) as started:
        started.open(written)
        yield started


def test_nothing_is_fetched_and_nothing_goes_wrong(chromium, written):
    assert chromium.requests == [written.as_uri()]
    assert chromium.complaints == []
    assert chromium.ask("document.title").startswith("FAILED: azure-cyclecloud")


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
