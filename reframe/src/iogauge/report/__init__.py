"""What a session found, as people and pipelines read it.

- compare: two records or two Darshan logs, side by side
- history_table: the history in a terminal
- junit: a session as JUnit's XML
- outcome: what records mean for the exit status
- plan_table: what the selected cases will cost
- table: one row a metric, and a line that sums it up
"""
