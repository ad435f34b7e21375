"""Stand-in for IOR 4.0.0: what it would have printed and left behind, at the figures of the case.

Tasks and nodes are those that ``mpirun`` beside it says (OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_SIZE).
Files get their size and hold no data. JSON and rank details are the recorded ones of a run with 4 nodes and
2 tasks on each, scaled. With LD_PRELOAD=.../libdarshan.so it leaves a log for ``darshan-parser`` beside it;
ranks that write are as many as the hints for Cray MPICH ask for.
"""

from __future__ import annotations

import getopt
import json
import os
import sys

import figures

_MIB = 2**20
_FLAGS = "wrecgCzkEFWR"
_VALUES = "a:o:t:b:s:Q:O:G:"
#: Part of a phase's time in which data moves, and times of the recorded run that are passed on.
_MOVING = 0.9995


class Asked:
    """The command line."""

    def __init__(self, words):
        self.words = words
        self.flags = dict.fromkeys(_FLAGS, False)
        self.values: dict[str, str] = {}
        self.directives: dict[str, str] = {}

    @classmethod
    def of(cls, argv):
        try:
            options, rest = getopt.getopt(
                argv, _FLAGS + _VALUES, ["random-offset-seed="]
            )
        except getopt.GetoptError as error:
            print(f"Error invalid argument: {error.opt}")
            figures.refuse(f"ior {' '.join(argv)}")
        if rest:
            print(f"Error invalid argument: {rest[0]}")
            print("Invalid options")
            sys.exit(1)
        asked = cls(argv)
        for option, value in options:
            letter = option[1]
            if letter == "O":
                asked.directives |= dict(
                    word.split("=", 1) for word in value.split(",")
                )
            elif letter in asked.flags:
                asked.flags[letter] = True
            else:
                asked.values[letter] = value
        known = {"summaryFile", "summaryFormat", "saveRankPerformanceDetailsCSV"}
        if unknown := set(asked.directives) - known:
            figures.refuse(f"ior -O {sorted(unknown)[0]}")
        if asked.directives.get("summaryFormat") != "JSON":
            figures.refuse("a summary that is not JSON")
        return asked

    @property
    def tasks(self):
        return int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))

    @property
    def per_node(self):
        return int(os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE", "1"))

    @property
    def api(self):
        return self.values.get("a", "POSIX")

    @property
    def file(self):
        return self.values["o"]

    @property
    def transfer(self):
        return figures.size(self.values["t"])

    @property
    def block(self):
        return figures.size(self.values["b"])

    @property
    def segments(self):
        return int(self.values.get("s", "1"))

    @property
    def of_task(self):
        return self.block * self.segments

    @property
    def operations(self):
        chosen = [
            name
            for letter, name in (("w", "write"), ("r", "read"))
            if self.flags[letter]
        ]
        return chosen or ["write", "read"]

    @property
    def files(self):
        """Sizes by name (aiori's ``%s.%08d``)."""
        if self.flags["F"]:
            return {f"{self.file}.{n:08d}": self.of_task for n in range(self.tasks)}
        return {self.file: self.of_task * self.tasks}

    @property
    def writers(self):
        """Ranks that write: all, unless the MPI library collects."""
        known = self.tasks // self.per_node if self.flags["c"] else self.tasks
        return int(figures.figures().get("writers", known))


class Done:
    """One phase: the operation, its bandwidth in MiB/s as printed, and its times."""

    def __init__(self, operation, mib_s, seconds):
        self.operation, self.mib_s, self.seconds = operation, mib_s, seconds

    @property
    def moving(self):
        return self.seconds * _MOVING


def perform(asked):
    """All operations once; ends the program as IOR would where a file is not there."""
    sizes, done = asked.files, []
    for operation in asked.operations:
        if operation == "write":
            present = next((path for path in sizes if os.path.exists(path)), None)
            if present:
                print(
                    f'WARNING: The file "{present}" exists already and will be overwritten'
                )
            figures.make(sizes, anew=not asked.flags["E"])
        elif lacks := figures.missing(sizes):
            print(
                f'ERROR: open64("{lacks}", 0) failed. Error: No such file or directory, (aiori-POSIX.c:493)'
            )
            sys.exit(255)
        share = figures.share(asked.directives["summaryFile"])
        mib_s = round(figures.figure(f"{operation}_bw") * share, 4)
        done.append(Done(operation, mib_s, asked.of_task * asked.tasks / _MIB / mib_s))
    if not asked.flags["k"]:
        figures.remove(sizes)
    return done


def document(asked, done):
    """The recorded JSON, scaled: what somebody reads of it."""
    found = json.loads(figures.text_of(f"{figures.SAMPLES}/ior_mpirun_4x2.json"))
    (test,) = found["tests"]
    flags, nodes = asked.flags, asked.tasks // asked.per_node
    found["Command line"] = " ".join(["ior", *asked.words])
    test["Parameters"] |= {
        "api": asked.api,
        "repetitions": 1,
        "readFile": int("read" in asked.operations),
        "writeFile": int("write" in asked.operations),
        "filePerProc": int(flags["F"]),
        "reorderTasks": int(flags["C"]),
        "segmentCount": asked.segments,
        "transferSize": asked.transfer,
        "blockSize": asked.block,
    }
    test["Options"] |= {
        "nodes": nodes,
        "tasks": asked.tasks,
        "clients per node": asked.per_node,
    }
    recorded = {result["access"]: result for result in test["Results"]}
    test["Results"] = [
        recorded[one.operation]
        | {
            "bwMiB": one.mib_s,
            "iops": round(
                asked.of_task * asked.tasks // asked.transfer / one.moving, 4
            ),
            "wrRdTime": round(one.moving, 4),
            "totalTime": round(one.seconds, 4),
        }
        for one in done
    ]
    summaries = {entry["operation"]: entry for entry in found["summary"]}
    found["summary"] = [
        summaries[one.operation]
        | {
            "numTasks": asked.tasks,
            "taskPerNodeOffset": int(asked.values.get("Q", "1")),
            "xsizeMiB": round(asked.of_task * asked.tasks / _MIB, 4),
        }
        for one in done
    ]
    return found


def rank_rows(asked, done):
    """Rank details: the header that was recorded, and tasks that end within 2 % of each other."""
    header = figures.text_of(f"{figures.SAMPLES}/ior_i2.ranks.csv").splitlines()[0]
    rows = [header]
    for one in done:
        for rank in range(asked.tasks):
            total = one.seconds * (1 - 0.02 * (rank % 7) / 7)
            times = (
                total,
                total * _MOVING,
                asked.of_task / total,
                asked.of_task / total / _MOVING,
            )
            rows.append(
                ",".join(
                    [one.operation, str(rank), *(f"{time:.10e}" for time in times)]
                )
            )
    return "\n".join(rows) + "\n"


def darshan_log(asked, done):
    """What the recorded text is scaled to by ``darshan-parser``, if Darshan watches."""
    if "libdarshan.so" not in os.environ.get("LD_PRELOAD", "") or not os.environ.get(
        "DARSHAN_LOGFILE"
    ):
        return
    seen = {
        "command": " ".join(["ior", *asked.words]),
        "ended": figures.dates()["timestamp"],
        "tasks": asked.tasks,
        "writers": asked.writers if "write" in asked.operations else 0,
        "file": os.path.abspath(next(iter(asked.files))),
        "bytes": asked.of_task * asked.tasks,
        "seconds": sum(one.seconds for one in done),
        "reduced": os.environ.get("DARSHAN_DISABLE_SHARED_REDUCTION") != "1",
    }
    figures.write(os.environ["DARSHAN_LOGFILE"], json.dumps(seen))


def main(argv):
    """Do what the command line asks."""
    asked = Asked.of(argv)
    print(f"Writing output to {asked.directives['summaryFile']}")
    done = perform(asked)
    output = asked.directives["summaryFile"]
    figures.write(output, json.dumps(document(asked, done), indent=2))
    if ranks := asked.directives.get("saveRankPerformanceDetailsCSV"):
        figures.write(ranks, rank_rows(asked, done))
    darshan_log(asked, done)
    return 0
