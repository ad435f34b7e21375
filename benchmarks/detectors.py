"""How soon do detectors find a drop, at the same share of false alarms?

    python benchmarks/detectors.py [--quick] [--write DIR]    # the comparison, and the best that is possible
    python benchmarks/detectors.py --calibrate                # the table of limits in iogauge/trend/detector.py

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

from iogauge_extras.history import detector, states  # noqa: E402

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
    location, scale = detector.fit(y[:, :N0])
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

    location, scale = detector.fit(y[:, :N0])
    off = (y - location[:, None]).astype(np.float32)
    spread = np.exp(np.repeat([-2.0, 0, 2], 9) * math.sqrt(0.8 / N0))
    inverse = (1 / (0.93 * scale[:, None] * spread)).astype(np.float32)
    level = (scale[:, None] * np.tile(np.linspace(-2.25, 2.25, 9), 3) / math.sqrt(0.8 * N0)).astype(
        np.float32
    )
    plateau = DISTURBED / 2 / (1 - DISTURBED) / 0.38 / inverse
    log = sum(
        np.log((core((off[:, run, None] - level) * inverse) + plateau) / spread)
        for run in range(N0)
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
    found = detector.evidence(y, N0).loss
    found[:, 0] = -100
    return found


def warned(y: Doubles) -> Doubles:
    """The same, less evidence the more the baseline's runs resemble those before them (shrunk: 0.3 a standard error)."""
    location, scale = detector.fit(y[:, :N0])
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
        odds = np.minimum((odds + 1) * np.exp(ratio), 1e26)
        newest = total[-1] - total[max(0, len(total) - 1 - length)]
        for name, one in zip(KNOWING, (total[-1], newest, np.log(odds)), strict=True):
            found[name].append(np.log((weight * np.exp(np.minimum(one, 60))).sum(axis=1) + 1e-30))
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
    bounds = np.concatenate(([edges[0] + 0.01], (edges[1:] + edges[:-1]) / 2, [edges[-1] + 0.4]))
    for kind in NOISES:
        found, scales = [], []
        for _ in range(math.ceil(count / 10000)):
            spread = np.exp(rng.uniform(bounds[0] - 0.5, bounds[-1] + 0.6, (10000, 1)))
            y = noise(rng, kind, spread, (10000, N0 + RUNS), 1.1 * DRIFT)
            found.append(iogauge(y).astype(np.float32))
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


def shipped(y: Doubles, base: int = N0, share: float = FALSE) -> NDArray[np.bool_]:
    """Whether iogauge as it is raises an alarm, by run."""
    one = detector.evidence(y, base)
    return np.asarray(one.loss > detector.limits(one.scale, y.shape[1] - base, share))


def by_run(alarm: NDArray[np.bool_]) -> Doubles:
    """Share of series with an alarm by each run."""
    return np.asarray(np.maximum.accumulate(alarm, axis=1).mean(axis=0))


def compare(count: int) -> tuple[list[str], dict[tuple[str, float], dict[str, Doubles]]]:
    """Tables of all detectors, and their curves by noise and coefficient of variation."""
    text: list[str] = []
    curves: dict[tuple[str, float], dict[str, Doubles]] = {}
    for kind, title in NOISES.items():
        text += ["", f"## Noise: {title}", ""]
        text += [
            "| CV | detector | 10 % within 3 | 5 | 10 | 15 | 30 | 20 % within 3 | 5 | late 10 %: 5 | 15 | late 20 %: 5 | false alarms |",
            "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
        ]
        for cv in CVS:
            rng = np.random.default_rng(SEED)
            sets = [series(rng, kind, cv, n, drop, at) for n, drop, at in scenes(count)]
            known = [
                oracle(kind, cv, y) for y in (gaussian(rng, cv, count) if kind == "drift" else sets)
            ]
            statistics = {name: [one[name] for one in known] for name in KNOWING}
            mine = curves[kind, cv] = {}
            mine["bound"] = bound(statistics[KNOWING[0]][0], statistics[KNOWING[0]][2])
            text.append(f"| {cv:.0%} | bound | {_cells(mine['bound'][list(SHOWN)])} | | | | | | |")
            del statistics[KNOWING[0]]
            statistics |= {name: [f(y) for y in sets] for name, f in DETECTORS.items()}
            for name, found in statistics.items():
                limits = equal_risk(found[0])
                rows = [by_run(one > limits) for one in found[1:]]
                mine[name] = rows[1]
                text.append(_row(cv, name, rows))
            rows = [by_run(shipped(y)) for y in sets[1:]]
            mine["iogauge as shipped"] = rows[1]
            text.append(_row(cv, "iogauge as shipped", rows))
            print(*text[-len(statistics) - 2 :], sep="\n", flush=True)
    return text, curves


