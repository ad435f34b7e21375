"""mdtest: command lines from options, values from its tables and from the details of ranks.

Written against mdtest 4.0.0 and 4.1 (``src/mdtest.c`` of IOR). mdtest has no JSON.

The rate is the *slowest* task's rate times the number of tasks (``summarize_results_rank0``). The table gives greatest,
least, mean and standard deviation over the iterations (-i), of which there is one here: the three are equal.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from iogauge.core.measurement import Phase, Quantity, ToolOutput, ToolOutputError
from iogauge.core.versions import too_old
from iogauge.core.vocabulary import MDTEST
from iogauge.tools.arguments import arguments, option
from iogauge.tools.parsing import COMPLAINT, excerpt, unique


@dataclass(frozen=True, slots=True, kw_only=True)
class MdtestOptions:
    """Options of one execution of mdtest: IO500's easy and hard forms, and forms between them.

    Without ``create``, ``stat``, ``read`` and ``remove`` mdtest does all of them.
    """

    #: Of each task.
    items: int | None = option("-n", None)
    files_only: bool = option("-F", False)
    leaf_only: bool = option("-L", False)
    unique_dir: bool = option("-u", False)
    time_unique_dir: bool = option("-t", False)
    create: bool = option("-C", False)
    stat: bool = option("-T", False)
    read: bool = option("-E", False)
    remove: bool = option("-r", False)
    verify_read: bool = option("-X", False)
    sync_phase: bool = option("-Y", False)
    #: It prints the seconds too.
    times: bool = option("-P", True)
    write_bytes: int = option("-w", 0, size=True)
    read_bytes: int = option("-e", 0, size=True)
    signature: int | None = option("-G", None)
    stride: int = option("-N", 0)
    stonewall_s: int = option("-W", 0)
    stonewall_status_file: str | None = option("-x", None)
    directory: str = option("-d")
    data_type: str | None = option("--dataPacketType=", None)
    rank_details_csv: str | None = option("--saveRankPerformanceDetails=", None)

    def arguments(self) -> list[str]:
        """Return the arguments after ``mdtest``."""
        return arguments(self)


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
#: mdtest 4.1 puts units into the headers of its tables. Its seconds bear a wrong name, or (until May 2024) that of the rates.
_SUMMARY: Final = re.compile(
    r"(?m)^SUMMARY (rate(?= *:| \(in ops/sec\):)|time(?= *:| \(in (?:ms/op|ops/sec)\):))\b.*: \(of 1 iterations\) *\n"
    r"\s+Operation\s+Max\s+Min\s+Mean\s+Std Dev\s*\n.*\n"
)
_TABLE: Final = re.compile(r"(?m)^SUMMARY .*")
_ROW: Final = re.compile(
    r"   ([A-Z][a-z]+ [a-z]+)\s*:?\s+(?:\S+\s+){2}(\d{1,300}\.\d{3})\s+\S+\s*"
)
_STONEWALL_ROW: Final = re.compile(r"   File create \(stonewall\)\s")
_DATE: Final = re.compile(r"(?m)^-- (started|finished) at (\S+ \S+) --\s*$")
SHIFT: Final = re.compile(r"Shifting ranks by (-?\d{1,9}) for each phase")
_CONTINUE: Final = re.compile(
    r"(?m)^Continue stonewall hit min: \d{1,18} max: (\d{1,18}) avg: \d{1,18}\.\d"
)


def parse_table(text: str) -> ToolOutput:
    """Parse mdtest's output: one phase for each row of ``SUMMARY rate`` that ran, in order.

    The table's unit is operations per second ("ops/sec" in its progress lines, and in the header of
    4.1); a header with another unit is refused. ``rate`` is the mean (ops/s). Several iterations are
    refused: the table does not hold the single ones. A row of 0.000 is a phase that did not run, and is left out.

    ``seconds`` come from ``SUMMARY time`` (-P), with three decimals. 4.1 calls them "ms/op" and
    prints seconds all the same: summarize_results_rank0. With a known count of operations they are
    operations / rate, which is exact. ``operations`` is the number for all tasks, None if the output
    does not show it. With a stonewall it is tasks times the greatest count reached (the others catch up).

    ``parameters`` has iterations (1), items (of all tasks), shift ("Shifting ranks by N"), and begins_at, the characters that mdtest has printed when
    it begins.

    Raises :class:`ToolOutputError` if the table is missing, cut, damaged, or not the only one.
    """
    text = "\n".join(text.splitlines()) + "\n"
    own = text
    began = _DATE.search(text)
    if began:
        # Lines before mdtest's first one are the launcher's.
        own = text[began.start() :]
    warnings = unique(COMPLAINT.findall(own))
    launch = _one_launch(text, warnings)
    tasks = int(launch[2])
    nodes = int(launch[3])
    tables = _tables(text, launch[1], warnings)
    dates = _DATE.findall(text)
    if [what for what, _ in dates] != ["started", "finished"]:
        finished = sum(what == "finished" for what, _ in dates)
        raise ToolOutputError(
            f"mdtest output has {len(dates) - finished} lines '-- started at' and {finished} "
            "'-- finished at', expected 1 of each: it is cut off or not of one run; last line "
            f"{excerpt(text.rstrip().splitlines()[-1])!r}"
        )
    work = _WORK.search(text)
    if work is None or int(work[1]) != tasks or tasks < 1 or nodes < 1:
        raise ToolOutputError(
            f"mdtest output: expected a line '{tasks} tasks, N files', found {work and work[0]!r}"
        )
    parameters: dict[str, object] = {
        "iterations": 1,
        "items": int(work[2]),
        "begins_at": work.end(),
    }
    shift = SHIFT.search(text)
    if shift:
        parameters["shift"] = int(shift[1])
    hits = _CONTINUE.findall(text)
    command = ""
    for match in _COMMAND.finditer(text):
        command = match[1]  # with the space at which mdtest may have cut it off
    # The phase that makes files writes the status file, and the others read it.
    of_file = re.search(r"'?-x\b", command) is not None
    counts = [int(work[2]), *(int(most) * tasks for most in hits)]
    if min(counts) < 1:
        raise ToolOutputError(
            f"mdtest output: it did {min(counts)} operations: nothing was measured"
        )
    times = tables.get("time", {})
    phases = []
    for name, rate in tables["rate"].items():
        if rate > 0:
            certain = not of_file or "creation" in name
            phases.append(_phase(name, rate, times.get(name), counts, certain))
    if not phases:
        raise ToolOutputError("mdtest: every rate in the table is 0.000: no phase ran")
    return ToolOutput(
        tool="mdtest",
        version=launch[1],
        phases=tuple(phases),
        tasks=tasks,
        nodes=nodes,
        command=command,
        warnings=warnings,
        parameters=parameters,
    )


def _one_launch(text: str, warnings: Sequence[str]) -> re.Match[str]:
    launches = list(_LAUNCH.finditer(text))
    if not launches:
        raise ToolOutputError(
            "this is not mdtest output: no line 'mdtest-... was launched with'; it begins: "
            + "; mdtest complained: ".join([excerpt(text), *warnings[:1]])
        )
    if len(launches) > 1:
        raise ToolOutputError(
            f"{len(launches)} runs of mdtest with {launches[0][2]} task(s) each in one output, expected 1"
        )
    return launches[0]


def _tables(
    text: str, version: str, warnings: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Return the rows of each SUMMARY table."""
    headers = _TABLE.findall(text)
    summaries = list(_SUMMARY.finditer(text))
    tables = {}
    for match in summaries:
        tables[match[1]] = _rows(text[match.end() :].split("\n"), match[1])
    if not len(headers) == len(summaries) == len(tables):
        raise ToolOutputError(
            f"mdtest printed {excerpt(' '.join(headers), 1)!r}: expected a table of rates in ops/sec and one of times at "
            "most, '(of 1 iterations)', with Max, Min, Mean and Std Dev alone, and of one number of tasks"
        )
    if "rate" not in tables:
        last = excerpt(text.rstrip().splitlines()[-1])
        reasons = [f"it complained: {warning}" for warning in warnings[-1:]]
        old = too_old(MDTEST, version)
        if old:
            reasons.append(f"{MDTEST}: {old}")
        raise ToolOutputError(
            "; ".join(
                [
                    f"mdtest printed no table 'SUMMARY rate': it failed or was killed; last line {last!r}",
                    *reasons,
                ]
            )
        )
    if "time" in tables and list(tables["time"]) != list(tables["rate"]):
        raise ToolOutputError(
            "mdtest tables 'SUMMARY rate' and 'SUMMARY time' have different rows"
        )
    return tables


