"""The one place where PASS is decided.

- decide: ask the guards, and decide each metric of a case
- verdict: one verdict from measurement, guards and reference
"""
