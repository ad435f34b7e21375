"""A node's view and means: mounts, the page cache, Lustre's client, counters.

- below: the stack below a mount, down to the disks
- client_settings: settings of the Lustre client that a case changes, and their restoration
- clock: a node's clock, beside the seconds since boot
- contents: a sample of the contents of files
- cores: physical cores of the node
- counters: bytes and connections, counted before and after the phases
- directories: what a directory on Lustre passes on to its files
- layouts: the layout to request, and the layout obtained
- lov: the binary form of a file's layout
- lustre_client: parameters of the Lustre client, from the kernel's own files
- lustre_targets: storage targets as Lustre's programs print them
- mounts: mounts, types of file systems, space, inodes, quota
- pagecache: empty the page cache of files, and prove it
- probes: the facts of a node's fingerprint
- programs: versions of tools, and what stands between them and the kernel
- uuids: names of file systems that no device name and no server's address can change
"""
