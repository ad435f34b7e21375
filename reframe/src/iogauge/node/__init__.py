"""A node's view and means: mounts, the page cache, Lustre's client, counters.

- below: the stack below a mount, down to the disks
- files: empty the page cache of files, and prove it; a sample of their contents
- host: the node's clock and cores, and bytes and connections, counted before and after the phases
- kinds: what is known of each type of file system
- layouts: layouts, requested and obtained, and their binary form
- lustre: Lustre's client: parameters, storage targets, settings that a case changes, what directories pass on
- mounts: mounts, types and names of file systems, space, inodes, quota
- probes: the facts of a node's fingerprint, versions of tools, and what stands between them and the kernel
"""
