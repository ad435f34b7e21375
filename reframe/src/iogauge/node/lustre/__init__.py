"""Lustre's client on this node: its programs, its parameters, its targets, and layouts.

- checksums: the one setting of the client that a case may switch, and that is restored
- parameters: those of the client, from the kernel's own files, and the facts that they tell
- inherited: what a directory passes on to its files: layout, metadata targets
- file_layout: layouts that files have
- lov: the binary form of a layout, read and written by extended attributes
- lfs: ``lfs`` and ``lctl``
- quotas: what user, group and project may still use
- request: layouts that a case asks for, and files that it pins to targets
- targets: storage and metadata targets, as ``lfs`` and the client show them
"""
