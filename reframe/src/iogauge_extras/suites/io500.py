"""IO500: its ini file from options, and the scores, bytes and seconds of its phases.

Written against io500-sc25 and io500-isc26_v2 (``src/main.c``, ``src/phase_*.c``). A run leaves a folder:
``result.txt`` has a section for each phase, ``config.ini`` the options in effect. For each phase,
``.txt`` holds the output of IOR or mdtest, and ``.csv`` the times of the tasks.

The score is the square root of BW times MD. BW is the geometric mean of four bandwidths in GiB/s, MD
that of eight rates in thousands of operations per second (``calc_score``). IO500 leaves a phase
without a score out of the means and says nothing. So all twelve must be here, and the scores are
computed again.
"""

import configparser
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from iogauge.core.measurement import (
    Phase,
    Quantity,
    ToolOutput,
    ToolOutputError,
)
from iogauge.tools.mdtest import SHIFT, parse_rank_csv
from iogauge.tools.parsing import excerpt, unique

#: The scored phases in IO500's order.
PHASES: Final = (
    *(
        "ior-easy-write",
        "mdtest-easy-write",
        "ior-hard-write",
        "mdtest-hard-write",
        "find",
    ),
    *("ior-easy-read", "mdtest-easy-stat", "ior-hard-read", "mdtest-hard-stat"),
    *("mdtest-easy-delete", "mdtest-hard-read", "mdtest-hard-delete"),
)
#: Those that IOR runs, in GiB/s, and those that mdtest and find run, in 1000 operations/s.
BANDWIDTHS: Final = tuple(name for name in PHASES if name.startswith("ior"))
RATES: Final = tuple(name for name in PHASES if name not in BANDWIDTHS)
#: The seconds in which a phase must write, if the result is to be published.
OFFICIAL_S: Final = 300
#: What IO500 says of any run with a shorter stonewall, and of nothing else.
TOO_SHORT: Final = r"^INVALID (stonewall-time (\d+s != |< )300s|Runtime is smaller than expected minimum runtime)$"
#: Bytes of a transfer of ior-hard, and of a file of mdtest-hard: both are part of the rules.
IOR_HARD_BYTES: Final = 47008
FILE_BYTES: Final = 3901


_GIB: Final = 2**30
_FAULT: Final = re.compile(
    r"(?m)^ERROR (?:INVALID )?\([^()\n]{1,80}:\d{1,6}\) (.*\S)\s*$"
)
_COMPLAINT: Final = re.compile(r"(?m)^((?:WARNING|ERROR|FATAL)\b.*\S)\s*$")
_FINAL: Final = re.compile(
    r"(?m)^\[SCORE \] Bandwidth (\S+) GiB/s : IOPS (\S+) kiops : TOTAL (\S+?)( \[INVALID\])?\s*$"
)
_NUMBER: Final = re.compile(r"\d{1,15}(?:\.\d{1,12})?")
_MOVED: Final = re.compile(
    r"(?m)^WARNING: Using actual aggregate bytes moved = (\d{1,18})\s*$"
)
_LINE_OF_IOR: Final = re.compile(r"(?m)^(?:write|read) +(\d{1,12}(?:\.\d{1,4})?) ")
_OPTION_OF_IOR: Final = re.compile(r"(?m)^(nodes|tasks|task offset) +: (\d{1,9})\s*$")
_WORD: Final = re.compile(r" -([tbs])[= ](\d{1,18})([kmg]?)\b")

#: Which phase of mdtest a phase of IO500 times.
_TIMED: Final = {"write": "create", "stat": "stat", "delete": "remove", "read": "read"}


