"""What the stand-ins of tests/support/replay share: figures to replay, and files on a Lustre that is none.

Files hold no data; ``sh`` lets the agent see some (agent.py). The programs ``ior``, ``fio`` and ``darshan-parser`` print recorded output (tests/data/samples,
tests/data/darshan), scaled to a figure, for the command line that they are given; ``mpirun`` says how many
tasks on how many nodes there are. What a command line asks for and is not replayed ends with status 70.

Environment:

* ``REPLAY_FIGURES``: a JSON file, from a case (:func:`case_key`) to its figures: ``write_bw`` and ``read_bw``
  in MiB/s, ``read_iops`` and ``read_iops_unchecked`` in ops/s, ``writers``; and ``stripes``, the number that
  every layout gets, whatever was asked.
* ``LFS_OSTS`` and what else tests/support/lustre/standin.py knows, where Lustre stripes the target. Below
  ``LFS_STATE``, which lies on the target's file system, every case has a state of its own.

As tests/support/lustre/standin.py, what ``lfs`` starts with imports nothing that it does not need.
"""

import json
import os
import re
import sys
import time
from functools import cache

TESTS = os.path.realpath(f"{__file__}/../../..")
SAMPLES = f"{TESTS}/data/samples"
DARSHAN = f"{TESTS}/data/darshan"
sys.path.insert(0, f"{TESTS}/support/lustre")

#: Samples of one case lie so far apart at most, as a share of the figure.
SPREAD = 0.005


def refuse(what):
    """End the program: this is not replayed."""
    print(f"stand-in: {what}: not covered", file=sys.stderr)
    sys.exit(70)


def case_key(partition, check, parameters):
    """Name of a case among the figures; ``partition`` with its system."""
    return " ".join(
        [partition, check, *sorted(f"{k}={v}" for k, v in parameters.items())]
    )


def text_of(file):
    """Text of a file."""
    with open(file, encoding="utf-8") as opened:
        return opened.read()


def write(file, text):
    """Write a text file."""
    with open(file, "w", encoding="utf-8") as opened:
        opened.write(text)


def figures():
    """Figures of the case whose stage directory this is."""
    footprint = json.loads(text_of("footprint.json"))
    check, *parameters = footprint["name"].split()
    pairs = dict(word.lstrip("%").split("=", 1) for word in parameters)
    key = case_key(footprint["partition"], check, pairs)
    known = json.loads(text_of(os.environ["REPLAY_FIGURES"]))
    if key not in known:
        refuse(f"no figures of {key}")
    return known[key]


def figure(name):
    """One figure of this case."""
    known = figures()
    if name not in known:
        refuse(f"no figure {name} among {sorted(known)}")
    return known[name]


def dates():
    """The present as fio says it; IOR's dates have the form of ``time``."""
    now = time.time()
    return {
        "timestamp": int(now),
        "timestamp_ms": int(now * 1000),
        "time": time.ctime(now),
    }


def share(output):
    """What a sample is of the figure: repetitions differ by half a percent, and their median is the figure.

    The repetition is the number in the output file's name; the warm-up, 0, is slow.
    """
    match = re.search(r"\.(\d+)\.", os.path.basename(output))
    repetition = int(match[1]) if match else 1
    return [0.9, 1.0, 1 - SPREAD, 1 + SPREAD][min(repetition, 3)]


# --- files ----------------------------------------------------------------------------------------


def striped():
    """Whether Lustre stripes the target."""
    return bool(os.environ.get("LFS_OSTS"))


@cache
def of_this_case():
    """The module that stands in for Lustre, with a state of this case alone and targets of a real size."""
    import standin

    top = os.environ["LFS_STATE"]
    folder = os.path.join(top, os.path.basename(os.environ["IOG_DIR"]))
    os.environ["LFS_STATE"] = folder
    os.makedirs(folder, exist_ok=True)
    info = os.statvfs(top)
    standin.BLOCKS = info.f_blocks * info.f_frsize // 1024 // standin.ost_count()
    standin.RESERVED = 0
    if os.path.exists("footprint.json") and "stripes" in figures():
        os.environ["LFS_LIE_COUNT"] = str(figures()["stripes"])
    return standin


def _once(default_above):
    """The default of a directory, remembered by its path."""
    known = {}

    def found(state, path):
        if path not in known:
            known[path] = default_above(state, path)
        return known[path]

    return found


def make(sizes, anew):
    """Files with holes for data. ``anew``: what is there is removed first, and its layout with it."""
    for path, size in sizes.items():
        if anew and os.path.lexists(path):
            os.unlink(path)
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        if os.fstat(file).st_size < size:
            os.ftruncate(file, size)
        os.close(file)
    if striped():
        lustre = of_this_case()
        with lustre.remembered() as state:
            # Nothing sets a default meanwhile: each directory is asked once.
            lustre.default_above = _once(lustre.default_above)
            # Tasks make their files at the same time: the first gets its targets as likely as the last.
            for path in reversed(sizes):
                lustre.layout_of(state, path)


def missing(sizes):
    """The first file that is not there, or too short."""

    def lacks(path, size):
        return not os.path.exists(path) or os.path.getsize(path) < size

    return next((path for path, size in sizes.items() if lacks(path, size)), None)


def size(text):
    """Bytes of a size as IOR and fio read it: binary, with k, m, g or t."""
    match = re.fullmatch(r"(\d+)([kmgt]?)", text.lower())
    if not match:
        refuse(f"size {text}")
    return int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}[match[2]]


def remove(paths):
    for path in paths:
        os.unlink(path)
