"""Does iogauge work on your Lustre? ``make test-lustre TARGET=/scratch/me/try`` (README, docs/cluster.md).

Nothing here stands for Lustre: the commands are those that an administrator types, on a directory of a mounted file
system. ARGS='-k page' chooses among the tests. The page that it writes is named at its end.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from support.project import ROOT
from support.shell import completed

TARGET = os.environ.get("IOGAUGE_RIG_TARGET", "")
pytestmark = pytest.mark.skipif(
    not TARGET, reason="needs a mounted Lustre: make test-lustre TARGET=DIRECTORY"
)

#: The quick tier, and what only Lustre has.
CHECKS = (
    "-t quick",
    "-n StripeCount|StripeSize|TaskScaling|ServerScaling|^RandomRead.*4KiB|MdtestDom.*3901|TargetNeedle",
)
#: Verdicts of a measurement that is believed. Load of others is no fault of iogauge's.
BELIEVED = {"PASS", "FAIL", "UNREFERENCED", "UNSTABLE", "CONTAMINATED"}

#: How to read what is printed.
READ = """
UNREFERENCED  believed; a new site has no reference
UNSTABLE      believed, but the repetitions differ: measure at a quiet time
CONTAMINATED  others used the target or the node
INVALID       not believed; the reason names the rule, and `iogauge explain G8` tells what to do
ERROR         the tool failed, or never ended"""


@dataclass(frozen=True)
class Site:
    """A new site for the target, in folders of its own."""

    base: Path
    name: str = "rig"

    def run(self, *words):
        """Run a command of iogauge."""
        folders = {
            "IOGAUGE_SITES": str(self.base / "sites"),
            "IOGAUGE_HOME": str(self.base / "home"),
        }
        mpi = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return completed(
            ["iogauge", *words],
            cwd=ROOT,
            env={**os.environ, **mpi, **folders, "COLUMNS": "160"},
            # A case ends by its own time limit.
            timeout=None,
        )

    @property
    def file(self):
        """Return the site's settings."""
        return self.base / "sites" / self.name / "settings.yaml"

    @property
    def extras(self):
        """Return what the site says of its partition."""
        found = yaml.safe_load(self.file.read_text())
        extras = found["systems"][0]["partitions"][0]["extras"]
        return extras

    def records(self):
        """Return all records, in their order."""
        files = sorted((self.base / "home").glob("history/*/*.jsonl"))
        return [
            json.loads(line) for file in files for line in file.read_text().splitlines()
        ]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A site as ``iogauge site new`` writes it, with the sizes and the points of a short look."""
    made = Site(tmp_path_factory.mktemp("lustre"))
    (made.base / "sites").mkdir()
    done = made.run(
        "site", "new", made.name, "--target", TARGET, "--ceiling", "100 Tbit/s"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    topology, expect = made.extras["topology"], made.extras["expect"]
    targets = topology["targets"]
    # Of a progressive default that is the last component.
    count, size = (
        int(str(expect.get(f"layout.stripe_{what}", usual)).rpartition(",")[2])
        for what, usual in (("count", 1), ("bytes", 4 << 20))
    )
    # Eight stripes for each target that a shared file has, and as much as one before the last component.
    stripes = 9 * max(size * max(2, targets if count == -1 else count), targets << 20)
    short = {
        "limits": f"{{case_bytes: {max(64, stripes >> 20)} MiB, case_files: 200, phase_seconds: 2 s, tier: quick, max_of_free: 50%, "
        "max_spread: 50%, repetitions: 2, max_fill: 95%}",
        # A turn of a needle takes a second or more.
        "cases": f"{{TargetNeedle: {{phase_seconds: {2 * targets} s}}}}",
        "sweeps": "{stripe_counts: [2], stripe_sizes: [1 MiB], tasks_per_client: [2], "
        "tasks_per_node: [2], servers: [1]}",
    }
    lines = "\n          ".join(f"{key}: {value}" for key, value in short.items())
    text, count = re.subn(r"limits: \{.*\}", lines, made.file.read_text(), count=1)
    assert count == 1
    made.file.write_text(text)
    return made


@pytest.fixture(scope="module")
def measured(site):
    """The records of all checks, each measured once."""
    for words in CHECKS:
        option, _, value = words.partition(" ")
        done = site.run("run", f"--system={site.name}", option, value)
        print(done.stdout)
    return site.records()


def test_a_new_site_describes_a_client_of_lustre(site):
    """It keeps its data in the page cache and honours O_DIRECT; its targets are counted; nothing is a doubt."""
    target = site.extras["target"]
    assert target["type"] == "lustre" and target["uuid"], target
    assert "cache" not in target and "honours_o_direct" not in target, target
    assert {"lustre.osts", "lustre.mdts", "layout.stripe_count"} <= set(
        site.extras["expect"]
    )
    done = site.run("check", site.name)
    assert done.returncode == 0, done.stdout


def test_each_case_is_believed_or_names_the_load_of_others(measured):
    """No case is INVALID, and no tool fails. Lustre may allow root alone to choose a metadata target."""
    wrong = [
        f"{r['case']}: {r['reason']}"
        for r in measured
        if r["verdict"] not in BELIEVED
        and not (
            os.getuid()
            and "Operation not permitted" in r["reason"]
            and "Mdt" in r["check"]
        )
    ]
    assert len(measured) > len(CHECKS) and not wrong, "\n".join(wrong)


def test_the_client_bears_witness(measured):
    """Bytes and files of each case are counted by Lustre's client too, for root or since 2.17."""
    unseen = {
        f"{record['case']}: {finding['saw']}"
        for record in measured
        for finding in record["findings"]
        if "no second witness" in finding["saw"] and finding["guard"] in ("G8", "G11")
    }
    told = any(
        "lustre" in str(record["fingerprint"].get("lustre.client"))
        for record in measured
    )
    version = next(str(r["fingerprint"].get("lustre.client", "0")) for r in measured)
    if (
        os.getuid()
        and tuple(map(int, re.findall(r"\d+", version)[:2])) < (2, 17)
        and not told
    ):
        pytest.skip(f"Lustre {version} tells root alone what its client has moved")
    assert not unseen, "\n".join(sorted(unseen))


