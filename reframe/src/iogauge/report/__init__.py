"""What a session found, as people and pipelines read it.

- compare: two subjects side by side
- history_table: the history in a terminal
- junit: a session as JUnit's XML
- outcome: what records mean for the exit status
- plan_table: what the selected cases will cost
- subjects: records and Darshan logs as subjects of a comparison
- table: one row a metric, and a line that sums it up
"""
