"""fio: job files from options, values from its JSON.

- options: job files and arguments
- output: the JSON as values, of a run and of turns
"""
