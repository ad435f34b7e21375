"""Do trend, calibrate and compare keep what docs/results.md promises, on noise as storage has it?

    python benchmarks/detectors.py [--count 1000]       # every promise on every noise, in CPU minutes
    python benchmarks/detectors.py --limits             # the table LIMITS of iogauge_extras/history/statistics.py
    python benchmarks/detectors.py --series [FILE ...]  # real series: a JSON object of lists of figures, oldest first

year.json is a year in ten minutes: small writes, reads and creates on a local disk that eight others used.

Each noise makes series of healthy runs. The tables of the page name, for each noise, the most that may go wrong, and
the least that is found of a drop. Exit status 1 if the page promises more than holds, but for chance.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "reframe" / "src"))


from iogauge_extras.history import statistics  # noqa: E402

PAGE = ROOT / "docs" / "results.md"
SEED = 20270401
BASELINE, YEAR = 30, 365
#: Cases of a nightly gate, and its nights in a month.
CASES, NIGHTS = 30, 30

Series = list[float]
#: Logarithms of so many healthy runs, of a scale, which is about the coefficient of variation.
Noise = Callable[[random.Random, int, float], Series]


def normal(chance: random.Random, count: int, scale: float) -> Series:
    """Log-normal runs."""
    return [chance.gauss(0, scale) for _ in range(count)]


def disturbed(share: float) -> Noise:
    """Log-normal runs, of which a share delivers 30 to 80 %."""

    def noise(chance: random.Random, count: int, scale: float) -> Series:
        runs = normal(chance, count, scale)
        for run in range(count):
            if chance.random() < share:
                runs[run] += math.log(chance.uniform(0.3, 0.8))
        return runs

    return noise


def skewed(chance: random.Random, count: int, scale: float) -> Series:
    """Runs near the most that the system can do, with an exponential tail downwards."""
    return [scale * (1 - chance.expovariate(1)) for _ in range(count)]


def student(chance: random.Random, count: int, scale: float) -> Series:
    """Student's t with 3 degrees of freedom, with the scale as its standard deviation."""
    runs = []
    for _ in range(count):
        square = sum(chance.gauss(0, 1) ** 2 for _ in range(3))
        runs.append(scale * chance.gauss(0, 1) / math.sqrt(square))
    return runs


def correlated(phi: float) -> Noise:
    """An autoregression of first order."""

    def noise(chance: random.Random, count: int, scale: float) -> Series:
        value, runs = chance.gauss(0, scale), []
        for _ in range(count):
            value = phi * value + chance.gauss(0, scale * math.sqrt(1 - phi**2))
            runs.append(value)
        return runs

    return noise


def two_levels(chance: random.Random, count: int, scale: float) -> Series:
    """Log-normal runs, of which a fifth is lower by 10 %."""
    runs = normal(chance, count, scale)
    return [run + math.log(0.9) * (chance.random() < 0.2) for run in runs]


def wave(period: int, height: float) -> Noise:
    """Log-normal runs on a wave of this period in runs, and of this height in scales."""

    def noise(chance: random.Random, count: int, scale: float) -> Series:
        begin = chance.uniform(0, period)
        runs = normal(chance, count, scale)
        for run in range(count):
            angle = 2 * math.pi * (run + begin) / period
            runs[run] += height * scale * math.sin(angle)
        return runs

    return noise


NOISES: dict[str, Noise] = {
    "log-normal": normal,
    "2 % outliers": disturbed(0.02),
    "5 % outliers": disturbed(0.05),
    "10 % outliers": disturbed(0.10),
    "skewed downwards": skewed,
    "Student t, 3 degrees": student,
    "two levels": two_levels,
    "weekly wave": wave(7, 1.0),
    "yearly wave": wave(YEAR, 0.5),
    "AR(1) 0.5": correlated(0.5),
    "AR(1) 0.8": correlated(0.8),
}


def alarmed(runs: Series, baseline: int = BASELINE) -> tuple[int | None, int | None]:
    """The runs after the baseline that raised the alarm which stands, and the newest alarm."""
    before = runs[:baseline]
    placed = statistics.placements(runs[baseline:], before)
    wide = statistics.stretch(before)
    most = statistics.limit(statistics.FALSE_ALARMS)
    course = statistics.course(placed, baseline, wide, most)
    return course.standing, course.last


def share(count: int, happens: Callable[[random.Random], float]) -> float:
    """The mean of what happens in so many trials."""
    chance = random.Random(SEED)
    return math.fsum(happens(chance) for _ in range(count)) / count


