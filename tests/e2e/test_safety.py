"""Where a run may write: what was allowed, and no name leads elsewhere; what it writes is what its plan announces."""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from e2e.rig import MIB, RANDOM_READ, Run, flat
from e2e.test_loads import HEADER
from iogauge.workspace import directory

pytestmark = [pytest.mark.needs_fio]


@pytest.fixture
def rig(make_rig):
    return make_rig()


@pytest.mark.needs_root
def test_somebody_elses_directory_until_it_is_allowed(rig):
    os.chown(rig.target, 12345, 12345)
    # A run and a plan refuse the target for the same reason, and nothing is written.
    why = "belongs to user 12345, not to root"
    run = rig.run(*RANDOM_READ)
    run.never_passed("refused before a byte was written")
    assert run.record["verdict"] == "INVALID"
    assert why in run.record["reason"]
    plan = rig.iogauge("run", "--dry-run", *RANDOM_READ)
    assert plan.rc == 1 and why in flat(plan.out), plan.out
    assert list(rig.target.iterdir()) == []
    asked = {"IOGAUGE_TARGET": str(rig.target), "RFM_CONFIG_PATH": str(rig.sites)}
    doctor = rig.iogauge("check", "--all", **asked)
    assert doctor.rc == 1 and f"iogauge site allow {rig.target}" in flat(doctor.out), (
        doctor.out
    )

    allow = rig.iogauge("site", "allow", str(rig.target))
    assert allow.rc == 0 and "everybody who can write there" in flat(allow.out)
    doctor = rig.iogauge("check", "--all", **asked)
    assert ".iogauge-allowed: everybody" in flat(doctor.out), doctor.out
    plan = rig.iogauge("run", "--dry-run", *RANDOM_READ)
    assert plan.rc == 0 and ": allowed: " in flat(plan.out), plan.out
    run = rig.run(*RANDOM_READ)
    assert run.record["verdict"] == "UNREFERENCED", run.out
    assert [path.name for path in rig.target.iterdir()] == [".iogauge-allowed"]

    again = rig.iogauge("site", "allow", str(rig.target))
    assert again.rc == 1 and "--replace" in flat(again.out), again.out
    (rig.target / ".iogauge-allowed").write_text("type: nfs\n")
    plan = rig.iogauge("run", "--dry-run", *RANDOM_READ)
    assert plan.rc == 1 and "allows nfs from anywhere" in flat(plan.out), plan.out


# --- the janitor ------------------------------------------------------------------------------------


def left(rig, name, **owner):
    case = Path(directory.create(str(rig.target), name, "case"))
    (case / "data").write_text("x")
    marker = case.parent / directory.MARKER
    marker.write_text(json.dumps(json.loads(marker.read_text()) | owner))
    return case.parent


def test_an_expired_session_of_another_host_is_removed_and_a_fresh_one_kept(rig):
    old = left(rig, "old-1", host="elsewhere", expires="2026-01-01T00:00:00Z")
    fresh = left(rig, "fresh-1", host="elsewhere")
    done = rig.iogauge("clean", "--target", str(rig.target))
    assert done.rc == 0 and f"removed: {old}" in flat(done.out), done.out
    assert "kept: " in done.out
    assert not old.exists() and (fresh / "case" / "data").exists()


# --- names that lead elsewhere ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../../x", "$(id)"])
def test_a_session_name_that_leads_elsewhere(rig, name):
    run = rig.run(*RANDOM_READ, IOGAUGE_SESSION=name)
    assert run.rc != 0 and "IOGAUGE_SESSION" in run.out, run.out
    assert run.records == []
    assert not list(rig.target.iterdir())


def test_a_parameter_that_leads_elsewhere(rig):
    run = rig.run(*RANDOM_READ, "-S", "variant=../../x")
    assert run.rc != 0 and "variant is '../../x'" in run.out, run.out
    run.shows_no_pass()
    assert not list(rig.target.iterdir())


@pytest.mark.parametrize("where", ["target", "environment", "partition"])
def test_site_data_that_leads_elsewhere(rig, where):
    with rig.configured() as (partition, environment):
        if where == "target":
            partition["extras"]["target"]["path"] = "/tmp/$(id)"
        elif where == "partition":
            partition["name"] = "../tools"
        else:
            partition["environs"] = ["../tools"]
            environment["name"] = "../tools"
    run = rig.run(*RANDOM_READ)
    assert run.rc != 0, run.out
    run.shows_no_pass()
    assert not list(rig.target.iterdir())


