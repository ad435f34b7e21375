"""A machine described as a site: looked at, written down, planned.

- commands: site new, site add-target
- scheduler: the scheduler of this machine, and its modules
- seen: what a node sees of itself and of a target
- writing: settings.yaml, and a repository of the site's own
"""
