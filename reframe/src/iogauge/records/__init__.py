"""What is kept of every case, and how it is found again.

- index: the index of a history in SQLite, made from its session files
- journal: append to the history, and read it
- names: the one name of a case, and what fits it
- query: what is asked of a history
- record: the form of a record
- selected: the cases that options select, and those that should have been measured and were not
- series: series that go on although some records know less, and that begin anew with what is not comparable
"""
