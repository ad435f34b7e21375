"""fio: job files from options, values from its JSON.

- options: job files and arguments
- output: the JSON as values
- turns: many runs, one after the other
"""
