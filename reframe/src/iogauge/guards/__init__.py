"""Whether a measurement may be believed: one function a rule, and when it speaks.

- cache: client and server caches, write-back, compression
- catalogue: every guard, a line each
- contents: what was written is there, and stays
- figures: duration, tail, ceiling, units, bytes, order, spread
- finding: what a guard answers
- nodes: placement, connections, modes of the client, streams between nodes
- origin: whether an output is of its own execution
- preflight: the target before the first byte: identity, room, inodes, health, metadata targets, settings
- seen: what guards read: a case, its phases, its metrics
- striping: layouts of files
- within: a phase within an execution of several: its bytes, its seconds
- witness: the tool's word against the kernel's: bytes, seconds, load of others
"""
