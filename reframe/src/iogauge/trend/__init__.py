"""Whether a metric has become worse, and since when.

- command: the subject of ``iogauge trend``
- detector: a change of level in a series, and how sure it is
- offline: change points of a whole series, for a look back
- states: the state of each series, and what had changed
- view: states as tables and JSON
"""
