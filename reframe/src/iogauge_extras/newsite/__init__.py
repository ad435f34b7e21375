"""A machine described as a site: looked at, and written down.

- found: what this host says of itself, of a target, of Slurm and of modules
- site_commands: site new
- writing: settings.yaml, and a repository of the site's own
"""
