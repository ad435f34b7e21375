"""How soon do detectors find a drop, at the same share of false alarms? Writes detectors.md and detectors.svg.

    python benchmarks/detectors.py [--quick] [--write]    # the comparison, and the best that is possible
    python benchmarks/detectors.py --calibrate            # the table of limits in iogauge/changepoint.py

Every detector's limit is set on stable series of the same noise, such that each of the 30 runs after the
baseline is as likely as any other to raise a false alarm, and 5 % of the series raise one. "as shipped" is
iogauge's own, with its own limits, which know nothing of the noise.
"""

from __future__ import annotations

import argparse
import math
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.signal import lfilter
from scipy.special import gamma, ndtr

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "reframe" / "src"))

from iogauge import changepoint, trend  # noqa: E402

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
NOISES = {
    "normal": "log-normal, 2 % of runs disturbed",
    "drift": "the same, and a drift of 2 % from day to day",
    "t3": "heavy tails (Student t, 3 degrees of freedom)",
}
CVS = (0.05, 0.10, 0.20)
#: What is wanted of a drop of 10 %: coefficient of variation, runs, share of series.
WANTED = ((0.05, 5, 0.95), (0.10, 15, 0.90))


def sigma(cv: float) -> float:
    """Standard deviation of the logarithm of a log-normal variable with this coefficient of variation."""
    return math.sqrt(math.log1p(cv * cv))


def noise(
    rng: np.random.Generator, kind: str, scale: Doubles | float, shape: tuple[int, int]
) -> Doubles:
    """Logarithms of stable series; ``scale`` is their standard deviation but for drift and disturbed runs."""
    if kind == "t3":
        return scale * rng.standard_t(3, shape) / math.sqrt(3)
    y = scale * rng.standard_normal(shape)
    if kind == "drift":
        y = y + wander(rng, np.minimum(DRIFT, DRIFT_SHARE * scale), shape)
    disturbed = rng.random(shape) < DISTURBED
    return y + np.where(disturbed, np.log(rng.uniform(*SLOW, shape)), 0)


def wander(rng: np.random.Generator, drift: Doubles | float, shape: tuple[int, int]) -> Doubles:
    """An AR(1) with this standard deviation."""
    steps = rng.standard_normal((shape[0], shape[1] + 50)) * math.sqrt(1 - PHI**2)
    return np.asarray(drift * lfilter([1], [1, -PHI], steps, axis=1)[:, 50:])


def series(
    rng: np.random.Generator, kind: str, cv: float, count: int, drop: float, at: int, base: int = N0
) -> Doubles:
    """Series with a drop at run ``at`` (from 0) after the baseline."""
    y = noise(rng, kind, sigma(cv), (count, base + RUNS))
    y[:, base + at :] += math.log1p(-drop)
    return y


# Detectors: series to statistic of each run after the baseline, larger is worse.


def winsorised(y: Doubles) -> Doubles:
    """Standardised by median and MAD of the baseline, cut at 3."""
    base = y[:, :N0]
    middle = np.median(base, axis=1, keepdims=True)
    scale = 1.4826 * np.median(np.abs(base - middle), axis=1, keepdims=True)
    return np.clip((y[:, N0:] - middle) / np.maximum(scale, 0.01), -3, 3)


def ewma(y: Doubles) -> Doubles:
    """Exponentially weighted mean, lambda 0.2."""
    return -lfilter([0.2], [1, -0.8], winsorised(y), axis=1)


def cusum(y: Doubles) -> Doubles:
    """Page's cumulative sum, k = 0.5."""
    u, z, found = winsorised(y), np.zeros(len(y)), []
    for run in range(u.shape[1]):
        z = np.maximum(0, z - u[:, run] - 0.5)
        found.append(z)
    return np.array(found).T


def two_of_three(y: Doubles) -> Doubles:
    """The second lowest of the last three."""
    u = np.pad(winsorised(y), ((0, 0), (2, 0)), constant_values=3)
    last = np.stack([u[:, :-2], u[:, 1:-1], u[:, 2:]], axis=-1)
    return -np.sort(last, axis=-1)[..., 1] + 1e-6 * np.cumsum(np.ones_like(last[..., 0]), axis=1)


def glr(y: Doubles) -> Doubles:
    """Generalised likelihood ratio over all onsets, with the error of the baseline's mean; cut at 3."""
    location, scale = changepoint.fit(y[:, :N0])
    u = np.clip((y[:, N0:] - location[:, None]) / scale[:, None], -3, 3)
    total = np.concatenate([np.zeros((len(u), 1)), np.cumsum(u, axis=1)], axis=1)
    found = np.full(u.shape, -np.inf)
    for length in range(1, u.shape[1] + 1):
        z = (total[:, :-length] - total[:, length:]) / length / math.sqrt(1 / length + 1 / N0)
        found[:, length - 1 :] = np.maximum(found[:, length - 1 :], z)
    return found


