"""Two sessions, sites, stacks or logs side by side.

- commands: compare
- logs: two Darshan logs
- window: the same cases before and after maintenance
- sides: two sets of records, with the uncertainty of their ratio
"""
