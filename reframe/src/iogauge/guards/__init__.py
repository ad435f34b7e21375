"""Whether a measurement may be believed: one function a rule, and when it speaks.

- cache: client and server caches, write-back
- catalogue: which guards the judge asks, and when
- clock: the tool's seconds against those of its processes, bytes and files
- contents: what was written is there, and stays, and nothing shrinks it
- expected: settings that the site expects of its nodes
- figures: duration, tail, ceiling, bytes, spread
- finding: a guard in words, and what it answers
- agreement: reported figures, the bounds that sources leave, and the function that settles them
- placement: placement, connections
- origin: whether an output is of its own execution and of the planned tool
- others: load of others: other cases, bytes, requests, files
- preflight: the target before the first byte: identity, room, inodes, health
- views: what guards read: a case, its phases, its metrics
- striping: layouts of files
- moved: bytes and files as the tool reports them and as the kernel counts them
"""
