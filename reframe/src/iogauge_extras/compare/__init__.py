"""Two sessions, sites, stacks or logs side by side.

- compare_command: compare
- logs: two Darshan logs
- sides: two sets of records, with the uncertainty of their ratio
"""
