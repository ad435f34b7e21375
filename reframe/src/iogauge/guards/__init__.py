"""Whether a measurement may be believed: one function a rule, and when it speaks.

- cache: client and server caches, write-back, compression
- catalogue: every guard, a line each
- contents: what was written is there, and stays
- expected: settings that the site demands
- figures: duration, tail, ceiling, units, bytes, spread, order, tool, environment
- finding: what a guard answers
- metadata: metadata targets of Lustre before the first byte: number, place, room
- nodes: placement, connections, modes of the client, streams between nodes
- origin: whether an output is of its own execution
- preflight: the target before the first byte: identity, room, inodes, health
- seen: what guards read: a case, its phases, its metrics
- striping: layouts of files
- witness: the tool's word against the kernel's: bytes, seconds, load of others
"""
