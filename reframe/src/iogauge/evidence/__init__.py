"""What a finished job left, as values.

- collect: read a stage directory once and in full, and why a launcher, a job or a tool failed
- fingerprint: join the facts of the nodes, and name a change
- model: the types of all evidence, and layouts that a job noted
- witness: what the kernel says that the tasks did, and when
"""
