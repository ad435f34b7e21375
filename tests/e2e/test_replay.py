"""The gate of each published site, by the documented command on a fresh history: green at its figures, red below them.

Recorded tool output (tests/support/replay), scaled to a site's own references, is produced by the job scripts of the site
and judged by it: what it says passes, 20 % less fails by the name of the metric, more than the ceiling is INVALID (G6),
and so is another layout than asked for (G10). That the references are what the documents say, unit/test_published_sites.py
shows. Sizes, limits, tiers, sweeps, topologies and references are the site's, word for word. Not so are only scheduler
and launcher, and the target: a directory on a tmpfs of 400 TiB (files hold no data), declared to cache as the site's does.
The target's source, which no document prints, is declared too.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from e2e.rig import ROOT, Rig, processes, program_of, verdict_of
from iogauge.node.kinds import kind_of
from iogauge.site import stack
from support.depth import FULL
from support.replay.figures import case_key
from support.shell import completed, kill

pytestmark = pytest.mark.slow

PROGRAMS = ROOT / "tests" / "support" / "replay"
CYCLE, SAION, AMLFS = "azure-cyclecloud", "oist-saion", "azure-managed-lustre"
KAUST, ORACLE = "kaust-shaheen2", "oracle-oci"
SITES = (CYCLE, SAION, AMLFS, KAUST, ORACLE)
#: Storage targets and object storage servers by partition, where Lustre stripes.
TARGETS = {
    (CYCLE, "oss4"): (4, 4),
    (CYCLE, "oss8"): (8, 8),
    (CYCLE, "oss12"): (12, 12),
    (SAION, "gpu"): (8, 8),
    (AMLFS, "amlfs"): (16, 4),
    (KAUST, "lustre"): (144, 72),
    (ORACLE, "block"): (2, 2),
    (ORACLE, "nvme"): (2, 2),
}
#: Checks that measure nothing: they compare the records of others.
DERIVED = ("TaskScalingCurve", "AgainstBaseline", "SizeScaling", "BoxScaling")
#: What a document publishes less 20 %, and what no ceiling allows.
LOW, ABOVE = 0.8, 4.0
#: What can be untrue of a case: too low, above the ceiling, with another layout than asked for.
TOO_LOW, TOO_HIGH, MISPLACED = "too low", "too high", "misplaced"
#: Of each tool and each way to ask for a layout.
FAULTS = {
    "oss4 TaskScaling tasks=16": TOO_LOW,
    "oss4 TaskScaling tasks=24": TOO_HIGH,
    "oss4 TaskScaling tasks=4": MISPLACED,
    "gpu RandomRead block=4KiB span=one-client tasks=128": TOO_LOW,
    "gpu RandomRead block=128KiB span=one-client tasks=128": TOO_HIGH,
    "gpu RandomRead block=4KiB span=one-box tasks=128": MISPLACED,
    "gpu ChecksumOverhead block=4KiB tasks=128": TOO_LOW,
    "amlfs Burst": TOO_LOW,
    "lustre StripeCount api=MPIIO stripe_count=1": TOO_LOW,
    "lustre StripeCount api=NCMPI stripe_count=1": MISPLACED,
    "lustre StripeCount api=MPIIO stripe_count=144": MISPLACED,
    "block ServerScaling servers=2": TOO_LOW,
}
#: What the default run replays of large sites: cases whose key has this, and nothing that is derived.
DAILY = {
    CYCLE: r"oss4 .*tasks=(4|8|16|24)\b",
}
#: The site that the default run replays with what is untrue (too low by 20 %, too high, misplaced) beside what is true.
UNTRUE_DAILY = (CYCLE,)


@functools.cache
def references(site):
    """A site's file of references."""
    text = (ROOT / "site-configs" / site / "references.yaml").read_text()
    return yaml.safe_load(text)


def published(site):
    """Partitions, with their system, and checks of which a document has the figures."""
    stated = references(site)["$published"]
    return {(place, check) for check, places in stated.items() for place in places}


@dataclass(frozen=True, eq=False)
class Case:
    """A case that measures, with its published figures by metric."""

    place: str
    check: str
    parameters: Mapping[str, object]
    values: Mapping[str, float]

    @property
    def key(self):
        return case_key(self.place, self.check, self.parameters)

    @property
    def fault(self):
        return FAULTS.get(self.key.partition(":")[2])

    @property
    def pattern(self):
        """For ``-n``: ReFrame looks in the name without its blanks."""
        rest = "".join(rf"(?=.*%{k}={v}(%|$))" for k, v in self.parameters.items())
        return rf"^{self.check}(?!\w){rest}"

    def figures(self, fault=None):
        """What the stand-ins replay, true or not. Where no figure is published, one is made up."""
        factor = {TOO_LOW: LOW, TOO_HIGH: ABOVE}.get(fault or "", 1.0)
        found = {name: factor * value for name, value in self.values.items()}
        if "writers" in found:
            known = self.values["writers"]
            found["writers"] = (
                known if factor == 1 else 2 if known == 1 else round(LOW * known)
            )
            found.setdefault("write_bw", 2000.0)
        if ratio := self.values.get("checksum_ratio"):
            operations = factor * self.values.get("read_iops", 166e3)
            found |= {
                "read_iops": factor * operations,
                "read_iops_unchecked": operations / ratio,
            }
        return found | ({"stripes": 2} if fault == MISPLACED else {})


