"""What somebody must be told after a run, and how it reaches them.

- bars: ranked bars, gauges, layers and ratios as SVG
- charts: curves over a parameter and the runs of a metric as SVG
- collect: what failed and what has become worse, in words, and the history of those lines
- page: sessions, or a span of time, as one page of HTML
- profile: Darshan logs as text and as a page, one or two side by side
- receivers: a command, a webhook, a note on a merge request
- sweeps: which records make a curve over a parameter
"""