def _rows(lines: Sequence[str], what: str) -> dict[str, float]:
    """Return the mean of each row."""
    rows: dict[str, float] = {}
    for line in lines:
        if not line.strip() or line.startswith("-- finished"):
            break
        if _STONEWALL_ROW.match(line) or COMPLAINT.match(line):
            continue
        match = _ROW.fullmatch(line)
        if match is None or match[1] not in PHASES or match[1] in rows:
            raise ToolOutputError(
                f"mdtest table 'SUMMARY {what}': damaged row {excerpt(line)!r}"
            )
        rows[match[1]] = float(match[2])
    if "Tree removal" not in rows:
        raise ToolOutputError(
            f"mdtest table 'SUMMARY {what}': cut off: no row 'Tree removal'"
        )
    return rows


def _phase(
    name: str, rate: float, time: float | None, counts: Sequence[int], certain: bool
) -> Phase:
    """Return a row's phase; ``certain``: its operations are one of ``counts``, but for the tree's."""
    fitting: list[int] = []
    if time is None and certain:
        fitting = [counts[-1]]
    elif time is not None:
        fitting = [n for n in counts if abs(n / rate - time) <= _PRINTED + 2e-3 * time]
    if name.startswith("Tree"):
        fitting = []
    elif not fitting and certain:
        done = " or ".join(map(str, counts))
        raise ToolOutputError(
            f"mdtest: {name!r} at {rate} ops/s in {time} s is not {done} operations, which it began with; the "
            "output is damaged"
        )
    rates = {"rate": Quantity(rate, "ops/s")}
    if fitting:
        operations = fitting[-1]
        return Phase(PHASES[name], rates, operations / rate, operations=operations)
    # Below half a millisecond the table shows no time.
    return Phase(PHASES[name], rates, max(time or 0, _PRINTED))


