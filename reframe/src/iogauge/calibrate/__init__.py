"""References proposed from what was measured, as a diff.

- command: read a site's files, propose and write: ``iogauge calibrate``
- proposal: new values for references.yaml, for a person to read
- runs: the runs that a reference may rest on
- statistics: median, spread and bound of a series
- yamledit: find and change single values of a YAML file as text
"""
