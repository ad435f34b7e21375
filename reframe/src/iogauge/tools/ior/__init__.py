"""IOR: command lines from options, values from its JSON, rank times and help text.

- ior_options: command lines, and the capabilities of a build
- ior_output: the JSON and the rank times as values
"""
