"""Does the detector of `iogauge status --trend` keep its promise? Simulated series; and where the table of its limits comes from.

    python benchmarks/detectors.py [--count 8000]         # false alarms, and drops that are found, as shipped
    python benchmarks/detectors.py --calibrate            # the table of limits in iogauge/trend/statistics.py

Exit status 1 if more stable series have a false alarm than is promised, or fewer drops are found than before.
"""

from __future__ import annotations

import argparse
import math
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "reframe" / "src"))

from iogauge_extras.history import statistics as detector  # noqa: E402

Doubles = NDArray[np.float64]
SEED = 20260401
N0, RUNS, FALSE = 30, 30, 0.05
GROUPS = ((1, 1), (2, 2), (3, 5), (6, 9), (10, 15), (16, 24), (25, 30))
#: A disturbed run delivers this share of what it would have delivered.
SLOW = (0.3, 0.8)
DISTURBED = 0.02
#: Day-to-day drift: standard deviation (log), but at most this share of the noise's, and correlation from one run
#: to the next.
DRIFT, DRIFT_SHARE, PHI = 0.02, 0.4, 0.8
#: Log-normal with 2 % of runs disturbed; the same with a drift from day to day; Student t with 3 degrees of freedom.
NOISES = ("normal", "drift", "t3")
#: Share of drops of 10 % at the first run after the baseline that are found, of 8,000 series:
#: noise, coefficient of variation, runs, share.
FOUND = (
    ("normal", 0.05, 5, 0.798),
    ("normal", 0.10, 15, 0.726),
    ("drift", 0.05, 5, 0.712),
    ("drift", 0.10, 15, 0.697),
    ("t3", 0.05, 5, 0.937),
    ("t3", 0.10, 15, 0.876),
)


def sigma(cv: float) -> float:
    """Standard deviation of the logarithm of a log-normal variable with this coefficient of variation."""
    return math.sqrt(math.log1p(cv * cv))


def noise(
    rng: np.random.Generator,
    kind: str,
    scale: Doubles | float,
    shape: tuple[int, int],
    drift: float = DRIFT,
) -> Doubles:
    """Logarithms of stable series; ``scale`` is their standard deviation but for drift and disturbed runs."""
    if kind == "t3":
        return scale * rng.standard_t(3, shape) / math.sqrt(3)
    y = scale * rng.standard_normal(shape)
    if kind == "drift":
        y = y + wander(rng, np.minimum(drift, DRIFT_SHARE * scale), shape)
    disturbed = rng.random(shape) < DISTURBED
    return y + np.where(disturbed, np.log(rng.uniform(*SLOW, shape)), 0)


def wander(
    rng: np.random.Generator, drift: Doubles | float, shape: tuple[int, int]
) -> Doubles:
    """An AR(1) with this standard deviation."""
    steps = rng.standard_normal((shape[0], shape[1] + 50)) * math.sqrt(1 - PHI**2)
    return np.asarray(drift * lfilter([1], [1, -PHI], steps, axis=1)[:, 50:])


def series(
    rng: np.random.Generator, kind: str, cv: float, count: int, drop: float
) -> Doubles:
    """Series with a drop at the first run after the baseline."""
    y = noise(rng, kind, sigma(cv), (count, N0 + RUNS))
    y[:, N0:] += math.log1p(-drop)
    return y


def equal_risk(stable: Doubles) -> Doubles:
    """Limits by run that spread the share of false alarms evenly over the runs."""
    risk = detector.per_run(FALSE)
    limits, alive = np.full(RUNS, np.inf), np.ones(len(stable), bool)
    for begin, end in GROUPS:
        worst = stable[alive, begin - 1 : end].max(axis=1)
        limit = float(np.quantile(worst, (1 - risk) ** (end - begin + 1)))
        limits[begin - 1 : end] = limit
        alive[alive] = worst <= limit
    return limits


def calibrate(count: int) -> None:
    """Print the limits by scale and run: the strictest of the three noises, with a tenth more drift for good measure."""
    rng, tables = np.random.default_rng(SEED), []
    edges = np.log(np.array(detector._AT_SCALE))
    # A scale at its least is not the noise's.
    bounds = np.concatenate(
        ([edges[0] + 0.01], (edges[1:] + edges[:-1]) / 2, [edges[-1] + 0.4])
    )
    for kind in NOISES:
        found, scales = [], []
        for _ in range(math.ceil(count / 10000)):
            spread = np.exp(rng.uniform(bounds[0] - 0.5, bounds[-1] + 0.6, (10000, 1)))
            y = noise(rng, kind, spread, (10000, N0 + RUNS), 1.1 * DRIFT)
            loss = detector.evidence(y, N0).loss
            loss[:, 0] = -100  # the first run raises no alarm
            found.append(loss.astype(np.float32))
            scales.append(np.log(detector.fit(y[:, :N0])[1]))
        loss, scale = np.concatenate(found), np.concatenate(scales)
        rows = []
        for low, high in pairwise(bounds):
            limits = equal_risk(loss[(scale >= low) & (scale < high)])
            rows.append([limits[begin - 1] for begin, _ in GROUPS[1:]])
        tables.append(rows)
        print(f"# {kind}\n{np.round(rows, 2)}", file=sys.stderr)
    for row in np.max(tables, axis=0):
        print("    (" + ", ".join(f"{value:.2f}" for value in row) + "),")


def alarmed(y: Doubles) -> Doubles:
    """Share of series with an alarm by each run after the baseline, as shipped."""
    one = detector.evidence(y, N0)
    alarm = one.loss > detector.limits(one.scale, RUNS, FALSE)
    return np.asarray(np.maximum.accumulate(alarm, axis=1).mean(axis=0))


def shares(count: int) -> list[tuple[str, float, bool]]:
    """What is promised, its share of so many series, and whether it holds but for chance (three standard errors)."""
    chance = 3 * 0.5 / math.sqrt(count)
    found = []
    for kind in NOISES:
        for cv in (0.01, 0.02, 0.05, 0.1, 0.2, 0.3):
            share = alarmed(series(np.random.default_rng(SEED), kind, cv, count, 0))[-1]
            limit = FALSE + 3 * math.sqrt(FALSE * (1 - FALSE) / count)
            found.append(
                (
                    f"{kind}, CV {cv:.0%}: false alarms, 5 % at most",
                    share,
                    share <= limit,
                )
            )
    for kind, cv, runs, known in FOUND:
        share = alarmed(series(np.random.default_rng(SEED), kind, cv, count, 0.1))[
            runs - 1
        ]
        name = f"{kind}, CV {cv:.0%}: drops of 10 % found within {runs} runs, before {known:.1%}"
        found.append((name, share, share >= known - chance))
    return found


def main() -> int:
    """Read the command line and do what it says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=8000, help="series of each kind")
    parser.add_argument(
        "--calibrate", action="store_true", help="print the table of limits"
    )
    options = parser.parse_args()
    if options.calibrate:
        calibrate(125 * options.count)
        return 0
    found = shares(options.count)
    for name, share, holds in found:
        print(f"{name}: {share:.1%}{'' if holds else ': BROKEN'}")
    return not all(holds for *_, holds in found)


if __name__ == "__main__":
    sys.exit(main())