def cases_of(site):
    """The published cases of a site that this run replays."""
    found = []
    for check, entry in references(site).items():
        if check.startswith("$") or check in DERIVED:
            continue
        index = entry.get("$index", ["$partition"])
        leaves = [((), entry)]
        for _ in index:
            leaves = [
                ((*keys, one if isinstance(key, str) else key), inner)
                for keys, body in leaves
                for key, inner in body.items()
                if not str(key).startswith("$")
                for one in str(key).split("|")
            ]
        for keys, metrics in leaves:
            named = dict(zip(index, keys, strict=True))
            place = named.pop("$partition")
            if (place, check) in published(site) and (
                named.pop("variant", "sound"),
                named.pop("tier", "acceptance"),
            ) == ("sound", "acceptance"):
                values = {metric: value for metric, (value, *_) in metrics.items()}
                found.append(Case(place, check, named, values))
    return [one for one in found if FULL or re.search(DAILY.get(site, ""), one.key)]


@dataclass
class Replay(Rig):
    """A site of the project, with what it needs and cannot have here replaced."""

    name: str = ""
    size: str = "400T"

    def __post_init__(self):
        super().__post_init__()
        references = ROOT / "site-configs" / self.name / "references.yaml"
        (self.site / "references.yaml").write_bytes(references.read_bytes())
        hosts = (f"127.78.0.{number} n{number}" for number in range(1, 41))
        (self.base / "hosts").write_text("\n".join(["127.0.0.1 localhost", *hosts, ""]))

    @property
    def site(self):
        return self.sites / self.name

    def settings(self):
        """The site's own, but for scheduler, launcher, target and software."""
        file = ROOT / "site-configs" / self.name / "settings.yaml"
        data = yaml.safe_load(file.read_text())
        for partition in data["systems"][0]["partitions"]:
            extras, name = partition["extras"], partition["name"]
            for gone in ("access", "resources"):
                partition.pop(gone, None)
            extras.pop("resources", None)
            # The target is no Lustre, and has none of its settings.
            extras.pop("expect", None)
            partition |= {"scheduler": "local", "time_limit": "5m"}
            if partition["launcher"] == "srun":
                partition["launcher"] = "mpirun"
            # The nodes are not this machine, whose cores are too few for the tasks (G15).
            extras.setdefault("hosts", [f"n{number}" for number in range(1, 41)])
            kind = extras["target"]["type"]
            known = kind_of(kind)
            path = self.target / name
            striping = TARGETS.get((self.name, name))
            assert bool(striping) == (kind == "lustre"), (
                f"TARGETS lacks {self.name}:{name}"
            )
            extras["target"] = {
                "path": str(path),
                "type": "tmpfs",
                "source": "replay",
                "cache": known.cache,
                "honours_o_direct": known.honours_o_direct,
                "striping": "lustre" if striping else "none",
            }
            if striping:
                targets, servers = striping
                partition["env_vars"] = [
                    ["LFS_OSTS", str(targets)],
                    ["LFS_SERVERS", str(servers)],
                    ["LFS_MOUNT", str(path)],
                ]
        for environment in data["environments"]:
            extras = environment["extras"]
            planned = stack.planned(
                ROOT / "environments", extras.pop("stack"), environment["features"]
            )
            extras["darshan"] = planned.darshan
        return data

    def environment(self, **extra):
        own = super().environment(**extra)
        return own | {
            "PATH": os.pathsep.join([str(self.bin), str(PROGRAMS), own["PATH"]]),
            "REPLAY_FIGURES": str(self.base / "figures.json"),
            "LFS_STATE": str(self.target / ".lustre"),
        }

    def start(self, words, **extra):
        """Start a command on host n1, with a file system of 400 TiB."""
        script = (
            f'set -e; hostname n1; mount -t tmpfs -o size={self.size},nr_inodes=0 replay "$1"; '
            'mount --bind "$2" /etc/hosts; cd "$1"; mkdir .lustre $3; cd "$4"; shift 4; exec "$@"'
        )
        names = [p["name"] for p in self.settings()["systems"][0]["partitions"]]
        places = [
            str(self.target),
            str(self.base / "hosts"),
            " ".join(names),
            str(ROOT),
        ]
        private = ["unshare", "--mount", "--uts", "sh", "-c", script, "sh", *places]
        return super().start([*private, *words], **extra)

    def gate(self, cases, *words):
        """The command of docs/scenarios.md; each case with what is untrue of it."""
        figures = {case.key: case.figures(fault) for case, fault in cases.items()}
        (self.base / "figures.json").write_text(json.dumps(figures))
        places = {case.place for case in cases}
        place = places.pop() if len(places) == 1 else self.name
        command = ["iogauge", "run", "--gate", f"--system={place}", "-c", "checks/"]
        done = self.finish(
            self.start([*command, "-t", "published-figure", *words]), timeout=600
        )
        # What is derived is a run of ReFrame by itself, with a report of its own.
        reports = map(
            json.loads, map(Path.read_text, (self.home / "reports").glob("*.json"))
        )
        return replace(
            done, report={"runs": [one for report in reports for one in report["runs"]]}
        )


