"""fio's JSON as values.

Written against fio 3.33 and 3.37, and their observed behaviour. Sizes in a job file are binary
(``bs=4k`` is 4096 bytes, fio's default kb_base=1024).

fio's servers (observed with fio 3.33):

* The client reads the job file, and expands its ``${VARIABLES}``; a server needs none of them, and
  its report repeats the values.
* ``$clientuid`` is the IPv4 address at which the server was reached, the same in every run; without
  a server it is empty. ``unique_filename``, on by default, puts that address in front of the whole
  name: ``k0/x`` becomes ``10.0.0.1.k0/x``. Job files here switch it off.
* fio makes missing directories of a ``filename_format``, and accepts existing ones.
* A server that cannot be reached, or cannot run the job, is left out: fio complains on its standard
  output and ends with status 0. A server that dies during the run makes it end with 1.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Final

from iogauge.core.measurement import (
    Phase,
    Quantity,
    ToolOutput,
    ToolOutputError,
)
from iogauge.core.versions import too_old
from iogauge.core.vocabulary import FIO
from iogauge.tools.parsing import (
    excerpt,
    load_json_object,
    member,
    non_negative,
    positive,
    unique,
)

_DIRECTIONS: Final = ("read", "write", "trim")

#: Largest relative difference between figures of fio that should be equal (short runs are rounded).
_TOLERANCE: Final = 0.01

_DOCUMENT: Final = re.compile(r'\{\s*"fio version"\s*:')

#: Percentiles that are read, by the name of their quantity, as fio writes them.
_PERCENTILES: Final = {
    "latency_p50": "50.000000",
    "latency_p99": "99.000000",
    "latency_p999": "99.900000",
}

#: fio's own messages; a server's begin with its host's name.
_COMPLAINT: Final = re.compile(r"(<[^<>]*> )?fio:")
#: Lines that fio writes around its JSON: messages, notes, and what its servers print.
_AROUND: Final = re.compile(r"(?:fio|note): .*|<[^<>]+>.*|")
#: What fio says of a process that it lost (backend.c, reap_threads). Its results and its exit status do not tell.
_LOST: Final = re.compile(
    r"^.*fio: (?:pid=\d+, got signal=\d+|pid=\d+ disappeared .*|job .* appears to be stuck.*)",
    re.M,
)
_ALL: Final = "All clients"
_DEFAULT_ENGINE: Final = "psync"


def parse_json(text: str) -> ToolOutput:
    """Parse the output of ``fio --output-format=json``, of a local run or of a run on servers.

    Each direction (read, write, trim) in which a reported job did I/O gives one phase, named after
    it.

    A reported job stands for all its processes, as with ``group_reporting``.
    Entries of different names are separate phases. In a run on several servers all run one job. Its entry "All clients" is used, and checked against the sum of the servers. It has no
    percentiles, so these are missing there.

    Rates are ``bw`` (MiB/s, of ``bw_bytes``) and ``iops`` (ops/s). ``latency_mean`` (us) is completion latency if fio has no total.
    ``latency_p50``, ``latency_p99`` and ``latency_p999`` (us) are of the whole latency if fio gives its
    percentiles, else of the completion. ``seconds`` is ``runtime``, ``operations``
    ``total_ios``, ``bytes_moved`` ``io_bytes``. ``nodes`` counts the servers' hosts, as named to
    the client.

    ``bw``, ``bw_bytes``, ``iops``, ``io_bytes`` and ``runtime`` must agree within 1 %, and the
    rounding of ``runtime`` to ms. Otherwise :class:`ToolOutputError` is raised. It is also raised for a job with an
    error, a process that was killed, and a run without I/O. The same holds for a document that is missing, cut or
    invalid.

    ``parameters`` has fio's global and job options (of the first job) and the engine. ``jobs`` has
    the options of each job, by its name; if servers differ, all their values. ``warnings`` are the lines around the JSON that begin with "fio:", or with a server's "<host> fio:".
    """
    document, around = _load(text)
    version = _version(document)
    warnings = _complaints(around)
    complaint = ""
    if warnings:
        complaint = f"; fio said: {warnings[0][:300]}"
    on_servers = "client_stats" in document
    parts, whole = _entries(document, on_servers, complaint)
    shared = _as_options(document.get("global options"))

    phases: list[Phase] = []
    short = 0
    jobs = parts
    if whole:
        jobs = parts[:1]
    for job in jobs:
        entry = whole or job
        where = f"fio JSON, job {str(job['jobname'])!r}"
        phases += _phases_of(entry, where)
        for way in _DIRECTIONS:
            if "short_ios" in _as_options(entry.get(way)):
                short += int(non_negative(entry[way], "short_ios", where))
    if short:
        warnings += (f"fio: {short} short I/Os",)

    first = {**shared, **_options(parts[0])}
    parameters: dict[str, object] = dict(first)
    parameters["engine"] = first.get("ioengine", _DEFAULT_ENGINE)
    parameters["jobs"] = _options_of_jobs(parts, shared)
    nodes = 1
    if on_servers:
        where = "fio JSON, client_stats"
        nodes = len({str(member(part, "hostname", where)) for part in parts})
    return ToolOutput(
        tool="fio",
        version=version,
        phases=tuple(phases),
        tasks=_tasks(parts, shared, on_servers),
        nodes=nodes,
        warnings=warnings,
        parameters=parameters,
        at_once=len(parts) == 1 or whole is not None,
    )


def check_alone(text: str) -> None:
    """Raise :class:`ToolOutputError` if another program wrote into the file of fio's JSON."""
    before, brace, rest = text.partition("{")
    after = rest.rpartition("}")[2]
    for line in [*before.splitlines(), *after.splitlines()]:
        if brace and ("\0" in line or not _AROUND.fullmatch(line.strip())):
            raise ToolOutputError(
                f"fio JSON: {excerpt(line)!r} stands beside it, which fio does not write: another program wrote into the file"
            )


