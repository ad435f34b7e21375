"""Whether a metric has become worse, since when, and which references what was measured supports.

- commands: trend and calibrate
- detector: a change of level in a series, how sure it is, and a look back
- proposal: new values for references.yaml, as a diff for a person to read: ``iogauge calibrate``
- runs: the runs that a reference may rest on: their median, spread and bound
- states: the state of each series, what had changed, and ``iogauge trend`` as tables and JSON
- yamledit: find and change single values of a YAML file as text
"""
