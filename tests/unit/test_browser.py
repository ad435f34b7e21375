"""The page in a real browser: it fetches nothing, its script has no error, and what it does works.

The records are those of five published systems, replayed, and of this suite on a disk that was
slowed (tests/data/history), beside names that try to be markup.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from iogauge.alarm import collect, page, sweeps
from iogauge.alarm.sweeps import Plot
from iogauge.records import journal
from iogauge.records.record import Record
from iogauge.report import ceilings, history_table
from iogauge.report.outcome import SessionRecords
from support import browser, records
from support.browser import Browser

DATA = Path(__file__).parents[1] / "data" / "history"
NASTY = "<script>document.title='obeyed'</script><img src=x onerror=document.title='obeyed'>"


def of(name: str) -> list[Record]:
    lines = gzip.decompress((DATA / f"{name}.jsonl.gz").read_bytes()).splitlines()
    return [Record.from_line(line) for line in lines]


@pytest.fixture(scope="module")
def published() -> list[Record]:
    return of("published")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, published: list[Record]) -> Path:
    """The page of the newest run of every case, after the disk was slowed."""
    folder = tmp_path_factory.mktemp("page")
    slowed = of("real_series")[:-28]
    odd = records.record("FAIL", partition=NASTY, case=f"IorPosix %files={NASTY}", reason=NASTY)
    for record in [*published, *slowed, odd]:
        journal.append(folder / record.system / f"{record.session}.jsonl", record.to_line())
    found, _ = history_table.newest_records(folder)
    alarm = collect.collect(folder, SessionRecords(found), gate=False)
    file = folder / "page.html"
    layers = ceilings.of_systems(folder, sorted({record.system for record in found}))
    file.write_text(page.page(alarm, found, layers), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def chromium(written: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if browser.program() is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    with browser.browser(tmp_path_factory.mktemp("profile")) as started:
        started.open(written)
        yield started


def visible(chromium: Browser, choice: str) -> int:
    script = f"[...document.querySelectorAll({json.dumps(choice)})].filter(e => e.checkVisibility()).length"
    found: int = chromium.ask(script)
    return found


def test_nothing_is_fetched_and_nothing_goes_wrong(chromium: Browser, written: Path) -> None:
    assert chromium.requests == [written.as_uri()]
    assert chromium.complaints == []
    assert chromium.ask("document.title").startswith("FAILED: azure-cyclecloud")


def test_figures_are_drawn(chromium: Browser) -> None:
    assert visible(chromium, "figure svg") > 20
    sizes = chromium.ask(
        "[...document.querySelectorAll('figure svg')].map(e => e.getBoundingClientRect().height)"
    )
    assert min(sizes) > 50


def test_filters_show_what_is_asked_for(chromium: Browser) -> None:
    every = visible(chromium, ".results tbody tr")
    fill = "document.getElementById('words').value = {}; document.getElementById('words').dispatchEvent(new Event('input'))"
    chromium.ask(fill.format("'TaskScaling oss12 write'"))
    some = visible(chromium, ".results tr[data-text]")
    assert 0 < some < every
    assert (
        chromium.ask("document.getElementById('count').textContent") == f"{some} of {every} results"
    )
    chromium.ask(fill.format("''"))
    chromium.ask("document.querySelector('#tools [value=PASS]').click()")
    assert visible(chromium, "tr[data-verdict=PASS]") == 0
    chromium.ask("document.querySelector('#tools [value=PASS]').click()")
    assert visible(chromium, ".results tbody tr") == every


def test_a_link_opens_its_record(chromium: Browser) -> None:
    chromium.ask("document.querySelector('.results td a').click()")
    assert chromium.ask("document.querySelector('details:has(:target)').open") is True
    assert chromium.ask("document.querySelector(':target pre, :target dd').checkVisibility()")


def test_a_figure_is_enlarged_and_zoomed(chromium: Browser) -> None:
    chromium.ask("document.querySelector('figure button').click()")
    assert visible(chromium, "dialog svg") == 1
    width = "Number(document.querySelector('dialog svg').getAttribute('viewBox').split(' ')[2])"
    before = chromium.ask(width)
    chromium.ask("document.querySelector('dialog [data-zoom]').click()")
    assert chromium.ask(width) < before
    chromium.ask("document.querySelector('dialog [data-close]').click()")
    assert visible(chromium, "dialog svg") == 0


def test_a_mark_tells_its_value(chromium: Browser) -> None:
    chromium.ask(
        "document.querySelector('figure .run').dispatchEvent(new Event('pointerover', {bubbles: true}))"
    )
    assert "MiB/s" in chromium.ask("document.getElementById('tip').textContent")


def test_a_single_published_point_of_two_partitions_is_drawn_side_by_side(
    published: list[Record],
) -> None:
    drawn = [p for p in sweeps.plots(published) if p.system == "oracle-oci"]
    assert [p.title.split()[1] for p in drawn] == ["write_bw", "read_bw"]
    assert all([t.name for t in p.traces] == ["block", "nvme"] for p in drawn)
    assert all(dot.reference and dot.x == 2 for p in drawn for dot in p.dots)
    assert not any(p.proportional for p in drawn)


def test_the_page_fits_a_phone(chromium: Browser) -> None:
    chromium.wide(390)
    assert chromium.ask("document.documentElement.scrollWidth") <= 390
    chromium.wide(1280)
    assert chromium.ask("document.documentElement.scrollWidth") <= 1280


def test_print_has_the_layout_of_a_wide_screen(chromium: Browser) -> None:
    """A sheet is as narrow as a phone, but its tables stay tables."""
    shown = "getComputedStyle(document.querySelector('.results thead')).display"
    chromium.wide(700)
    assert chromium.ask(shown) == "none"
    chromium.look("print")
    assert chromium.ask(shown) == "table-header-group"
    assert chromium.ask("document.documentElement.scrollWidth") <= 700
    chromium.look("light")
    chromium.wide(1280)


def test_the_text_of_a_figure_is_readable_on_a_phone(chromium: Browser) -> None:
    chromium.wide(390)
    smallest = "Math.min(...[...document.querySelectorAll('figure svg')].map(e => e.getBoundingClientRect().width / 640 * 13))"
    assert chromium.ask(smallest) >= 10
    chromium.wide(1280)


def test_every_system_can_be_looked_at_alone(chromium: Browser) -> None:
    choose = (
        "s = document.getElementById('system'); s.value = {}; s.dispatchEvent(new Event('input'))"
    )
    chromium.ask(choose.format("'oracle-oci'"))
    parts = (
        ".results [data-text], figure, .trouble, .place, .days tbody tr, main > section > details"
    )
    seen = chromium.ask(
        f"[...new Set([...document.querySelectorAll('{parts}')].filter(e => e.checkVisibility())"
        ".map(e => e.closest('[data-system]').dataset.system))]"
    )
    assert seen == ["oracle-oci"]
    chromium.ask(choose.format("''"))


OVERLAPPING = """[...document.querySelectorAll('figure svg')].flatMap(svg => {
  const texts = [...svg.querySelectorAll('text')].map(e => [e.textContent, e.getBoundingClientRect()]);
  const whole = svg.getBoundingClientRect();
  return texts.flatMap(([one, a], k) => [
    ...(a.right > whole.right + 1 || a.bottom > whole.bottom + 1 || a.left < whole.left - 1 ? [one + ' is cut'] : []),
    ...texts.slice(k + 1).filter(([, b]) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2 &&
      Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3).map(([other]) => one + ' lies over ' + other)]);
})"""


def test_no_text_of_a_figure_is_cut_or_lies_over_another(chromium: Browser) -> None:
    assert chromium.ask(OVERLAPPING) == []


@pytest.mark.parametrize("look", ["light", "dark", "print"])
def test_axe_finds_no_violation(chromium: Browser, look: str) -> None:
    axe = os.environ.get("IOGAUGE_AXE", "")
    if not axe:
        pytest.skip("npm install axe-core, then IOGAUGE_AXE=node_modules/axe-core/axe.min.js")
    chromium.look(look)
    chromium.ask(f"{Path(axe).read_text(encoding='utf-8')}; 1")
    found = chromium.ask("axe.run().then(r => r.violations.map(v => v.id + ': ' + v.help))")
    chromium.look("light")
    assert found == []


# --- the published charts -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plots(published: list[Record]) -> dict[str, Plot]:
    return {f"{plot.title} {plot.unit}": plot for plot in sweeps.plots(published)}


@pytest.mark.parametrize(
    ("title", "trace", "points"),
    [
        ("TaskScaling on azure-cyclecloud:oss4 MiB/s", "write_bw", {16: 12900, 24: 12900}),
        ("TaskScaling on azure-cyclecloud:oss8 MiB/s", "read_bw", {16: 27000, 32: 27000}),
        ("TaskScaling write_bw on azure-cyclecloud MiB/s", "oss8", {16: 26000}),
        ("RandomRead on oist-saion:gpu ops/s", "read_iops span=all", {4096: 2.84e6, 32768: 2.39e6}),
        ("StripeCount on kaust-shaheen2:lustre MiB/s", "write_bw api=MPIIO", {144: 33263.4}),
    ],
)
def test_the_published_charts_are_drawn_with_their_points(
    plots: dict[str, Plot], title: str, trace: str, points: dict[float, float]
) -> None:
    (found,) = [one for one in plots[title].traces if one.name == trace]
    dots = {dot.x: dot for dot in found.dots}
    for x, value in points.items():
        assert dots[x].value == pytest.approx(value, rel=0.001)
        assert dots[x].reference is not None
        assert dots[x].reference.value == pytest.approx(value, rel=0.02)
    assert plots[title].sources
