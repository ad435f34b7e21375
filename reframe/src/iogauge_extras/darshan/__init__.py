"""Darshan's logs: who wrote a file, what two of them have in common, and whether they are whole.

- log_figures: the figures and facts of a log
- log: Darshan's log as values, by darshan-parser
"""
