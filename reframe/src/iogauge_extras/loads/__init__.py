"""Special loads: for hours, on a full target, beside another load, of a training.

- check: scenarios: latency over queue depth, bandwidth over hours, a filled target, one load beside another, random reads of samples
- filling: the target up to a fill level
- series: the bytes of an execution, second by second
"""
