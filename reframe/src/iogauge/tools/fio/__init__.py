"""fio: job files from options, values from its JSON.

- fio_options: job files and arguments
- fio_output: the JSON as values, of a run and of turns
"""