def test_a_name_of_a_record_that_leads_elsewhere_is_no_file(rig):
    name = "../../etc/passwd"
    for words in (
        ["report", name],
        ["calibrate", "--system", name],
        ["history", "--system", name],
    ):
        assert "root:" not in rig.iogauge(*words).out
    assert not [
        path for path in rig.home.rglob("*") if path.is_file() and "passwd" in path.name
    ]


# --- the directory watched all the time  ----------------------------------------------------------


#: A scenario of each tool and each formula. All others have the same (unit/test_plan.py).
CASES = (
    "IorPosix%files=per-process%order=sequential%cache=direct",
    "MdtestEasy",
    "FioRandomRead%block=128KiB",
    "Mixed%order=random%.*",
    *(["WrfOutput"] if HEADER.exists() else []),
)
BY_TIME = {"Mixed": {"read", "write"}, "FioRandomRead": {"read"}}


@dataclass
class Watch:
    """The most bytes and names that each case's directory held at a time."""

    root: Path
    held: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    files: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    #: As ``held``, of the sizes of files, and of those that are made once.
    sizes: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    once: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    elsewhere: set[str] = field(default_factory=set)
    #: Files at a time in a directory of the target's lock.
    locks: int = 0
    done: bool = False

    def look(self):
        """One look at the target; a case's own directory is ``iogauge/<user>/<session>/<case>``."""
        held = defaultdict(int)
        files = defaultdict(int)
        sizes = defaultdict(int)
        once = defaultdict(int)
        for folder, _, names in os.walk(self.root):
            parts = Path(folder).relative_to(self.root).parts
            if parts[1:2] == (".lock",):
                self.locks = max(self.locks, len(names))
                continue
            if len(parts) < 4:
                ours = {".iogauge-session"} if len(parts) == 3 else set()
                temporary = {n for n in names if n.startswith(".iogauge-session.")}
                self.elsewhere |= {
                    f"{folder}/{name}" for name in {*names} - ours - temporary
                }
                continue
            files[parts[3]] += len(parts) > 4
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    info = os.lstat(os.path.join(folder, name))
                    held[parts[3]] += info.st_blocks * 512
                    sizes[parts[3]] += info.st_size
                    once[parts[3]] += info.st_size if name.endswith(".tar") else 0
                    files[parts[3]] += 1
        most_of = (self.held, self.files, self.sizes, self.once)
        for seen, most in zip((held, files, sizes, once), most_of, strict=True):
            for case, value in seen.items():
                most[case] = max(most[case], value)

    def run(self):
        """Look every 50 ms; less often if a look takes long, so that what is looked at gets on."""
        while not self.done:
            began = time.monotonic()
            self.look()
            time.sleep(max(0.05, 6 * (time.monotonic() - began)))


@contextlib.contextmanager
def watching(root):
    """Watch a directory meanwhile."""
    watch = Watch(root)
    thread = threading.Thread(target=watch.run)
    thread.start()
    try:
        yield watch
    finally:
        watch.done = True
        thread.join()


def written_bytes(stage):
    """Bytes that the tools say they wrote, over all executions, and by how many that may be wrong.

    IOR says MiB/s and seconds, each with four decimals: of a write of 5 ms, one byte in a hundred.
    """
    total, error, half = 0.0, 0.0, 0.5e-4
    for file in stage.glob("*.json"):
        text = file.read_text(errors="replace")
        data = {}
        with contextlib.suppress(ValueError):
            data = json.loads(text[text.index("{") :] if "{" in text else "")
        for test in data.get("tests", []) if isinstance(data, dict) else []:
            for one in test["Results"]:
                if one["access"] == "write":
                    speed, seconds = one["bwMiB"], one["totalTime"]
                    total += speed * seconds * MIB
                    error += half * (speed + seconds + half) * MIB
        for job in data.get("jobs", []) if isinstance(data, dict) else []:
            if job["jobname"] != "mixed":
                total += job["write"]["io_bytes"]
    return total, error


