"""Find the change points of a whole series, for the view that looks back."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Final

import numpy as np

from iogauge.trend.detector import FLOOR

#: The least change that the offline view reports, as a share.
LEAST_CHANGE: Final = 0.05


def change_points(values: Sequence[float], least: float = LEAST_CHANGE) -> list[int]:
    """Return the indices at which the level of a metric's values (> 0) changed.

    Binary segmentation of the logarithms. A split must pay 3 sigma² ln n, since a step has a
    position and a size. It must separate levels that differ by at least ``least``. sigma is 1.4826
    MAD of successive differences over sqrt(2), at least 1 %. Values are first cut to within 3 sigma
    of the running median of 5, so that a single run makes no step. Parts have at least 5 runs.
    """
    y = np.log(np.asarray(values, float))
    count, part = len(y), 5
    if count < 2 * part:
        return []
    differences = np.diff(y)
    sigma = 1.4826 * float(np.median(np.abs(differences - np.median(differences)))) / math.sqrt(2)
    sigma = max(sigma, FLOOR)
    middle = np.median(np.lib.stride_tricks.sliding_window_view(np.pad(y, 2, "edge"), 5), axis=1)
    total = np.concatenate(([0.0], np.cumsum(np.clip(y, middle - 3 * sigma, middle + 3 * sigma))))
    points, open_parts = [], [(0, count)]
    while open_parts:
        begin, end = open_parts.pop()
        if end - begin < 2 * part:
            continue
        at = np.arange(begin + part, end - part + 1)
        left = (total[at] - total[begin]) / (at - begin)
        right = (total[end] - total[at]) / (end - at)
        gain = (at - begin) * (end - at) / (end - begin) * (left - right) ** 2
        best = int(gain.argmax())
        if gain[best] > 3 * sigma**2 * math.log(count) and abs(
            left[best] - right[best]
        ) >= -math.log1p(-least):
            points.append(int(at[best]))
            open_parts += [(begin, int(at[best])), (int(at[best]), end)]
    return sorted(points)


class MissingExtra(Exception):
    """An optional package is not installed; the message says how to install it."""


def change_points_otava(values: Sequence[float], least: float = LEAST_CHANGE) -> list[int]:
    """Return what apache-otava finds: E-divisive with a t test, window 50, p < 0.001.

    Raises :class:`MissingExtra` if the package is not installed.
    """
    try:
        otava = import_module("otava.analysis")
    except ImportError as error:
        raise MissingExtra(
            "method otava needs the package apache-otava, which is not installed: "
            "pip install 'iogauge[otava]', or use --method binary"
        ) from error
    if len(values) < 2:
        return []
    points, _ = otava.compute_change_points(
        [float(v) for v in values], window_len=50, max_pvalue=0.001, min_magnitude=least
    )
    return [int(point.index) for point in points]


#: Methods of the offline view.
METHODS: Final[dict[str, Callable[[Sequence[float]], list[int]]]] = {
    "binary": change_points,
    "otava": change_points_otava,
}