_CELL: Final = re.compile(r"\d\.\d{10}e[+-]\d{2,3}")


@dataclass(frozen=True, slots=True)
class RankPhase:
    """One phase of the rank details.

    ``rate_ops_s`` and ``seconds`` are for all tasks (row ``all``; the seconds include the barrier).
    ``rank_seconds`` are without the barrier. They are empty for tree_create and tree_remove, which
    rank 0 does alone.
    """

    name: str
    rate_ops_s: float
    seconds: float
    rank_seconds: tuple[float, ...]


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
        raise ToolOutputError(
            f"{where}: cut off in line {len(lines)}: {excerpt(lines[-1])!r}"
        )
    header = lines[0].split(",")
    names = [cell[5:] for cell in header[2::2] if cell.startswith("rate-")]
    expected = ["rank", "items"] + [
        f"{kind}-{name}" for name in names for kind in ("rate", "time")
    ]
    if header != expected or not names or any(name not in PHASES for name in names):
        raise ToolOutputError(f"{where}: unknown header {excerpt(lines[0])!r}")
    rows = [
        _rank_row(line, number, names) for number, line in enumerate(lines[1:-1], 2)
    ]
    if [label for label, _ in rows].count("all") != 1 or rows[0][0] != "all":
        raise ToolOutputError(
            f"{where}: expected one row 'all', in front of those of the ranks"
        )
    own = [cells for _, cells in rows[1:]]
    for rank, (label, _) in enumerate(rows[1:]):
        if label != str(rank):
            raise ToolOutputError(f"{where}: rank {label} is out of order")
    if not own or tasks not in (None, len(own)):
        raise ToolOutputError(f"{where}: {len(own)} ranks, expected {tasks or 'some'}")
    return _rank_phases(names, rows[0][1], own)


def _rank_phases(
    names: Sequence[str],
    overall: Sequence[tuple[float, float] | None],
    own: Sequence[Sequence[tuple[float, float] | None]],
) -> tuple[RankPhase, ...]:
    """Return the phases of the rank details: the row of all ranks, and the rows of each."""
    where = "mdtest rank details"
    phases = []
    for column, name in enumerate(names):
        of_all = overall[column]
        if of_all is None:
            continue
        rank_seconds: list[float] = []
        if not name.startswith("Tree"):
            timed = [cells[column] for cells in own]
            if None in timed:
                raise ToolOutputError(
                    f"{where}: {name!r} lacks {timed.count(None)} ranks"
                )
            rank_seconds = [cell[1] for cell in timed if cell]
        phases.append(RankPhase(PHASES[name], *of_all, tuple(rank_seconds)))
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
    phases = len(names)
    if label != "all":
        phases -= 2
    expected = 1 + 2 * phases
    if len(rest) != expected:
        raise ToolOutputError(f"{where}: {len(rest)} values, expected {expected}")
    cells: list[tuple[float, float] | None] = []
    for name, rate, seconds in zip(names, rest[1::2], rest[2::2], strict=False):
        if name == "Directory read" or (not rate and not seconds):
            cells.append(None)
            continue
        pair = []
        for cell in (rate, seconds):
            if not _CELL.fullmatch(cell) or not 0 < float(cell) < math.inf:
                raise ToolOutputError(
                    f"{where}: {excerpt(rate)!r} and {excerpt(seconds)!r}, expected numbers above 0"
                )
            pair.append(float(cell))
        cells.append((pair[0], pair[1]))
    return label, cells


def with_rank_times(output: ToolOutput, ranks: Sequence[RankPhase]) -> ToolOutput:
    """Return the output with ``rank_seconds``, and the exact ``seconds`` and ``operations`` of the rank details.

    Tree phases stay as they are. mdtest 4.0.0 reports no rank's times for them. Their rates in the
    rank details differ (84 instead of 8128 ops/s, seen in one run).

    ``rate`` stays. The table's rate is the slowest task's rate times the tasks, the details' all items by the longest
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
        if len(entry.rank_seconds) != output.tasks:
            raise ToolOutputError(
                f"mdtest rank details: {len(entry.rank_seconds)} ranks, but mdtest ran "
                f"{output.tasks} tasks"
            )
        # Each number of the details has eleven digits.
        rate, done = phase.rates["rate"].value, round(entry.rate_ops_s * entry.seconds)
        count = phase.operations or done
        if (
            abs(entry.rate_ops_s - rate) > 0.01 * rate
            or abs(count - done) > 1e-9 * done
        ):
            raise ToolOutputError(
                f"mdtest rank details: {done} times {phase.name} at {entry.rate_ops_s:.3f} ops/s, but the table "
                f"says {rate:.3f}: they are not of the same run"
            )
        phases.append(
            replace(
                phase,
                seconds=entry.seconds,
                operations=count,
                rank_seconds=entry.rank_seconds,
            )
        )
    return replace(output, phases=tuple(phases))
