"""What a finished job left, as values.

- collect: read a stage directory once and in full
- complaints: why a job or a phase of it failed
- fingerprint: join the facts of the nodes, and name a change
- model: the types of all evidence, and layouts that a job noted
- times: for how long bytes moved, files changed and processes ran
- speakers: who says what in the output of a job, and which of it is the cause
- task_counters: what the kernel says that the tasks did
"""
