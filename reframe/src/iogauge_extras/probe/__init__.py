"""Seconds of load every few minutes: is the target slow now, since when, and for whom.

- small_load: the load, on one node
- slowdown: factors against the own last weeks, and times in which a target was slow
- probe_lines: the lines of the probes, a file each node and month
- probe_command: probe
"""
