"""What somebody must be told after a run, as a page, in a terminal, and how it reaches them.

- bundle: sessions as one file for a vendor
- by_hand: job scripts as a script that a person runs on any machine
- charts: what the figure of a metric's runs draws, and where
- drifts: troubles that the history alone shows
- failures: troubles that records show
- nagios: the newest session as a plugin of Nagios says it
- news: all troubles, the gravest first, and which of them are new
- notices: what of an alarm was sent, is over, acknowledged or silent
- page_commands: status and alarm, and what the core asks for ``report``
- marks: the newest runs of every case as marks
- page: sessions, or a span of time, as one page of HTML, with its form
- past: the history of the lines that some records measured, and what else went on then
- receivers: a mail, a command, a webhook, a note on a merge request
- sheets: the acceptance of a delivery, and the months of a site, on one page
- trouble: one trouble, and all of some sessions, in words
"""
