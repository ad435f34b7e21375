"""mdtest: command lines from options, values from its tables and from the details of ranks.

Written against mdtest 4.0.0 and 3.3.0 (``src/mdtest.c`` of IOR). mdtest has no JSON.

In mdtest 4.0 an iteration's rate is the *slowest* task's rate times the number of tasks
(``summarize_results_rank0``). The table gives greatest, least, mean and standard deviation (n - 1)
over the iterations. In 3.3 the values are taken over iterations and tasks (population deviation).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from iogauge.core import units
from iogauge.core.measurement import Phase, Quantity, ToolOutput, ToolOutputError
from iogauge.core.untrusted import is_number
from iogauge.tools.parsing import COMPLAINT, excerpt, local_moment, unique


@dataclass(frozen=True, slots=True, kw_only=True)
class MdtestOptions:
    """Options of one execution of mdtest: IO500's easy and hard forms, and forms between them.

    Without ``create``, ``stat``, ``read`` and ``remove`` mdtest does all of them. ``items`` is for
    each task (-n). -P is always given: without it mdtest prints only rates, and
    :func:`parse_table` must derive the seconds. A tree has ``depth`` levels below its root (-z) and
    ``branching`` directories in each directory (-b). Raises :class:`ValueError` for values that
    mdtest ignores; it refuses others itself (``md_validate_tests``).
    """

    directory: str
    items: int | None = None
    items_per_directory: int | None = None
    files_only: bool = False
    leaf_only: bool = False
    unique_dir: bool = False
    time_unique_dir: bool = False
    depth: int = 0
    branching: int = 1
    create: bool = False
    stat: bool = False
    read: bool = False
    remove: bool = False
    write_bytes: int = 0
    read_bytes: int = 0
    verify_read: bool = False
    signature: int | None = None
    data_type: str | None = None
    stride: int = 0
    random_seed: int | None = None
    sync_phase: bool = False
    stonewall_s: int = 0
    stonewall_status_file: str | None = None
    repetitions: int = 1
    api: str | None = None
    rank_details_csv: str | None = None

    def __post_init__(self) -> None:
        """Refuse values that mdtest would silently ignore or treat differently."""
        for name, path in (
            ("directory", self.directory),
            ("stonewall_status_file", self.stonewall_status_file),
            ("rank_details_csv", self.rank_details_csv),
        ):
            if path is not None and (not path or re.search(r"[\s'\"\\]", path)):
                raise ValueError(f"{name} is {path!r}: expected a path without blanks and quotes")
        if "@" in self.directory:
            raise ValueError(f"directory is {self.directory!r}: mdtest would split it at '@'")
        everything = not (self.create or self.stat or self.read or self.remove)
        stonewalled = bool(self.stonewall_s or self.stonewall_status_file)
        for wrong, problem in (
            (self.branching > 1 and stonewalled, "mdtest has no stonewall (-W, -x) with branches"),
            (
                bool(self.stonewall_s) and not (self.create or everything),
                "stonewall_s (-W) acts on the create phase alone",
            ),
            (
                self.verify_read and not ((self.read or everything) and self.read_bytes),
                "verify_read (-X) needs the read phase, and read_bytes",
            ),
            (
                self.random_seed is not None and stonewalled,
                "random_seed (-R) shuffles all items, and a stonewall (-W, -x) may leave some out",
            ),
        ):
            if wrong:
                raise ValueError(problem)

    def arguments(self) -> list[str]:
        """Return the arguments after ``mdtest``, in a stable order: what, how, where, output."""
        args: list[str] = []
        size = units.tool_size
        for option, value in (
            ("-a", self.api),
            ("-n", self.items),
            ("-I", self.items_per_directory),
        ):
            if value is not None:
                args += [option, str(value)]
        for given, flag in (
            (self.files_only, "-F"),
            (self.leaf_only, "-L"),
            (self.unique_dir, "-u"),
            (self.time_unique_dir, "-t"),
            (self.create, "-C"),
            (self.stat, "-T"),
            (self.read, "-E"),
            (self.remove, "-r"),
            (self.verify_read, "-X"),
            (self.sync_phase, "-Y"),
            (self.random_seed is not None, "-R"),
        ):
            if given:
                args.append(flag)
        args.append("-P")
        for option, value in (
            ("-w", size(self.write_bytes) if self.write_bytes else None),
            ("-e", size(self.read_bytes) if self.read_bytes else None),
            ("-G", self.signature),
            ("-N", self.stride or None),
            ("-z", self.depth or None),
            ("-b", self.branching if self.branching != 1 else None),
            ("-W", self.stonewall_s or None),
            ("-x", self.stonewall_status_file),
            ("-i", self.repetitions if self.repetitions != 1 else None),
            ("-d", self.directory),
        ):
            if value is not None:
                args += [option, str(value)]
        if self.random_seed is not None:
            args.append(f"--random-seed={self.random_seed}")
        if self.data_type is not None:
            args.append(f"--dataPacketType={self.data_type}")
        if self.rank_details_csv is not None:
            args.append(f"--saveRankPerformanceDetails={self.rank_details_csv}")
        return args


#: Rows of mdtest's table, and their phases here.
PHASES: Final[dict[str, str]] = {
    "Directory creation": "dir_create",
    "Directory stat": "dir_stat",
    "Directory read": "dir_read",
    "Directory rename": "dir_rename",
    "Directory removal": "dir_remove",
    "File creation": "create",
    "File stat": "stat",
    "File read": "read",
    "File removal": "remove",
    "Tree creation": "tree_create",
    "Tree removal": "tree_remove",
}

#: Half of the last digit of a number printed with %.3f.
_PRINTED: Final = 0.5e-3

_LAUNCH: Final = re.compile(
    r"(?m)^mdtest-(\S+) was launched with (\d{1,9}) total task\(s\) on (\d{1,9}) node\(s\)\s*$"
)
_COMMAND: Final = re.compile(r"(?m)^Command line used: (.*)$")
_WORK: Final = re.compile(
    r"(?m)^(\d{1,9}) tasks, (\d{1,18}) (files/directories|files?|directories)\s*$"
)
_SUMMARY: Final = re.compile(r"(?m)^SUMMARY (\w+)\s*(?:\(in (\S+)\))?\s*:(.*)$")
#: Units that mdtest 4.1 puts into the headers of its tables (src/mdtest.c). Its seconds bear the wrong name.
_HEADED: Final = {"rate": "ops/sec", "time": "ms/op"}
_COUNT: Final = re.compile(r"\(of (\d{1,9}) iterations\)")
_UNIT: Final = re.compile(r"\((\S+)\)")
_HEADER: Final = re.compile(r"\s+Operation\s+Max\s+Min\s+Mean\s+Std Dev\s*")
_ROW: Final = re.compile(r"   (?P<name>[A-Z][a-z]+ [a-z]+)\s*:?\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s*")
_STONEWALL_ROW: Final = re.compile(r"   File create \(stonewall\)\s")
_DATE: Final = re.compile(r"(?m)^-- (started|finished) at (\S+ \S+) --\s*$")
SHIFT: Final = re.compile(r"Shifting ranks by (-?\d{1,9}) for each phase")
_CONTINUE: Final = re.compile(
    r"(?m)^Continue stonewall hit min: (\d{1,18}) max: (\d{1,18}) avg: (\d{1,18}\.\d)"
)
_NUMBER: Final = re.compile(r"\d{1,300}\.\d{3}")

_Row = tuple[float, float, float, float]


def parse_table(text: str) -> ToolOutput:
    """Parse mdtest's output: one phase for each row of ``SUMMARY rate`` that ran, in order.

    The table's unit is operations per second ("ops/sec" in its progress lines, and in the header of
    4.1); a header with another unit is refused. ``rate`` is the mean over the iterations. The other columns are
    ``rate_max``, ``rate_min`` and, with several iterations, ``rate_stddev`` (ops/s). The table does
    not hold the single iterations, so all share one phase; ``parameters["iterations"]`` is their
    number. A row of 0.000 is a phase that did not run, and is left out.

    ``seconds`` of one iteration (mean) come from ``SUMMARY time`` (-P), with three decimals. 4.1
    calls them "ms/op" and prints seconds all the same: summarize_results_rank0. For a
    single iteration with a known count of operations they are operations / rate, which is exact.
    Without -P those of a tree phase are the seconds of one directory: mdtest does not print more.
    ``operations`` is the number for all tasks in one iteration, None if the output does not show
    it. With a stonewall it is tasks times the greatest count reached (the others catch up).

    ``parameters`` has iterations, items (all tasks, from "2 tasks, 200 files"), items_per_task and kind (files,
    directories, files/directories). It has shift ("Shifting ranks by N"), and begins_at, the characters that mdtest
    has printed when it begins. It also has stonewall_min, stonewall_max and stonewall_mean: items per task at the
    stonewall.

    Raises :class:`ToolOutputError` if the table is missing, cut, damaged, or not the only one.
    """
    if not text.strip():
        raise ToolOutputError("mdtest printed nothing: it failed before its first phase")
    text = "\n".join(text.splitlines()) + "\n"
    # Lines before mdtest's first one are the launcher's.
    own = text[began.start() :] if (began := _DATE.search(text)) else text
    warnings = unique(COMPLAINT.findall(own))
    launch = _one_launch(text, warnings)
    tasks, nodes = int(launch[2]), int(launch[3])
    tables = _tables(text, warnings)
    dates = _DATE.findall(text)
    if [what for what, _ in dates] != ["started", "finished"]:
        finished = sum(what == "finished" for what, _ in dates)
        raise ToolOutputError(
            f"mdtest output has {len(dates) - finished} lines '-- started at' and {finished} "
            "'-- finished at', expected 1 of each: it is cut off or not of one run; last line "
            f"{excerpt(text.rstrip().splitlines()[-1])!r}"
        )
    rates, iterations = tables["rate"]
    times = tables.get("time", ({}, iterations))
    if times[1] != iterations:
        raise ToolOutputError(f"mdtest tables of {iterations} and {times[1]} iterations in one run")
    work = _WORK.search(text)
    if tasks < 1 or nodes < 1 or work is None or int(work[1]) != tasks:
        raise ToolOutputError(
            f"mdtest output: expected a line '{tasks} tasks, N files', found "
            f"{excerpt(work[0] if work else '')!r}"
        )
    parameters: dict[str, object] = {
        "iterations": iterations,
        "items": int(work[2]),
        "items_per_task": int(work[2]) // tasks,
        "begins_at": work.end(),
        "kind": work[3],
    }
    if shift := SHIFT.search(text):
        parameters["shift"] = int(shift[1])
    hits = _CONTINUE.findall(text)
    command = _COMMAND.search(text)
    # The phase that makes files writes the status file, and the others read it.
    of_file = command is not None and re.search(r"'?-x\b", command[1]) is not None
    if "time" not in tables and not hits and of_file:
        raise ToolOutputError(
            "mdtest took its number of items from a stonewall status file (-x) and printed no "
            "times: run it with -P"
        )
    if hits:
        parameters["stonewall_min"] = min(int(hit[0]) for hit in hits)
        parameters["stonewall_max"] = max(int(hit[1]) for hit in hits)
        parameters["stonewall_mean"] = sum(float(hit[2]) for hit in hits) / len(hits)
    counts = [int(work[2])] if not hits else [int(work[2]), int(hits[0][1]) * tasks]
    if min(counts) < 1:
        raise ToolOutputError(
            f"mdtest output: it did {min(counts)} operations: nothing was measured"
        )
    phases = tuple(
        _phase(name, row, times[0].get(name), iterations, counts, not of_file or "creation" in name)
        for name, row in rates.items()
        if row[2] > 0
    )
    if not phases:
        raise ToolOutputError("mdtest: every rate in the table is 0.000: no phase ran")
    return ToolOutput(
        tool="mdtest",
        version=launch[1],
        phases=phases,
        tasks=tasks,
        nodes=nodes,
        command=command[1].strip() if command else "",
        warnings=warnings,
        parameters=parameters,
        moments=tuple(local_moment(f"{what} at", date, "mdtest output") for what, date in dates),
    )


def _one_launch(text: str, warnings: Sequence[str]) -> re.Match[str]:
    launches = list(_LAUNCH.finditer(text))
    if not launches:
        raise ToolOutputError(
            "this is not mdtest output: no line 'mdtest-... was launched with'; it begins: "
            f"{excerpt(text)}" + (f"; mdtest complained: {warnings[0]}" if warnings else "")
        )
    if len(launches) > 1:
        raise ToolOutputError(
            f"{len(launches)} runs of mdtest with {launches[0][2]} task(s) each in one output, "
            "expected 1: this is what happens when the launcher is not that of the MPI library "
            "mdtest was built "
            "with; use the matching mpirun or srun"
        )
    return launches[0]


def _tables(text: str, warnings: Sequence[str]) -> dict[str, tuple[dict[str, _Row], int]]:
    """Return the rows of each SUMMARY table, and its number of iterations."""
    tables: dict[str, tuple[dict[str, _Row], int]] = {}
    for match in _SUMMARY.finditer(text):
        what, headed, rest = match.groups()
        where = f"mdtest table 'SUMMARY {what}'"
        if what not in ("rate", "time") or what in tables:
            raise ToolOutputError(
                f"{where}: unknown, or more than one; run mdtest with one number of tasks"
            )
        if headed not in (None, _HEADED[what]):
            raise ToolOutputError(f"{where}: unit {headed!r}, expected {_HEADED[what]}")
        count = _COUNT.search(rest)
        if count is None or int(count[1]) < 1:
            raise ToolOutputError(f"{where}: no '(of N iterations)' in {match[0]!r}")
        unit = _UNIT.search(rest.replace(count[0], ""))
        if unit and unit[1] not in ("ops/sec", "ops/s", "sec", "s"):
            raise ToolOutputError(f"{where}: unit {unit[1]!r}, expected ops/sec or sec")
        lines = text[match.end() + 1 :].split("\n")
        if not _HEADER.fullmatch(lines[0]):
            raise ToolOutputError(
                f"{where}: header {excerpt(lines[0])!r}, expected Operation, Max, Min, Mean, Std "
                "Dev"
            )
        tables[what] = (_rows(lines[2:], where), int(count[1]))
    if "rate" not in tables:
        raise ToolOutputError(
            "mdtest printed no table 'SUMMARY rate': it failed or was killed; last line "
            f"{excerpt(text.rstrip().splitlines()[-1])!r}"
            + (f"; it complained: {warnings[-1]}" if warnings else "")
        )
    if "time" in tables and list(tables["time"][0]) != list(tables["rate"][0]):
        raise ToolOutputError("mdtest tables 'SUMMARY rate' and 'SUMMARY time' have different rows")
    return tables


def _rows(lines: Sequence[str], where: str) -> dict[str, _Row]:
    rows: dict[str, _Row] = {}
    for line in lines:
        if not line.strip() or line.startswith("-- finished"):
            break
        if _STONEWALL_ROW.match(line) or COMPLAINT.match(line):
            continue
        match = _ROW.fullmatch(line)
        if match is None or match["name"] not in PHASES or match["name"] in rows:
            raise ToolOutputError(f"{where}: damaged row {excerpt(line)!r}")
        cells = match.groups()[1:]
        for cell in cells:
            if not _NUMBER.fullmatch(cell):
                raise ToolOutputError(
                    f"{where}: {match['name']!r} has {excerpt(cell)!r}, expected a number of at "
                    "least 0"
                )
        greatest, least, mean, deviation = (float(cell) for cell in cells)
        slack = 2 * _PRINTED + 1e-9 * greatest
        if not least - slack <= mean <= greatest + slack or (mean > 0 and greatest == 0):
            raise ToolOutputError(
                f"{where}: {match['name']!r} has a mean of {mean} outside {least} to {greatest}"
            )
        rows[match["name"]] = (greatest, least, mean, deviation)
    if "Tree removal" not in rows:
        raise ToolOutputError(f"{where}: cut off: no row 'Tree removal'")
    return rows


def _phase(
    name: str,
    row: _Row,
    times: _Row | None,
    iterations: int,
    counts: Sequence[int],
    certain: bool,
) -> Phase:
    greatest, least, mean, deviation = row
    if least == 0:
        raise ToolOutputError(
            f"mdtest: {name!r} has a least rate of 0.000 but a mean of {mean}: an iteration failed"
        )
    rates = {
        "rate": Quantity(mean, "ops/s"),
        "rate_max": Quantity(greatest, "ops/s"),
        "rate_min": Quantity(least, "ops/s"),
    }
    if iterations > 1 and deviation > 0:
        rates["rate_stddev"] = Quantity(deviation, "ops/s")
    seconds, operations = _seconds(name, row, times, iterations, counts)
    if operations is None and certain and not name.startswith("Tree"):
        done = " or ".join(map(str, counts))
        raise ToolOutputError(
            f"mdtest: {name!r} at {mean} ops/s in {seconds} s is not {done} operations, which it began with; the "
            "output is damaged"
        )
    return Phase(name=PHASES[name], rates=rates, seconds=seconds, operations=operations)


def _seconds(
    name: str, row: _Row, times: _Row | None, iterations: int, counts: Sequence[int]
) -> tuple[float, int | None]:
    """Return mean seconds of an iteration, and its operations if they are certain."""
    tree = name.startswith("Tree")
    if times is None:
        # A stonewalled run: as many files as reached, as many directories as requested.
        operations = counts[0] if name.startswith("Directory") else counts[-1]
        return (1 / row[2], None) if tree else (operations / row[2], operations)
    fitting = []
    if not tree:
        for count in counts:
            # All iterations did the same number of operations: the fastest took the least time.
            pairs = ((row[0], times[1]), (row[1], times[0]))
            if all(abs(count / rate - time) <= _PRINTED + 2e-3 * time for rate, time in pairs):
                fitting.append(count)
    operations_known = fitting[-1] if fitting else None
    if iterations == 1 and operations_known is not None:
        return operations_known / row[2], operations_known
    if times[2] > 0:
        return times[2], operations_known
    # Below half a millisecond, the least that the table can show.
    return (operations_known / row[2] if operations_known else _PRINTED), operations_known


_CELL: Final = re.compile(r"\d\.\d{10}e[+-]\d{2,3}")


@dataclass(frozen=True, slots=True)
class RankPhase:
    """One phase of the rank details.

    ``rate_ops_s`` and ``seconds`` are for all tasks in the *first* iteration (row ``all``; the
    seconds include the barrier). ``rank_rates_ops_s`` and ``rank_seconds`` hold a tuple by rank for
    each iteration, without the barrier. They are empty for tree_create and tree_remove, which rank
    0 does alone.
    """

    name: str
    rate_ops_s: float
    seconds: float
    rank_rates_ops_s: tuple[tuple[float, ...], ...]
    rank_seconds: tuple[tuple[float, ...], ...]


def parse_rank_csv(text: str, tasks: int | None = None) -> tuple[RankPhase, ...]:
    """Parse the file of ``--saveRankPerformanceDetails`` (``StoreRankInformation`` in mdtest.c).

    The columns "Directory read" are left out: mdtest does not read directories, and writes a rate
    of inf in 0 s there. With ``tasks`` the number of ranks is checked. Raises
    :class:`ToolOutputError`.
    """
    where = "mdtest rank details"
    if not text.strip():
        raise ToolOutputError(f"{where}: the file is empty")
    lines = text.split("\n")
    if lines[-1] != "":
        raise ToolOutputError(f"{where}: cut off in line {len(lines)}: {excerpt(lines[-1])!r}")
    header = lines[0].split(",")
    names = [cell[5:] for cell in header[2::2] if cell.startswith("rate-")]
    expected = ["rank", "items"] + [f"{kind}-{name}" for name in names for kind in ("rate", "time")]
    if header != expected or not names or any(name not in PHASES for name in names):
        raise ToolOutputError(f"{where}: unknown header {excerpt(lines[0])!r}")
    rows = [_rank_row(line, number, names) for number, line in enumerate(lines[1:-1], 2)]
    if [label for label, _ in rows].count("all") != 1 or rows[0][0] != "all":
        raise ToolOutputError(f"{where}: expected one row 'all', in front of those of the ranks")
    iterations: list[list[list[tuple[float, float] | None]]] = []
    for label, cells in rows[1:]:
        if label == "0":
            iterations.append([])
        if not iterations or label != str(len(iterations[-1])):
            raise ToolOutputError(f"{where}: rank {label} is out of order")
        iterations[-1].append(cells)
    ranks = tasks if tasks is not None else len(iterations[0]) if iterations else 0
    if not iterations or any(len(group) != ranks for group in iterations):
        counts = [len(group) for group in iterations]
        raise ToolOutputError(f"{where}: {counts} ranks by iteration, expected {ranks or 'some'}")
    phases = []
    for column, name in enumerate(names):
        overall = rows[0][1][column]
        if overall is None:
            continue
        rank_rates, rank_seconds = [], []
        for group in [] if name.startswith("Tree") else iterations:
            values = [
                cells[column]
                for cells in group
                if column < len(cells) and cells[column] is not None
            ]
            if len(values) != ranks:
                raise ToolOutputError(f"{where}: {name!r} lacks {ranks - len(values)} ranks")
            rank_rates.append(tuple(value[0] for value in values if value))
            rank_seconds.append(tuple(value[1] for value in values if value))
        phases.append(RankPhase(PHASES[name], *overall, tuple(rank_rates), tuple(rank_seconds)))
    if not phases:
        raise ToolOutputError(f"{where}: the row 'all' is empty: no phase ran")
    return tuple(phases)


def _rank_row(
    line: str, number: int, names: Sequence[str]
) -> tuple[str, list[tuple[float, float] | None]]:
    """Return a row's label, and its (rate, seconds) by phase; ranks' rows lack the tree phases."""
    where = f"mdtest rank details: line {number}"
    label, *rest = line.split(",")
    if label != "all" and not re.fullmatch(r"0|[1-9]\d{0,8}", label):
        raise ToolOutputError(f"{where}: unknown row {excerpt(line)!r}")
    expected = 1 + 2 * (len(names) if label == "all" else len(names) - 2)
    if len(rest) != expected:
        raise ToolOutputError(f"{where}: {len(rest)} values, expected {expected}")
    cells: list[tuple[float, float] | None] = []
    for name, rate, seconds in zip(names, rest[1::2], rest[2::2], strict=False):
        if name == "Directory read" or (not rate and not seconds):
            cells.append(None)
            continue
        pair = tuple(float(cell) if _CELL.fullmatch(cell) else -1.0 for cell in (rate, seconds))
        if not all(is_number(value) and value > 0 for value in pair):
            raise ToolOutputError(
                f"{where}: {excerpt(rate)!r} and {excerpt(seconds)!r}, expected numbers above 0"
            )
        cells.append((pair[0], pair[1]))
    return label, cells


def with_rank_times(output: ToolOutput, ranks: Sequence[RankPhase]) -> ToolOutput:
    """Return the output with the first iteration's ``rank_seconds`` if the rank details have them.

    Tree phases stay as they are. mdtest 4.0.0 reports no rank's times for them. Their rates in the
    rank details differ (84 instead of 8128 ops/s, seen in one run).

    For a single iteration, ``seconds`` and ``operations`` are replaced by the exact values too, but ``rate`` stays.
    The table's rate is the slowest task's rate times the tasks, the details' all items by the longest
    time. The two must agree within 1 %. Raises :class:`ToolOutputError` otherwise.
    """
    details: Mapping[str, RankPhase] = {entry.name: entry for entry in ranks}
    phases = []
    for phase in output.phases:
        if phase.name.startswith("tree_"):
            phases.append(phase)
            continue
        entry = details.get(phase.name)
        if entry is None:
            raise ToolOutputError(f"mdtest rank details: nothing about {phase.name}")
        if any(len(row) != output.tasks for row in entry.rank_seconds):
            raise ToolOutputError(
                f"mdtest rank details: {len(entry.rank_seconds[0])} ranks, but mdtest ran "
                f"{output.tasks} tasks"
            )
        single = output.parameters.get("iterations") == 1
        rate, done = phase.rates["rate"].value, round(entry.rate_ops_s * entry.seconds)
        if single and (
            abs(entry.rate_ops_s - rate) > 0.01 * rate or phase.operations not in (None, done)
        ):
            raise ToolOutputError(
                f"mdtest rank details: {done} times {phase.name} at {entry.rate_ops_s:.3f} ops/s, but the table "
                f"says {rate:.3f}: they are not of the same run"
            )
        phases.append(
            replace(
                phase,
                seconds=entry.seconds if single else phase.seconds,
                operations=done if single else phase.operations,
                rank_seconds=entry.rank_seconds[0] if entry.rank_seconds else (),
            )
        )
    return replace(output, phases=tuple(phases))
