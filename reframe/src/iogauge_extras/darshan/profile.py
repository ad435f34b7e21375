"""Darshan logs as text and as one page: what a program did to the file system, one log or two side by side.

The figures are those of :mod:`iogauge_extras.compare.compare`. A profile judges nothing: references do.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from itertools import zip_longest
from pathlib import Path
from statistics import median
from typing import Final

from markupsafe import Markup

from iogauge.core.text import count, visible
from iogauge.core.units import format_bytes, format_value
from iogauge_extras.compare.compare import Subject, amount, compare
from iogauge_extras.darshan import subject as subjects
from iogauge_extras.darshan.log import ALL_RANKS, DarshanLog, FileRecord, heat
from iogauge_extras.page.charts import BOTTOM, HIGH, LEFT, RIGHT, TOP, WIDE, Ordinate, begin, short
from iogauge_extras.page.page import NO_SCRIPT, TEMPLATES, page_style, written_by

STYLE: Final = """
.iog .reads{fill:var(--t0);stroke:var(--t0)}
.iog .writes{fill:var(--t1);fill-opacity:.5;stroke:var(--t1)}
.iog .meta{fill:var(--t2);fill-opacity:.12;stroke:var(--t2)}
@media(min-width:64rem){dl.pairs{grid-template-columns:max-content 1fr max-content 1fr}dl.pairs .all{grid-column:2/-1}}
.iog .hot{fill:var(--t1)}
"""

#: Darshan's classes of access sizes, and their names.
_CLASSES: Final = {
    "0_100": "≤100 B",
    "100_1K": "1 KiB",
    "1K_10K": "10 KiB",
    "10K_100K": "100 KiB",
    "100K_1M": "1 MiB",
    "1M_4M": "4 MiB",
    "4M_10M": "10 MiB",
    "10M_100M": "100 MiB",
    "100M_1G": "1 GiB",
    "1G_PLUS": "more",
}
_TIMES: Final = {"reads": "F_READ_TIME", "writes": "F_WRITE_TIME", "meta": "F_META_TIME"}

#: From here on a share or a ratio is worth a sentence.
_SMALL, _META, _UNALIGNED, _SIEVED, _UNEVEN = 50.0, 30.0, 50.0, 1.2, 1.5
_SLOW_TARGET: Final = 3.0

#: Ranks that are drawn of many, rows and columns of a heat map, and files in the table.
_RANKS, _ROWS, _COLUMNS, _FILES = 24, 48, 96, 20


@dataclass(frozen=True, slots=True)
class Profile:
    """A log under its name, and its figures."""

    name: str
    log: DarshanLog
    subject: Subject

    @classmethod
    def of(cls, name: str, log: DarshanLog) -> Profile:
        """Return the profile of a log."""
        return cls(name, log, subjects.of_log(name, log))

    def value(self, name: str) -> float | None:
        """Return a figure of the log; None if the log does not tell it."""
        found = self.subject.values.get(name)
        return found.value if found else None


@dataclass(frozen=True, slots=True)
class FileRow:
    """What was done to one file. ``writers`` is None if the ranks were summed up; ``stripes`` 0 if not known."""

    file: str
    read: float
    written: float
    seconds: float
    writers: int | None
    stripes: int
    fs_type: str


def files(log: DarshanLog) -> list[FileRow]:
    """Return the files that POSIX calls touched, those with most bytes first, then the slowest."""
    grouped: dict[str, list[FileRecord]] = defaultdict(list)
    for record in log.of("POSIX"):
        grouped[record.file].append(record)
    stripes: dict[str, int] = {}
    for record in log.of("LUSTRE"):
        counts = [v for name, v in record.counters.items() if name.endswith("_STRIPE_COUNT")]
        stripes[record.file] = int(max(counts, default=0))
    rows = []
    for file, records in grouped.items():
        wrote = {r.rank for r in records if _counted(r, "BYTES_WRITTEN")}
        rows.append(
            FileRow(
                file=file,
                read=sum(_counted(r, "BYTES_READ") for r in records),
                written=sum(_counted(r, "BYTES_WRITTEN") for r in records),
                seconds=sum(_counted(r, *_TIMES.values()) for r in records),
                writers=None if ALL_RANKS in wrote else len(wrote),
                stripes=stripes.get(file, 0),
                fs_type=records[0].fs_type,
            )
        )
    return sorted(rows, key=lambda row: (-(row.read + row.written), -row.seconds, row.file))


def _counted(record: FileRecord, *counters: str) -> float:
    return sum(max(record.counters.get(counter, 0), 0) for counter in counters)


def ranks(log: DarshanLog) -> dict[int, dict[str, float]]:
    """Return the seconds that each rank spent in POSIX reads, writes and metadata calls, slowest first.

    It is empty if Darshan summed up a file over the ranks: then no rank's time is known.
    """
    found: dict[int, dict[str, float]] = {}
    for record in log.of("POSIX"):
        if record.rank == ALL_RANKS:
            return {}
        mine = found.setdefault(record.rank, dict.fromkeys(_TIMES, 0.0))
        for kind, counter in _TIMES.items():
            mine[kind] += _counted(record, counter)
    return dict(sorted(found.items(), key=lambda item: -sum(item[1].values())))


def targets(log: DarshanLog) -> dict[int, float]:
    """Return the mean seconds of the files of each storage target, slowest first, by the target's number.

    Files with several stripes say nothing of one target, and are left out.
    """
    places = {}
    for record in log.of("LUSTRE"):
        found = {int(v) for name, v in record.counters.items() if "_OST_ID_" in name}
        if len(found) == 1:
            places[record.file] = found.pop()
    spent: dict[int, list[float]] = defaultdict(list)
    for row in files(log):
        if row.file in places:
            spent[places[row.file]].append(row.seconds)
    means = {target: sum(values) / len(values) for target, values in spent.items()}
    return dict(sorted(means.items(), key=lambda item: -item[1]))


def told(profile: Profile) -> list[str]:
    """Return what stands out in a log, a sentence each; empty if nothing does."""
    said = []
    times = {rank: sum(parts.values()) for rank, parts in ranks(profile.log).items()}
    slowest = next(iter(times), None)
    middle = median(times.values()) if times else 0.0
    if slowest is not None and middle > 0 and times[slowest] >= _UNEVEN * middle:
        said.append(
            f"Rank {slowest} spends {format_value(times[slowest])} s in POSIX calls, "
            f"{times[slowest] / middle:.1f} times the median of the ranks."
        )
    by_target = targets(profile.log)
    usual = median(by_target.values()) if len(by_target) > 2 else 0.0
    slow = [t for t, seconds in by_target.items() if usual > 0 and seconds >= _SLOW_TARGET * usual]
    if slow:
        said.append(
            f"Files on {', '.join(f'OST {t}' for t in slow[:5])} take "
            f"{by_target[slow[0]] / usual:.1f} times the median of the {len(by_target)} targets."
        )
    small, meta = profile.value("small accesses") or 0, profile.value("metadata time") or 0
    if small >= _SMALL:
        said.append(f"{small:.0f} % of the reads and writes move at most 100 KiB each.")
    if meta >= _META:
        said.append(f"{meta:.0f} % of the time in POSIX calls goes to open, stat, seek and close.")
    unaligned = profile.value("unaligned accesses") or 0
    if unaligned >= _UNALIGNED:
        said.append(
            f"{unaligned:.0f} % of the reads and writes begin at no boundary of the file's blocks."
        )
    for word in ("read", "written"):
        ratio = profile.value(f"POSIX / MPI-IO bytes {word}") or 0
        if ratio >= _SIEVED:
            said.append(
                f"MPI-IO's own files have {ratio:.1f} times the bytes {word} that the program asked for: "
                "the MPI library sieves data."
            )
    for row in files(profile.log)[:1]:
        if row.stripes > 1 and row.writers is not None and 0 < row.writers < row.stripes:
            said.append(
                f"{count(row.writers, 'rank')} write{'s' * (row.writers == 1)} {row.file}, which has {row.stripes} stripes: more writers could "
                "use more targets at once."
            )
    return said


def sizes(title: str, log: DarshanLog) -> str:
    """Return how many POSIX reads and writes had which size, as bars."""
    posix = log.of("POSIX")
    counts = {
        way: [sum(_counted(r, f"SIZE_{way}_{name}") for r in posix) for name in _CLASSES]
        for way in ("READ", "WRITE")
    }
    top = max(max(row) for row in counts.values())
    if not top:
        return ""
    scale = Ordinate(0.0, 1.08 * top)
    parts = [begin(title, HIGH + 22), *scale.grid("calls")]
    step = (WIDE - LEFT - RIGHT) / len(_CLASSES)
    for nth, name in enumerate(_CLASSES.values()):
        at = LEFT + nth * step
        for way, kind, shift in (("READ", "reads", 0.08), ("WRITE", "writes", 0.5)):
            count = counts[way][nth]
            y = scale.y(count)
            tip = f"{short(count)} {kind} of at most {name}"
            parts.append(
                f'<rect class="{kind}" x="{at + shift * step:.1f}" y="{y:.1f}" width="{0.4 * step:.1f}" '
                f'height="{HIGH - BOTTOM - y:.1f}"><title>{tip}</title></rect>'
            )
        parts.append(
            f'<text x="{at + step / 2:.1f}" y="{HIGH - BOTTOM + 18}" text-anchor="middle">{name}</text>'
        )
    return "".join([*parts, _key(HIGH + 8, "reads", "writes"), "</svg>"])


def _key(y: float, *kinds: str) -> str:
    names = {"reads": "reads", "writes": "writes", "meta": "open, stat, seek, close"}
    return "".join(
        f'<rect class="{kind}" x="{LEFT + 120 * n}" y="{y - 10}" width="12" height="12"/>'
        f'<text x="{LEFT + 18 + 120 * n}" y="{y}">{names[kind]}</text>'
        for n, kind in enumerate(kinds)
    )


def times(title: str, log: DarshanLog) -> str:
    """Return the seconds of each rank in POSIX calls as stacked bars, the slowest first."""
    found = ranks(log)
    shown = list(found.items())[:_RANKS]
    top = max((sum(parts.values()) for _, parts in shown), default=0.0)
    if not top:
        return ""
    left, wide, row = 96, WIDE - 96 - 90, 17
    high = TOP + row * len(shown) + 34
    parts = [begin(title, high)]
    for nth, (rank, seconds) in enumerate(shown):
        at, y = float(left), TOP + nth * row
        parts.append(f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">rank {rank}</text>')
        for kind, value in seconds.items():
            width = wide * value / top
            parts.append(
                f'<rect class="{kind}" x="{at:.1f}" y="{y + 2}" width="{width:.1f}" height="{row - 4}">'
                f"<title>rank {rank}: {kind} {value:.4g} s</title></rect>"
            )
            at += width
        parts.append(
            f'<text x="{at + 6:.1f}" y="{y + 12}">{format_value(sum(seconds.values()))} s</text>'
        )
    if len(found) > len(shown):
        parts.append(
            f'<text x="{WIDE - 8}" y="{high - 8}" text-anchor="end">{count(len(found) - len(shown), "faster rank")}</text>'
        )
    return "".join([*parts, _key(high - 8, *_TIMES), "</svg>"])


def target_times(title: str, log: DarshanLog) -> str:
    """Return the mean seconds of the files of each storage target as bars, with the median of the targets."""
    found = targets(log)
    if len(found) < 2 or not (top := max(found.values())):
        return ""
    shown = list(found.items())[:_RANKS]
    usual = median(found.values())
    left, wide, row = 96, WIDE - 96 - 90, 17
    high = TOP + row * len(shown) + 16
    parts = [begin(title, high)]
    for nth, (target, seconds) in enumerate(shown):
        y, width = TOP + nth * row, wide * seconds / top
        slow = " slow" if usual > 0 and seconds >= _SLOW_TARGET * usual else ""
        parts.append(
            f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">OST {target}</text>'
            f'<rect class="bar{slow}" x="{left}" y="{y + 2}" width="{width:.1f}" height="{row - 4}"/>'
            f'<text x="{left + width + 6:.1f}" y="{y + 12}">{format_value(seconds)} s</text>'
        )
    at = left + wide * usual / top
    parts.append(
        f'<path class="reference" d="M{at:.1f} {TOP - 4}v{row * len(shown) + 6}"/>'
        f'<text x="{at:.1f}" y="{TOP - 10}">median {format_value(usual)} s</text>'
    )
    if len(found) > len(shown):
        parts.append(
            f'<text x="{WIDE - 8}" y="{high - 4}" text-anchor="end">{count(len(found) - len(shown), "faster target")}</text>'
        )
    return "".join([*parts, "</svg>"])


def heat_map(title: str, log: DarshanLog) -> str:
    """Return the bytes that the ranks moved over the time of the run; POSIX calls, reads and writes together."""
    seen = heat(log, "POSIX")
    if seen is None or not (bins := max(map(len, seen.read.values()), default=0)):
        return ""
    per_row, per_column = -(-log.tasks // _ROWS), -(-bins // _COLUMNS)
    cells: dict[tuple[int, int], float] = defaultdict(float)
    for way in (seen.read, seen.written):
        for rank, values in way.items():
            for n, value in enumerate(values):
                cells[rank // per_row, n // per_column] += max(value, 0)
    most = max(cells.values(), default=0.0)
    if not most:
        return ""
    rows, columns = -(-log.tasks // per_row), -(-bins // per_column)
    row, step = max(4.0, min(16.0, 240 / rows)), (WIDE - LEFT - RIGHT) / columns
    base = TOP + rows * row
    parts = [begin(title, round(base + 46))]
    for (nth, column), value in sorted(cells.items()):
        if not value:
            continue
        first = nth * per_row
        who = (
            f"rank {first}"
            if per_row == 1
            else f"ranks {first} to {min(first + per_row, log.tasks) - 1}"
        )
        when = column * per_column * seen.bin_seconds
        parts.append(
            f'<rect class="hot" x="{LEFT + column * step:.1f}" y="{TOP + nth * row:.1f}" width="{step:.1f}" '
            f'height="{row:.1f}" fill-opacity="{0.12 + 0.88 * value / most:.2f}">'
            f"<title>{who}, from {when:.3g} s: {format_bytes(value)}</title></rect>"
        )
    end = columns * per_column * seen.bin_seconds
    parts.append(
        f'<path class="axis" d="M{LEFT} {base:.1f}H{WIDE - RIGHT}M{LEFT} {TOP}V{base:.1f}" fill="none"/>'
        f'<text x="{LEFT - 6}" y="{TOP + 10}" text-anchor="end">rank 0</text>'
        f'<text x="{LEFT - 6}" y="{base:.1f}" text-anchor="end">{log.tasks - 1}</text>'
        f'<text x="{LEFT}" y="{base + 18:.1f}">0 s</text>'
        f'<text x="{WIDE - RIGHT}" y="{base + 18:.1f}" text-anchor="end">{end:.3g} s</text>'
        f'<text x="{LEFT}" y="{base + 38:.1f}">darkest: {escape(visible(format_bytes(most)))} in '
        f"{per_column * seen.bin_seconds:.3g} s</text>"
    )
    return "".join([*parts, "</svg>"])


def figures(profile: Profile, mark: str) -> list[tuple[str, str]]:
    """Return the figures of a log, each with its caption; those that the log cannot make are left out."""
    log, posix = profile.log, "POSIX calls; "
    n = f"n = {count(log.tasks, 'task')}, {format_value(log.run_seconds)} s"
    drawn = [
        (sizes(f"{mark}Access sizes", log), f"{posix}{n}"),
        (times(f"{mark}Time in I/O by rank", log), f"{posix}the slowest first; {n}"),
        (
            target_times(f"{mark}Time in I/O by storage target", log),
            f"mean of the files that lie on one target, the slowest first; {n}",
        ),
        (heat_map(f"{mark}Bytes over time", log), f"{posix}bins of Darshan's heat map; {n}"),
    ]
    return [(svg, caption) for svg, caption in drawn if svg]


def table_rows(log: DarshanLog) -> Iterator[Sequence[str]]:
    """Yield the files with most bytes, as cells: file, read, written, writers, stripes, seconds, file system."""
    for row in files(log)[:_FILES]:
        writers = "?" if row.writers is None else str(row.writers)
        stripes = str(row.stripes) if row.stripes else "-"
        sizes_of = (format_bytes(row.read), format_bytes(row.written))
        yield (row.file, *sizes_of, writers, stripes, f"{row.seconds:.3g} s", row.fs_type)


def lines(profile: Profile) -> Mapping[str, str]:
    """Return the facts and values of one log as text by name."""
    facts = {name: text for name, text in profile.subject.facts.items() if text}
    values = {name: amount(q.value, q.unit) for name, q in profile.subject.values.items()}
    return {**facts, **values}


def page(profiles: Sequence[Profile]) -> str:
    """Return the page of one profile, or of two side by side."""
    marks = ["A: ", "B: "] if len(profiles) == 2 else [""]
    shown = [
        {
            "mark": mark,
            "name": one.name,
            "short": Path(one.name).name,
            "told": told(one) or ["Nothing stands out."],
            "lines": lines(one),
            "files": list(table_rows(one.log)),
        }
        for mark, one in zip(marks, profiles, strict=True)
    ]
    drawn = [figures(one, mark) for mark, one in zip(marks, profiles, strict=True)]
    template = (Path(__file__).parent / "profile.html").read_text(encoding="utf-8")
    return TEMPLATES.from_string(template).render(
        profiles=shown,
        both=_side_by_side(*profiles) if len(profiles) == 2 else None,
        notes=[
            f"{mark}{n}"
            for mark, one in zip(marks, profiles, strict=True)
            for n in one.subject.notes
        ],
        # The same figure of both stands side by side.
        figures=[
            (Markup(svg), text) for row in zip_longest(*drawn) for svg, text in filter(None, row)
        ],
        headings=(
            "file",
            "read",
            "written",
            "writers",
            "stripes",
            "time in I/O",
            "file system",
        ),
        written=written_by(),
        style=page_style() + STYLE,
        policy=NO_SCRIPT,
    )


def _side_by_side(a: Profile, b: Profile) -> Mapping[str, object]:
    """Return the rows of values with their ratio, and the facts that differ."""
    found = compare(a.subject, b.subject)
    rows = [
        (
            row.name,
            amount(row.a, row.unit),
            amount(row.b, row.unit),
            "-"
            if row.ratio is None
            else f"{row.ratio:.3f}"
            if row.ratio >= 0.01
            else f"{row.ratio:.2g}",
        )
        for row in found.rows
    ]
    return {"rows": rows, "changes": found.changes}


def to_json(profile: Profile) -> str:
    """Return a profile as a JSON object; values are numbers, each with its unit."""
    return json.dumps(
        {
            "log": profile.name,
            "facts": dict(profile.subject.facts),
            "values": {
                n: {"value": q.value, "unit": q.unit} for n, q in profile.subject.values.items()
            },
            "told": told(profile),
            "files": [asdict(row) for row in files(profile.log)],
            "ranks": ranks(profile.log),
        },
        indent=2,
        allow_nan=False,
    )
