"""A site of a test's own, and the literal command run on it.

A :class:`Rig` is a folder with ``site-configs/rig``, a target and a state directory. :meth:`Rig.run` runs
``reframe -c checks/ -r`` on it as a user would, without the checks that are not named, and returns what can
be seen from outside: exit status, what was printed, records, ReFrame's report, the files in the stage directory.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from e2e import warm
from iogauge.node.identity import uuid_of
from iogauge.node.mounts import find_mount
from support.depth import FULL
from support.project import ROOT
from support.shell import completed, kill, script

SAMPLES = ROOT / "tests" / "data" / "samples"
MIB = 1 << 20

#: For tests to which one case is as good as another: it makes a file for each task, not ten thousand.
RANDOM_READ = ("-n", "FioRandomRead%block=128")
#: References that every figure meets.
GENEROUS = {
    check: {
        name: [0.001, -0.5, None, "MiB/s" if name.endswith("_bw") else "ops/s"]
        for name in names
    }
    for check, names in {
        "FioRandomRead": ("read_iops", "read_bw"),
        "IorPosix": ("write_bw", "read_bw"),
        "MdtestEasy": ("create_rate", "remove_rate"),
        "MdtestHard": ("create_rate", "read_rate", "remove_rate"),
        "TaskScaling": ("write_bw", "read_bw"),
    }.items()
}

#: A busy machine takes so many times the seconds of a quiet one. All limits here only end what hangs.
BUSY = 10
COLD = os.environ.get("IOGAUGE_TEST_COLD", "") == "1"
#: A command that was started, cold or as a fork.
Process = subprocess.Popen[str] | warm.Process

_MPI = {
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}
#: Variables of the caller that would change what a run does.
_FOREIGN = re.compile(r"(RFM|IOGAUGE|OMPI|PRTE)_")
_IOGAUGE = "import sys; sys.argv[0] = 'iogauge'; from iogauge.cli.app import app; app()"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@functools.cache
def _classes():
    """Names of classes by file of checks/."""
    return {
        f"checks/{file.name}": re.findall(
            r"^class (\w+)", file.read_text(), re.MULTILINE
        )
        for file in sorted((ROOT / "checks").glob("*.py"))
    }


def checks_of(arguments):
    """Files of the checks that patterns of ``-n`` can fit; ``checks/`` if they do not tell.

    A quarter of the start of a session is the loading of all other checks.
    """
    patterns = [
        word for option, word in itertools.pairwise(arguments) if option == "-n"
    ]
    names = [re.match(r"\^?(\w+)", part) for one in patterns for part in one.split("|")]
    found = [
        [
            file
            for file, classes in _classes().items()
            if any(name[1] in c for c in classes)
        ]
        for name in names
        if name
    ]
    if not names or not all(names) or not all(found):
        return ["checks/"]
    return sorted({file for files in found for file in files})


def command(*arguments):
    """``reframe -r`` with further arguments, on the checks that they name, or on all."""
    places = [word for path in checks_of(arguments) for word in ("-c", path)]
    return ["reframe", *places, "-r", *arguments]


def mount_of(path):
    """Type and source of the file system that holds a path, from findmnt(8)."""
    words = ["findmnt", "-n", "-r", "-v", "-o", "FSTYPE,SOURCE", "-T", str(path)]
    fstype, source = completed(words, check=True).stdout.splitlines()[-1].split()
    return fstype, source


def processes(needle):
    """Processes whose environment, command line or working directory holds a text; this one is none."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            seen = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
            seen += os.readlink(entry / "cwd").encode()
        except OSError:
            continue
        if needle.encode() in seen:
            found.append(int(entry.name))
    return found


