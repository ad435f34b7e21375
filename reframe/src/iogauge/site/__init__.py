"""What a site declares: partitions, targets, limits, topology, references.

- doubts: declarations under which a PASS means little, or nothing
- extras: what a partition's ``extras`` say, and declarations under which a PASS means little, or nothing
- folders: where sites are, and the site that a host name selects
- machine: what this machine has: programs, cores, memory, the target
- reference_notes: what a reference file says beside the references
- mistakes: find the mistakes in a site's settings file
- programs: the programs of this machine, and the features that they give
- references: the site's reference file and its marks, read strictly
- settings: load the sites, and see which of them a host belongs to
- stack: the software that a Spack environment installed, and the environments that a site's settings name
- topology: what a target is built of, the most that it can carry, and its other sizes
"""
