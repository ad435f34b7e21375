"""Which storage target, metadata target or node is the slow one.

- check: every storage target alone, every metadata target alone, every node alone
- judge: which target or node stands out
- measured: what rounds.sh prints, turn by turn
- rounds: the orders of a needle's rounds, and what is measured again
- turns: which probe of a needle has its turn
"""
