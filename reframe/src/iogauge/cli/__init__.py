"""The command ``iogauge``: parse, call, print, exit; nothing is decided here.

- app: which commands there are
- answers: questions of check, and their answers
- check: check, and the table of its questions
- host: what this host is asked, and what it sees of a target
- nodes: what the nodes of a partition lack, by one launch
- planning: what is selected: slips, the list, what the cases cost
- queues: queues of a scheduler, and jobs that they would never start
- reporting: report
- results: explain, history
- running: run
- screen: the console, the table of a session, and its ending
- site: site allow; clean
"""