@dataclass
class Everything:
    """A plan, a dry run and a run of the same cases."""

    cases: tuple[str, ...]
    planned: str
    dry: dict[str, dict[str, Any]]
    real: dict[str, dict[str, Any]]
    stages: dict[str, Path]
    run: Run
    watch: Watch


def footprints(rig):
    found = sorted((rig.home / "reframe" / "stage").rglob("footprint.json"))
    return {json.loads(file.read_text())["order"]["case"]: file for file in found}


@pytest.fixture(scope="module")
def everything(make_module_rig):
    """A case of each tool: planned, dry, and for real."""
    rig = make_module_rig(
        tools=("fio", "ior", "mdtest"),
        limits={"case_bytes": "128 MiB", "case_files": 1500, "repetitions": 1},
    )
    data = rig.settings()
    (partition,) = data["systems"][0]["partitions"]
    # So that no stonewall ends the making of files before all are there, however slow the machine.
    partition["extras"]["cases"] = {"MdtestEasy": {"phase_seconds": "90 s"}}
    data["environments"][0]["extras"] = (
        {"wrf_io": str(HEADER)} if HEADER.exists() else {}
    )
    rig.write_settings(data)
    words = ("-n", f"^({'|'.join(CASES)})", "--exec-policy=serial")
    words += ("--keep-stage-files",)
    planned = rig.iogauge("run", "--dry-run", *words)
    assert planned.rc == 0, planned.out
    rig.reframe("-c", "checks/", "--dry-run", *words)
    dry = {name: json.loads(file.read_text()) for name, file in footprints(rig).items()}
    with watching(rig.target) as watch:
        run = rig.run(*words, timeout=600)
    files = footprints(rig)
    real = {name: json.loads(file.read_text()) for name, file in files.items()}
    rig.assert_clean()
    stages = {name: file.parent for name, file in files.items()}
    return Everything(CASES, planned.out, dry, real, stages, run, watch)


@pytest.mark.needs_ior
@pytest.mark.slow
def test_plan_dry_run_and_run_say_the_same(everything):
    def cost(data):
        order = {
            k: v
            for k, v in data["order"].items()
            if k not in ("session", "process", "host")
        }
        return data | {"order": order}

    assert {n: cost(d) for n, d in everything.dry.items()} == {
        n: cost(d) for n, d in everything.real.items()
    }
    assert len(everything.real) == len(everything.cases), everything.run.out
    for data in everything.real.values():
        assert str(data["order"]["files"]) in everything.planned
    assert f"{len(everything.real)} case(s)" in re.sub(r"\s+", " ", everything.planned)


@pytest.mark.needs_ior
@pytest.mark.slow
def test_no_case_holds_more_than_was_announced_and_none_much_less(everything):
    for case, data in everything.real.items():
        held, planned = everything.watch.held[case], data["order"]["held_bytes"]
        # A file system's own blocks for a file in pieces come on top: ext4 needs 4 KiB for 340 extents, and its
        # blocks may be half full. On a busy machine each 4 KiB may be an extent.
        slack = 16384 * min(data["order"]["files"], 16) + planned // 170
        assert 0.9 * planned <= held <= planned + slack, (case, held, planned)
        names = everything.watch.files[case]
        assert 0 < names <= data["order"]["files"], (case, names)


@pytest.mark.needs_ior
@pytest.mark.slow
def test_what_the_tools_wrote_is_what_was_announced(everything):
    """What is written by time is not: the plan says so, and for how long."""
    for case, data in everything.real.items():
        wrote, error = written_bytes(everything.stages[case])
        if case.startswith(("Mdtest", "Wrf", "Cold")):
            # They do not say how much, or not in JSON: a warm-up and one repetition wrote the same.
            made_once = everything.watch.once[case]
            wrote = 2.0 * (everything.watch.sizes[case] - made_once) + made_once
            # A grid of a whole number of points.
            error = 0.03 * wrote
        assert wrote == pytest.approx(
            data["cost"]["written_bytes"], rel=1e-6, abs=error
        ), case
        by_time = {*data["cost"]["timed"]}
        assert by_time == BY_TIME.get(data["check"], set()), case


@pytest.mark.needs_ior
@pytest.mark.slow
def test_nothing_is_written_elsewhere_on_the_target(everything):
    assert everything.watch.elsewhere == set()
    assert everything.watch.locks <= 2
