"""The plan of a case: its work, its cost, and the data that cross to its job and back.

- bounds: expected speed, ceilings, what references rest on
- case: phases and their command lines; expected speed and time
- script: the lines of a job script, and the options of launchers and schedulers
- observations: what was noted on the nodes: two files a node
- stage: the files that cross between a job and its judge
"""
