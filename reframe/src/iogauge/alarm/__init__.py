"""What somebody must be told after a run, and how it reaches them.

- charts: curves over a parameter, ranked bars, gauges and ratios as SVG
- collect: what failed and what has become worse, in words
- figure: the runs of a metric as SVG, or as a line of text
- page: sessions, or a span of time, as one page of HTML
- receivers: a command, a webhook, a note on a merge request
- runs: the history of the lines that sessions measured
- sweeps: which records make a curve over a parameter
- trouble: one problem that somebody must look at
"""