def scenes(count: int) -> Iterator[tuple[int, float, int]]:
    """How many series, the drop, and the run after the baseline (from 0) with which it begins.

    The first, without a drop, are for the limits; the second for false alarms.
    """
    yield 4 * count, 0.0, 0
    yield from (
        (count, drop, at) for drop, at in ((0.0, 0), (0.1, 0), (0.2, 0), (0.1, 14), (0.2, 14))
    )


#: Runs (from 0) by which a drop at the first run has been found, as the tables show it.
SHOWN = (2, 4, 9, 14, 29)


def gaussian(rng: np.random.Generator, cv: float, count: int) -> Iterator[Doubles]:
    """Series with drift and without disturbed runs, which the likelihood ratio for drift does not know."""
    for n, drop, at in scenes(count):
        shape = (n, N0 + RUNS)
        y = sigma(cv) * rng.standard_normal(shape) + wander(rng, DRIFT, shape)
        y[:, N0 + at :] += math.log1p(-drop)
        yield y


def _cells(shares: Doubles) -> str:
    return " | ".join(f"{one:.3f}" for one in shares)


def _row(cv: float, name: str, rows: list[Doubles]) -> str:
    stable, ten, twenty, *late = rows
    # A late drop counts from run 15 on, and series with an alarm before it do not.
    ten_late, twenty_late = ((one - one[13]) / (1 - one[13]) for one in late)
    cells = [*ten[list(SHOWN)], twenty[2], twenty[4], ten_late[18], ten_late[28], twenty_late[18]]
    return f"| {cv:.0%} | {name} | {_cells(np.array([*cells, stable[-1]]))} |"


def promise(count: int) -> list[str]:
    """What it costs to hold the 5 % under drift too, for those that know the noise and for ours."""
    text = ["", "## What it costs to keep the promise under drift", ""]
    text += [
        "| limits | detector | "
        + " | ".join(f"CV {cv:.0%}, {k} runs" for cv, k, _ in WANTED)
        + " | false alarms with drift, "
        + ", ".join(f"{cv:.0%}" for cv, _, _ in WANTED)
        + " |",
        "|---|---|---|---|---|",
    ]
    cells: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for cv, runs, _ in WANTED:
        rng = np.random.default_rng(SEED)
        white, plain = (
            series(rng, "normal", cv, n, d, 0) for n, d in ((4 * count, 0), (count, 0.1))
        )
        drift, check = (series(rng, "drift", cv, n, 0, 0) for n in (4 * count, count))
        sets = (white, drift, check, plain)
        known = [oracle("normal", cv, y) for y in sets]
        statistics = {name: [one[name] for one in known] for name in KNOWING[1:]}
        statistics |= {
            name: [f(y) for y in sets] for name, f in {"iogauge": iogauge, "warned": warned}.items()
        }
        for name, (one, other, fresh, dropped) in statistics.items():
            own, both = equal_risk(one), np.maximum(equal_risk(one), equal_risk(other))
            for title, limits in (("log-normal", own), ("log-normal and drift", both)):
                found = by_run(dropped > limits)[runs - 1], by_run(fresh > limits)[-1]
                cells.setdefault((title, name), []).append(found)
    for (title, name), found in sorted(cells.items()):
        power, false = zip(*found, strict=True)
        label = "iogauge, baseline's autocorrelation weighed" if name == "warned" else name
        text.append(
            f"| {title} | {label} | {_cells(power)} | {', '.join(f'{x:.3f}' for x in false)} |"
        )
    best = " and ".join(f"{x:.3f}" for x, _ in cells["log-normal and drift", KNOWING[1]])
    text += [
        "",
        f"A detector that knows the noise and keeps the promise under drift too finds {best} of the drops: that is what "
        "*iogauge as shipped* is to be compared with.",
    ]
    return text


