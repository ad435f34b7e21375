"""The only directory on a target that a case may write in.

- directory: make the directory; remove it, and nothing beside it
- lock: one case at a time on a target
- permission: whether a directory may be written in
- removal: remove trees of many files at a limited rate
"""
