"""What a site can do without, beside the core.

The core finds these packages by the entry points in reframe/pyproject.toml (:mod:`iogauge.core.registry`), and works without any of them.
"""
