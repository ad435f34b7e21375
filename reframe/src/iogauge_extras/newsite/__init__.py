"""A machine described as a site: looked at, written down, planned.

- site_commands: site new, site add-target
- scheduler: the scheduler of this machine, and its modules
- probe: what a node sees of itself and of a target
- writing: settings.yaml, and a repository of the site's own
"""