def textbook(count: int) -> list[str]:
    """EWMA and CUSUM with the limits that books give."""
    text = ["", "## Textbook limits (log-normal noise)", ""]
    text += ["| CV | detector | 10 % within 5 | 15 | false alarms |", "|---|---|---|---|---|"]
    for cv, _, _ in WANTED:
        rng = np.random.default_rng(SEED)
        stable, dropped = (series(rng, "normal", cv, count, d, 0) for d in (0, 0.1))
        for name, f, limit in (("EWMA, 3 sigma", ewma, 1.0), ("CUSUM, h = 5", cusum, 5.0)):
            found, false = by_run(f(dropped) > limit), by_run(f(stable) > limit)[-1]
            text.append(f"| {cv:.0%} | {name} | {_cells(found[[4, 14]])} | {false:.3f} |")
    return text


def false_alarms(count: int) -> list[str]:
    """False alarms as shipped: by noise, and by the share that is asked for."""
    text = ["", "## False alarms as shipped", "", "Share of stable series with one in 30 runs."]
    cvs = (0.01, 0.02, *CVS, 0.30)
    text += [
        "",
        "| noise | " + " | ".join(f"CV {cv:.0%}" for cv in cvs) + " |",
        "|---|" + "---|" * len(cvs),
    ]
    for kind, title in NOISES.items():
        rng = np.random.default_rng(SEED)
        found = [by_run(shipped(series(rng, kind, cv, count, 0, 0)))[-1] for cv in cvs]
        text.append(f"| {title} | {_cells(np.array(found))} |")
    rng = np.random.default_rng(SEED)
    strong = []
    for cv in cvs:
        y = noise(rng, "normal", sigma(cv), (count, N0 + RUNS))
        strong.append(by_run(shipped(y + wander(rng, 0.02, y.shape)))[-1])
    text.append(f"| drift of 2 % whatever the noise | {_cells(np.array(strong))} |")
    shares = (0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.001)
    text += ["", "| asked for | " + " | ".join(f"{share:.1%}" for share in shares) + " |"]
    text.append("|---|" + "---|" * len(shares))
    for kind, cv in (
        ("normal", 0.05),
        ("normal", 0.1),
        ("drift", 0.05),
        ("drift", 0.1),
        ("t3", 0.1),
    ):
        y = series(np.random.default_rng(SEED), kind, cv, 4 * count, 0, 0)
        found = [by_run(shipped(y, share=share))[-1] for share in shares]
        text.append(f"| {kind}, CV {cv:.0%} | {' | '.join(f'{x:.2%}' for x in found)} |")
    return text


