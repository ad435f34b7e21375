"""Darshan's logs: what a program did to the file system.

- commands: profile
- log: Darshan's log as values, by darshan-parser
- profile: what stands out in a log
- subject: the figures and facts of a log
"""
