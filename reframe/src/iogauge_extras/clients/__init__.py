"""The health of every client: its mount beside the others', and what they must agree on.

- line: a connection to a client, and clients that were started together
- client: what a client does on its node when it is asked: look at its mount, work with the others
- questions: what clients must agree on, as a table
- meeting: clients that look and work together, and what of it their mounts claim
- health: mounts beside each other
- clients_command: check --clients
- semantics_check: the check Semantics
"""