def baselines(count: int) -> list[str]:
    """What more runs in the baseline are worth: as shipped, and for the window that knows the noise."""
    text = ["", "## By size of the baseline (log-normal noise)", ""]
    text += [
        "| baseline | CV | as shipped: 10 % within 5 | 15 | 30 | false alarms | with drift | window, noise known: 5 | 15 |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for base in (20, 30, 60, 100):
        for cv, _, _ in WANTED:
            rng = np.random.default_rng(SEED)
            stable, dropped = (series(rng, "normal", cv, count, d, 0, base) for d in (0, 0.1))
            drift = series(rng, "drift", cv, count, 0, 0, base)
            found = by_run(shipped(dropped, base))[[4, 14, 29]]
            false = np.array([by_run(shipped(one, base))[-1] for one in (stable, drift)])
            known = [oracle("normal", cv, y, base)[KNOWING[1]] for y in (stable, dropped)]
            best = by_run(known[1] > equal_risk(known[0]))[[4, 14]]
            text.append(
                f"| {base} | {cv:.0%} | {_cells(found)} | {_cells(false)} | {_cells(best)} |"
            )
    return text


def estimates(count: int) -> list[str]:
    """How often the interval for the size holds the truth, and how far the onset is off, of drops that were found."""
    text = [
        "",
        "## Size and onset, as shipped (log-normal noise; drop at run 10 after the baseline, seen at run 30)",
        "",
    ]
    text += [
        "| CV | drop | found | interval holds the truth | half of it | onset exact | within 2 runs | within 7 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for cv in CVS[:2]:
        for drop in (0.1, 0.2):
            y = series(np.random.default_rng(SEED), "normal", cv, count, drop, 10)
            one = detector.evidence(y, N0)
            limits = detector.limits(one.scale, RUNS)
            raised = detector.alarms(one.loss, limits, np.full(count, RUNS)).first
            rows = np.flatnonzero(raised >= 10)
            first = np.array(
                [
                    detector.onset(
                        y[row],
                        one.location[row],
                        one.scale[row],
                        begin=N0,
                        end=int(N0 + raised[row]),
                    )
                    for row in rows
                ]
            )
            middle, half = detector.step(y[rows], first, np.full(len(rows), N0 + RUNS))
            held = np.abs(middle - math.log1p(-drop)) <= half
            off = np.abs(first - N0 - 10)
            cells = [
                len(rows) / count,
                held.mean(),
                half.mean(),
                *((off <= k).mean() for k in (0, 2, 7)),
            ]
            text.append(f"| {cv:.0%} | {drop:.0%} | {_cells(np.array(cells))} |")
    return text


def speed() -> list[str]:
    """Time of judging a million runs."""
    lines, runs = 10_000, 100
    y = noise(np.random.default_rng(SEED), "normal", 0.05, (lines, runs))
    y[: lines // 20, 60:] += math.log1p(-0.1)
    at = np.tile(np.arange(runs), lines)
    begin = datetime(2026, 1, 1, tzinfo=timezone.utc)
    frame = pl.DataFrame(
        {
            "line": np.char.mod("%012d", np.arange(lines)).repeat(runs),
            "series": np.where(at < runs // 4, "a", "b"),
            "median": np.exp(y).ravel() * 1000,
            "at": at,
        }
    ).with_columns(
        (pl.lit(begin) + pl.duration(days="at")).cast(pl.Datetime("us", "UTC")).alias("time"),
        pl.concat_str(pl.lit("s"), "at").alias("session"),
        *(pl.lit(text).alias(name) for name, text in FIXED.items()),
        pl.lit(None, pl.String).alias("confirms"),
    )
    start = time.process_time(), time.perf_counter()
    found = states.states_of(frame)
    cpu, wall = time.process_time() - start[0], time.perf_counter() - start[1]
    alarms = sum(one.state is states.State.ALARM for one in found)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return [
        "",
        "## Speed",
        "",
        f"{lines:,} lines of {runs} runs ({lines * runs:,} rows), each with a change of series and a twentieth with a drop, "
        f"judged in {cpu:.1f} s of CPU ({wall:.1f} s by the clock), {memory:.2f} GiB at most with the frame and the "
        f"benchmark itself; {alarms} alarms.",
    ]


FIXED = {
    "system": "site",
    "partition": "scratch",
    "case": "Ior",
    "metric": "write_bw",
    "unit": "MiB/s",
    "better": "more",
    "metric_verdict": "PASS",
    "fingerprint": "same",
}


def summary(curves: Mapping[tuple[str, float], Mapping[str, Doubles]]) -> list[str]:
    """What was wanted and what is had, by noise."""
    text = [
        "| | "
        + " | ".join(f"{kind}: CV {cv:.0%}, {k} runs" for kind in NOISES for cv, k, _ in WANTED)
        + " |"
    ]
    text.append("|---|" + "---|" * len(NOISES) * len(WANTED))
    text.append(
        "| wanted | " + " | ".join(f"{share:.2f}" for _ in NOISES for _, _, share in WANTED) + " |"
    )
    for name in curves["normal", 0.05]:
        found = [curves[kind, cv][name][k - 1] for kind in NOISES for cv, k, _ in WANTED]
        bold = "**" if name == "iogauge as shipped" else ""
        text.append(f"| {bold}{name}{bold} | {_cells(np.array(found))} |")
    return text


HEAD = """# How soon is a drop found?

Written by `python benchmarks/detectors.py --write DIR`, text and figures, in two to four minutes of CPU: {count:,} series a cell,
four times as many for the limits, seed {seed} (standard error {error:.3f} at most, and a point more where limits are set on
the same noise). How the detector works: docs/design.md.

![Curves](detectors.svg)

## What is wanted, and what can be had

Wanted, with a baseline of {base} runs and a false alarm in at most 5 % of stable series of {runs} runs: a drop of 10 % within 5
runs in 95 % of series at CV 5 %, and within 15 runs in 90 % at CV 10 %. The drop is at the first run after the baseline; the
tables below have later ones too.

{summary}

- *bound*: what no detector exceeds that knows noise and size, learns the level from the same baseline, and spends its false
  alarms evenly: a single test by likelihood ratio at the last of the k runs, with 5 % / (30 // k) of false alarms. Whoever
  finds drops within k runs on every day has as many such tests to pay. It looks once and at the best moment, so it is an
  upper bound and no detector.
- Not reached: as shipped {shipped}, with limits set on this noise {own}; the bound is {bound}. The demand at CV 10 % is as
  good as the bound itself, which no detector that watches every day attains: the best that is known has {window}.
- *window, noise known* is the likelihood ratio of the newest runs, 5 at CV 5 % and 15 above: a detector that watches
  every day, and the best known for that deadline. *any day, noise known* is Shiryaev-Roberts, which is optimal for the mean
  delay and not for a deadline: a window beats it.
- iogauge does not know the noise: it has scale and level from the same {base} runs. With limits set on the very noise
  it is what the row *iogauge* says. *As shipped* one table of limits holds for all noises, the strictest of the three.

## How it was done

- *Disturbed* runs deliver 30 to 80 % of what they would have (uniform). *Drift* is an AR(1) with correlation 0.8 from run to
  run and a standard deviation of 2 %, or 0.4 of the noise's where that is less. Student t noise has the same standard
  deviation as the log-normal.
- Each detector's limit is set on stable series of the very same noise, so that every run is as likely as any other to
  raise the false alarm; only "as shipped" uses one table for all noises. The column of false alarms is of other series.
- *Late*: the drop comes at run 15 after the baseline; series with an alarm before it are left out.
- For drift the three that know the noise are those of Gaussian noise, on series without disturbed runs.
- EWMA, CUSUM and 2 of 3 standardise by median and MAD and cut at 3; GLR uses the same fit as iogauge, and cuts at 3.
  *Bayes* is Shiryaev-Roberts averaged over sizes, level and scale with Student t noise.
"""


COLOURS = {
    "bound": "#000000",
    "window, noise known": "#777777",
    "any day, noise known": "#c0c0c0",
    "iogauge": "#ff9896",
    "iogauge as shipped": "#d62728",
    "Bayes": "#ff7f0e",
    "GLR": "#9467bd",
    "EWMA": "#1f77b4",
    "CUSUM": "#2ca02c",
    "2 of 3": "#8c564b",
}


def figure(curves: Mapping[tuple[str, float], Mapping[str, Doubles]]) -> str:
    """Curves of all noises as SVG: probability of detection by number of runs after a drop of 10 %."""
    wide, high, left, top = 320, 220, 46, 84
    kinds = list(NOISES)
    width, height = left + len(CVS) * (wide + 34), top + len(kinds) * (high + 56)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{left}" y="20" font-size="15">Share of series in which a drop of 10 % has been found, by runs since '
        "it began; 5 % false alarms in 30 stable runs; circle: wanted</text>",
    ]
    for place, (name, colour) in enumerate(COLOURS.items()):
        x, y = left + place % 5 * 205, 40 + place // 5 * 18
        parts.append(
            f'<path d="M{x} {y}h24" stroke="{colour}" {_stroke(name)}/>'
            f'<text x="{x + 30}" y="{y + 4}">{name}</text>'
        )
    for (kind, cv), mine in curves.items():
        x0 = left + CVS.index(cv) * (wide + 34)
        y0 = top + kinds.index(kind) * (high + 56) + 12
        parts.append(f'<text x="{x0}" y="{y0 - 6}">CV {cv:.0%}, {NOISES[kind]}</text>')
        for share in (0, 0.25, 0.5, 0.75, 1):
            y = y0 + high * (1 - share)
            parts.append(f'<path d="M{x0} {y:.0f}h{wide}" stroke="#ddd"/>')
            parts.append(f'<text x="{x0 - 5}" y="{y + 4:.0f}" text-anchor="end">{share:g}</text>')
        last = 15 if cv == 0.05 else RUNS
        for run in (1, *range(5, last + 1, 5)):
            x = x0 + wide * run / last
            parts.append(
                f'<text x="{x:.0f}" y="{y0 + high + 15}" text-anchor="middle">{run}</text>'
            )
        for name in reversed(COLOURS):
            points = " ".join(
                f"{x0 + wide * (k + 1) / last:.1f},{y0 + high * (1 - v):.1f}"
                for k, v in enumerate(mine[name][:last])
            )
            parts.append(
                f'<polyline points="{points}" fill="none" stroke="{COLOURS[name]}" {_stroke(name)}/>'
            )
        for at, run, share in WANTED:
            if at == cv:
                parts.append(
                    f'<circle cx="{x0 + wide * run / last:.1f}" cy="{y0 + high * (1 - share):.1f}" r="5" '
                    'fill="none" stroke="#000" stroke-width="1.5"/>'
                )
    return "\n".join([*parts, "</svg>", ""])


def _stroke(name: str) -> str:
    dashed = ' stroke-dasharray="5 3"' if "noise known" in name or name == "bound" else ""
    return f'stroke-width="{3 if name == "iogauge as shipped" else 1.6}"{dashed}'


def main() -> None:
    """Read the command line and do what it says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer series: a tenth of the time")
    parser.add_argument(
        "--write", type=Path, metavar="DIR", help="write detectors.md and detectors.svg there"
    )
    parser.add_argument("--calibrate", action="store_true", help="print the table of limits")
    options = parser.parse_args()
    if options.calibrate:
        calibrate(20_000 if options.quick else 1_000_000)
        return
    count = 500 if options.quick else 8000
    fast = speed()
    tables, curves = compare(count)
    more = [
        promise(count),
        false_alarms(count),
        estimates(count),
        baselines(count),
        textbook(count),
    ]

    def both(name: str) -> str:
        found = (curves["normal", cv][name][runs - 1] for cv, runs, _ in WANTED)
        return " and ".join(f"{one:.3f}" for one in found)

    head = HEAD.format(
        count=count,
        error=0.5 / math.sqrt(count),
        seed=SEED,
        base=N0,
        runs=RUNS,
        summary="\n".join(summary(curves)),
        shipped=both("iogauge as shipped"),
        own=both("iogauge"),
        bound=both("bound"),
        window=both(KNOWING[1]),
    )
    after = [line for part in (*more, fast) for line in part]
    text = head + "\n".join([*after, *tables, ""])
    print(text)
    print(f"{time.process_time():.0f} s of CPU")
    if options.write:
        (options.write / "detectors.md").write_text(text, encoding="utf-8")
        (options.write / "detectors.svg").write_text(figure(curves), encoding="utf-8")


if __name__ == "__main__":
    main()
