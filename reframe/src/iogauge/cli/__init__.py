"""The command ``iogauge``: parse, call, print, exit; nothing is decided here.

- app: which commands there are
- doctor: what is on this host, what is missing, what to do
- nodes: what the nodes of a partition see, by one launch
- planning: what is selected: slips, the list, what the cases cost
- ready: check
- reporting: report
- results: explain, history
- running: run
- screen: the console, the table of a session, and its ending
- site: site allow and paths; clean
"""