def alarms(noise: Noise, runs: int) -> Callable[[random.Random], float]:
    """Whether so many runs after the baseline raise a false alarm."""

    def happens(chance: random.Random) -> float:
        _, last = alarmed(noise(chance, BASELINE + runs, 0.05))
        return last is not None

    return happens


def refused(noise: Noise, runs: int) -> Callable[[random.Random], float]:
    """Whether so many steady runs are refused for a step."""

    def happens(chance: random.Random) -> float:
        figures = [math.exp(run) for run in noise(chance, runs, 0.05)]
        return bool(statistics.change_points(figures))

    return happens


def missed(noise: Noise, runs: int) -> Callable[[random.Random], float]:
    """The share of later runs that miss the bound of so many runs."""

    def happens(chance: random.Random) -> float:
        figures = [math.exp(run) for run in noise(chance, runs + 60, 0.05)]
        bound = statistics.bound(figures[:runs], 1)
        return sum(figure < bound for figure in figures[runs:]) / 60

    return happens


def red(noise: Noise, runs: int) -> Callable[[random.Random], float]:
    """False reds in a month of a nightly gate: a case misses its bound, and again in its confirmation.

    The run that confirms is the next one of the series, so that correlated noise confirms itself.
    """

    def happens(chance: random.Random) -> float:
        figures = [math.exp(run) for run in noise(chance, runs + 60, 0.05)]
        bound = statistics.bound(figures[:runs], 1)
        low = [figure < bound for figure in figures[runs:]]
        twice = sum(a and b for a, b in itertools.pairwise(low))
        return CASES * NIGHTS * twice / 59

    return happens


def differ(noise: Noise, runs: int) -> Callable[[random.Random], float]:
    """Whether two equal sides of so many runs are called better or worse."""

    def happens(chance: random.Random) -> float:
        figures = [math.exp(run) for run in noise(chance, 2 * runs, 0.05)]
        _, low, high = statistics.interval(figures[:runs], figures[runs:])
        return not low <= 1 <= high

    return happens


#: Rows of the page's table that hold for several noises.
ROWS = {
    "yearly wave": "a yearly wave",
    "AR(1) 0.5": "neighbours correlated by 0.5",
    "AR(1) 0.8": "neighbours correlated by 0.8",
}
INDEPENDENT = "independent runs"

#: Columns of the page's table: what may go wrong, of so many runs, and the trials that it takes for one of --count.
COLUMNS: tuple[
    tuple[str, Callable[..., Callable[[random.Random], float]], int, float], ...
] = (
    ("alarm in 30 runs", alarms, 30, 1),
    ("alarm in a year", alarms, YEAR, 0.3),
    ("refused for a step", refused, 30, 0.5),
    ("misses the bound of 20 runs", missed, 20, 1),
    ("misses the bound of 60 runs", missed, 60, 1),
    ("false reds a month, 20 runs", red, 20, 1),
    ("false reds a month, 60 runs", red, 60, 1),
    ("5 runs differ from 5", differ, 5, 1),
)

#: Drops at the first run after the baseline, and coefficients of variation.
DROPS = (0.01, 0.02, 0.03, 0.05, 0.1, 0.2)
SPREADS = (0.01, 0.02, 0.05, 0.1)


def found(drop: float, scale: float) -> Callable[[random.Random], float]:
    """Whether a drop is found within 15 runs."""

    def happens(chance: random.Random) -> float:
        runs = normal(chance, BASELINE + 15, scale)
        for run in range(BASELINE, BASELINE + 15):
            runs[run] += math.log1p(-drop)
        _, last = alarmed(runs)
        return last is not None

    return happens


def repaired(chance: random.Random) -> float:
    """Whether an alarm has ended six runs after the repair of a drop of 10 %, at a scale of 5 %."""
    runs = normal(chance, BASELINE + 26, 0.05)
    for run in range(BASELINE, BASELINE + 20):
        runs[run] += math.log1p(-0.1)
    standing, _ = alarmed(runs)
    return standing is None


def stands(chance: random.Random) -> float:
    """Whether a drop of 10 % at a scale of 5 % is an alarm in its thirtieth run."""
    runs = normal(chance, BASELINE + 30, 0.05)
    for run in range(BASELINE, BASELINE + 30):
        runs[run] += math.log1p(-0.1)
    standing, _ = alarmed(runs)
    return standing is not None


def declines(chance: random.Random) -> float:
    """Whether a decline of 10 % in a year, at a scale of 3 %, is an alarm at its end."""
    runs = normal(chance, BASELINE + YEAR, 0.03)
    for run in range(len(runs)):
        runs[run] += math.log1p(-0.1) * run / YEAR
    standing, _ = alarmed(runs)
    return standing is not None


