"""Special loads: for hours, on a full target, beside another load, of a training.

- check: scenarios: latency over queue depth, bandwidth over hours, a filled target, random reads of samples
- interference_check: scenarios: one load beside another
- mixed_check: a scenario: reads and writes at once
- filling: the target up to a fill level
- series: the bytes of an execution, second by second
"""
