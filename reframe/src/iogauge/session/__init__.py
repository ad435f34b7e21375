"""One run of ReFrame: its name, its options, and its cleanup.

- current: name, directories and end of the session; a gate that passes only if something was decided; remains of killed sessions
- life: a sign of life while cases run
"""
