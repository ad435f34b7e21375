"""Darshan's logs: what a program did to the file system.

- profile_command: profile
- figures: the figures and facts of a log
- log: Darshan's log as values, by darshan-parser
- profile: what stands out in a log
- subject: a log as one side of a comparison
"""
