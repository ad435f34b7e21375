"""Two sessions, sites or stacks side by side.

- compare_command: compare
- sides: two sets of records, with the uncertainty of their ratio
"""
