"""What a session found, as people and pipelines read it.

- ceilings: declared, measured and reached figures of each layer
- compare: two subjects side by side
- ending: the word and the sentence that a session ends with
- history_table: the history in a terminal
- junit: a session as JUnit's XML
- layout: columns of text that fit a width, without boxes
- outcome: a session's records, and cases without one
- plan_table: what the selected cases will cost
- status: the newest runs of every case as marks
- subjects: records and Darshan logs as subjects of a comparison
- table: one row a metric
"""