@pytest.fixture
def replay(tmp_path):
    """Makes a rig of a site; nothing of it may run on."""
    words = ["unshare", "--mount", "--uts", "sh", "-c"]
    script = f"hostname n1 && mount -t tmpfs -o size=400T,nr_inodes=0 replay {tmp_path}"
    done = completed([*words, script])
    if done.returncode:
        pytest.skip(f"no private mounts and host name (root?): {done.stderr}")
    numbers = itertools.count()

    def make(site, **fields):
        base = tmp_path / f"rig{next(numbers)}"
        return Replay(base=base, target=base / "target", name=site, **fields)

    yield make
    left = [pid for pid in processes(str(tmp_path)) if program_of(pid)]
    kill(*left)
    assert left == [], f"left running, and killed: {left}"


def chosen(cases):
    """Words for some cases, and nothing that is derived."""
    return [word for case in cases for word in ("-n", case.pattern)] + ["-T", "derived"]


def by_case(run):
    """Records of a run by the key of their case."""
    return {
        case_key(f"{r['system']}:{r['partition']}", r["check"], r["parameters"]): r
        for r in run.records
    }


def each_site(daily):
    """A test for each site; those that are not replayed every day are left to the nightly run."""
    marks = {site: () if site in daily else (pytest.mark.nightly,) for site in SITES}
    return pytest.mark.parametrize(
        "site", [pytest.param(s, marks=marks[s]) for s in SITES]
    )


@each_site((ORACLE,))
def test_the_gate_of_the_published_figures_is_green(replay, site):
    """What is measured has its figures, and what is derived from it passes, too."""
    cases = cases_of(site)
    part = chosen(cases) if site in DAILY and not FULL else []
    run = replay(site).gate(dict.fromkeys(cases), *part)
    assert run.rc == 0, run.out
    found = by_case(run)
    assert {record["verdict"] for record in found.values()} == {"PASS"}, run.out
    for case in cases:
        medians = {
            metric["name"]: metric["median"] for metric in found[case.key]["metrics"]
        }
        for name, value in case.values.items():
            assert medians[name] == pytest.approx(value, rel=0.02), case.key
    places = {case.place for case in cases}
    wanted = {(place, check) for place, check in published(site) if place in places}
    seen = {(f"{r['system']}:{r['partition']}", r["check"]) for r in run.records}
    assert seen == {
        (place, check) for place, check in wanted if not part or check not in DERIVED
    }
    shown = {(case["display_name"], case["result"]) for case in run.cases}
    assert shown == {(record["case"], "pass") for record in run.records}


@each_site(UNTRUE_DAILY)
def test_the_gate_is_red_if_figures_are_untrue(replay, site):
    known = cases_of(site)
    cases = {case: case.fault for case in known if case.fault}
    true = [case for case in known if not case.fault][:1]
    run = replay(site).gate(dict.fromkeys(true) | cases, *chosen([*true, *cases]))
    assert run.rc == 1, run.out
    says = {
        TOO_LOW: ("FAIL", "median"),
        TOO_HIGH: ("INVALID", "G6"),
        MISPLACED: ("INVALID", "G10"),
    }
    found = by_case(run)
    assert {case.key for case in true} == {
        k for k, r in found.items() if r["verdict"] == "PASS"
    }
    for case, fault in cases.items():
        verdict, word = says[str(fault)]
        assert verdict_of(found[case.key]) == verdict, found[case.key]["reason"]
        assert word in found[case.key]["reason"]


def test_a_case_that_does_not_fit_is_refused(replay):
    """The tmpfs is seen as any file system is: with half of the 3.75 TiB that the burst needs, nothing runs."""
    run = replay(AMLFS, size="2T").gate(dict.fromkeys(cases_of(AMLFS)))
    run.never_passed("refused before a byte was written: G13 [a-z ]+: .* of 2 TiB")
