"""IOR: command lines from options, values from its JSON, rank times and help text.

- options: command lines, and the capabilities of a build
- output: the JSON and the rank times as values
"""
