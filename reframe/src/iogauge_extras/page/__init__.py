"""What somebody must be told after a run, as a page, in a terminal, and how it reaches them.

- bars: ranked bars, gauges, layers and ratios as SVG
- bundle: sessions as one file for a vendor
- charts: curves over a parameter and the runs of a metric as SVG
- collect: what failed and what has become worse
- commands: status and alarm, and what the core asks for ``report --html``
- form: templates and style of all pages
- heat: nodes against nodes or storage targets, as a map of cells
- marks: the newest runs of every case as marks
- page: sessions, or a span of time, as one page of HTML
- past: the history of the lines that some records measured
- places: where records were made, and what is known of each place
- pricing: what the measured bandwidth costs
- published: what documents print of other systems
- receivers: a command, a webhook, a note on a merge request
- summary: what a page says first
- svg: the grammar of all figures: axes and marks
- sweeps: which records make a curve over a parameter
- trouble: what somebody must be told, in words
"""
