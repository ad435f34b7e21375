"""What somebody must be told after a run, and how it reaches them.

- collect: what failed and what has become worse, in words
- figure: the runs of a metric as SVG, or as a line of text
- page: a session as one page of HTML
- receivers: a command, a webhook, a note on a merge request
- trouble: one problem that somebody must look at
"""