def command_of(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def program_of(pid):
    """Name of a process's program; empty where it is gone or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    state = text.rpartition(")")[2].split()[0]
    return "" if state == "Z" else text[text.index("(") + 1 : text.rindex(")")]


def wait_for(condition, seconds, what):
    """The first true value of a function; fails the test where none comes in BUSY times the seconds.

    What is dear to ask, such as all processes, is asked less often: what is waited for needs the machine.
    """
    end = time.monotonic() + BUSY * seconds
    while (began := time.monotonic()) < end:
        value = condition()
        if value:
            return value
        time.sleep(min(0.2, max(0.02, 4 * (time.monotonic() - began))))
    raise AssertionError(f"waited {BUSY * seconds:g} s in vain for {what}")


#: Read with a rig's settings: beside stand-ins of programs on PATH are those of the scripts that a job starts by their path.
STAND_INS = """
import os

from iogauge.core import paths

for place in os.environ["PATH"].split(os.pathsep):
    if os.path.exists(f"{place}/job/agent.sh"):
        paths.JOB_FILES = Path(place, "job")
"""


@dataclass(frozen=True)
class Run:
    """What a finished command shows from outside."""

    rc: int
    out: str
    records: list[dict[str, Any]]
    report: dict[str, Any] | None
    stage: Path

    @property
    def record(self):
        """The only record."""
        assert len(self.records) == 1, f"{len(self.records)} records\n{self.out}"
        return self.records[0]

    @property
    def cases(self):
        """Cases of ReFrame's own report."""
        assert self.report is not None, self.out
        return [case for run in self.report["runs"] for case in run["testcases"]]

    def file(self, pattern):
        """The only file of a pattern in the stage directories."""
        found = sorted(self.stage.rglob(pattern))
        assert len(found) == 1, f"{pattern}: {found}"
        return found[0]

    def never_passed(self, *causes):
        """Failed, nowhere called a pass, and every cause is named; CONTAMINATED by a busy machine ends with 0."""
        verdicts = {verdict_of(record) for record in self.records}
        assert self.rc != 0 or (verdicts and verdicts <= {"FAIL", "INVALID"}), self.out
        self.shows_no_pass()
        seen = [found for record in self.records for found in record["findings"]]
        said = [
            f"{one['guard']} {one.get('subject', '')}: {one['saw']}" for one in seen
        ]
        told = "\n".join([self.out, *said])
        for cause in causes:
            assert re.search(cause, told), f"the cause /{cause}/ is not named\n{told}"

    @property
    def verdict(self):
        """The verdict of the only record, as on a machine at rest."""
        return verdict_of(self.record)

    def shows_no_pass(self):
        """Neither our records nor ReFrame's screen and report call anything a pass."""
        assert all(record["verdict"] != "PASS" for record in self.records), self.out
        assert not re.search(r"\[ +OK *\]", self.out), self.out
        if self.report is not None:
            assert all(case["result"] != "pass" for case in self.cases), self.out


def verdict_of(record):
    """The verdict of a record or metric, as on a machine at rest.

    A busy one makes CONTAMINATED of a missed reference, and of a clock that is contradicted: whose time it was cannot be said.
    """
    if record["verdict"] != "CONTAMINATED" or ", while " not in record["reason"]:
        return str(record["verdict"])
    return "FAIL" if "reference" in record["reason"] else "INVALID"


def flat(text):
    """Text without the line breaks that a terminal's width brings."""
    return " ".join(text.split())


@dataclass
class Rig:
    """A site named ``rig`` with one partition ``default`` and one environment ``tools``."""

    base: Path
    target: Path
    tools: Sequence[str] = ("fio",)
    tasks: int = 2
    launcher: str | None = None
    limits: dict[str, Any] = field(default_factory=dict)
    declared: dict[str, Any] = field(default_factory=dict)
    topology: dict[str, Any] | None = None
    time_limit: str = "10m"
    #: Start each command as a user does, with an interpreter of its own.
    cold: bool = field(default_factory=lambda: COLD)
    #: Words before each command, which give it namespaces of its own.
    inside: Sequence[str] = ()

    def __post_init__(self):
        self.site.mkdir(parents=True)
        self.bin.mkdir()
        (self.base / "tmp").mkdir()
        (self.base / "reframe").symlink_to(ROOT / "reframe")
        settings = (ROOT / "site-configs" / "settings.py").read_text()
        (self.sites / "settings.py").write_text(settings + STAND_INS)
        shutil.copytree(ROOT / "site-configs" / "common", self.sites / "common")
        self.target.mkdir(parents=True, exist_ok=True)
        self.write_settings()

    @property
    def sites(self):
        return self.base / "site-configs"

    @property
    def site(self):
        return self.sites / "rig"

    @property
    def home(self):
        return self.base / "home"

    @property
    def bin(self):
        """Programs here come first on PATH."""
        return self.base / "bin"

    @property
    def stage(self):
        """Stage of the newest session."""
        base = self.home / "reframe" / "stage"
        sessions = sorted(base.glob("*"), key=lambda path: path.stat().st_mtime_ns)
        return sessions[-1] if sessions else base

    def settings(self):
        """Content of settings.yaml; everything is declared, nothing is detected."""
        fstype, source = mount_of(self.target)
        # A gate believes no name of a device.
        place, uuid = str(self.target), ""
        if source.startswith("/dev/"):
            uuid = uuid_of(place, find_mount(place))
        mpi = bool({"ior", "mdtest"} & set(self.tools))
        limits = {
            # A tenth of a second on a fast disk: G4 demands 0.02 s.
            "case_bytes": "128 MiB",
            # On ext4 without a journal each new file is looked for among all that were removed lately.
            "case_files": 4_000,
            # What reads for as long as it is told does so at full speed. Tests to which the time matters give another.
            "phase_seconds": "0.5 s",
            "repetitions": 1,
            "tier": "quick",
            "max_fill": "99 %",
            "max_of_free": "100 %",
            "max_spread": "100 %",
            # Tests run beside others on a disk that they share.
            "max_foreign": "100 %",
        }
        extras = {
            "target": {
                "path": str(self.target),
                "type": fstype,
                "source": source,
                **({"uuid": uuid} if uuid else {}),
                **self.declared,
            },
            "node": {"cores": 2, "memory": "4 GiB"},
            "scale": {"nodes": 1, "tasks_per_node": self.tasks},
            "limits": limits | self.limits,
        }
        if self.topology:
            extras["topology"] = self.topology
        partition = {
            "name": "default",
            "scheduler": "local",
            "launcher": self.launcher or ("mpirun" if mpi else "local"),
            "environs": ["tools"],
            "max_jobs": 1,
            "time_limit": self.time_limit,
            "env_vars": [[name, value] for name, value in _MPI.items()] if mpi else [],
            "extras": extras,
        }
        return {
            "systems": [
                {"name": "rig", "hostnames": [".*"], "partitions": [partition]}
            ],
            "environments": [
                {
                    "name": "tools",
                    "target_systems": ["rig"],
                    "features": list(self.tools),
                }
            ],
        }

    def write_settings(self, data=None):
        """Write settings.yaml, from the fields or as given."""
        text = (
            data if isinstance(data, str) else yaml.safe_dump(data or self.settings())
        )
        (self.site / "settings.yaml").write_text(text)

    @contextmanager
    def configured(self):
        """The partition and the environment of settings, which are written once they are changed."""
        data = self.settings()
        yield data["systems"][0]["partitions"][0], data["environments"][0]
        self.write_settings(data)

    def declare(self, **parts):
        """Write settings whose partition has other extras: mappings beside what is there."""
        with self.configured() as (partition, _):
            extras = partition["extras"]
            for name, part in parts.items():
                extras[name] = (
                    extras.get(name, {}) | part if isinstance(part, dict) else part
                )

    def write_references(self, references):
        """Write references.yaml (metrics by check, for the only partition), or remove it."""
        file = self.site / "references.yaml"
        if references is None:
            file.unlink(missing_ok=True)
            return
        if isinstance(references, str):
            file.write_text(references)
            return
        data = {"$sources": dict.fromkeys(references, "made up by a test")}
        data |= {
            check: {"rig:default": metrics} for check, metrics in references.items()
        }
        file.write_text(yaml.safe_dump(data))

    def program(self, name, lines):
        """Put a bash script first on PATH. In it ``$real`` is the real program, ``$out`` its result file."""
        real = shutil.which(name) or "/nonexistent"
        script(
            self.bin / name,
            "#!/bin/bash\n"
            f"real={real}\n"
            "out=\n"
            'for word in "$@"; do\n'
            "    case $word in --output=*) out=${word#*=} ;; summaryFile=*) out=${word#*=} ;; esac\n"
            "done\n"
            "rank=${OMPI_COMM_WORLD_RANK:-0}\n"
            f"{lines}\n",
        )

    def damage(self, name, results, script):
        """Run the real program, then a bash script where its result file fits a pattern.

        The script sees ``$out`` and the real exit status ``$rc``, which it may change.
        """
        self.program(
            name,
            f'"$real" "$@"\nrc=$?\ncase $out in {results}) [ "$rank" != 0 ] || {{\n{script}\n}} ;; esac\n'
            "exit $rc",
        )

    def environment(self, **extra):
        """Environment of a user who has sourced ``activate``, with the rig's site and state."""
        own = {k: v for k, v in os.environ.items() if not _FOREIGN.match(k)}
        path = [str(self.bin), str(Path(sys.executable).parent), own["PATH"]]
        own |= {
            "PATH": os.pathsep.join(path),
            "TMPDIR": str(self.base / "tmp"),
            "RFM_CONFIG_PATH": str(self.sites),
            "IOGAUGE_HOME": str(self.home),
        }
        if not FULL:
            # Open MPI starts a daemon for a task that no launcher started. It is as dear as all else in a short run.
            own["OMPI_MCA_ess_singleton_isolated"] = "1"
        return own | extra

    def start(self, words, **extra):
        """Start a command in the project's directory, in a session of its own.

        ``reframe`` and ``iogauge`` come from a process that has them imported, if the rig is not ``cold``.
        """
        environment = self.environment(**extra)
        if words[0] == "iogauge":
            environment.setdefault("PYTHONPATH", str(ROOT / "reframe" / "src"))
        if not self.cold and not (self.bin / words[0]).exists():
            started = warm.start([*self.inside, *words], ROOT, environment)
            if started:
                return started
        if words[0] == "iogauge":
            words = [sys.executable, "-c", _IOGAUGE, *words[1:]]
        return subprocess.Popen(
            [*self.inside, *words],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )

    def kill(self, *first):
        """Kill processes, then all of this rig, and what they start meanwhile: a job of fio waits for a killed fio for ever."""
        found = [*first, *processes(str(self.base))]
        while found:
            kill(*found)
            time.sleep(0.02)
            found = processes(str(self.base))

    def finish(self, process, timeout=120):
        """Wait for a command and collect what can be seen of it."""
        try:
            out, _ = process.communicate(timeout=BUSY * timeout)
        except subprocess.TimeoutExpired:
            self.kill(process.pid)
            out, _ = process.communicate()
            raise AssertionError(
                f"not done after {BUSY * timeout:g} s\n{out}"
            ) from None
        reports = sorted(
            (self.home / "reports").glob("*.json"), key=lambda f: f.stat().st_mtime_ns
        )
        return Run(
            process.returncode,
            _COLOURS.sub("", out),
            self.records(),
            json.loads(reports[-1].read_text()) if reports else None,
            self.stage,
        )

    def reframe(self, *arguments, timeout=120, **extra):
        """Run ReFrame with arguments; earlier records and reports of the rig are dropped first."""
        for old in ("history", "reports", "reframe"):
            shutil.rmtree(self.home / old, ignore_errors=True)
        return self.finish(self.start(["reframe", *arguments], **extra), timeout)

    def run(self, *arguments, gate=False, timeout=120, **extra):
        """``reframe -r`` with further arguments, on the checks that they name, or on all."""
        if gate:
            extra["IOGAUGE_GATE"] = "1"
        return self.reframe(*command(*arguments)[1:], timeout=timeout, **extra)

    def iogauge(self, *arguments, timeout=120, **extra):
        """The ``iogauge`` command."""
        return self.finish(self.start(["iogauge", *arguments], **extra), timeout)

    def again(self, measure):
        """What a command shows, again (five times at most) while others kept this machine too busy to tell."""
        for _ in range(5):
            before = self.records()
            run = measure()
            verdicts = {one["verdict"] for one in run.records if one not in before}
            if "CONTAMINATED" not in verdicts:
                break
        return run

    def gate(self, *arguments):
        """``iogauge run --gate``, again while this machine is too busy."""
        return self.again(lambda: self.iogauge("run", "--gate", *arguments))

    def records(self):
        """Records of all sessions, as their lines stand in the files."""
        return [
            json.loads(line)
            for file in sorted((self.home / "history").rglob("*.jsonl"))
            for line in file.read_text().splitlines()
        ]

    def leftovers(self):
        """What lies below the suite's directory on the target, that directory included."""
        top = self.target / "iogauge"
        if not top.exists():
            return []
        # What goes away meanwhile is no error to os.walk.
        below = (
            Path(d, name) for d, dirs, files in os.walk(top) for name in (*dirs, *files)
        )
        return [top, *below]

    def assert_clean(self):
        """Nothing of ours is left on the target."""
        left = self.leftovers()
        assert not left, "\n".join(f"{path}" for path in left)


@contextmanager
def mounted(point, kind, size, image=None, options=""):
    """A small file system at a directory (tmpfs, or ext4 or btrfs in an image); raises OSError where not allowed."""
    point.mkdir(parents=True, exist_ok=True)
    if kind == "tmpfs":
        words = [
            "mount",
            "-t",
            "tmpfs",
            "-o",
            f"size={size}{options}",
            "iogauge-test",
            str(point),
        ]
    else:
        assert image is not None
        with open(image, "wb") as file:
            file.truncate(size)
        make = {
            "ext4": ["mkfs.ext4", "-q", "-m", "0", "-F"],
            "btrfs": ["mkfs.btrfs", "-q"],
        }[kind]
        completed([*make, str(image)], check=True)
        words = ["mount", "-o", "loop", str(image), str(point)]
    done = completed(words)
    if done.returncode != 0:
        raise OSError(done.stderr.strip())
    try:
        yield point
    finally:
        for attempt in range(20):
            done = subprocess.run(
                ["umount", str(point)], capture_output=True, check=False, timeout=600
            )
            if done.returncode == 0:
                break
            time.sleep(0.1 * attempt)
