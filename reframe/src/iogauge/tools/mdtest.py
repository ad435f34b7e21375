"""mdtest: command lines from options, values from its tables and from the details of ranks.

Written against mdtest 4.0.0 and 4.1 (``src/mdtest.c`` of IOR). mdtest has no JSON.

The rate is the *slowest* task's rate times the number of tasks (``summarize_results_rank0``). The table gives greatest,
least, mean and standard deviation over the iterations (-i), of which there is one here: the three are equal. The seconds and
the operations are those of the rank details, which have eleven digits; the table's rate must agree with them.
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

_LAUNCH: Final = re.compile(
    r"(?m)^mdtest-(\S+) was launched with (\d{1,9}) total task\(s\) on (\d{1,9}) node\(s\)\s*$"
)
_COMMAND: Final = re.compile(r"(?m)^Command line used: (.*)$")
_WORK: Final = re.compile(
    r"(?m)^(\d{1,9}) tasks, (\d{1,18}) (files/directories|files?|directories)\s*$"
)
#: mdtest 4.1 puts the unit into the header.
_RATES: Final = re.compile(
    r"(?m)^SUMMARY rate(?= *:| \(in ops/sec\):).*: \(of 1 iterations\) *\n"
    r"\s+Operation\s+Max\s+Min\s+Mean\s+Std Dev\s*\n.*\n"
)
_TABLE: Final = re.compile(r"(?m)^SUMMARY rate.*")
_ROW: Final = re.compile(
    r"   ([A-Z][a-z]+ [a-z]+)\s*:?\s+(?:\S+\s+){2}(\d{1,300}\.\d{3})\s+\S+\s*"
)
_STONEWALL_ROW: Final = re.compile(r"   File create \(stonewall\)\s")
_DATE: Final = re.compile(r"(?m)^-- (started|finished) at (\S+ \S+) --\s*$")
SHIFT: Final = re.compile(r"Shifting ranks by (-?\d{1,9}) for each phase")
_CONTINUE: Final = re.compile(
    r"(?m)^Continue stonewall hit min: \d{1,18} max: (\d{1,18}) avg: \d{1,18}\.\d"
)


def parse(text: str, ranks: str) -> ToolOutput:
    """Parse mdtest's output and its rank details: one phase for each row of ``SUMMARY rate`` that ran, in order.

    The table's unit is operations per second ("ops/sec" in its progress lines, and in the header of
    4.1); a header with another unit is refused. ``rate`` is the mean (ops/s). Several iterations are
    refused: the table does not hold the single ones. A row of 0.000 is a phase that did not run, and is left out. So are the
    trees: no rank tells their times.

    ``seconds``, ``operations`` and ``rank_seconds`` are those of the details. The table's rate is the slowest task's rate
    times the tasks, the details' all items by the longest time: they must agree within 1 %. The operations are those that
    mdtest began with, or with a stonewall tasks times the greatest count reached (the others catch up). If it took
    their number from the stonewall's status file, the output does not show it.

    ``parameters`` has items (of all tasks), shift ("Shifting ranks by N"), begins_at, the characters that mdtest has
    printed when it begins, and trees_s, the seconds of the trees, each of one directory.

    Raises :class:`ToolOutputError` if table or details are missing, cut, damaged, of another run, or not the only ones.
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
    rates = _rates(text, launch[1], warnings)
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
    parameters: dict[str, object] = {"items": int(work[2]), "begins_at": work.end()}
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
    details = {phase.name: phase for phase in parse_rank_csv(ranks, tasks)}
    phases, trees_s = [], 0.0
    for name, rate in rates.items():
        if rate > 0 and name.startswith("Tree"):
            trees_s += 1 / rate
        elif rate > 0:
            phase = _phase(PHASES[name], rate, details)
            certain = not of_file or "creation" in name
            phases.append(_counted(phase, counts, certain))
    parameters["trees_s"] = trees_s
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


def _phase(name: str, rate: float, details: Mapping[str, Phase]) -> Phase:
    """Return a phase of the rank details, with the rate of the table."""
    if name not in details:
        raise ToolOutputError(f"mdtest rank details: nothing about {name}")
    found = details[name]
    own = found.rates["rate"].value
    if abs(own - rate) > 0.01 * rate:
        raise ToolOutputError(
            f"mdtest rank details: {name} at {own:.3f} ops/s, but the table says {rate:.3f}: they are not of the same run"
        )
    return replace(found, rates={"rate": Quantity(rate, "ops/s")})