SENTENCES = (
    ("an alarm ends within 6 runs of a repair", repaired),
    ("an alarm stands after 30 runs at the lower level", stands),
    ("a decline of 10 % in a year is an alarm", declines),
)


def measured(count: int) -> Iterator[tuple[str, str, float, float]]:
    """Row and column of the page, what was measured, and its standard error."""
    for name, noise in NOISES.items():
        for column, happens, runs, part in COLUMNS:
            trials = max(50, int(count * part))
            value = share(trials, happens(noise, runs))
            unit = CASES * NIGHTS if happens is red else 1
            rate = min(value / unit, 1.0)
            # Runs of one series resemble each other: a tenth of them counts.
            each = 6 if happens in (missed, red) else 1
            error = unit * math.sqrt(
                max(rate * (1 - rate), 1 / trials / each) / trials / each
            )
            yield name, column, value, error
    for drop in DROPS:
        for scale in SPREADS:
            value = share(count, found(drop, scale))
            yield f"drop {drop:.0%}", f"CV {scale:.0%}", value, 0.5 / math.sqrt(count)
    for name, happens_in in SENTENCES:
        value = share(count, happens_in)
        yield name, "share", value, 0.5 / math.sqrt(count)


def promises(page: str) -> dict[tuple[str, str], float]:
    """The numbers in the page's tables, by row and column: shares of 1, reds as numbers."""
    told: dict[tuple[str, str], float] = {}
    heads: list[str] = []
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            heads = []
        elif not heads:
            heads = cells
        for head, cell in zip(heads[1:], cells[1:], strict=False):
            if number := re.fullmatch(r"([\d.]+)( %)?", cell):
                told[cells[0], head] = float(number[1]) / (100 if number[2] else 1)
    return told


def judged(count: int, page: str) -> list[tuple[str, bool]]:
    """A line for each promise, and whether it holds."""
    promised, lines = promises(page), []
    for row, column, value, error in measured(count):
        of_row = ROWS.get(row, INDEPENDENT) if row in NOISES else row
        promise = promised.get((of_row, column), math.nan)
        least = column.startswith("CV") or column == "share"
        off = promise - value if least else value - promise
        says = "at least" if least else "at most"
        # What the page has no number for does not hold.
        lines.append(
            (f"{row}, {column}: {value:.3f}, {says} {promise:.3f}", off <= 3 * error)
        )
    return lines


def limits(count: int) -> None:
    """Print the standard errors that a share of stable series reaches, by share."""
    chance, most = random.Random(SEED), []
    for _ in range(count):
        runs = normal(chance, BASELINE + statistics.HORIZON, 1)
        before = runs[:BASELINE]
        placed = statistics.placements(runs[BASELINE:], before)
        wide = statistics.stretch(before)
        most.append(statistics.course(placed, BASELINE, wide, math.inf).most)
    most.sort(reverse=True)
    for part, _ in statistics.LIMITS:
        print(f"({part}, {most[int(part * count)]:.2f}),")


def look(files: Sequence[Path]) -> None:
    """Print what is found in real series, and how often 30 runs after 30 others raise an alarm."""
    parts = raised = 0
    for file in files:
        for name, figures in json.loads(file.read_text()).items():
            runs = [math.log(figure) for figure in figures if figure > 0]
            for begin in range(0, len(runs) - 60, 30):
                parts += 1
                raised += alarmed(runs[begin : begin + 60])[1] is not None
            standing, last = alarmed(runs)
            points = statistics.change_points([math.exp(run) for run in runs[:400]])
            print(
                f"{name}: {len(runs)} runs, median {median(figures):.4g}, alarm {last}, stands {standing}, changes {points}"
            )
    print(f"{raised} of {parts} stretches of 60 runs have an alarm")


def main() -> int:
    """Read the command line and do what it says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=1000, help="series of each kind")
    parser.add_argument("--limits", action="store_true", help="print the table LIMITS")
    parser.add_argument(
        "--series", type=Path, nargs="*", help="files of real series; year.json if none"
    )
    options = parser.parse_args()
    if options.limits:
        limits(100 * options.count)
        return 0
    if options.series is not None:
        look(options.series or [Path(__file__).with_name("year.json")])
        return 0
    lines = judged(options.count, PAGE.read_text())
    for line, holds in lines:
        print(line + ("" if holds else ": BROKEN"))
    return not all(holds for _, holds in lines)


if __name__ == "__main__":
    sys.exit(main())
