"""The page in a real browser: no text of a figure is cut or lies over another, and everybody can read it.

The records are those of five published systems, replayed, and of this suite on a disk that was
slowed (tests/data/history), beside names that try to be markup.
"""

import gzip
import html
import json
import re
import shutil
from pathlib import Path

import pytest

from iogauge.cli.reporting import Asked
from iogauge.records import journal, query
from iogauge.records.record import Record, decode
from iogauge.report import history_table
from iogauge.report.endings import SessionRecords
from iogauge_extras.page import news, page
from support import npm, records
from support.shell import completed

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
    alarm = news.collect(folder, Asked(SessionRecords(found)), gate=False)
    file = folder.with_name("page.html")
    file.write_text(page.page(alarm, found), encoding="utf-8")
    return file


def asked(written, script, *words):
    """What a promise on the page comes to, in a copy of it that lets scripts run."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    shown = "document.body.textContent = JSON.stringify(found)"
    text = written.read_text(encoding="utf-8").replace("http-equiv", "data-was", 1)
    copy = written.with_name("copy.html")
    end = f"<script>{script}.then(found => {shown})</script></body>"
    copy.write_text(text.replace("</body>", end), encoding="utf-8")
    start = [program, "--headless", "--no-sandbox", "--virtual-time-budget=60000"]
    done = completed([*start, *words, "--dump-dom", copy])
    return json.loads(
        html.unescape(re.findall(r"<body>(.*)</body>", done.stdout, re.S)[0])
    )


OVERLAPPING = """[...document.querySelectorAll('figure svg.iog')].flatMap(svg => {
  const texts = [...svg.querySelectorAll('text')].filter(e => e.checkVisibility()).map(e => [e.textContent, e.getBoundingClientRect()]);
  const whole = svg.getBoundingClientRect();
  return texts.flatMap(([one, a], k) => [
    ...(a.right > whole.right + 1 || a.bottom > whole.bottom + 1 || a.left < whole.left - 1 ? [one + ' is cut'] : []),
    ...texts.slice(k + 1).filter(([, b]) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2 &&
      Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3).map(([other]) => one + ' lies over ' + other)]);
})"""


@pytest.mark.parametrize("width", [1280, 500])
def test_no_text_of_a_figure_is_cut_or_lies_over_another(written, width):
    size = f"--window-size={width},800"
    assert asked(written, f"Promise.resolve({OVERLAPPING})", size) == []


@pytest.mark.parametrize("scheme", [0, 1])
def test_axe_finds_no_violation(written, scheme):
    axe = npm.modules({"axe-core": "4.14.1"}) / "axe-core" / "axe.min.js"
    script = f"{axe.read_text(encoding='utf-8')}; axe.run().then(r => r.violations.map(v => v.help))"
    chosen = f"--blink-settings=preferredColorScheme={scheme}"
    assert asked(written, script, chosen) == []
