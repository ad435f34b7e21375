"""Do trend, calibrate and compare keep what docs/results.md promises, on noise as storage has it?

    python benchmarks/detectors.py [--count 4000]       # every promise on every noise, in CPU minutes

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
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "reframe" / "src"))


from iogauge_extras.history import statistics  # noqa: E402

PAGE = ROOT / "docs" / "results.md"
#: A year in ten minutes: small writes, reads and creates on a local disk that eight others used, oldest first.
YEAR_OF_A_DISK = Path(__file__).with_name("year.json")
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


def bursts(chance: random.Random, count: int, scale: float) -> Series:
    """Log-normal runs with bursts of bad ones, lower by 20 %: three on average, one burst in fifty runs."""
    bad, runs = False, []
    for run in normal(chance, count, scale):
        bad = chance.random() < (2 / 3 if bad else 0.02)
        runs.append(run + bad * math.log(0.8))
    return runs


def filling(chance: random.Random, count: int, scale: float) -> Series:
    """Log-normal runs that fall by two scales while a file system fills, and rise when it is purged each fortnight."""
    begin = chance.randrange(14)
    runs = normal(chance, count, scale)
    return [run - scale * ((place + begin) % 14) / 7 for place, run in enumerate(runs)]


def rounded(chance: random.Random, count: int, scale: float) -> Series:
    """Log-normal runs that a tool rounds to one of twenty."""
    runs = normal(chance, count, scale)
    return [math.log(max(1, round(20 * math.exp(run))) / 20) for run in runs]


def still(chance: random.Random, count: int, scale: float) -> Series:
    """Runs that are all alike at first, and later differ by a fiftieth of a scale at most."""
    later = [scale * chance.uniform(-0.02, 0.02) for _ in range(count - 20)]
    return [0.0] * 20 + later


def weekends(chance: random.Random, count: int, scale: float) -> Series:
    """Log-normal runs, of which two of seven have six times the scale of the others."""
    runs = normal(chance, count, scale / 2)
    return [run * 6 if place % 7 < 2 else run for place, run in enumerate(runs)]


def doubling(chance: random.Random, count: int, scale: float) -> Series:
    """Log-normal runs that scatter twice as much after the baseline."""
    runs = normal(chance, count, scale)
    return runs[:BASELINE] + [2 * run for run in runs[BASELINE:]]


def upwards(chance: random.Random, count: int, scale: float) -> Series:
    """Log-normal runs, of which one of twenty is served from a cache, up to twice as fast."""
    runs = normal(chance, count, scale)
    return [run + (chance.random() < 0.05) * chance.uniform(0.2, 0.7) for run in runs]


def tailed(chance: random.Random, count: int, scale: float) -> Series:
    """Log-normal runs, of which three of twenty are from an exponential tail downwards, of three scales."""
    runs = normal(chance, count, scale)
    for run in range(count):
        if chance.random() < 0.15:
            runs[run] = -3 * scale * chance.expovariate(1)
    return runs


def jumping(chance: random.Random, count: int, scale: float) -> Series:
    """Log-normal runs with jumps of 10 or 20 %, up or down, that return after one to four runs."""
    left, step, runs = 0, 0.0, normal(chance, count, scale)
    for run in range(count):
        if not left and chance.random() < 0.03:
            left, step = chance.randint(1, 4), chance.choice((0.8, 0.9, 1.1, 1.25))
        if left:
            runs[run] += math.log(step)
            left -= 1
    return runs


def loaded(chance: random.Random, count: int, scale: float) -> Series:
    """Runs that scatter more on days of more load."""
    load = correlated(0.9)(chance, count, 1)
    return [chance.gauss(0, 0.7 * scale * math.exp(0.6 * day)) for day in load]


def crowded(chance: random.Random, count: int, scale: float) -> Series:
    """Runs that lose where others load the storage, and neighbouring days resemble each other."""
    load = correlated(0.5)(chance, count, 1)
    return [chance.gauss(0, scale / 2) - scale * max(0, day) ** 1.5 for day in load]


def remembering(chance: random.Random, count: int, scale: float) -> Series:
    """Runs that remember days, weeks and months alike: about 1/f."""
    parts = [correlated(phi)(chance, count, scale / 2) for phi in (0, 0.5, 0.85, 0.97)]
    return [sum(run) for run in zip(*parts, strict=True)]


def aging(chance: random.Random, count: int, scale: float) -> Series:
    """Log-normal runs on a new file system, which loses 10 % within some weeks."""
    runs = normal(chance, count, scale)
    return [run + 0.1 * math.exp(-place / 10) for place, run in enumerate(runs)]


NOISES: dict[str, Noise] = {
    "log-normal": normal,
    "2 % outliers": disturbed(0.02),
    "5 % outliers": disturbed(0.05),
    "10 % outliers": disturbed(0.10),
    "skewed downwards": skewed,
    "Student t, 3 degrees": student,
    "two levels": two_levels,
    "5 % outliers upwards": upwards,
    "noisy weekends": weekends,
    "rounded": rounded,
    "still": still,
    "weekly wave": wave(7, 1.0),
    "filling and purging": filling,
    "heavy lower tail": tailed,
    "scattering by load": loaded,
    "scatter that doubles": doubling,
    "jumps that return": jumping,
    "slower under load": crowded,
    "1/f": remembering,
    "aging": aging,
    "bursts": bursts,
    "yearly wave": wave(YEAR, 0.5),
    "AR(1) 0.5": correlated(0.5),
    "AR(1) 0.8": correlated(0.8),
}


def alarmed(runs: Series, baseline: int = BASELINE) -> tuple[int | None, int | None]:
    """The runs after the baseline that raised the alarm which stands, and the newest alarm."""
    before = runs[:baseline]
    placed = statistics.placements(runs[baseline:], before)
    standings = statistics.course(placed, baseline, statistics.stretch(before))
    raised = [run for run in standings if run is not None]
    return standings[-1], max(raised, default=None)


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
        return not low - statistics.TIE <= 1 <= high + statistics.TIE

    return happens


#: Rows of the page's table that hold for several noises.
ROWS = {
    "filling and purging": "filled, and purged each fortnight",
    "scattering by load": "more scatter on days of more load",
    "scatter that doubles": "twice the scatter after the baseline",
    "jumps that return": "bad nights in bursts of three",
    "bursts": "bad nights in bursts of three",
    "slower under load": "slower on days of more load",
    "1/f": "neighbours, weeks and months resemble each other (1/f)",
    "aging": "new, and slower by 10 % within weeks",
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


def real(page: str) -> list[tuple[str, bool]]:
    """A line about a year of a real disk, and whether its stretches of 60 runs have no more alarms than the page tells of bursts."""
    parts = raised = 0
    for figures in json.loads(YEAR_OF_A_DISK.read_text()).values():
        runs = [math.log(figure) for figure in figures]
        for begin in range(0, len(runs) - 60, 30):
            parts += 1
            raised += alarmed(runs[begin : begin + 60])[1] is not None
    promise = promises(page)[ROWS["bursts"], COLUMNS[0][0]]
    text = f"a real disk: {raised} of {parts} stretches have an alarm, at most {promise:.3f}"
    return [(text, raised <= promise * parts)]


def main() -> int:
    """Read the command line and do what it says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=4000, help="series of each kind")
    options = parser.parse_args()
    page = PAGE.read_text()
    lines = [*real(page), *judged(options.count, page)]
    for line, holds in lines:
        print(line + ("" if holds else ": BROKEN"))
    return not all(holds for _, holds in lines)


if __name__ == "__main__":
    sys.exit(main())
