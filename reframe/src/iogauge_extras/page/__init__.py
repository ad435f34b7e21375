"""What somebody must be told after a run, as a page, in a terminal, and how it reaches them.

- bars: ranked bars, gauges, layers, ratios and maps of cells as SVG
- bundle: sessions as one file for a vendor
- by_hand: job scripts as a script that a person runs on any machine
- charts: the grammar of all figures, and curves over a parameter and the runs of a metric as SVG
- news: what somebody must be told: what failed and what has become worse
- page_commands: status and alarm, and what the core asks for ``report --html``
- marks: the newest runs of every case as marks
- page: sessions, or a span of time, as one page of HTML, with its form
- past: the history of the lines that some records measured
- receivers: a command, a webhook, a note on a merge request
- sweeps: which records make a curve over a parameter
"""
