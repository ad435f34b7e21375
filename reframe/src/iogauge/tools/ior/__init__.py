"""IOR: command lines from options, values from its JSON, rank times and help text.

- options: command lines, and what a build can do
- output: the JSON and the rank times as values
"""
