"""What is kept of every case, and how it is found again.

- journal: append to the history, and read it
- names: the one name of a case, and what fits it
- query: the history as columns, with its cache, and series that go on although some records know less
- record: the form of a record
- rows: a history's rows and columns
- selected: the cases that options select, and those that should have been measured and were not
"""
