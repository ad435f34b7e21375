"""What is kept of every case, and how it is found again.

- ceilings: the most that each layer carried when it was measured
- columns: records as rows of a table, and series that go on although some records know less
- derive: quantities computed from records of several cases
- journal: append to the history, and read it
- missing: what a session should have measured and did not
- query: the history as columns, with its cache
- record: the form of a record
- selected: the cases that options select, and what keeps some from running
"""
