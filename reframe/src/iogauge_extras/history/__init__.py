"""Whether a metric has become worse, since when, and which references what was measured supports.

- history_commands: calibrate
- position: where a reference stands in references.yaml
- proposal: new values for references.yaml, as a diff for a person to read: ``iogauge calibrate``
- prune: old records as one compressed file: ``iogauge history prune``
- runs: the runs that a reference may rest on: their median, spread and bound
- states: the state of each series
- statistics: changes of level and how sure they are, bounds, and intervals, by ranks
- yamledit: change single values of a YAML file
"""
