"""A node's view and means: mounts, the page cache, Lustre's client, counters.

- layers: what lies below a mount, down to the disks
- between: what stands between a tool and the kernel, and its version
- btrfs: what btrfs says of itself
- counters: what the kernel counts of a node's storage
- files: empty the page cache of files, and prove it; a sample of their contents
- activity: the node's clock and cores, and bytes and connections, counted before and after the phases
- identity: the names of file systems
- kernel: what the kernel tells: texts, names, answers about a file
- keys: what a fingerprint may tell, as data
- kinds: what is known of each type of file system, and what the layers below a mount take away
- lustre: Lustre's client: programs, parameters, targets, quotas, layouts
- mounts: mounts and the room of a path
- inventory: the facts of a node's fingerprint, and what stands between tools and the kernel
- view: one host's view of a path, of all these
"""
