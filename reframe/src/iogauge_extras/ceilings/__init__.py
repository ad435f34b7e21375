"""What the layers below the file system carry.

- ceilings_check: scenarios that measure network, memory and devices
- ceilings_command: ceilings
- guilty: who makes pairs of nodes slow
- iperf3: streams between nodes, and their reports
- measured: the most that each layer carried when it was measured
- streams: iperf3 on all nodes, turn by turn
- table: declared, measured and reached figures of each layer
"""
