"""IOR's JSON summary and rank times as values.

Written against IOR 4.0.0 (``src/ior.c``, ``src/ior-output.c``, ``src/parse_options.c``).

IOR's numbers (``ReduceIterResults`` in ior.c):

``bw``
    ``bwMiB``, MiB/s: bytes of all tasks / ``totalTime``. The time runs from the first open to the
    last close and so includes fsync.
``iops``
    ops/s: transfers of all tasks / ``wrRdTime``. That time differs from ``bw``'s, so
    ``iops * transfer`` is a little above ``bw``.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from iogauge.core.measurement import Phase, Quantity, ToolOutput, ToolOutputError
from iogauge.tools.ior.ior_options import DATA_TYPES
from iogauge.tools.mpi import OTHER_MPI
from iogauge.tools.parsing import (
    COMPLAINT,
    excerpt,
    load_json_object,
    member,
    non_negative,
    positive,
    unique,
)

_MIB: Final = 2**20

#: Half of the last digit of a number printed with %.4f.
_PRINTED: Final = 0.5e-4

_STRAY_BRACKET: Final = re.compile(r'\]\s*\]\s*,\s*"max"\s*:')
_VERBOSE: Final = re.compile(r'"verbose"\s*:\s*[1-9]')
_SUMMARY_TO: Final = "Writing output to "
_ONE_TASK: Final = re.compile(r'"tasks"\s*:\s*1\b')


def parse_json(text: str, log: str = "") -> ToolOutput:
    """Parse IOR's JSON summary; one phase for each entry of ``Results``, in IOR's order.

    ``text`` is the content of the ``summaryFile``. ``log`` is IOR's standard output. Its lines that
    begin with WARNING or ERROR become ``warnings``, each once.

    Rates are ``bw`` (MiB/s) and ``iops`` (ops/s): see the module's text. ``seconds`` is
    ``totalTime``. ``bytes_moved`` is exact or None. For the first repetition of an operation it is
    ``xsizeMiB`` of the summary, which IOR takes from that repetition only. For the others it is the
    planned amount (tasks * block * segments) if the printed figures agree with it.

    ``parameters`` holds IOR's ``Parameters`` under its names (``filePerProc``, ``reorderTasks``,
    ``segmentCount``, ``transferSize``, ...), ``clients per node`` of ``Options``,
    ``taskPerNodeOffset`` of the summary, and ``data_type``: the word for ``dataPacketType``.
    ``data packet type`` is left out: IOR prints it wrong.

    Raises :class:`ToolOutputError` if the document is missing, cut, invalid, or contradicts itself.
    A data error under verification leaves valid JSON: look at ``warnings`` and the exit status.
    """
    document = _load(text.strip())
    version = member(document, "Version", "IOR JSON")
    command = member(document, "Command line", "IOR JSON")
    if not isinstance(version, str) or not isinstance(command, str):
        raise ToolOutputError("IOR JSON: 'Version' and 'Command line' should be text")
    tests = member(document, "tests", "IOR JSON")
    if not isinstance(tests, list) or len(tests) != 1:
        raise ToolOutputError(
            "IOR JSON: 'tests' should be a list of one test; run one test with each ior"
        )
    test = tests[0]
    setup = member(test, "Parameters", "IOR JSON, tests[0]")
    options = member(test, "Options", "IOR JSON, tests[0]")
    tasks = _count(options, "tasks", "Options")
    operations = []
    if non_negative(setup, "writeFile", "IOR JSON, Parameters"):
        operations.append("write")
    if non_negative(setup, "readFile", "IOR JSON, Parameters"):
        operations.append("read")
    summary = _entries(document, "summary", "operation", operations)
    for entry in summary:
        of_entry = positive(entry, "numTasks", "IOR JSON, summary")
        if of_entry != tasks:
            raise ToolOutputError(
                f"IOR JSON: numTasks is {of_entry:g}, but Options say {tasks}"
            )
    # Each task says where the summary goes, before all else. Lines before that are the launcher's.
    own = log[max(log.find(_SUMMARY_TO), 0) :]
    return ToolOutput(
        tool="ior",
        version=version,
        phases=_phases(test, setup, tasks, operations, summary),
        tasks=tasks,
        nodes=_count(options, "nodes", "Options"),
        command=command,
        warnings=unique(COMPLAINT.findall(own)),
        parameters=_parameters(setup, options, summary),
    )


def _phases(
    test: object,
    setup: object,
    tasks: int,
    operations: list[str],
    summary: Sequence[Mapping[str, Any]],
) -> tuple[Phase, ...]:
    transfer = _count(setup, "transferSize", "Parameters")
    block = _count(setup, "blockSize", "Parameters")
    segments = _count(setup, "segmentCount", "Parameters")
    repetitions = _count(setup, "repetitions", "Parameters")
    results = _entries(test, "Results", "access", operations * repetitions)
    phases = []
    for number, entry in enumerate(results):
        where = f"IOR JSON, Results[{number}] ({entry['access']})"
        size_mib = None
        # IOR takes the size from the first repetition.
        if number < len(operations):
            size_mib = non_negative(summary[number], "xsizeMiB", "IOR JSON, summary")
        planned = tasks * block * segments
        phases.append(_phase(entry, where, transfer, size_mib, planned))
    return tuple(phases)


def _parameters(
    setup: Mapping[str, Any],
    options: Mapping[str, Any],
    summary: Sequence[Mapping[str, Any]],
) -> dict[str, object]:
    parameters: dict[str, object] = dict(setup)
    parameters.pop("data packet type", None)
    if "clients per node" in options:
        parameters["clients per node"] = options["clients per node"]
    for entry in summary:
        if "taskPerNodeOffset" in entry:
            parameters["taskPerNodeOffset"] = entry["taskPerNodeOffset"]
    kind = setup.get("dataPacketType")
    if isinstance(kind, int) and 0 <= kind < len(DATA_TYPES):
        parameters["data_type"] = DATA_TYPES[kind]
    return parameters


def _load(body: str) -> dict[str, Any]:
    """Return the only IOR document of a text."""
    if not body:
        raise ToolOutputError(
            "IOR wrote no summary (0 bytes): it failed before its first phase; read its stdout and "
            "exit status"
        )
    # Worlds of one task write over each other's summary.
    why = ""
    if _ONE_TASK.search(body):
        why = f". If several tasks were to run: {OTHER_MPI}"
    if not body.startswith("{"):
        raise ToolOutputError(
            f"no IOR JSON summary in the output (is -O summaryFormat=JSON set?); it begins: "
            f"{excerpt(body)}{why}"
        )
    try:
        document, end = load_json_object(body, 0)
    except ToolOutputError as error:
        raise ToolOutputError(f"IOR JSON: {error}; expected finite numbers") from None
    except ValueError as error:
        raise ToolOutputError(_diagnosis(body, error) + why) from None
    if end < len(body):
        raise ToolOutputError(f"several IOR JSON documents{why}")
    return document


def _diagnosis(body: str, error: ValueError) -> str:
    """Return why an IOR document is not JSON, in words."""
    if _STRAY_BRACKET.search(body) and _VERBOSE.search(body):
        return "IOR 4.0.0 writes invalid JSON when -v is given; drop -v or use a build with the fix"
    if '"Finished"' not in body or not body.endswith("}"):
        return (
            f"IOR JSON is cut off ({len(body)} characters, last line {excerpt(body.splitlines()[-1])!r}): IOR failed "
            "or was killed in this run; read its stdout and exit status"
        )
    return f"IOR JSON is not valid JSON: {error}"


def _count(container: object, key: str, where: str) -> int:
    value = positive(container, key, f"IOR JSON, {where}")
    if value != int(value) or value >= 2**63:
        raise ToolOutputError(
            f"IOR JSON, {where}: {key!r} is {value:g}, expected a 64-bit integer"
        )
    return int(value)


def _entries(
    container: object, what: str, key: str, operations: Sequence[str]
) -> list[Mapping[str, Any]]:
    """Return the entries of a list, one for each of ``operations``, in their order."""
    every = member(container, what, "IOR JSON")
    if not isinstance(every, list) or not operations:
        raise ToolOutputError(f"IOR JSON: {what!r} should be a list of writes or reads")
    kept = []
    names = []
    for number, entry in enumerate(every):
        name = member(entry, key, f"IOR JSON, {what}[{number}]")
        if name != "remove":
            kept.append(entry)
            names.append(name)
    if names != operations:
        found = ", ".join(excerpt(str(name)) for name in names[:8])
        raise ToolOutputError(
            f"IOR JSON: {what} holds {len(kept)} phases ({found}), expected {len(operations)}: "
            f"{', '.join(operations[:8])}"
        )
    return kept


def _is_product(rate: float, seconds: float, count: float) -> bool:
    """Return whether a rate times seconds gives a count, within the printed digits."""
    slack = 1e-6 * count + _PRINTED * (rate + seconds + _PRINTED) + _PRINTED
    return abs(rate * seconds - count) <= slack


def _phase(
    entry: Mapping[str, Any],
    where: str,
    transfer: int,
    size_mib: float | None,
    planned: int,
) -> Phase:
    """Return the phase of a result. Its bytes are ``size_mib`` if the summary tells them, else ``planned`` or unknown.

    IOR fails unless every transfer is whole. So ``size_mib`` (four decimals, 52 bytes) gives the exact number of transfers.
    """
    total_s = non_negative(entry, "totalTime", where)
    if total_s == 0:
        raise ToolOutputError(
            f"{where}: 'totalTime' is 0.0000 s: the phase was too short to be timed (IOR "
            "prints 0.1 ms steps); move more data"
        )
    bw_mib_s = positive(entry, "bwMiB", where)
    iops = positive(entry, "iops", where)
    transfers_s = non_negative(entry, "wrRdTime", where)
    rates = {"bw": Quantity(bw_mib_s, "MiB/s"), "iops": Quantity(iops, "ops/s")}
    if size_mib is None:
        count = planned // transfer
    else:
        count = round(size_mib * _MIB / transfer)
    moved = count * transfer
    agrees = count > 0 and _is_product(bw_mib_s, total_s, moved / _MIB)
    if size_mib is None and not agrees:
        return Phase(entry["access"], rates, total_s, transfer_bytes=transfer)
    if size_mib is not None:
        is_whole = abs(size_mib * _MIB - moved) <= _PRINTED * _MIB + 1
        if not agrees or not is_whole:
            raise ToolOutputError(
                f"{where}: {bw_mib_s} MiB/s for {total_s} s does not give the {size_mib} MiB of the summary, in whole "
                f"transfers of {transfer} bytes; the output is damaged"
            )
    if not _is_product(iops, transfers_s, count):
        raise ToolOutputError(
            f"{where}: {iops} operations/s for {transfers_s} s (wrRdTime) is not {count} transfers; the output is damaged"
        )
    return Phase(
        name=entry["access"],
        rates=rates,
        seconds=total_s,
        bytes_moved=moved,
        operations=count,
        transfer_bytes=transfer,
    )


_RANK_HEADER: Final = (
    "access,rank,runtime-with-openclose,runtime,throughput-withopenclose,throughput"
)
_RANK_ROW: Final = re.compile(
    r"(write|read),(\d{1,9}),(\d\.\d{10}e[+-]\d{2,3}),\d\.\d{10}e[+-]\d{2,3},"
    r"\d\.\d{10}e[+-]\d{2,3},\d\.\d{10}e[+-]\d{2,3}"
)


def with_rank_times(output: ToolOutput, text: str) -> ToolOutput:
    """Return the output with ``rank_seconds`` (open to close) in every phase, from ``-O saveRankPerformanceDetailsCSV``.

    IOR gathers the rows in rank order after every phase (``StoreRankInformation`` in ior.c).
    Raises :class:`ToolOutputError` if they are damaged, or of another output.
    """
    header, *rows = text.split("\n")
    tasks, seconds = output.tasks or 0, list[float]()
    found: list[tuple[str, str]] = []
    for row in rows[:-1]:
        match = _RANK_ROW.fullmatch(row)
        if match is None or not 0 < float(match[3]) < math.inf:
            raise ToolOutputError(
                f"IOR rank details: a row is damaged: {excerpt(row)!r}"
            )
        found.append((match[1], match[2]))
        seconds.append(float(match[3]))
    wanted = []
    for phase in output.phases:
        wanted += [(phase.name, str(rank)) for rank in range(tasks)]
    if header != _RANK_HEADER or rows[-1:] != [""] or found != wanted:
        why = ""
        # Worlds of one task append to one file of rank details, and overwrite each other's summary.
        if tasks == 1 and len(found) > len(wanted):
            why = f": {OTHER_MPI}"
        raise ToolOutputError(
            f"IOR rank details: {len(found)} rows, expected {tasks} in order for each of {len(output.phases)} phases: cut off, "
            f"damaged, or of another run{why}"
        )
    phases = []
    for number, phase in enumerate(output.phases):
        own = seconds[number * tasks : (number + 1) * tasks]
        phases.append(replace(phase, rank_seconds=tuple(own)))
    return replace(output, phases=tuple(phases))
