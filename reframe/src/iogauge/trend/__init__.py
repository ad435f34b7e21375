"""Whether a metric has become worse, and since when.

- detector: a change of level in a series, how sure it is, and a look back
- states: the state of each series, what had changed, and ``iogauge trend`` as tables and JSON
"""
