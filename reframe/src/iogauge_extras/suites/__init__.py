"""Other benchmark programs.

- elbencho: command lines of elbencho, and its JSON lines
- elbencho_check: scenarios that run elbencho
- io500: ini files of IO500, and its scores
- io500_check: scenarios that run IO500
- md_workbench: command lines of md-workbench, and its latencies
- md_workbench_check: the scenario that runs md-workbench
- wrf: reports of WRF-IO
- wrf_check: the scenario that runs WRF-IO
"""
