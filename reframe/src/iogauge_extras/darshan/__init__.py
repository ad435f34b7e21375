"""Darshan's logs: what a program did to the file system.

- commands: profile
- log: Darshan's log as values
- profile: logs as text and as a page, one or two side by side
- subject: a log as a subject of a comparison
"""
