"""Whether a measurement may be believed: one function a rule, and when it speaks.

- cache: client and server caches, write-back
- catalogue: which guards the judge asks, and when
- clock: the tool's seconds against those of its processes, bytes and files
- contents: what was written is there, and stays, and nothing shrinks it
- figures: duration, tail, ceiling, units, bytes, order, spread
- finding: what a guard answers
- agreement: claims of tools, words of witnesses, and the function that settles them
- nodes: placement, connections, modes of the client, streams between nodes
- origin: whether an output is of its own execution and of the planned tool
- others: load of others: other cases, bytes, requests, files
- preflight: the target before the first byte: identity, room, inodes, health, metadata targets, settings
- rules: the rules as data, from rules.ini
- views: what guards read: a case, its phases, its metrics
- striping: layouts of files
- within: a phase in an execution of several: its bytes and seconds
- moved: the tool's word against the kernel's: bytes, targets, files
"""
