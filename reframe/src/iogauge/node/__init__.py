"""A node's view and means: mounts, the page cache, Lustre's client, counters.

- below: the stack below a mount, down to the disks
- contents: a sample of the contents of files
- counters: bytes and connections, counted before and after the phases
- directories: what a directory on Lustre passes on to its files
- host: the node's clock, and its cores
- layouts: layouts, requested and obtained, and their binary form
- lustre: Lustre's client: parameters, storage targets, settings that a case changes
- mounts: mounts, types and names of file systems, space, inodes, quota
- pagecache: empty the page cache of files, and prove it
- probes: the facts of a node's fingerprint
- programs: versions of tools, and what stands between them and the kernel
"""
