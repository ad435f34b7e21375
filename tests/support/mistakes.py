"""The table of mistakes, tests/data/mistakes.txt."""

from support.project import DATA

_TABLE = DATA / "mistakes.txt"

#: References of the site ``mine``, in which mistakes are made.
REFERENCES = """$sources: {FioRandomRead: "data sheet"}
FioRandomRead:
  $index: [$partition, block]
  mine:target:
    4KiB: {read_iops: [20000, -0.1, null, ops/s]}
"""
#: The file of each kind of mistake.
FILES = {
    "settings": "settings.yaml",
    "host": "settings.yaml",
    "references": "references.yaml",
    "cases": "references.yaml",
}


def mistakes(*kinds):
    """Return the rows of some kinds, in their order."""
    found = []
    for line in _TABLE.read_text().splitlines():
        row = line.replace("\\n", "\n").replace("\\t", "\t").split(" | ")
        if row[0] in kinds:
            found.append(row)
    return found