def bayes(y: Doubles) -> Doubles:
    """Shiryaev-Roberts, averaged over sizes of 10 %, 25 % and more, and over level and scale with their posterior.

    Noise is Student's t with 5 degrees of freedom and 2 % of disturbed runs.
    """

    def core(u: Doubles) -> Doubles:
        return (1 + u * u / 5) ** -3

    location, scale = changepoint.fit(y[:, :N0])
    off = (y - location[:, None]).astype(np.float32)
    spread = np.exp(np.repeat([-2.0, 0, 2], 9) * math.sqrt(0.8 / N0))
    inverse = (1 / (0.93 * scale[:, None] * spread)).astype(np.float32)
    level = (scale[:, None] * np.tile(np.linspace(-2.25, 2.25, 9), 3) / math.sqrt(0.8 * N0)).astype(
        np.float32
    )
    plateau = DISTURBED / 2 / (1 - DISTURBED) / 0.38 / inverse
    log = sum(
        np.log((core((off[:, run, None] - level) * inverse) + plateau) / spread) for run in range(N0)
    )
    weight = np.exp(log - np.max(log, axis=1, keepdims=True))
    weight /= weight.sum(axis=1, keepdims=True)
    odds, found = [np.zeros_like(weight) for _ in range(3)], []
    for run in range(N0, y.shape[1]):
        u = (off[:, run, None] - level) * inverse
        here = core(u) + plateau
        there = [core(u - np.float32(math.log1p(-d)) * inverse) + plateau for d in (0.1, 0.25)]
        there.append(np.where(u < -1, 45 * plateau, 1e-3) + 0.1 * here)
        odds = [
            np.minimum((o + 1) * np.minimum(t / here, 40), 1e6)
            for o, t in zip(odds, there, strict=True)
        ]
        weight = weight * here / spread
        weight /= weight.sum(axis=1, keepdims=True)
        total = sum(p * o for p, o in zip((0.80, 0.15, 0.05), odds, strict=True))
        found.append(np.log((weight * total).sum(axis=1)))
    return np.array(found).T.astype(float)


def iogauge(y: Doubles) -> Doubles:
    """The detector of iogauge; its first run raises no alarm."""
    found = changepoint.evidence(y, N0).loss
    found[:, 0] = -100
    return found


def warned(y: Doubles) -> Doubles:
    """The same, less evidence the more the baseline's runs resemble those before them (shrunk: 0.3 a standard error)."""
    location, scale = changepoint.fit(y[:, :N0])
    u = np.clip((y[:, :N0] - location[:, None]) / scale[:, None], -2.5, 2.5)
    score = sum(PHI**k * (u[:, k:] * u[:, :-k]).sum(axis=1) / N0 for k in range(1, 10))
    return iogauge(y) - 0.3 * np.clip(score / math.sqrt(1.78 / N0), -1.5, 2.5)[:, None]


DETECTORS: dict[str, Callable[[Doubles], Doubles]] = {
    "iogauge": iogauge,
    "Bayes": bayes,
    "GLR": glr,
    "EWMA": ewma,
    "CUSUM": cusum,
    "2 of 3": two_of_three,
}


# The best that is possible.


def density(kind: str, y: Doubles, scale: float) -> Doubles:
    """The very density that ``noise`` draws from (without drift)."""
    if kind == "t3":
        s = scale / math.sqrt(3)
        return (1 + (y / s) ** 2 / 3) ** -2 * gamma(2) / gamma(1.5) / math.sqrt(3 * math.pi) / s
    low, high = np.log(SLOW)
    plain = np.exp(-0.5 * (y / scale) ** 2) / scale / math.sqrt(2 * math.pi)
    tail = ndtr((high - y - scale**2) / scale) - ndtr((low - y - scale**2) / scale)
    slow = np.exp(np.minimum(y, 5) + scale**2 / 2) / (SLOW[1] - SLOW[0]) * tail
    return np.asarray((1 - DISTURBED) * plain + DISTURBED * slow + 1e-12)


#: Statistics that know noise and size (10 %): since the first run after the baseline; of the newest runs; of any onset.
KNOWING = ("since run 1, noise known", "window, noise known", "any day, noise known")


def oracle(kind: str, cv: float, y: Doubles, base: int = N0) -> dict[str, Doubles]:
    """The three log likelihood ratios of :data:`KNOWING`; the level has a flat prior and is learned from the baseline.

    The window is 5 runs at a CV of 5 % and 15 above. "any day" is Shiryaev-Roberts. For drift they are those of
    Gaussian noise.
    """
    scale, size, length = sigma(cv), -math.log1p(-0.1), 5 if cv == 0.05 else 15
    if kind == "drift":
        return gaussian_with_drift(y, scale, size, length)
    grid = np.linspace(-4, 4, 80001)
    table = np.log(density(kind, grid, scale)).astype(np.float32)

    def log_density(off: Doubles) -> Doubles:
        return table[np.clip(np.rint((off + 4) * 1e4), 0, 80000).astype(np.int32)]

    at = (np.linspace(-4.5, 4.5, 31) * 1.25 * scale / math.sqrt(base)).astype(np.float32)
    level = np.median(y[:, :base], axis=1)[:, None] + at
    log = sum(log_density(y[:, run, None] - level) for run in range(base))
    total, odds = [np.zeros_like(log)], np.zeros_like(log)
    found: dict[str, list[Doubles]] = {name: [] for name in KNOWING}
    for run in range(base, y.shape[1]):
        off = y[:, run, None] - level
        here = log_density(off)
        log = log + here
        weight = np.exp(log - log.max(axis=1, keepdims=True))
        weight /= weight.sum(axis=1, keepdims=True)
        ratio = log_density(off + size) - here
        total.append(total[-1] + ratio)
        odds = np.minimum((odds + 1) * np.exp(ratio), 1e30)
        newest = total[-1] - total[max(0, len(total) - 1 - length)]
        for name, one in zip(KNOWING, (np.exp(total[-1]), np.exp(newest), odds), strict=True):
            found[name].append(np.log((weight * one).sum(axis=1) + 1e-30))
    return {name: np.array(one, float).T for name, one in found.items()}


