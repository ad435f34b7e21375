"""Programs that run on the nodes; they start without pydantic, polars and ReFrame.

- agent: the commands that a job script runs on its nodes
- background.sh: start a program, remember it, end it
- counters.sh: what this node's devices and clients have moved
- job.sh: open the case, run its phases, close it
- opening: lock, look, make the directory; samples between the phases; and the way out
- recorder: what moves, what appears and what a tool asks for, several times a second
- rounds.sh: a job of fio again and again, each time on one probe
- server.sh: a server of fio or elbencho on one node
- servers.sh: the servers of all nodes, and their client
- target: what a node sees of the target and of expected settings; on Lustre pins, layouts, checksums
- witness.sh: run a tool, and write down what the kernel says that it did
"""
