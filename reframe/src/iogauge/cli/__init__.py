"""The command ``iogauge``: parse, call, print, exit; nothing is decided here.

- app: which commands there are
- doctor: what is here, what is missing, what to do
- planning: what is selected: slips, the list, what the cases cost
- reporting: report
- results: explain, history
- running: run and bench
- screen: the console, the table of a session, and its ending
- site: describe a new site; doctor, validate, plan, clean, allow
"""
