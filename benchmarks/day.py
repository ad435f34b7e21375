"""A day of an administrator, on a real Slurm of four nodes, as a page: docs/day.md has its most important lines.

    python benchmarks/day.py [DIRECTORY] >day.md

Two disks and the nodes' network have limits that the day changes. Needs root, Slurm, Open MPI, fio, iperf3, xfsprogs, loop
devices and cgroup v1 blkio. Each step asserts what it shows; tests/e2e/test_slurm.py runs all of it by night.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.devices import MIB, THROTTLE, Devices, run  # noqa: E402
from support.hosts import Hosts  # noqa: E402
from support.slurm import Slurm  # noqa: E402

#: The disks' limit in MiB/s, the network's in Mbit/s.
DISK, NETWORK = 40, 200
#: Short cases, an alarm's receiver, and streams between nodes for the first target.
EDITS = (
    "s/phase_seconds: 2 s,/phase_seconds: 4 s, repetitions: 1, max_deviation: 50 %,/; s/case_bytes: [0-9]* MiB/case_bytes: 64 MiB/",
    's|          expect:|          alarm: {command: "tee told"}\\n          sweeps: {tasks_per_client: [2]}\\n&|',
    "0,/ expect:/s|          expect:|          ceilings: {network: tcp}\\n"
    "          cases: {NetworkCeiling: {phase_seconds: 12 s}}\\n&|",
)
REFERENCES = """\
$sources: {RandomRead: 'as iogauge calibrate proposed it'}
RandomRead:
  $index: [block, span]
  128KiB: {all: {read_bw: [40, -0.2, null, MiB/s], read_iops: [320, -0.2, null, ops/s]}}