def gaussian_with_drift(y: Doubles, scale: float, size: float, length: int) -> dict[str, Doubles]:
    """The same for Gaussian noise with drift."""
    runs = y.shape[1]
    lag = np.abs(np.subtract.outer(np.arange(runs), np.arange(runs)))
    cov = scale**2 * np.eye(runs) + DRIFT**2 * PHI**lag
    found: dict[str, list[Doubles]] = {name: [] for name in KNOWING}
    for n in range(N0 + 1, runs + 1):
        inverse = np.linalg.inv(cov[:n, :n])
        row = inverse.sum(axis=0)
        project = inverse - np.outer(row, row) / row.sum()
        steps = np.tri(n)[:, N0:n]
        lean = -size * y[:, :n] @ project @ steps
        lean -= size**2 / 2 * np.einsum("ij,ik,kj->j", steps, project, steps)
        any_day = np.logaddexp.reduce(lean, axis=1)
        newest = lean[:, max(0, n - N0 - length)]
        for name, one in zip(KNOWING, (lean[:, 0], newest, any_day), strict=True):
            found[name].append(one)
    return {name: np.array(one).T for name, one in found.items()}


def bound(stable: Doubles, dropped: Doubles) -> Doubles:
    """The most that a detector finds within k runs, for each k, if its false alarms are spread evenly.

    Given are the likelihood ratios since the first run. Thirty runs have 30 // k parts of k; if none of them takes more
    than its share of the 5 %, the alarm within k runs is a test at that level, and none is more powerful
    than the likelihood ratio's at the last of them (Neyman, Pearson).
    """
    levels = [FALSE / (RUNS // k) for k in range(1, RUNS + 1)]
    return np.array(
        [
            (dropped[:, k] > np.quantile(stable[:, k], 1 - level)).mean()
            for k, level in enumerate(levels)
        ]
    )


# Figures.


def equal_risk(stable: Doubles) -> Doubles:
    """Limits by run that spread the share of false alarms evenly over the runs."""
    risk = changepoint.per_run(FALSE)
    limits, alive = np.full(RUNS, np.inf), np.ones(len(stable), bool)
    for begin, end in GROUPS:
        worst = stable[alive, begin - 1 : end].max(axis=1)
        limit = float(np.quantile(worst, (1 - risk) ** (end - begin + 1)))
        limits[begin - 1 : end] = limit
        alive[alive] = worst <= limit
    return limits


def calibrate(count: int) -> None:
    """Print the limits by scale and run: the strictest of the three noises."""
    rng, tables = np.random.default_rng(SEED), []
    edges = np.log(np.array(changepoint._AT_SCALE))
    # A scale at its least is not the noise's.
    bounds = np.concatenate(([edges[0] + 0.01], (edges[1:] + edges[:-1]) / 2, [edges[-1] + 0.4]))
    for kind in NOISES:
        found, scales = [], []
        for _ in range(math.ceil(count / 10000)):
            spread = np.exp(rng.uniform(bounds[0] - 0.5, bounds[-1] + 0.6, (10000, 1)))
            y = noise(rng, kind, spread, (10000, N0 + RUNS))
            found.append(iogauge(y).astype(np.float32))
            scales.append(np.log(changepoint.fit(y[:, :N0])[1]))
        loss, scale = np.concatenate(found), np.concatenate(scales)
        rows = []
        for low, high in pairwise(bounds):
            limits = equal_risk(loss[(scale >= low) & (scale < high)])
            rows.append([limits[begin - 1] for begin, _ in GROUPS[1:]])
        tables.append(rows)
        print(f"# {kind}\n{np.round(rows, 2)}", file=sys.stderr)
    for row in np.max(tables, axis=0):
        print("    (" + ", ".join(f"{value:.2f}" for value in row) + "),")


def shipped(y: Doubles, base: int = N0, share: float = FALSE) -> NDArray[np.bool_]:
    """Whether iogauge as it is raises an alarm, by run."""
    one = changepoint.evidence(y, base)
    return np.asarray(one.loss > changepoint.limits(one.scale, y.shape[1] - base, share))


def by_run(alarm: NDArray[np.bool_]) -> Doubles:
    """Share of series with an alarm by each run."""
    return np.asarray(np.maximum.accumulate(alarm, axis=1).mean(axis=0))



if __name__ == "__main__":
    calibrate(int(sys.argv[1]))
