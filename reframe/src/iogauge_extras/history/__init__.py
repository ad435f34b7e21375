"""Whether a metric has become worse, since when, and which references what was measured supports.

- history_commands: trend and calibrate
- proposal: new values for references.yaml, as a diff for a person to read: ``iogauge calibrate``
- quantiles: quantiles of the normal and the t distributions
- runs: the runs that a reference may rest on: their median, spread and bound
- shown: ``iogauge status --trend`` as tables and JSON
- states: the state of each series, what had changed, and ``iogauge status --trend`` as tables and JSON
- statistics: changes of level and how sure they are, bounds, and intervals, by ranks
- yamledit: find and change single values of a YAML file as text
"""
