"""Rank details as mdtest writes them beside its table: here all tasks take as long."""

import re


def ranks_of(text, done=None):
    """The rank details of an output; ``done`` are the operations of each phase, if they are not those of the output."""
    tasks, items = re.search(r"(?m)^(\d+) tasks, (\d+) ", text).groups()
    most = re.findall(r"max: (\d+) avg", text)
    done = done or (int(most[-1]) * int(tasks) if most else int(items))
    table = text.partition("SUMMARY rate")[2].partition("\n\n")[0]
    rows = re.findall(r"(?m)^   ([A-Z]\w+ [a-z]+) [\s:]+\S+\s+\S+\s+(\S+)", table)
    header, overall = ["rank", "items"], ["all", "0"]
    for name, rate in rows:
        header += [f"rate-{name}", f"time-{name}"]
        overall += ["", ""]
        if float(rate):
            overall[-2:] = f"{float(rate):.10e}", f"{done / float(rate):.10e}"
    own = [[str(rank), *overall[1:-4]] for rank in range(int(tasks))]
    return "".join(f"{','.join(cells)}\n" for cells in (header, overall, *own))
