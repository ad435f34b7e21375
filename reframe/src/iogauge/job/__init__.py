"""Programs that run on the nodes; they start without pydantic and ReFrame.

- agent: the commands that a job script runs on its nodes
- node_agent: the agent of one node while a case runs, and how the job script waits for all of them
- background.sh: start a program, remember it, end it
- control_pipe: how the first task of a node lets its agent look at the counters
- job.sh: open the case, run its phases, close it
- lead_agent: the agent that keeps the lock, and serves the job script of the first node
- locking: the target's lock, held for as long as the job runs
- looking: what the first node sees of the target, and the guards that must hold before the first byte
- opening: how a case enters its target
- recorder: what moves, what appears and what a tool asks for, several times a second
- rounds.sh: a job of fio again and again, each time on one probe
- server: a server of fio on one node
- servers.sh: clients of all servers
- target: what a node sees of the target and of expected settings; on Lustre pins, layouts, checksums
- witness.sh: run a tool, and keep what the kernel forgets with it
"""
