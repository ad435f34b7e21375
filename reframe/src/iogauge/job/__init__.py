"""What runs on the nodes; it starts without pydantic, polars and ReFrame.

- agent: the commands that a job script asks for on its nodes
- background.sh: start a program, remember it, end it
- fetched.sh: count the bytes that a tool fetched from storage
- fio_server.sh: a fio server on one node
- fio_servers.sh: the servers of all nodes, and their client
- job.sh: open the case, run its phases, close it
- lustre: pin files, read layouts, switch checksums
- opening: lock, look, make the directory; and the way out
- rounds.sh: a tool again and again until a time has passed
"""
