"""Which storage target or node is the slow one.

- needle_check: every storage target alone, every node alone
- slow_probes: which target or node stands out
- turns: what rounds.sh prints, turn by turn; what it measures next, in which order, and what is measured again
"""
