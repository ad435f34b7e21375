"""Whether a measurement may be believed: one function a rule, and when it speaks.

- cache: client and server caches, write-back, compression; what was written is there, and stays
- catalogue: every guard, a line each
- figures: duration, tail, ceiling, units, bytes, order, spread
- finding: what a guard answers
- nodes: placement, connections, modes of the client, streams between nodes
- origin: whether an output is of its own execution, and bytes and seconds of a phase within one
- others: load of others: bytes, requests, files
- preflight: the target before the first byte: identity, room, inodes, health, metadata targets, settings
- seen: what guards read: a case, its phases, its metrics
- striping: layouts of files
- witness: the tool's word against the kernel's: bytes, seconds
"""
