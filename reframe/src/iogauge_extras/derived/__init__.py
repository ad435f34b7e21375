"""Quantities that are computed from records of several cases.

- derived_check: cases that are computed from records of other cases: curves, pairs, baselines, sizes
- derive: quantities computed from records of several cases
- places_check: the same, of a baseline, sizes, boxes
"""
