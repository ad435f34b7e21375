"""Special loads: for hours, on a full target, beside another load, of a training; a cold walk.

- two_jobs: two jobs of fio at the same time
- fio_loads_check: scenarios: latency over queue depth, bandwidth over hours, a filled target
- checkpoint_check: a scenario: a model's state, saved and read again
- filling: the target up to a fill level
- interference_check: scenarios: one load beside another
- mixed_check: a scenario: reads and writes at once
- random_read_check: scenarios: random reads over clients and servers, with and without checksums
- series: the bytes of an execution, second by second
- walk_check: a scenario: a cold walk over a software stack
- walking: what a node does in a cold walk
"""
