"""WRF-IO, the output of a weather model as PnetCDF's benchmark writes and reads it: its report as values.

Written against ``benchmarks/WRF-IO`` of PnetCDF 1.14.1. It takes a text with the header of a file of WRF (202 variables; those
over the grid are decomposed in both horizontal directions), and writes such a file for a grid of any size. All processes put
their parts into buffers, and one collective call writes all of them. It syncs nothing, and ends with status 0 also if it fails.
"""

import re
from typing import Final

from iogauge.core.measurement import Phase, Quantity, ToolOutput, ToolOutputError
from iogauge.tools.parsing import excerpt

_BEGIN: Final = re.compile(r"^---- WRF-IO write benchmark ----$", re.MULTILINE)
_LINE: Final = re.compile(r"^([A-Z][\w -]*?) *: +(\S.*)$", re.MULTILINE)


def parse(text: str, header: str) -> ToolOutput:
    """Return the report of a write whose words named a file with a ``header``.

    The seconds of phase ``write`` are those from open to close of the slowest process, and ``bw`` (MiB/s) is made of them.
    ``define`` (s) is what the definitions took. Raises
    :class:`ToolOutputError` if the report is missing, cut, or contradicts itself by more than 1 % and its rounding.
    """
    found = _BEGIN.findall(text)
    if len(found) != 1:
        raise ToolOutputError(
            f"WRF-IO: {len(found)} reports, expected 1: {excerpt(text.strip() or 'it printed nothing')}"
        )
    told = {re.sub(" +", " ", name): value for name, value in _LINE.findall(text)}

    def number(name: str, unit: str = "") -> float:
        match = re.fullmatch(rf"(\d+(?:\.\d+)?) ?{unit}", told.get(name, ""))
        if match is None:
            raise ToolOutputError(
                f"WRF-IO: {name!r} is {told.get(name, 'missing')!r}: the report is damaged"
            )
        return float(match[1])

    seconds = number("Max open-to-close time", "sec")
    moved = int(number("Total write amount", "B"))
    bandwidth = number("Write bandwidth", "MiB/s")
    rounded = 5e-5 * bandwidth + 5e-3 * seconds
    if abs(bandwidth * seconds - moved / 2**20) > 0.01 * moved / 2**20 + rounded:
        raise ToolOutputError(
            f"WRF-IO: {moved} bytes in {seconds} s, but {bandwidth} MiB/s: the report is damaged"
        )
    rates = {
        "bw": Quantity(bandwidth, "MiB/s"),
        "define": Quantity(number("Max define metadata time", "sec"), "s"),
    }
    grid = told.get("Grid size longitude x latitude", "").split(" x ")
    words = ["wrf_io", "-i", header, "-n", told.get("Number of time records", "")]
    for option, points in zip(("-y", "-x"), grid, strict=False):
        words += [option, points]
    return ToolOutput(
        tool="wrf_io",
        version="1.14",
        phases=(Phase("write", rates, seconds, bytes_moved=moved),),
        tasks=int(number("Number of MPI processes")),
        command=" ".join([*words, "-w", told.get("Output NetCDF file name", "")]),
        parameters={
            "api": "NCMPI",
            "variables": int(number("Total number of variables")),
        },
    )