def _version(document: Mapping[str, Any]) -> str:
    version = member(document, "fio version", "fio JSON")
    if not isinstance(version, str):
        raise ToolOutputError("fio JSON: 'fio version' should be text")
    version = version.removeprefix("fio-")
    old = too_old(FIO, version)
    if old:
        raise ToolOutputError(f"fio: {old}")
    return version


def _complaints(around: str) -> tuple[str, ...]:
    """Return the lines around the JSON on which fio, or one of its servers, complains."""
    lines = [line.strip() for line in around.splitlines()]
    return unique(line for line in lines if _COMPLAINT.match(line))


def _entries(
    document: Mapping[str, Any], on_servers: bool, complaint: str
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Return the entries of single jobs, and the one that stands for several servers."""
    key = "jobs"
    if on_servers:
        key = "client_stats"
    entries = member(document, key, "fio JSON")
    if not isinstance(entries, list) or not entries:
        raise ToolOutputError(f"fio JSON: the list of jobs is empty{complaint}")
    for number, entry in enumerate(entries):
        _check_error(entry, f"fio JSON, job {number}", complaint)
    parts = [entry for entry in entries if entry["jobname"] != _ALL]
    if not parts:
        raise ToolOutputError("fio JSON: no entry of a single job")
    identities = set()
    for entry in parts:
        identity = (entry.get("hostname"), entry.get("port"), entry.get("jobname"))
        identities.add(str(identity))
    if len(identities) < len(parts):
        raise ToolOutputError(
            "fio JSON: several entries of one job: set group_reporting=1, or the latencies of its processes "
            "cannot be merged"
        )
    if on_servers and len(parts) > 1:
        return parts, _of_all_servers(entries, parts, complaint)
    return parts, None


def time_limit_s(output: ToolOutput) -> float | None:
    """Return for how long fio was to run; None if it ends by itself, or for another tool."""
    runtime = str(output.parameters.get("runtime", ""))
    match = re.fullmatch(r"([0-9]{1,9})(m?)s", runtime)
    if match is None or output.parameters.get("time_based") != "1":
        return None
    if match[2]:
        return float(match[1]) / 1000
    return float(match[1])


def _load(text: str) -> tuple[dict[str, Any], str]:
    """Return fio's document, and the text around it."""
    starts = [match.start() for match in _DOCUMENT.finditer(text)]
    if len(starts) != 1:
        raise ToolOutputError(
            f"{len(starts)} fio JSON documents in the output, expected 1 (is --output-format=json set? did fio fail before its "
            f"first job, was it started several times?); it begins: {excerpt(text)}"
        )
    try:
        document, end = load_json_object(text, starts[0])
    except ToolOutputError as error:
        raise ToolOutputError(f"fio JSON: {error}; expected finite numbers") from None
    except ValueError as error:
        raise ToolOutputError(
            f"fio JSON is cut off or invalid ({error}); last line "
            f"{excerpt(text.rstrip().splitlines()[-1])!r}"
        ) from None
    around = text[: starts[0]] + "\n" + text[end:]
    lost = _LOST.search(around)
    if lost:
        raise ToolOutputError(
            f"fio lost a process of its job, and reports the others as a success: {excerpt(lost[0])!r}. Find out who "
            "ended it; signal 9 may be the kernel, out of memory (dmesg)"
        )
    return document, around


def _check_error(entry: object, where: str, complaint: str) -> None:
    name = member(entry, "jobname", where)
    error = member(entry, "error", where)
    if error == 0 and not isinstance(error, bool):
        return
    on_host = ""
    if isinstance(entry, dict) and entry.get("hostname"):
        on_host = f" on {entry['hostname']}"
    raise ToolOutputError(
        f"fio job {name!r}{on_host} failed with errno "
        f"{excerpt(repr(error))}; its rates mean nothing{complaint or '; read its stderr'}"
    )


def _as_options(value: object) -> Mapping[str, Any]:
    if isinstance(value, dict):
        return value
    return {}


def _options(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    return _as_options(entry.get("job options"))


def _options_of_jobs(
    parts: Sequence[Mapping[str, Any]], shared: Mapping[str, Any]
) -> dict[str, dict[str, str]]:
    """Return the options of each job by its name; different values of an option are joined."""
    jobs: dict[str, list[Mapping[str, Any]]] = {}
    for entry in parts:
        jobs.setdefault(str(entry["jobname"]), []).append({**shared, **_options(entry)})
    return {name: join_options(entries) for name, entries in jobs.items()}


def join_options(entries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the options of several runs of a job; different values of an option are joined."""
    joined = {}
    for name in unique(chain.from_iterable(entries)):
        values = [str(entry.get(name, "nothing")) for entry in entries]
        joined[name] = ", ".join(unique(values))
    return joined


def _of_all_servers(
    entries: Sequence[dict[str, Any]], parts: Sequence[dict[str, Any]], complaint: str
) -> dict[str, Any]:
    """Return the entry that stands for all servers; it must be their sum."""
    every = [entry for entry in entries if entry["jobname"] == _ALL]
    if len(every) != 1:
        raise ToolOutputError(
            f"fio JSON: {len(every)} entries 'All clients' over those of {len(parts)} servers, "
            f"expected 1: a server's report is missing{complaint}"
        )
    for way in _DIRECTIONS:
        for key in ("io_bytes", "total_ios"):
            where = f"fio JSON, 'All clients', {way}"
            total = non_negative(member(every[0], way, where), key, where)
            added = 0.0
            for part in parts:
                added += non_negative(member(part, way, where), key, where)
            if total != added:
                raise ToolOutputError(
                    f"{where}: {key!r} is {total:.0f}, but the {len(parts)} servers sum up to "
                    f"{added:.0f}: a server's report is missing"
                )
    return every[0]


def _phases_of(entry: dict[str, Any], where: str) -> list[Phase]:
    """Return a phase for each direction in which a job did I/O."""
    phases = []
    for way in _DIRECTIONS:
        if non_negative(member(entry, way, where), "total_ios", f"{where}, {way}"):
            phases.append(_phase(entry[way], way, f"{where}, {way}"))
    if not phases:
        raise ToolOutputError(f"{where}: 0 I/Os: nothing was measured")
    return phases


def _phase(stats: Mapping[str, Any], name: str, where: str) -> Phase:
    operations = positive(stats, "total_ios", where)
    moved = positive(stats, "io_bytes", where)
    milliseconds = non_negative(stats, "runtime", where)
    if milliseconds < 1:
        raise ToolOutputError(
            f"{where}: 'runtime' is {milliseconds:g} ms: the run was too short to be timed; do more I/O"
        )
    bw_bytes_s = positive(stats, "bw_bytes", where)
    iops = positive(stats, "iops", where)
    bw_kib_s = non_negative(stats, "bw", where)
    # fio computes with unrounded times: 'runtime' may be wrong by at least one ms.
    allowed = bw_bytes_s * (_TOLERANCE + 1 / milliseconds)
    for what, value, slack in (
        ("'bw' (KiB/s)", bw_kib_s * 1024, 2048.0),
        ("'iops' times the mean I/O size", iops * moved / operations, 0.0),
        ("'io_bytes' over 'runtime'", moved / milliseconds * 1e3, 0.0),
    ):
        if abs(value - bw_bytes_s) > allowed + slack:
            raise ToolOutputError(
                f"{where}: {what} gives {value:.0f} B/s, but 'bw_bytes' is {bw_bytes_s:.0f}: the "
                "output is damaged"
            )
    if operations != int(operations) or moved != int(moved):
        raise ToolOutputError(
            f"{where}: 'total_ios' and 'io_bytes' should be whole numbers"
        )
    _check_samples(stats, int(operations), where)
    rates = {
        "bw": Quantity(bw_bytes_s / 2**20, "MiB/s"),
        "iops": Quantity(iops, "ops/s"),
    }
    transfer_bytes = None
    if moved % operations == 0:
        transfer_bytes = int(moved // operations)
    return Phase(
        name=name,
        rates=rates | _latencies(stats, where),
        seconds=milliseconds / 1e3,
        bytes_moved=int(moved),
        operations=int(operations),
        transfer_bytes=transfer_bytes,
    )


def _check_samples(stats: Mapping[str, Any], operations: int, where: str) -> None:
    """Refuse a count that fio's own samples of the latency do not back; old versions do not tell their number."""
    timed = []
    for key in ("lat_ns", "clat_ns"):
        latencies = stats.get(key)
        if isinstance(latencies, dict) and "N" in latencies:
            timed.append(non_negative(latencies, "N", f"{where}, latencies"))
    if timed and max(timed) < (1 - _TOLERANCE) * operations:
        raise ToolOutputError(
            f"{where}: {operations} operations, but fio timed {max(timed):.0f} of them: it counts what it did not do, "
            "or was told not to time (gtod_reduce, disable_lat)"
        )


def _latencies(stats: Mapping[str, Any], where: str) -> dict[str, Quantity]:
    """Return the mean and the percentiles in us, as far as fio gives them."""
    latencies: dict[str, Quantity] = {}
    for key in ("lat_ns", "clat_ns"):
        values = stats.get(key)
        if not isinstance(values, dict):
            continue
        if values.get("N") and "latency_mean" not in latencies:
            mean = positive(values, "mean", f"{where}, {key}")
            latencies["latency_mean"] = Quantity(mean / 1e3, "us")
        percentiles = values.get("percentile")
        if isinstance(percentiles, dict):
            for name, percentile in _PERCENTILES.items():
                if percentile in percentiles and name not in latencies:
                    value = positive(
                        percentiles, percentile, f"{where}, {key} percentiles"
                    )
                    latencies[name] = Quantity(value / 1e3, "us")
    return latencies


def _tasks(
    parts: Sequence[Mapping[str, Any]], shared: Mapping[str, Any], on_servers: bool
) -> int | None:
    """Return fio's processes: numjobs of the job on every server; None for several local jobs."""
    if not on_servers and len(parts) > 1:
        return None
    total = 0
    for entry in parts:
        numjobs = str({**shared, **_options(entry)}.get("numjobs", "1"))
        if not re.fullmatch(r"[1-9]\d{0,8}", numjobs):
            return None
        total += int(numjobs)
    return total
