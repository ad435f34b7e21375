"""The command ``iogauge``: parse, call, print, exit; nothing is decided here.

- app: which commands there are
- answers: probes of check, and what they find out
- check: check
- host: probes of this host and of a target
- nodes: probes of the nodes of a partition, by one launch
- planning: what is selected: slips, the list, what the cases cost
- queues: queues of a scheduler, and jobs that they would never start
- reporting: report
- results: explain, history
- running: run
- screen: the console, the table of a session, and its ending
- site: site allow; clean
"""
