"""What a finished job left, as values.

- changes: what a node's counters say of the time between two looks
- collect: read a stage directory once and in full
- failure: why a job or a tool failed, in its own words
- fingerprint: join the facts of the nodes, and name a change
- model: the types of all evidence
- series: bandwidth over the time of an execution
- striping: layouts that a job noted on Lustre
- witness: what the kernel says that the tasks did
"""
