"""What a session found, as people and pipelines read it.

- endings: what the records of a session mean for its ending
- export: the newest results and the history for other tools, JUnit's XML included
- history_table: records of the history
- layout: columns of text that fit a width, without boxes
- outcome: a session's records, a row a metric
- plan_table: what the selected cases will cost
- undone: cases that ReFrame knows and that have no verdict
"""
