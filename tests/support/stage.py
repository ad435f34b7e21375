"""A stage directory as a healthy job leaves it, made of recorded tool output."""

import json
import re
from datetime import datetime, timezone

from iogauge.core.measurement import Metric
from iogauge.node.files import Block, Eviction, Held, Sample
from iogauge.node.kinds import Below
from iogauge.node.mounts import Mount, Space
from iogauge.node.view import View
from iogauge.plan.case import DIR, REP, Access, CasePlan, PhasePlan
from iogauge.plan.stage import Opened
from iogauge.tools.fio import fio_output as tools_output
from iogauge.tools.ior.ior_output import parse_json, with_rank_times
from support.project import SAMPLES

METRICS = (Metric("write_bw", "MiB/s"), Metric("read_iops", "ops/s"))
REPETITIONS = 2
WRITTEN = 826802176
#: Bytes that the recorded fio read.
READ = 190013440
_WAYS = ("write", "read")
#: What the recorded IOR was asked to do.
ASKED = (
    "-a POSIX -F -e -w -k -D 1 -t 256k -b 8g -l random "
    "-O stoneWallingWearOut=1,stoneWallingStatusFile=sw.status -O saveRankPerformanceDetailsCSV=sw.ranks.csv "
    f"-o {DIR}/sw -O summaryFile=stone_wear.json,summaryFormat=JSON"
)
#: Where it wrote, and when the node had booted.
DIRECTORY = "/tmp/tb"
BOOTED = 1795000000
VIEW = View(
    "n1",
    "/s",
    Mount(1, "/s", "/dev/sdb1", "ext4", "rw"),
    Space(10**12, 9 * 10**11, 10**6, 10**6),
    (),
    "k:1",
    below=Below(devices=("8:16",), disks=("8:16",), names={"8:16": "sdb"}),
)


def parse_ior(printed):
    output = parse_json(printed.result, printed.stdout)
    return with_rank_times(output, printed.ranks)


def parse_fio(printed):
    return tools_output.parse_json(printed.result)


def plan(nodes=1, **change):
    """Write with IOR, then read with fio from an emptied cache."""
    write = PhasePlan(
        name="write",
        command=["ior", *ASKED.split()],
        launch="tasks",
        parse=parse_ior,
        rates={"write_bw": ("write", "bw")},
        access=Access(direction="write", fsync=True, saturates="bandwidth"),
        output=f"ior.{REP}.json",
        ranks=f"ior.{REP}.csv",
        data_bytes=WRITTEN,
    )
    read = PhasePlan(
        name="read",
        command=["fio"],
        launch="once",
        parse=parse_fio,
        rates={"read_iops": ("read", "iops")},
        access=Access(direction="read", evict=True),
    )
    values = {
        "tool": "ior",
        "repetitions": REPETITIONS,
        "tasks": 2,
        "nodes": nodes,
        "repeat": [write, read],
        "held_bytes": WRITTEN,
        "files": 1,
    }
    return CasePlan(**values | change)


def dated(text, epoch):
    """Recorded output of IOR or fio with another date, in UTC."""
    date = datetime.fromtimestamp(epoch, timezone.utc).strftime("%a %b %d %H:%M:%S %Y")
    text = re.sub(
        r'("(?:Began|StartTime|Finished|time)" ?: ")[^"]*', rf"\g<1>{date}", text
    )
    text = re.sub(r'("timestamp" : )\d+', rf"\g<1>{epoch}", text)
    return re.sub(r'("timestamp_ms" : )\d+', rf"\g<1>{epoch}000", text)


def task_line(execution, number, read, written):
    """What job/witness.sh writes of a task: its seconds, what it asked for in how many calls, what the kernel moved."""
    return (
        f"{execution} {number} 0 1000 - {read} {written} 0 0 {read} {written} 0 end\n"
    )


def build(stage, nodes=1):
    """Write all files of a healthy job; returns the directory."""
    stage.mkdir(exist_ok=True)
    opened = Opened(
        session="s",
        case="c",
        directory=DIRECTORY,
        view=VIEW,
        locked=True,
    )
    (stage / "open.json").write_text(json.dumps(opened.to_json()))
    (stage / "neighbours.txt").touch()
    runs = []
    hosts = [f"n{number + 1}" for number in range(nodes)]
    notes = {host: [] for host in hosts}
    if nodes > 1:
        runs.append("0\tview\t0\t1.5\t2.5\tt")
        for host in hosts:
            notes[host].append(
                [1.5, "view", {**VIEW.to_json(), "host": host, "cache_id": host}]
            )
    for rep in range(REPETITIONS + 1):
        for name in ("write", "evict-read", "read"):
            runs.append(f"{rep}\t{name}\t0\t{len(runs)}.5\t{len(runs) + 1}.5\tt")
            (stage / f"{name}.{rep}.out").touch()
            (stage / f"{name}.{rep}.err").touch()
        for host in hosts:
            for execution, moved in (
                (f"write.{rep}", [0, WRITTEN // nodes, 1]),
                (f"read.{rep}", [READ, 0, 1]),
            ):
                notes[host] += [
                    [0.5, "counters", [execution, "before", {"8:16": [0, 0, 0]}]],
                    [1.5, "counters", [execution, "after", {"8:16": moved}]],
                ]
        for number in range(2):
            with (stage / f"tasks.{hosts[number % nodes]}").open("a") as lines:
                lines.write(task_line(f"write.{rep}", number, 1 << 20, WRITTEN // 2))
        with (stage / "tasks.n1").open("a") as lines:
            lines.write(task_line(f"read.{rep}", 0, READ, 0))
        text = (SAMPLES / "ior_stone_wear.json").read_text()
        (stage / f"ior.{rep}.json").write_text(dated(text, BOOTED + len(runs) - 2))
        (stage / f"ior.{rep}.csv").write_text(
            (SAMPLES / "ior_stone.ranks.csv").read_text()
        )
        text = (SAMPLES / "fio_randread.json").read_text()
        (stage / f"read.{rep}.out").write_text(dated(text, BOOTED + len(runs)))
        for host in hosts:
            done = Eviction(host, 1, WRITTEN, 0)
            notes[host].append([2.5, f"evict-read.{rep}", done.to_json()])
    samples = [
        Sample(
            repetition=rep,
            after=after,
            blocks=(Block("data", 0, "0a1b2c3d"), Block("data", 4096, "4d3c2b1a")),
            files=(Held("data", WRITTEN, WRITTEN),) if after == "write" else (),
        )
        for rep in range(REPETITIONS + 1)
        for after in _WAYS
    ]
    notes["n1"] += [[3.5, "contents", sample.to_json()] for sample in samples]
    notes["n1"].append([4.5, "lost", ""])
    for host, of_host in notes.items():
        lines = "".join(json.dumps(note) + "\n" for note in of_host)
        (stage / f"seen.{host}.jsonl").write_text(lines)
    (stage / "phases.tsv").write_text("\n".join(runs) + "\n")
    return stage
