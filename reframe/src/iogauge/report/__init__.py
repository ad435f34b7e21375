"""What a session found, as people and pipelines read it.

- export: the newest results and the history for other tools, JUnit's XML included
- history_table: the history in a terminal
- layout: columns of text that fit a width, without boxes
- outcome: a session's records, a row a metric, cases without one, and the sentence that a session ends with
- plan_table: what the selected cases will cost
"""
