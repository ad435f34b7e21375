"""mdtest: command lines from options, values from its tables.

- options: command lines
- output: the tables and the rank details as values
"""