"""
#: Lines of ReFrame, and of a case's progress.
_OTHERS = re.compile(
    r"\[[-= A-Z]|  (version|command|launched|working|settings|selected|check|stage|output|log|results)\b.*: +|P: |==>"
    r"|Log file|iogauge: \w+ .*: .* gone|$"
)
#: What a reader of the page can miss: remarks, advice, status 0.
_LONG = re.compile(
    r" {4}([A-Z]\d+ [^:\n]*, a remark: .*\n( {4}[^$\s].*rows\)\n)?|\(exit status 0\)\n|not found out.*\n( {4}(run )?again.*\n| {4}before,.*\n)?"
    r"|not for this site.*\n {4}they need.*\n|\$ sed .*\n| *(since|cause): .*\n {4,6}(UTC|look) .*\n|next:\n( {8}.*\n)+)"
)


class Day:
    """What was shown so far, and the ways to show more."""

    def __init__(self, place: Path, slurm: Slurm) -> None:
        self.place, self.slurm, self.page = place, slurm, [""]

    def tell(self, *texts: str) -> None:
        self.page += [text for one in texts for text in (one, "")]

    def show(
        self, command: str, status: int = 0, last: str = "", lines: int = 99
    ) -> str:
        """Run a command on the head and show its last lines, to one that starts with ``last``; returns all as one line."""
        own = {
            k: v
            for k, v in os.environ.items()
            if not re.match("(RFM|IOGAUGE|SLURM)_", k)
        }
        path = f"{Path(sys.executable).parent}:{own['PATH']}:/usr/sbin:/sbin"
        own |= {
            "IOGAUGE_HOME": f"{self.place}/state",
            "IOGAUGE_SITES": f"{self.place}/sites",
        }
        own |= self.slurm.environment | {"PATH": path, "COLUMNS": "100"}
        words = ["bash", "-c", f"cd {self.place} && {command}"]
        done = subprocess.run(
            self.slurm.hosts.command(self.slurm.head, words),
            env=own,
            stdout=-1,
            stderr=-2,
            text=True,
            check=False,
            timeout=1200,
        )
        text = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
        said = [line.rstrip() for line in text.splitlines() if not _OTHERS.match(line)]
        end = next(
            (n for n, line in enumerate(said) if last and line.startswith(last)),
            len(said),
        )
        shown = [
            f"$ {command}",
            *said[: end + 1][-lines:],
            f"(exit status {done.returncode})",
        ]
        self.tell(
            "\n".join(f"    {line}" for line in shown).replace(f"{self.place}/", "/")
        )
        assert done.returncode == status, f"{command}\n{text}"
        return " ".join(text.split())


@contextlib.contextmanager
def disks(place: Path) -> Iterator[dict[str, Path]]:
    """Two file systems, /scratch and /projects, each on a disk of its own."""
    with contextlib.ExitStack() as leaving:
        devices, found = Devices(place, leaving), {}
        for name in ("scratch", "projects"):
            found[name] = devices.loop(devices.image(f"{name}.image", 1024))
            run("mkfs.xfs", "-q", found[name])
            (devices.mount(found[name], name) / ".iogauge-allowed").touch()
            leaving.callback(carry, found[name], 0)
            carry(found[name], DISK)
        yield found


def carry(disk: Path, mib_s: int) -> None:
    """A disk moves so many MiB/s and no more; 0: what it can."""
    number = Path(f"/sys/block/{disk.name}/dev").read_text().strip()
    for way in ("read", "write"):
        (THROTTLE / f"blkio.throttle.{way}_bps_device").write_text(
            f"{number} {mib_s * MIB}"
        )


def limit(hosts: Hosts, node: str, mbit_s: int) -> None:
    """A node sends and receives so much and no more."""
    for place, device in ((node, "eth0"), ("switch", node)):
        words = f"tc qdisc replace dev {device} root tbf rate {mbit_s}mbit burst 256k latency 20ms"
        done = hosts.run(place, words.split())
        assert done.returncode == 0, done.stderr


def day(place: Path) -> str:
    """Live through the day in a new directory, and return the page."""
    (place / "sites").mkdir(parents=True)
    with disks(place) as found, Hosts(5, place) as hosts, Slurm(hosts, False) as slurm:
        for node in slurm.nodes:
            limit(hosts, node, NETWORK)
        shown = Day(place, slurm)
        live(shown, found)
        return shortened(shown.page)


def shortened(page: list[str]) -> str:
    """Return the page without what a reader can miss."""
    text = re.sub(
        r"^" + _LONG.pattern, "", "\n".join(page).lstrip(), flags=re.MULTILINE
    )
    return re.sub(r"\n{3,}", "\n\n", text)


def live(day: Day, disks: dict[str, Path]) -> None:
    """All steps of the day."""
    tell, show = day.tell, day.show
    site = f"--target {day.place}/scratch --target {day.place}/projects"
    case = "--system=mine -n '^RandomRead%block=128KiB%span=all'"
    links = "iogauge run --system=mine:scratch -t ceiling"
    tell(
        "# A day",
        "A transcript: an administrator, four nodes of a real Slurm, two targets. `benchmarks/day.py` makes it, and a nightly test\n"
        "checks it. Each disk carries 40 MiB/s, each node's link 200 Mbit/s. Paths and long outputs are shortened.",
        "## Morning",
    )
    show(f"iogauge site new mine {site}", lines=9)
    show(
        "sed -i "
        + " ".join(f"-e '{edit}'" for edit in EDITS)
        + " sites/mine/settings.yaml"
    )
    (day.place / "sites" / "mine" / "references.yaml").write_text(REFERENCES)
    show("cat sites/mine/references.yaml")
    assert "ready: mine" in show("iogauge check mine", lines=2)
    assert "alarm sent" in show("iogauge alarm --test --expect mine:scratch")
    assert "ok: 2 passed" in show(f"iogauge run {case}", last="iogauge: ")
    show(links, last="iogauge: ")

    tell("## A slow node", "The link of n3 now carries a tenth.")
    limit(day.slurm.hosts, "n3", NETWORK // 10)
    assert "n3 is slow: 6 of its 6 pairs" in show(links, 1, last="iogauge: ")
    assert "guilty: n3 is slow" in show("iogauge alarm --send", 1)
    tell("The cable is exchanged.")
    limit(day.slurm.hosts, "n3", NETWORK)
    assert "slow:" not in show(links, last="iogauge: ")

    tell("## A slow target", "The disk of /projects now carries a quarter.")
    carry(disks["projects"], DISK // 4)
    assert "1 passed; 1 failed" in show(f"iogauge run {case}", 1, last="iogauge: ")
    assert "FAIL for 1 run: mine:projects" in show("iogauge", 1)
    assert "FAIL mine:projects" in show("iogauge alarm --send", 1)
    assert (day.place / "told").read_text().count("FAIL mine:projects") == 1
    show("iogauge report --bundle=vendor.tar.gz --yes", 1, last="Users")
    tell("The vendor repairs it.")
    carry(disks["projects"], DISK)
    assert "ok: 2 passed" in show(f"iogauge run {case}", last="iogauge: ", lines=1)
    show("iogauge status --system=mine")

    tell(
        "## A maintenance window",
        "Meanwhile somebody exchanges a controller of /scratch.",
    )
    assert "Do the work" in show(f"iogauge window start --runs=3 {case}", lines=2)
    carry(disks["scratch"], DISK // 2)
    said = show("iogauge window end --html=window.html", lines=10)
    assert "the work made 2 worse and 0 better, of 4" in said
    tell("The controller gets its old firmware back.")
    carry(disks["scratch"], DISK)
    assert "ok: 2 passed" in show(f"iogauge run {case}", last="iogauge: ", lines=1)
    assert "2 passed" in show("iogauge")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "directory",
        type=Path,
        nargs="?",
        default=Path("/var/tmp/day"),
        help="new, on storage",
    )
    place = parser.parse_args().directory
    try:
        print(day(place), end="")
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