def _counted(phase: Phase, counts: Sequence[int], certain: bool) -> Phase:
    """Return a phase with its exact operations; ``certain``: they are one of ``counts``."""
    done = phase.operations or 0
    # Each number of the details has eleven digits.
    fitting = [count for count in counts if abs(count - done) <= 1e-9 * done]
    if fitting:
        return replace(phase, operations=fitting[-1])
    if certain or not done:
        expected = " or ".join(map(str, counts))
        raise ToolOutputError(
            f"mdtest: {done} times {phase.name}, and it began with {expected}: the output is damaged or not of the same run"
        )
    return phase


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


def _rates(text: str, version: str, warnings: Sequence[str]) -> dict[str, float]:
    """Return the rows of the only table of rates."""
    headers = _TABLE.findall(text)
    if not headers:
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
    table = _RATES.search(text)
    if table is None or len(headers) > 1:
        raise ToolOutputError(
            f"mdtest printed {excerpt(' '.join(headers), 1)!r}: expected one table of rates in ops/sec, '(of 1 iterations)', "
            "with Max, Min, Mean and Std Dev alone"
        )
    return _rows(text[table.end() :].split("\n"))


def _rows(lines: Sequence[str]) -> dict[str, float]:
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
                f"mdtest table 'SUMMARY rate': damaged row {excerpt(line)!r}"
            )
        rows[match[1]] = float(match[2])
    if "Tree removal" not in rows:
        raise ToolOutputError(
            "mdtest table 'SUMMARY rate': cut off: no row 'Tree removal'"
        )
    return rows


_CELL: Final = re.compile(r"\d\.\d{10}e[+-]\d{2,3}")


def parse_rank_csv(text: str, tasks: int) -> tuple[Phase, ...]:
    """Parse the file of ``--saveRankPerformanceDetails`` (``StoreRankInformation`` in mdtest.c) of so many tasks.

    ``rate``, ``seconds`` and ``operations`` are those of all tasks (row ``all``; the seconds include the barrier).
    ``rank_seconds`` are without the barrier. The columns "Directory read" are left out: mdtest does not read directories, and
    writes a rate of inf in 0 s there. So are the trees, which rank 0 makes alone. Raises :class:`ToolOutputError`.
    """
    header, *rows = [line.split(",") for line in text.split("\n")]
    # The rows of ranks lack the two columns of each tree. Behind the last line end is nothing.
    wanted = [("all", len(header))]
    wanted += [(str(rank), len(header) - 4) for rank in range(tasks)]
    if [(row[0], len(row)) for row in rows] != [*wanted, ("", 1)]:
        raise ToolOutputError(
            f"mdtest rank details: {len(rows) - 1} rows, expected a row 'all' and whole ones of {tasks} ranks: cut off, damaged, "
            f"or of another run; they begin: {excerpt(text)}"
        )
    phases = []
    for name, phase in PHASES.items():
        rates, times = f"rate-{name}", f"time-{name}"
        if name == "Directory read" or name.startswith("Tree") or rates not in header:
            continue
        column = header.index(rates)
        cells = [row[column : column + 2] for row in rows[:-1]]
        if header[column + 1] != times or not any(cells[0]):
            continue
        figures = [(_number(rate, name), _number(time, name)) for rate, time in cells]
        (rate, seconds), *own = figures
        phases.append(
            Phase(
                phase,
                {"rate": Quantity(rate, "ops/s")},
                seconds,
                operations=round(rate * seconds),
                rank_seconds=tuple(time for _, time in own),
            )
        )
    if not phases:
        raise ToolOutputError("mdtest rank details: no phase ran")
    return tuple(phases)


def _number(cell: str, name: str) -> float:
    if not _CELL.fullmatch(cell) or not 0 < float(cell) < math.inf:
        raise ToolOutputError(
            f"mdtest rank details: {name} is {excerpt(cell)!r}, expected numbers above 0"
        )
    return float(cell)
