"""Whether a metric has become worse, and since when.

- command: the subject of ``iogauge trend``, as tables and JSON
- detector: a change of level in a series, how sure it is, and a look back
- states: the state of each series, and what had changed
"""
