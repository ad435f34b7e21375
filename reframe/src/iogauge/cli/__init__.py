"""The command ``iogauge``: parse, call, print, exit; nothing is decided here.

- app: which commands there are
- doctor: what is here, what is missing, what to do
- explain: what a guard, a verdict, a check or a word means
- lustre: the same of a target on Lustre
- newsite: describe this machine as a new site
- remark: a line of the doctor's report
- results: report, status, explain, alarm, compare, calibrate, history, trend
- running: run and bench
- screen: the console, the table of a session, and its ending
- site: doctor, validate, plan, clean, allow
"""
