"""The one place where PASS is decided.

- case: ask the guards, and decide each metric of a case
- needle: which target or node stands out
- verdict: one verdict from measurement, guards and reference
"""
