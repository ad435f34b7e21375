"""The command ``iogauge``: parse, call, print, exit; nothing is decided here.

- app: which commands there are
- doctor: what is here, what is missing, what to do
- lustre: the same of a target on Lustre
- remark: a line of the doctor's report
- results: report, alarm, compare, calibrate, history, trend
- running: run and bench
- site: doctor, validate, plan, clean, allow
"""
