"""What a session found, as people and pipelines read it.

- ceilings: declared, measured and reached figures of each layer
- compare: records and Darshan logs as subjects, two of them side by side
- export: the newest results and the history for other tools, JUnit's XML included
- history_table: the history in a terminal, and the newest runs of every case as marks
- layout: columns of text that fit a width, without boxes
- outcome: a session's records, a row a metric, cases without one, and the sentence that a session ends with
- plan_table: what the selected cases will cost
- sides: two sets of records, with the uncertainty of their ratio
"""