def ini(sections: Mapping[str, Mapping[str, str | int]]) -> str:
    """Return the text of an ini file, of options by section."""
    lines = []
    for section, options in sections.items():
        lines.append(f"[{section}]")
        lines += [f"{key} = {value}" for key, value in options.items()]
        lines.append("")
    return "\n".join(lines)


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean, as IO500 computes BW and MD."""
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def parse(result: str, stdout: str, files: Mapping[str, str]) -> ToolOutput:
    """Parse a finished run: ``result.txt``, what was printed, and the texts of the folder by name.

    There is a phase for each of the twelve scored phases, under IO500's names. ``rates`` are
    ``bw`` (GiB/s) or ``rate`` (kops/s), as scored. ``seconds`` are those that the score divides by.
    ``bytes_moved`` are known of IOR's phases and of the small files of mdtest-hard. ``totals`` and
    ``beside`` are the bytes of the whole run: the scored phases', and those of the random reads that
    have no score. ``warnings`` are all complaints, among them ``INVALID ...`` for each reason that
    IO500 gives. ``parameters`` has ``jobs`` (the options in effect by section), ``data_type``, ``shift`` (ranks, if
    all readers are shifted alike), BW, MD and SCORE.

    Raises :class:`ToolOutputError` if a scored phase or the score is missing, or if the scores do not follow from
    the phases. No phase may contradict what IOR, mdtest or find left of it.
    """
    sections, tasks = _begin(result)
    scores = _scores(sections, stdout)
    order = [name for name in sections if name in scores]
    phases = [
        _phase(name, scores[name], sections[name], files, tasks) for name in order
    ]
    config = _sections(_file(files, "config.ini"), "io500: config.ini")
    nodes, shift = _placing(files, tasks)
    of_phase = {phase.name: phase.operations or 0 for phase in phases}
    complaints = _complaints(result, stdout)
    found = of_phase["find"]
    made = of_phase["mdtest-easy-write"] + of_phase["mdtest-hard-write"]
    if found < made:
        complaints.append(f"find looked at {found} files, mdtest made {made}")
    parameters: dict[str, object] = {
        "jobs": config,
        "data_type": config.get("global", {}).get("datapackettype", ""),
    }
    if shift is not None:
        parameters["shift"] = shift
    totals = {"read": 0, "write": 0}
    for phase in phases:
        way = phase.name.rpartition("-")[2]
        if way in totals:
            totals[way] += phase.bytes_moved or 0
    return ToolOutput(
        tool="io500",
        all_options=True,
        # Built from an archive, IO500 does not know its version.
        version=sections["run"].get("version") or "unknown",
        phases=tuple(phases),
        tasks=tasks,
        nodes=nodes,
        warnings=unique(complaints),
        parameters=parameters,
        totals=totals,
        extra_bytes={"read": _unscored(files), "write": 0},
    )


def _begin(result: str) -> tuple[dict[str, dict[str, str]], int]:
    """Return the sections and the number of processes; raises ToolOutputError."""
    # Until SC21 the first lines had no section, or told no processes.
    sections: dict[str, dict[str, str]] = {}
    if result.lstrip()[:1] == "[":
        sections = _sections(result, "io500: result.txt")
    procs = sections.get("run", {}).get("procs", "")
    if not re.fullmatch(r"[1-9]\d{0,8}", procs):
        raise ToolOutputError(
            f"io500: result.txt begins with {excerpt(result, 2)!r}, expected [run] with procs: "
            "IO500 of ISC22 or newer is needed, or it failed before its first phase"
        )
    return sections, int(procs)


def _file(files: Mapping[str, str], name: str) -> str:
    if name not in files:
        raise ToolOutputError(f"io500: {name} is missing in its folder of results")
    return files[name]


def _sections(text: str, where: str) -> dict[str, dict[str, str]]:
    """Return keys and values by section, keys in small letters; raises ToolOutputError."""
    parser = configparser.ConfigParser(
        delimiters="=",
        comment_prefixes=(";", "#"),
        interpolation=None,
        default_section="\0",
    )
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise ToolOutputError(f"{where}: {excerpt(str(error))}") from error
    return {name: dict(parser[name]) for name in parser.sections()}


def _number(text: str, where: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise ToolOutputError(f"io500: {where} is {excerpt(text)!r}, expected a number")
    return float(text)


def _scores(sections: Mapping[str, Mapping[str, str]], stdout: str) -> dict[str, float]:
    """Return the score of each scored phase; raises :class:`ToolOutputError`, see :func:`parse`."""
    scores = {
        name: _number(sections[name]["score"], f"the score of {name}")
        for name in PHASES
        if "score" in sections.get(name, {})
    }
    missing = [name for name in PHASES if not scores.get(name)]
    if missing:
        raise ToolOutputError(
            f"io500: {len(PHASES) - len(missing)} of {len(PHASES)} phases have a score, {missing[0]} has "
            "none. IO500 leaves such a phase out of the total"
        )
    final = sections.get("SCORE", {})
    printed = _FINAL.findall(stdout)
    if not {"bw", "md", "score"} <= set(final) or len(printed) != 1:
        raise ToolOutputError(
            "io500: expected one line of the total score: it was killed before its end"
        )
    bandwidth = geometric_mean([scores[name] for name in BANDWIDTHS])
    rate = geometric_mean([scores[name] for name in RATES])
    follows = {"bw": bandwidth, "md": rate, "score": math.sqrt(bandwidth * rate)}
    for (key, ours), said in zip(follows.items(), printed[0], strict=False):
        theirs = _number(final[key].partition(" ")[0], key)
        # Each score is printed with six decimals.
        slack = 1e-6 + ours * sum(0.5e-6 / score for score in scores.values())
        if abs(theirs - ours) > slack or abs(_number(said, key) - theirs) > 1e-6:
            raise ToolOutputError(
                f"io500: {key.upper()} is {theirs:.6f} in result.txt and {excerpt(said)} on the screen, "
                f"and {ours:.6f} follows from the phases"
            )
    return scores


def _phase(
    name: str,
    score: float,
    section: Mapping[str, str],
    files: Mapping[str, str],
    tasks: int,
) -> Phase:
    if name in BANDWIDTHS:
        return _phase_of_ior(name, score, section, files, tasks)
    if name != "find":
        return _phase_of_mdtest(name, score, files, tasks)
    found = section.get("total-files", "")
    if not re.fullmatch(r"[1-9]\d{0,17}", found):
        raise ToolOutputError(
            f"io500: find: total-files is {excerpt(found)!r}, expected a number above 0"
        )
    rates = {"rate": Quantity(score, "kops/s")}
    return Phase("find", rates, int(found) / score / 1000, operations=int(found))


def _phase_of_ior(
    name: str,
    score: float,
    section: Mapping[str, str],
    files: Mapping[str, str],
    tasks: int,
) -> Phase:
    text = _file(files, f"{name}.txt")
    # A verbose IOR prints more than one line.
    lines = _LINE_OF_IOR.findall(text)
    if not lines or any(
        abs(float(line) / 1024 - score) > 0.01 * score for line in lines
    ):
        raise ToolOutputError(
            f"io500: {name}: the score is {score:.6f} GiB/s, and IOR printed {excerpt(', '.join(lines))} MiB/s"
        )
    words = {
        letter: int(size) * 1024 ** " kmg".index(unit or " ")
        for letter, size, unit in _WORD.findall(section.get("exe", ""))
    }
    transfer = words.get("t", 0)
    size = words.get("b", 0) * words.get("s", 1) * tasks
    for moved in _MOVED.findall(text):
        size = int(moved)
    if not transfer or not size:
        raise ToolOutputError(
            f"io500: {name}: expected an exe with -t and -b, found {excerpt(section.get('exe', ''))}"
        )
    return Phase(
        name,
        {"bw": Quantity(score, "GiB/s")},
        size / (score * _GIB),
        bytes_moved=size,
        operations=size // transfer,
        transfer_bytes=transfer,
    )


def _phase_of_mdtest(
    name: str, score: float, files: Mapping[str, str], tasks: int
) -> Phase:
    kind = _TIMED[name.rpartition("-")[2]]
    try:
        ranks = parse_rank_csv(_file(files, f"{name}.csv"), tasks)
    except ToolOutputError as error:
        raise ToolOutputError(f"io500: {name}.csv: {error}") from error
    said = f"io500: {name}: the score is {score:.6f} kIOPS, and mdtest has"
    timed = next((phase for phase in ranks if phase.name == kind), None)
    if timed is None:
        raise ToolOutputError(f"{said} no rate")
    rate = timed.rates["rate"].value / 1000
    if abs(rate - score) > 0.001 * score:
        raise ToolOutputError(f"{said} {rate:.6f}")
    phase = replace(timed, name=name, rates={"rate": Quantity(score, "kops/s")})
    if name in ("mdtest-hard-write", "mdtest-hard-read"):
        moved = (timed.operations or 0) * FILE_BYTES
        phase = replace(phase, bytes_moved=moved, transfer_bytes=FILE_BYTES)
    return phase


def _placing(files: Mapping[str, str], tasks: int) -> tuple[int, int | None]:
    """Return the nodes, and by how many ranks all readers are shifted; None if not all alike."""
    nodes, shifts = set(), set()
    for name in ("ior-easy-read", "ior-hard-read"):
        options = _OPTION_OF_IOR.findall(_file(files, f"{name}.txt"))
        said = {key: int(value) for key, value in options}
        if not said.get("nodes") or said.get("tasks") != tasks:
            raise ToolOutputError(
                f"io500: {name}.txt: expected {tasks} tasks and their nodes, found {said}"
            )
        nodes.add(said["nodes"])
        shifts.add(said.get("task offset", 0) * tasks // said["nodes"])
    for name in ("mdtest-easy-stat", "mdtest-hard-stat", "mdtest-hard-read"):
        shift, ranks = SHIFT.search(_file(files, f"{name}.txt")), 0
        if shift:
            ranks = int(shift[1])
        shifts.add(ranks)
    if len(nodes) != 1:
        raise ToolOutputError(f"io500: its phases ran on {sorted(nodes)} nodes")
    if len(shifts) != 1:
        return nodes.pop(), None
    return nodes.pop(), shifts.pop()


def _unscored(files: Mapping[str, str]) -> int:
    """Return the bytes of reads without a score, if this version has them."""
    total = 0
    for name, text in files.items():
        if re.fullmatch(r"ior-rnd\w+-easy-read\.txt", name):
            total += sum(map(int, _MOVED.findall(text)[-1:]))
    return total


def _complaints(result: str, stdout: str) -> list[str]:
    """Return what IO500 objects to; a mark [INVALID] without a reason is one too."""
    said = [line.strip() for line in re.findall(r"(?m)^; ERROR (INVALID.*)$", result)]
    known = {line.removeprefix("INVALID ") for line in said}
    said += [f"INVALID {why}" for why in _FAULT.findall(stdout) if why not in known]
    said += [line for line in _COMPLAINT.findall(stdout) if not _FAULT.match(line)]
    if not said and "[INVALID]" in stdout + result:
        said.append("the result is marked [INVALID], and no reason is given")
    return said
