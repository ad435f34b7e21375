"""References proposed from what was measured, as a diff.

- proposal: new values for references.yaml, as a diff for a person to read: ``iogauge calibrate``
- runs: the runs that a reference may rest on: their median, spread and bound
- yamledit: find and change single values of a YAML file as text
"""