def test_the_target_is_left_as_it_was(site, measured):
    """Nothing of iogauge stays."""
    assert measured and not (Path(TARGET) / "iogauge").exists()


@contextlib.contextmanager
def _slowed(device):
    """One storage target gets 16 pages a request, and one request at a time, from this client alone."""
    slow = {
        f"osc.{device}.max_pages_per_rpc": 16,
        f"osc.{device}.max_rpcs_in_flight": 1,
    }
    before = [completed(["lctl", "get_param", "-n", name], check=True) for name in slow]
    try:
        for name, value in slow.items():
            completed(
                ["lctl", "set_param", f"{name}={value}"],
                check=True,
            )
        yield
    finally:
        for name, old in zip(slow, before, strict=True):
            completed(["lctl", "set_param", f"{name}={old.stdout.strip()}"], check=True)


@pytest.mark.skipif(
    os.getuid() != 0 or not shutil.which("lctl"), reason="needs root and lctl"
)
def test_a_slowed_storage_target_is_named(site, measured):
    """The needle names it, and no other."""
    # Another mount of the same file system has devices of its own.
    mount = completed(["lfs", "getname", "-i", TARGET], check=True).stdout.strip()
    devices = sorted(Path("/sys/fs/lustre/osc").glob(f"*-OST*-osc-{mount}"))
    if len(devices) < 3:
        pytest.skip("a needle needs three storage targets")
    # What slows it is a setting, and the site expects that of a healthy client (G25).
    site.file.write_text(
        re.sub(r".*tunable\.osc\.max_pages_per_rpc.*\n", "", site.file.read_text())
    )
    with _slowed(devices[1].name):
        site.run("run", f"--system={site.name}", "-n", "TargetNeedle")
    slow = re.search(r"OST[0-9a-f]{4}", devices[1].name)
    found = [record for record in site.records() if record["check"] == "TargetNeedle"][
        -1
    ]
    named = re.search(r"ost[0-9a-f]{4}(?=: )", found["reason"])
    assert found["verdict"] == "FAIL", found["reason"]
    assert slow and named and named[0] == slow[0].lower(), found["reason"]


def test_the_page(site, measured, capsys):
    """What was found is on one page, for those who asked; the terminal has a line a case."""
    page = Path(os.environ.get("IOGAUGE_RIG_PAGE", "lustre.html")).absolute()
    done = site.run("report", "--since", "1d", "--html", str(page))
    assert page.stat().st_size > 10_000, done.stdout + done.stderr
    lines = [
        f"{r['verdict']:13} {r['case']:66} {r['reason']}"[:160] for r in site.records()
    ]
    with capsys.disabled():
        print("", *lines, READ, f"The page: {page}", sep="\n")
