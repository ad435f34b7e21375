"""How soon do detectors find a drop, at the same share of false alarms? Writes detectors.md and detectors.svg.

    python benchmarks/detectors.py [--quick] [--write]    # the comparison, and the best that is possible
    python benchmarks/detectors.py --calibrate            # the table of limits in iogauge/trend.py

Every detector's limit is set on stable series of the same noise, such that each of the 30 runs after the
baseline is as likely as any other to raise a false alarm, and 5 % of the series raise one. "as shipped" is
iogauge's own, with its own limits, which know nothing of the noise.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter
from scipy.special import gamma, ndtr

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "reframe" / "src"))

from iogauge import trend  # noqa: E402

Doubles = NDArray[np.float64]
SEED = 20260401
N0, RUNS, FALSE = 30, 30, 0.05
GROUPS = ((1, 1), (2, 2), (3, 5), (6, 9), (10, 15), (16, 24), (25, 30))
#: A disturbed run delivers this share of what it would have delivered.
SLOW = (0.3, 0.8)
DISTURBED = 0.02
#: Day-to-day drift: standard deviation (log) and correlation from one run to the next.
DRIFT, PHI = 0.02, 0.8
NOISES = {
    "normal": "log-normal, 2 % of runs disturbed",
    "drift": "the same, and a drift of 2 % from day to day",
    "t3": "heavy tails (Student t, 3 degrees of freedom)",
}


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
        steps = rng.standard_normal((shape[0], shape[1] + 50)) * DRIFT * math.sqrt(1 - PHI**2)
        y = y + lfilter([1], [1, -PHI], steps, axis=1)[:, 50:]
    disturbed = rng.random(shape) < DISTURBED
    return y + np.where(disturbed, np.log(rng.uniform(*SLOW, shape)), 0)


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
    location, scale = trend.fit(y[:, :N0])
    u = np.clip((y[:, N0:] - location[:, None]) / (1.08 * scale[:, None]), -3, 3)
    total = np.concatenate([np.zeros((len(u), 1)), np.cumsum(u, axis=1)], axis=1)
    found = np.full(u.shape, -np.inf)
    for length in range(1, u.shape[1] + 1):
        z = (total[:, :-length] - total[:, length:]) / length / math.sqrt(1 / length + 1 / N0)
        found[:, length - 1 :] = np.maximum(found[:, length - 1 :], z)
    return found


def iogauge(y: Doubles) -> Doubles:
    """The detector of iogauge.trend."""
    return trend.evidence(y, N0).loss.astype(float)


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


def oracle(kind: str, cv: float, onset_known: bool = False) -> Callable[[Doubles], Doubles]:
    """Likelihood ratio that knows the noise and the size (10 %), but not the level: Shiryaev-Roberts.

    The level has a flat prior and is learned from the baseline. ``onset_known``: it knows the day as well.
    """
    scale, size = sigma(cv), -math.log1p(-0.1)

    def gaussian_with_drift(y: Doubles) -> Doubles:
        length = y.shape[1]
        lag = np.abs(np.subtract.outer(np.arange(length), np.arange(length)))
        cov = scale**2 * np.eye(length) + DRIFT**2 * PHI**lag
        found = []
        for n in range(N0 + 1, length + 1):
            inverse = np.linalg.inv(cov[:n, :n])
            row = inverse.sum(axis=0)
            project = inverse - np.outer(row, row) / row.sum()
            steps = np.tri(n)[:, N0:n]
            lean = -size * y[:, :n] @ project @ steps
            lean -= size**2 / 2 * np.einsum("ij,ik,kj->j", steps, project, steps)
            found.append(
                lean[:, 0] if onset_known else np.logaddexp.reduce(lean[:, : n - N0], axis=1)
            )
        return np.array(found).T

    def exact(y: Doubles) -> Doubles:
        at = np.linspace(-4.5, 4.5, 31) * 1.25 * scale / math.sqrt(N0)
        level = np.median(y[:, :N0], axis=1)[:, None] + at
        log = np.zeros_like(level)
        for run in range(N0):
            log += np.log(density(kind, y[:, run, None] - level, scale))
        weight = np.exp(log - log.max(axis=1, keepdims=True))
        odds, found = np.zeros_like(weight), []
        for run in range(N0, y.shape[1]):
            off = y[:, run, None] - level
            here = density(kind, off, scale)
            start = 1.0 if run == N0 or not onset_known else 0.0
            odds = (odds + start) * density(kind, off + size, scale) / here
            weight = weight * here
            weight /= weight.sum(axis=1, keepdims=True)
            found.append(np.log((weight * odds).sum(axis=1)))
        return np.array(found).T

    return gaussian_with_drift if kind == "drift" else exact


# Figures.


def equal_risk(stable: Doubles, least: float = -math.inf) -> Doubles:
    """Limits by run, at least ``least``, that spread the share of false alarms evenly over the runs."""
    risk = 1 - (1 - FALSE) ** (1 / RUNS)
    limits, alive = np.full(RUNS, np.inf), np.ones(len(stable), bool)
    for begin, end in GROUPS:
        worst = stable[alive, begin - 1 : end].max(axis=1)
        limit = max(least, float(np.quantile(worst, (1 - risk) ** (end - begin + 1))))
        limits[begin - 1 : end] = limit
        alive[alive] = worst <= limit
    return limits


def detected(statistic: Doubles, limits: Doubles) -> Doubles:
    """Share of series with an alarm by each run."""
    return np.asarray(np.maximum.accumulate(statistic > limits, axis=1).mean(axis=0))


def calibrate(count: int) -> None:
    """Print the limits by scale and run: the stricter of log-normal noise and heavy tails."""
    rng, tables = np.random.default_rng(SEED), []
    edges = np.log(np.array(trend._AT_SCALE))
    # A scale at its least is not the noise's.
    bounds = np.concatenate(([edges[0] + 0.01], (edges[1:] + edges[:-1]) / 2, [edges[-1] + 0.4]))
    for kind in ("normal", "t3"):
        found, scales = [], []
        for _ in range(math.ceil(count / 10000)):
            spread = np.exp(rng.uniform(bounds[0] - 0.5, bounds[-1] + 0.4, (10000, 1)))
            one = trend.evidence(noise(rng, kind, spread, (10000, N0 + RUNS)), N0)
            found.append(one.loss)
            scales.append(np.log(one.scale))
        loss, scale = np.concatenate(found), np.concatenate(scales)
        rows = []
        for low, high in pairwise(bounds):
            chosen = loss[(scale >= low) & (scale < high)]
            limits = equal_risk(chosen, least=trend.LEAST_EVIDENCE)
            rows.append([limits[begin - 1] for begin, _ in GROUPS])
        tables.append(rows)
    for row in np.maximum(*np.array(tables)):
        print("    (" + ", ".join(f"{value:.2f}" for value in row) + "),")


def shipped(y: Doubles, base: int = N0) -> NDArray[np.bool_]:
    """Whether iogauge as it is raises an alarm, by run."""
    one = trend.evidence(y, base)
    return np.asarray(one.loss > trend.limits(one.scale, y.shape[1] - base))


def compare(count: int) -> tuple[list[str], dict[tuple[str, float], dict[str, Doubles]]]:
    """Text of detectors.md and the curves, by noise and coefficient of variation."""
    text, curves = [], {}
    for kind, title in NOISES.items():
        text += ["", f"## Noise: {title}", ""]
        text += [
            "| CV | detector | 10 % within 3 | 5 | 10 | 15 | 30 | 20 % within 3 | 5 | late 10 %: 5 | 15 | false alarms |",
            "|---|---|---|---|---|---|---|---|---|---|---|---|",
        ]
        for cv in (0.05, 0.10, 0.20):
            rng = np.random.default_rng(SEED)
            stable, check = (series(rng, kind, cv, count, 0, 0) for _ in range(2))
            drops = [series(rng, kind, cv, count, d, a) for d, a in ((0.1, 0), (0.2, 0), (0.1, 14))]
            detectors: dict[str, Callable[[Doubles], Doubles]] = {
                "bound, onset known": oracle(kind, cv, onset_known=True),
                "bound": oracle(kind, cv),
                "iogauge": iogauge,
                "GLR": glr,
                "EWMA": ewma,
                "CUSUM": cusum,
                "2 of 3": two_of_three,
            }
            if kind == "drift":  # its oracle knows no disturbed runs: an upper bound all the same
                clean = np.random.default_rng(SEED + 1)
            mine = curves.setdefault((kind, cv), {})
            for name, detector in detectors.items():
                oracles = name.startswith("bound")
                use = [stable, check, *drops]
                if kind == "drift" and oracles:
                    use = [without(clean, cv, count, d, a) for d, a in CLEAN]
                limits = equal_risk(detector(use[0]))
                rows = [detected(detector(one), limits) for one in use[1:]]
                mine[name] = rows[1]
                text.append(_row(cv, name, rows))
            rows = [
                np.maximum.accumulate(shipped(one), axis=1).mean(axis=0) for one in [check, *drops]
            ]
            mine["iogauge as shipped"] = rows[1]
            text.append(_row(cv, "iogauge as shipped", rows))
            print(*text[-len(detectors) - 1 :], sep="\n", flush=True)
    return text, curves


CLEAN = ((0.0, 0), (0.0, 0), (0.1, 0), (0.2, 0), (0.1, 14))


def without(rng: np.random.Generator, cv: float, count: int, drop: float, at: int) -> Doubles:
    """Series with drift and no disturbed runs."""
    y = sigma(cv) * rng.standard_normal((count, N0 + RUNS))
    steps = rng.standard_normal((count, N0 + RUNS + 50)) * DRIFT * math.sqrt(1 - PHI**2)
    y += lfilter([1], [1, -PHI], steps, axis=1)[:, 50:]
    y[:, N0 + at :] += math.log1p(-drop)
    return y


def _row(cv: float, name: str, rows: list[Doubles]) -> str:
    stable, ten, twenty, late = rows
    # A late drop counts from run 15 on, and false alarms before it do not.
    fair = (late - late[13]) / (1 - late[13])
    cells = [ten[2], ten[4], ten[9], ten[14], ten[29], twenty[2], twenty[4], fair[18], fair[28]]
    return (
        f"| {cv:.0%} | {name} | "
        + " | ".join(f"{one:.3f}" for one in cells)
        + f" | {stable[-1]:.3f} |"
    )


def baselines(count: int) -> list[str]:
    """What more runs in the baseline are worth, as shipped."""
    text = ["", "## As shipped, by size of the baseline (log-normal noise)", ""]
    text += [
        "| baseline | CV | 10 % within 5 | 15 | 30 | false alarms |",
        "|---|---|---|---|---|---|",
    ]
    for base in (20, 30, 60, 100):
        for cv in (0.05, 0.1):
            rng = np.random.default_rng(SEED)
            rows = []
            for drop in (0.0, 0.1):
                over = shipped(series(rng, "normal", cv, count, drop, 0, base), base)
                rows.append(np.maximum.accumulate(over, axis=1).mean(axis=0))
            found = " | ".join(f"{rows[1][k]:.3f}" for k in (4, 14, 29))
            text.append(f"| {base} | {cv:.0%} | {found} | {rows[0][-1]:.3f} |")
    print(*text, sep="\n", flush=True)
    return text


COLOURS = {
    "bound, onset known": "#bbbbbb",
    "bound": "#000000",
    "iogauge": "#d62728",
    "iogauge as shipped": "#ff9896",
    "GLR": "#9467bd",
    "EWMA": "#1f77b4",
    "CUSUM": "#2ca02c",
    "2 of 3": "#8c564b",
}


def figure(curves: dict[tuple[str, float], dict[str, Doubles]]) -> str:
    """Curves of all noises as SVG: probability of detection by number of runs after a drop of 10 %."""
    wide, high, left, top = 300, 190, 46, 44
    kinds, cvs = list(NOISES), sorted({cv for _, cv in curves})
    width, height = left + len(cvs) * (wide + 24), top + len(kinds) * (high + 48) + 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    parts.append(
        f'<text x="{left}" y="18" font-size="14">Probability of having found a drop of 10 %, by runs after it; '
        "5 % false alarms in 30 stable runs</text>"
    )
    for (kind, cv), mine in curves.items():
        x0 = left + cvs.index(cv) * (wide + 24)
        y0 = top + kinds.index(kind) * (high + 48)
        parts.append(f'<text x="{x0}" y="{y0 - 4}">CV {cv:.0%}, {NOISES[kind]}</text>')
        for share in (0, 0.25, 0.5, 0.75, 1):
            y = y0 + high * (1 - share)
            parts.append(f'<path d="M{x0} {y:.0f}h{wide}" stroke="#ddd"/>')
            parts.append(f'<text x="{x0 - 5}" y="{y + 4:.0f}" text-anchor="end">{share:g}</text>')
        for run in (1, 5, 10, 15, 20, 25, 30):
            x = x0 + wide * run / RUNS
            parts.append(
                f'<text x="{x:.0f}" y="{y0 + high + 13}" text-anchor="middle">{run}</text>'
            )
        for name, curve in mine.items():
            points = " ".join(
                f"{x0 + wide * (k + 1) / RUNS:.1f},{y0 + high * (1 - v):.1f}"
                for k, v in enumerate(curve)
            )
            parts.append(
                f'<polyline points="{points}" fill="none" stroke="{COLOURS[name]}" stroke-width="1.6"/>'
            )
    x = left
    for name, colour in COLOURS.items():
        parts.append(
            f'<path d="M{x} {height - 14}h18" stroke="{colour}" stroke-width="3"/>'
            f'<text x="{x + 22}" y="{height - 10}">{name}</text>'
        )
        x += 40 + 7 * len(name)
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    """Read the command line and do what it says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer series: a tenth of the time")
    parser.add_argument("--write", action="store_true", help="write detectors.md and detectors.svg")
    parser.add_argument("--calibrate", action="store_true", help="print the table of limits")
    options = parser.parse_args()
    begin = time.perf_counter()
    if options.calibrate:
        calibrate(20_000 if options.quick else 600_000)
        return
    count = 500 if options.quick else 8000
    text, curves = compare(count)
    text += baselines(count)
    seconds = time.perf_counter() - begin
    print(f"\n{count} series each, seed {SEED}, {seconds:.0f} s")
    if options.write:
        here = Path(__file__).parent
        head, _, _ = (here / "detectors.md").read_text().partition("\n## Noise:")
        (here / "detectors.md").write_text(head + "\n".join(text) + "\n", encoding="utf-8")
        (here / "detectors.svg").write_text(figure(curves), encoding="utf-8")


if __name__ == "__main__":
    main()
