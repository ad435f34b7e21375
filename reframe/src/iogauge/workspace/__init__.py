"""The only directory on a target that a case may write in.

- directory: make the directory, and remove it
- lock: one case at a time on a target
- permission: whether a directory may be written in
- removal: remove a tree, and nothing beside it
"""
