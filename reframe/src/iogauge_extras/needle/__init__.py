"""Which storage target, metadata target or node is the slow one.

- check: every storage target alone, every metadata target alone, every node alone
- judge: which target or node stands out
- rounds: the orders of a needle's rounds, and what is measured again
- turns: what rounds.sh prints, turn by turn, and what it measures next
"""
