"""Darshan's logs: who wrote a file, and whether they are whole.

- log: Darshan's log as values, by darshan-parser
"""
