"""One run of ReFrame: its name, its options, and what it cleans up.

- current: name, directories and end of the session
- gate: a gate passes only if something was decided
- janitor: what killed sessions left behind, and its removal
"""
