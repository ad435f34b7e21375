"""A session as one page of HTML that opens everywhere: no network, no script."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from iogauge.alarm import figure
from iogauge.alarm.collect import Alarm, Trouble
from iogauge.core.text import visible
from iogauge.records.record import Record
from iogauge.report import table

#: Figures of troubles stand open; of the others so many at most, so that the page stays small.
_FIGURES: Final = 200

_STYLE: Final = """
:root{color-scheme:light dark;--paper:#fff;--ink:#1f2328;--dim:#59636e;--edge:#d1d9e0;--soft:#f6f8fa;
--red:#cf222e;--green:#1a7f37;--amber:#9a6700;--violet:#8250df;--blue:#0969da}
@media(prefers-color-scheme:dark){:root{--paper:#0d1117;--ink:#f0f6fc;--dim:#9198a1;--edge:#3d444d;--soft:#151b23;
--red:#ff7b72;--green:#3fb950;--amber:#d29922;--violet:#bc8cff;--blue:#4493f8}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1rem;max-width:76rem;background:var(--paper);color:var(--ink);font:16px/1.45 system-ui,sans-serif}
h1{font-size:1.5rem;margin:0}h2{font-size:1.1rem;margin:2rem 0 .6rem}
header{border-left:.5rem solid var(--tone);padding:.4rem 1rem;background:var(--soft)}
header p{margin:.2rem 0;color:var(--dim);overflow-wrap:anywhere}
.failed{--tone:var(--red)}.ok{--tone:var(--green)}
.trouble{border:1px solid var(--edge);border-left:.3rem solid var(--tone);border-radius:.4rem;padding:.7rem 1rem;margin:.8rem 0}
.trouble h3{font-size:1rem;margin:0 0 .3rem;overflow-wrap:anywhere}
.trouble .said{font-size:1.25rem;font-weight:600;margin:.1rem 0 .4rem;overflow-wrap:anywhere}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem .8rem;margin:.4rem 0}
dt{color:var(--dim)}dd{margin:0;overflow-wrap:anywhere}
.word{font-weight:700;color:var(--tone)}
.FAIL,.ERROR,.DRIFT{--tone:var(--red)}.INVALID{--tone:var(--violet)}.PASS{--tone:var(--green)}
.UNSTABLE,.CONTAMINATED{--tone:var(--amber)}.UNREFERENCED{--tone:var(--blue)}
svg{display:block;width:100%;max-width:40rem;height:auto}
.figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,26rem),1fr));gap:.8rem}
table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{text-align:left;vertical-align:top;padding:.3rem .6rem;border-bottom:1px solid var(--edge)}
th{color:var(--dim);font-weight:600}td.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td.reason{overflow-wrap:anywhere;min-width:12rem}
@media(max-width:48rem){thead{display:none}table,tbody,tr,td{display:block;width:100%}
tr{border-bottom:1px solid var(--edge);padding:.5rem 0}td{border:0;padding:.05rem 0}td.number{text-align:left;white-space:normal}
td[data-name]:not(:empty)::before{content:attr(data-name)": ";color:var(--dim)}dl{grid-template-columns:1fr}dd{margin-bottom:.3rem}}
"""


def page(alarm: Alarm, records: Sequence[Record]) -> str:
    """The page of some sessions: what is wrong, every metric, and the runs of each; text from outside is escaped."""
    word = "FAILED" if alarm.failed else "OK"
    times = sorted(record.time for record in records)
    span = " to ".join(dict.fromkeys(times[:1] + times[-1:]))
    told = [one.curve.points for one in alarm.troubles if one.curve]
    rest = [c for c in alarm.curves if c.points and c.points not in told]
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f"<title>{word}: {_text(', '.join(alarm.systems))}: iogauge</title>",
        f"<style>{_STYLE}{figure.STYLE}</style></head><body>",
        f'<header class="{"failed" if alarm.failed else "ok"}"><h1>'
        f'<span class="word">{word}</span> {_text(", ".join(alarm.systems))}</h1>',
        f"<p>{_text(alarm.summary)}</p><p>{_text(span)}, session {_text(', '.join(alarm.sessions))}</p></header>",
    ]
    if alarm.troubles:
        parts += [f"<h2>What somebody must look at ({len(alarm.troubles)})</h2>"]
        parts += map(_trouble, alarm.troubles)
    parts += ["<h2>Everything that was measured</h2>", _table(records)]
    if rest:
        parts.append(f"<h2>Runs of the others</h2><div class=figures>{_figures(rest)}</div>")
    return "".join([*parts, "</body></html>\n"])


def _text(text: str) -> str:
    return escape(visible(text))


def _figures(curves: Sequence[figure.Curve]) -> str:
    return "".join(figure.svg(curve) for curve in curves[:_FIGURES])


def _trouble(one: Trouble) -> str:
    told = {
        "expected": one.expected,
        "reason": one.reason,
        "since": one.since,
        "trend": one.trend,
        "probable cause": one.cause,
        "what to do": one.remedy,
    }
    rows = "".join(f"<dt>{name}</dt><dd>{_text(text)}</dd>" for name, text in told.items() if text)
    said = f'<p class="said">{_text(one.measured)}</p>' if one.measured else ""
    return (
        f'<section class="trouble {one.kind}"><h3><span class="word">{_text(one.kind)}</span> {_text(one.where)} '
        f"{_text(one.case)} {_text(one.metric)}</h3>{said}<dl>{rows}</dl>"
        f"{figure.svg(one.curve) if one.curve else ''}</section>"
    )


def _table(records: Sequence[Record]) -> str:
    """A row a metric, as in the terminal."""
    headings = (
        "scenario",
        "target",
        "metric",
        "median ±spread",
        "reference",
        "ceiling",
        "verdict",
        "reason",
    )
    head = "".join(f"<th>{name}</th>" for name in headings)
    body = "".join(
        f'<tr><td>{_text(row.scenario)}</td><td data-name="target">{_text(row.target)}</td>'
        f'<td data-name="metric">{_text(row.metric)}</td>'
        f'<td class="number" data-name="median">{_text(row.measured)}</td>'
        f'<td class="number" data-name="reference">{_text(row.reference)}</td>'
        f'<td class="number" data-name="ceiling">{_text(row.ceiling)}</td>'
        f'<td class="{row.verdict.value}"><span class="word">{row.verdict.value}</span></td>'
        f'<td class="reason">{_text(row.reason)}</td></tr>'
        for row in table.rows(records)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
