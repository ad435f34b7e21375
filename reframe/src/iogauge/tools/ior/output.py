"""IOR's JSON summary and rank times as values.

Written against IOR 4.0.0 and 3.3.0 (``src/ior.c``, ``src/ior-output.c``, ``src/parse_options.c``).

IOR's numbers (``ReduceIterResults`` in ior.c):

``bw``
    ``bwMiB``, MiB/s: bytes of all tasks / ``totalTime``. The time runs from the first open to the
    last close and so includes fsync and stonewall wear-out.
``iops``
    ops/s: transfers of all tasks / ``wrRdTime``. That time differs from ``bw``'s, so
    ``iops * transfer`` is a little above ``bw``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from iogauge.core.measurement import Phase, Quantity, Stonewall, ToolOutput, ToolOutputError
from iogauge.core.untrusted import is_number
from iogauge.tools.ior.options import DATA_TYPES
from iogauge.tools.parsing import (
    excerpt,
    load_json_object,
    local_moment,
    member,
    non_negative,
    positive,
    unique,
)

_MIB: Final = 2**20

#: Half of the last digit of a number printed with %.4f.
_PRINTED: Final = 0.5e-4

_DOCUMENT: Final = re.compile(r'\{\s*"Version"\s*:')

#: Lines that IOR (which writes all output to stdout) prints between or around the JSON.
_MESSAGE: Final = re.compile(
    r"\s*(?:WARNING|ERROR)\b|Writing output to |stonewalling pairs accessed|Used Time Stamp"
    r"|Pairs deadlineForStonewallingaccessed|Participating tasks|Commencing |Using Time Stamp"
)
_COMPLAINT: Final = re.compile(r"\s*((?:WARNING|ERROR)\b.*\S)")
_PAIRS: Final = re.compile(r"stonewalling pairs accessed min: (\d{1,18}) max: (\d{1,18}) ")
_STRAY_BRACKET: Final = re.compile(r'\]\s*\]\s*,\s*"max"\s*:')
_NAN: Final = re.compile(r'"([^"\n]+)"\s*:\s*"?(-?(?:nan|inf(?:inity)?))\b', re.IGNORECASE)
_VERBOSE: Final = re.compile(r'"verbose"\s*:\s*[1-9]')
_SUMMARY_TO: Final = "Writing output to "
_WRONG_MPI: Final = (
    "this is what happens when the launcher is not that of the MPI library ior was built with: "
    "each task then runs alone as a world of one; use the matching mpirun or srun"
)


def parse_json(text: str, log: str = "") -> ToolOutput:
    """Parse IOR's JSON summary; one phase for each entry of ``Results``, in IOR's order.

    ``text`` is the content of the ``summaryFile``, or IOR's stdout with the JSON in it. ``log`` is
    IOR's other output (stdout and stderr, if there is a ``summaryFile``). Lines in either that
    begin with WARNING or ERROR become ``warnings``, each once.

    Rates are ``bw`` (MiB/s) and ``iops`` (ops/s): see the module's text. ``seconds`` is ``totalTime``. ``bytes_moved`` is exact or None. It is the planned amount
    (tasks * block * segments) if the printed figures agree with it. Else, for the first repetition
    of an operation, it is ``xsizeMiB`` of the summary, which IOR takes from the first repetition
    only. ``stonewall`` exists with wear-out. The summary gives it per operation, so several
    repetitions share one mean. Its pairs come from the line "stonewalling pairs accessed".

    ``parameters`` holds IOR's ``Parameters`` under its names (``filePerProc``, ``reorderTasks``,
    ``segmentCount``, ``transferSize``, ...). It adds values that only ``Options`` has (``tasks``,
    ``access``, ``ordering inter file``, ``task offset``, ``aggregate filesize``, ...). It adds
    ``taskPerNodeOffset`` of the summary, ``Began``, ``Finished``, ``Machine``, ``Path`` and, for
    IOR 4, ``data_type``: the word for ``dataPacketType``. ``data packet type`` is left out: IOR
    prints it wrong.

    Raises :class:`ToolOutputError` if the document is missing, cut, invalid, or contradicts itself.
    A data error under verification leaves valid JSON: look at ``warnings`` and the exit status.
    """
    body, messages = _split_messages(text)
    if text.strip() and not body.strip():
        raise ToolOutputError(f"no IOR JSON summary, only messages: {excerpt(text)}")
    document, before, after = _load(body)
    # Each task says where the summary goes, before all else. Lines before that are the launcher's.
    own = log[max(log.find(_SUMMARY_TO), 0) :]
    messages += [line for part in (before, after, own) for line in part.splitlines()]
    warnings = unique(m[1] for line in messages if (m := _COMPLAINT.match(line)))

    version = member(document, "Version", "IOR JSON")
    command = member(document, "Command line", "IOR JSON")
    test = _only_test(document)
    setup = member(test, "Parameters", "IOR JSON, tests[0]")
    options = member(test, "Options", "IOR JSON, tests[0]")
    moments = [
        local_moment(key, member(source, key, "IOR JSON"), "IOR JSON")
        for key, source in (("Began", document), ("StartTime", test), ("Finished", document))
    ]
    if not isinstance(version, str) or not isinstance(command, str):
        raise ToolOutputError("IOR JSON: 'Version' and 'Command line' should be text")
    plan = _Plan.of(setup, options)
    results = _results(member(test, "Results", "IOR JSON, tests[0]"), plan)
    summary = _summaries(member(document, "summary", "IOR JSON"), results, plan)
    pairs = [(int(m[1]), int(m[2])) for line in messages if (m := _PAIRS.match(line))]
    phases = _phases(results, summary, plan, pairs)

    parameters: dict[str, object] = dict(setup)
    parameters.pop("data packet type", None)
    for source in (options, *summary.values()):
        if isinstance(source, Mapping):
            for key in source if source is options else ("taskPerNodeOffset",):
                if key in source:
                    parameters.setdefault(key, source[key])
    for key, source in (("Began", document), ("Finished", document), ("Machine", document)):
        parameters[key] = source.get(key, "")
    parameters["Path"] = test.get("Path", "")
    kind = setup.get("dataPacketType")
    if version.startswith("4.") and isinstance(kind, int) and 0 <= kind < len(DATA_TYPES):
        parameters["data_type"] = DATA_TYPES[kind]
    return ToolOutput(
        tool="ior",
        version=version,
        phases=phases,
        tasks=plan.tasks,
        nodes=plan.nodes,
        command=command,
        warnings=warnings,
        parameters=parameters,
        moments=tuple(moments),
    )


def _split_messages(text: str) -> tuple[str, list[str]]:
    """Return the text without the lines that IOR prints between its JSON, and these lines."""
    body: list[str] = []
    messages: list[str] = []
    for line in text.splitlines():
        (messages if _MESSAGE.match(line) else body).append(line)
    return "\n".join(body), messages


def _load(body: str) -> tuple[dict[str, Any], str, str]:
    """Return the only IOR document of a text, and the text before and after it."""
    if not body.strip():
        raise ToolOutputError(
            "IOR wrote no summary (0 bytes): it failed before its first phase; read its stdout and "
            "exit status"
        )
    starts = [match.start() for match in _DOCUMENT.finditer(body)]
    if len(starts) > 1:
        raise ToolOutputError(
            f"{len(starts)} IOR JSON documents in one output, expected 1: {_WRONG_MPI}"
        )
    if not starts:
        raise ToolOutputError(
            f"no IOR JSON summary in the output (is -O summaryFormat=JSON set?); it begins: "
            f"{excerpt(body)}"
        )
    try:
        document, end = load_json_object(body, starts[0])
    except ToolOutputError as error:
        raise ToolOutputError(f"IOR JSON: {error}; expected finite numbers") from None
    except ValueError as error:
        raise ToolOutputError(_diagnosis(body[starts[0] :], error)) from None
    return document, body[: starts[0]], body[end:]


def _diagnosis(body: str, error: ValueError) -> str:
    """Return why an IOR document is not JSON, in words."""
    if _STRAY_BRACKET.search(body) and _VERBOSE.search(body):
        return "IOR 4.0.0 writes invalid JSON when -v is given; drop -v or use a build with the fix"
    if match := _NAN.search(body):
        return (
            f"IOR JSON: {match[1]!r} is {match[2]}, expected a finite number; IOR divides 0 by 0 "
            "when a repetition did not run (such as after -T)"
        )
    last = excerpt("\n".join(body.rstrip().splitlines()[-1:]))
    if '"Finished"' not in body or not body.rstrip().endswith("}"):
        return (
            f"IOR JSON is cut off ({len(body)} characters, last line {last!r}): IOR failed or was "
            "killed in this run; read its stdout and exit status"
        )
    return f"IOR JSON is not valid JSON: {error}"


def _only_test(document: Mapping[str, Any]) -> Mapping[str, Any]:
    tests = member(document, "tests", "IOR JSON")
    if not isinstance(tests, list) or len(tests) != 1 or not isinstance(tests[0], dict):
        raise ToolOutputError(
            "IOR JSON: 'tests' should be a list of one test; run one test with each ior"
        )
    return tests[0]


@dataclass(frozen=True, slots=True)
class _Plan:
    """The work that IOR set out to do."""

    tasks: int
    nodes: int
    transfer: int
    block: int
    segments: int
    repetitions: int
    operations: tuple[str, ...]

    @property
    def planned_bytes(self) -> int:
        return self.tasks * self.block * self.segments

    @classmethod
    def of(cls, setup: object, options: object) -> _Plan:
        where = "IOR JSON, Parameters"

        def count(container: object, key: str, place: str) -> int:
            value = positive(container, key, place)
            if value != int(value) or value >= 2**63:
                raise ToolOutputError(f"{place}: {key!r} is {value:g}, expected a 64-bit integer")
            return int(value)

        operations = tuple(
            operation
            for operation, key in (("write", "writeFile"), ("read", "readFile"))
            if non_negative(setup, key, where)
        )
        if not operations:
            raise ToolOutputError("IOR JSON: neither writeFile nor readFile: nothing was measured")
        return cls(
            tasks=count(options, "tasks", "IOR JSON, Options"),
            nodes=count(options, "nodes", "IOR JSON, Options"),
            transfer=count(setup, "transferSize", where),
            block=count(setup, "blockSize", where),
            segments=count(setup, "segmentCount", where),
            repetitions=count(setup, "repetitions", where),
            operations=operations,
        )


@dataclass(frozen=True, slots=True)
class _Result:
    """One entry of ``Results``."""

    operation: str
    bw_mib_s: float
    iops: float
    total_s: float
    transfers_s: float

    def agrees_with(self, transfers: int) -> bool:
        """Return whether iops = transfers / wrRdTime, within the printed digits."""
        slack = 1e-6 * transfers + _PRINTED * (self.iops + self.transfers_s + _PRINTED)
        return abs(self.iops * self.transfers_s - transfers) <= slack

    def agrees(self, bytes_moved: float) -> bool:
        """Return whether bw = bytes / totalTime, within the printed digits."""
        mib = bytes_moved / _MIB
        slack = 1e-6 * mib + _PRINTED * (self.bw_mib_s + self.total_s + _PRINTED) + _PRINTED
        return abs(self.bw_mib_s * self.total_s - mib) <= slack


def _results(value: object, plan: _Plan) -> list[_Result]:
    """Return ``Results`` in order; IOR 3.3 has a list for each repetition, 4.0 a flat list."""
    if not isinstance(value, list):
        raise ToolOutputError("IOR JSON: 'Results' should be a list")
    flat: list[object] = []
    for entry in value:
        flat += entry if isinstance(entry, list) else [entry]
    results = []
    for number, entry in enumerate(flat):
        where = f"IOR JSON, Results[{number}]"
        operation = member(entry, "access", where)
        if operation == "remove":
            continue
        if operation not in plan.operations:
            raise ToolOutputError(
                f"{where}: access is {excerpt(repr(operation))}, expected one of {plan.operations}"
            )
        where += f" ({operation})"
        total_s = non_negative(entry, "totalTime", where)
        if total_s == 0:
            raise ToolOutputError(
                f"{where}: 'totalTime' is 0.0000 s: the phase was too short to be timed (IOR "
                "prints 0.1 ms steps); move more data"
            )
        results.append(
            _Result(
                operation=str(operation),
                bw_mib_s=positive(entry, "bwMiB", where),
                iops=positive(entry, "iops", where),
                total_s=total_s,
                transfers_s=non_negative(entry, "wrRdTime", where),
            )
        )
    operations = [result.operation for result in results]
    expected = len(plan.operations) * plan.repetitions
    if len(operations) != expected or operations != list(plan.operations) * plan.repetitions:
        raise ToolOutputError(
            f"IOR JSON: Results holds {len(operations)} phases ({', '.join(operations[:8])}), expected "
            f"{expected}: {' and '.join(plan.operations)}, {plan.repetitions} times"
        )
    return results


def _summaries(
    value: object, results: Sequence[_Result], plan: _Plan
) -> dict[str, Mapping[str, Any]]:
    """Return the summary entry of each operation, checked against Results."""
    if not isinstance(value, list):
        raise ToolOutputError("IOR JSON: 'summary' should be a list")
    summary: dict[str, Mapping[str, Any]] = {}
    for number, entry in enumerate(value):
        operation = member(entry, "operation", f"IOR JSON, summary[{number}]")
        if operation not in plan.operations or operation in summary:
            raise ToolOutputError(
                f"IOR JSON, summary[{number}]: unexpected operation {excerpt(repr(operation))}"
            )
        summary[operation] = entry
    for operation in plan.operations:
        where = f"IOR JSON, summary of {operation}"
        if operation not in summary:
            raise ToolOutputError(f"{where}: missing")
        entry = summary[operation]
        rates = [result.bw_mib_s for result in results if result.operation == operation]
        for key, expected in (("bwMaxMIB", max(rates)), ("bwMinMIB", min(rates))):
            printed = positive(entry, key, where)
            if abs(printed - expected) > 1e-3 * expected + 2 * _PRINTED:
                raise ToolOutputError(
                    f"{where}: {key!r} is {printed}, but Results say {expected} MiB/s; the output is "
                    "damaged"
                )
        if (tasks := positive(entry, "numTasks", where)) != plan.tasks:
            raise ToolOutputError(f"{where}: numTasks is {tasks:g}, but Options say {plan.tasks}")
        positive(entry, "xsizeMiB", where)
    return summary


def _phases(
    results: Sequence[_Result],
    summary: Mapping[str, Mapping[str, Any]],
    plan: _Plan,
    pairs: Sequence[tuple[int, int]],
) -> tuple[Phase, ...]:
    phases = []
    done: set[str] = set()
    for number, result in enumerate(results):
        first = result.operation not in done
        done.add(result.operation)
        reached = pairs[number] if len(pairs) == len(results) else None
        moved = _bytes_moved(result, summary[result.operation], plan, first, reached)
        operations = None if moved is None else moved // plan.transfer
        if operations is not None and not result.agrees_with(operations):
            raise ToolOutputError(
                f"IOR JSON: {result.operation} of {result.iops} operations/s for {result.transfers_s} s (wrRdTime) is "
                f"not {operations} transfers; the output is damaged"
            )
        rates = {
            "bw": Quantity(result.bw_mib_s, "MiB/s"),
            "iops": Quantity(result.iops, "ops/s"),
        }
        phases.append(
            Phase(
                name=result.operation,
                rates=rates,
                seconds=result.total_s,
                bytes_moved=moved,
                operations=operations,
                transfer_bytes=plan.transfer,
                stonewall=_stonewall(
                    summary[result.operation],
                    reached,
                    result.operation,
                ),
            )
        )
    return tuple(phases)


def _bytes_moved(
    result: _Result,
    entry: Mapping[str, Any],
    plan: _Plan,
    first: bool,
    pairs: tuple[int, int] | None,
) -> int | None:
    """Return the bytes of a phase, or None if the output does not determine them.

    IOR fails unless every transfer is whole. So ``xsizeMiB`` (four decimals, 52 bytes) gives the
    exact number of transfers of the first repetition. The others moved the planned amount, or, with
    wear-out, as many pairs in each task as the fastest task reached.
    """
    printed = float(entry["xsizeMiB"]) * _MIB
    if not first:
        likely = plan.planned_bytes if pairs is None else pairs[1] * plan.tasks * plan.transfer
        complete = pairs is not None or abs(printed - likely) <= _PRINTED * _MIB + 1
        return likely if likely > 0 and complete and result.agrees(likely) else None
    moved = round(printed / plan.transfer) * plan.transfer
    if moved <= 0 or not result.agrees(moved):
        raise ToolOutputError(
            f"IOR JSON: {result.operation} of {result.bw_mib_s} MiB/s for {result.total_s} s does "
            f"not give the {entry['xsizeMiB']} MiB of the summary; the output is damaged"
        )
    if abs(printed - moved) > _PRINTED * _MIB + 1:
        raise ToolOutputError(
            f"IOR JSON: {entry['xsizeMiB']} MiB in the {result.operation} summary is not a whole "
            f"number of transfers of {plan.transfer} bytes"
        )
    return moved


def _stonewall(
    entry: Mapping[str, Any], pairs: tuple[int, int] | None, operation: str
) -> Stonewall | None:
    if "StoneWallTime" not in entry and "StoneWallbwMeanMIB" not in entry:
        return None
    where = f"IOR JSON, summary of {operation}"
    return Stonewall(
        seconds=positive(entry, "StoneWallTime", where),
        mean_task_mib_s=positive(entry, "StoneWallbwMeanMIB", where),
        min_pairs=pairs[0] if pairs else None,
        max_pairs=pairs[1] if pairs else None,
    )


_RANK_HEADER: Final = (
    "access,rank,runtime-with-openclose,runtime,throughput-withopenclose,throughput"
)
_RANK_ROW: Final = re.compile(
    r"(write|read),(\d{1,9}),(\d\.\d{10}e[+-]\d{2,3}),\d\.\d{10}e[+-]\d{2,3},"
    r"\d\.\d{10}e[+-]\d{2,3},\d\.\d{10}e[+-]\d{2,3}"
)


@dataclass(frozen=True, slots=True)
class RankTimes:
    """Seconds of every task in one phase, by rank, from open to close."""

    operation: str
    total_seconds: tuple[float, ...]


def rank_times_csv(text: str, tasks: int | None = None) -> tuple[RankTimes, ...]:
    """Parse ``-O saveRankPerformanceDetailsCSV``: one entry for each phase, in IOR's order.

    IOR gathers the rows in rank order after every phase (``StoreRankInformation`` in ior.c). With
    ``tasks`` the number of ranks is checked. Raises :class:`ToolOutputError`.
    """
    where = "IOR rank details"
    lines = text.split("\n")
    if not text.strip():
        raise ToolOutputError(f"{where}: the file is empty")
    if lines[0] != _RANK_HEADER:
        raise ToolOutputError(f"{where}: unknown header {excerpt(text, 1)!r}")
    if lines[-1] != "":
        raise ToolOutputError(f"{where}: cut off in line {len(lines)}: {excerpt(lines[-1])!r}")
    groups: list[tuple[str, list[float]]] = []
    for number, line in enumerate(lines[1:-1], start=2):
        match = _RANK_ROW.fullmatch(line)
        if match is None:
            raise ToolOutputError(f"{where}: line {number} is damaged: {excerpt(line)!r}")
        rank, total = int(match[2]), float(match[3])
        if rank == 0:
            groups.append((match[1], []))
        if not groups or groups[-1][0] != match[1] or len(groups[-1][1]) != rank:
            raise ToolOutputError(f"{where}: line {number}: rank {rank} is out of order")
        if not (is_number(total) and total > 0):
            raise ToolOutputError(f"{where}: line {number}: expected times above 0")
        groups[-1][1].append(total)
    if not groups:
        raise ToolOutputError(f"{where}: a header but no rows: no phase was finished")
    ranks = tasks if tasks is not None else len(groups[0][1])
    for operation, total_s in groups:
        if len(total_s) != ranks:
            raise ToolOutputError(
                f"{where}: {len(total_s)} ranks in a {operation} phase, expected {ranks}"
            )
    return tuple(RankTimes(name, tuple(total)) for name, total in groups)


def with_rank_times(output: ToolOutput, ranks: Sequence[RankTimes]) -> ToolOutput:
    """Return the output with ``rank_seconds`` (open to close) in every phase.

    Raises :class:`ToolOutputError` if the rank details belong to another output.
    """
    if [phase.name for phase in output.phases] != [entry.operation for entry in ranks]:
        # Worlds of one task append to one file of rank details, and overwrite each other's summary.
        alone = output.tasks == 1 and len(ranks) > len(output.phases)
        raise ToolOutputError(
            f"IOR rank details: {len(ranks)} phases, but the summary has {len(output.phases)}"
            + (f": {_WRONG_MPI}" if alone else "")
        )
    phases = []
    for phase, entry in zip(output.phases, ranks, strict=True):
        if len(entry.total_seconds) != output.tasks:
            raise ToolOutputError(
                f"IOR rank details: {len(entry.total_seconds)} ranks in {phase.name}, but IOR ran "
                f"{output.tasks} tasks"
            )
        phases.append(replace(phase, rank_seconds=entry.total_seconds))
    return replace(output, phases=tuple(phases))
