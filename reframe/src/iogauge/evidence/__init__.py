"""What a finished job left, as values.

- collect: read a stage directory once and in full
- complaints: why a launcher, a job or a tool failed, in its own words
- fingerprint: join the facts of the nodes, and name a change
- model: the types of all evidence, and layouts that a job noted
- times: for how long bytes moved, files changed and processes ran
- task_counters: what the kernel says that the tasks did
"""
