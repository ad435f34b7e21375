"""Quantiles of the normal, Student's and the noncentral t distribution, to ten digits."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

_NORMAL = NormalDist()


def normal_quantile(share: float) -> float:
    """Return the value that this share of standard normal values does not exceed."""
    return _NORMAL.inv_cdf(share)


@lru_cache(maxsize=4096)
def t_quantile(share: float, freedom: float, shift: float = 0.0) -> float:
    """Return the value that this share of t values does not exceed: (Z + shift) / S.

    Z is normal, and S² is chi² over its degrees of freedom. P(T <= t) is the mean of
    Phi(t S - shift) over x = ln S. The density of x is as exp(v (x - (e^2x - 1) / 2)). The trapezoidal
    rule is exact for it up to rounding, if its step is below 0.7 / shift. The limits leave out e^-38
    of the density. Newton's steps find t.
    """
    tail = 38 / freedom
    low, high = -tail - math.sqrt(tail), math.sqrt(tail)
    count = 100 + math.ceil((high - low) * max(8.0, 2 * abs(shift)))
    places = [low + (high - low) * n / count for n in range(count + 1)]
    weights = [math.exp(freedom * (x - math.expm1(2 * x) / 2)) for x in places]
    whole = math.fsum(weights)
    points = [(math.exp(x), w / whole) for x, w in zip(places, weights, strict=True)]
    t = normal_quantile(share) + shift
    for _ in range(100):
        missing = share - math.fsum(w * _NORMAL.cdf(t * s - shift) for s, w in points)
        step = missing / math.fsum(
            w * s * _NORMAL.pdf(t * s - shift) for s, w in points
        )
        t += step
        if abs(step) <= 1e-12 * max(1.0, abs(t)):
            break
    return t
