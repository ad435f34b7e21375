"""Two sessions, sites, stacks or logs side by side.

- commands: compare
- compare: records and other subjects, two of them side by side
- sides: two sets of records, with the uncertainty of their ratio
"""
