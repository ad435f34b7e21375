"""What a site declares: partitions, targets, limits, topology, references.

- doubts: declarations under which a PASS means little, or nothing
- environment: the Spack environments that its settings name, for the scripts of ci/
- extras: what a partition's ``extras`` say
- folders: where sites are, and the site that a host name selects
- machine: what this machine has: programs, cores, memory
- marks: accepted values, published figures, and what is only recorded
- mistakes: find the mistakes in a site's settings file
- references: the site's reference file, read strictly
- settings: load the sites, and see which of them a host belongs to
- stack: the software that a Spack environment installed
- survey: what a machine shows for a new site: nodes, queues, the target
- topology: what a target is built of, and the most that it can carry
- writing: the files of a new site and of its repository, from what was seen and answered
"""
