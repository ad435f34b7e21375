"""A newcomer's ways for real: ``iogauge site new``, docs/first-hour.md, CONTRIBUTING.md to the letter, sixty mistakes."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import textwrap
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from e2e.rig import ROOT
from support import shell
from support.project import copied
from support.shell import completed

pytestmark = [pytest.mark.nightly, pytest.mark.slow, pytest.mark.needs_fio]


def is_valid(records):
    """A record of the site, valid and without a reference; a busy machine may be unstable."""
    (record,) = records
    assert record["verdict"] in ("UNREFERENCED", "UNSTABLE", "CONTAMINATED"), record[
        "reason"
    ]
    assert record["system"] == "mine"
    assert all(metric["median"] > 0 for metric in record["metrics"])


class Installed:
    """The library as a wheel in an environment of its own, with the packages of this one."""

    def __init__(self, base):
        clone, self.base = base / "clone", base
        for name in ("reframe", "checks", "site-configs", "environments", "docs", "ci"):
            ignored = shutil.ignore_patterns(
                ".spack-env", "build", "*.egg-info", "__pycache__"
            )
            shutil.copytree(ROOT / name, clone / name, ignore=ignored)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        words = [
            "wheel",
            "--no-deps",
            "--no-index",
            "--no-build-isolation",
            "-w",
            str(base),
        ]
        subprocess.run([*pip, *words, str(clone / "reframe")], check=True, timeout=600)
        shutil.rmtree(clone)
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", base / "venv"], check=True
        )
        (wheel,) = base.glob("*.whl")
        self.bin = base / "venv" / "bin"
        install = [
            "--python",
            str(self.bin / "python"),
            "install",
            "--no-deps",
            "--no-index",
        ]
        subprocess.run([*pip, *install, str(wheel)], check=True, timeout=600)
        packages = next((base / "venv" / "lib").glob("python*/site-packages"))
        # A path file is not followed to other path files: the clone stays out of sight.
        (packages / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
        reframe = (
            (Path(sys.executable).parent / "reframe").read_text().split("\n", 1)[1]
        )
        shell.script(self.bin / "reframe", f"#!{self.bin / 'python'}\n{reframe}")

    def run(self, *words, status=0, **extra):
        """Run a command away from the clone; return what it printed."""
        own = {
            n: v
            for n, v in os.environ.items()
            if not n.startswith(("IOGAUGE", "RFM", "PYTHON"))
        }
        own["PATH"] = f"{self.bin}:{own['PATH']}"
        done = subprocess.run(
            words,
            cwd=self.base,
            env=own | {"XDG_STATE_HOME": str(self.base / "state")} | extra,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=240,
        )
        assert done.returncode == status, done.stdout
        return done.stdout


def test_a_wheel_measures_a_site_outside_the_clone(storage):
    base, target = storage / "wheel", storage / "wheel" / "target"
    target.mkdir(parents=True)
    installed = Installed(base)
    refused = installed.run("iogauge", "site", "new", "mine", status=2)
    assert "no folder of your own for the site" in refused
    (base / "sites").mkdir()
    sites = {"IOGAUGE_SITES": str(base / "sites")}
    words = ("--target", str(target), "--ceiling", "50 GB/s")
    said = installed.run("iogauge", "site", "new", "mine", *words, **sites)
    assert "time_limit: " in said
    assert "case(s), one at a time" in said
    case = ("-n", "FioRandomRead%block=128KiB", "--system=mine", "-S", "repetitions=1")
    installed.run("iogauge", "run", *case, **sites)
    history = base / "state" / "iogauge" / "history" / "mine"
    is_valid(
        [json.loads(line) for file in history.glob("*.jsonl") for line in file.open()]
    )


# --- the first hour -------------------------------------------------------------------------------


PAGE = ROOT / "docs" / "first-hour.md"
CAPPED = ROOT / "benchmarks" / "capped-fs"


def said(page):
    """Commands, exit statuses and closing words of a page, without its figures."""
    kept = re.findall(
        r"^    (\$ .*|\(exit status \d+\)|iogauge: [a-zA-Z ]+:|ready: mine:)",
        page,
        re.M,
    )
    return [
        re.sub(r"\d+", "N", line) if line.startswith("iogauge") else line
        for line in kept
    ]


@pytest.fixture
def disk(storage):
    place = storage / "first-hour"
    subprocess.run([CAPPED, "up", place, "1G", "10"], check=True, timeout=600)
    (place / "sites").mkdir()
    yield place
    subprocess.run([CAPPED, "down", place], check=True, timeout=600)


def repeat(rig, times):
    """Let the newest record stand for so many runs, a second apart: all that came before moves back."""
    newest, *before = sorted(
        (rig.home / "history" / "mine").glob("*.jsonl"),
        key=lambda f: -f.stat().st_mtime_ns,
    )
    for file in before:
        (record,) = (json.loads(line) for line in file.read_text().splitlines())
        file.write_text(json.dumps(earlier(record, times)) + "\n")
    (record,) = (json.loads(line) for line in newest.read_text().splitlines())
    for n in range(1, times):
        again = earlier(record, n) | {"session": f"{record['session']}-again-{n}"}
        (newest.parent / f"{again['session']}.jsonl").write_text(
            json.dumps(again) + "\n"
        )


def earlier(record, seconds):
    time = datetime.fromisoformat(record["time"].replace("Z", "+00:00"))
    return record | {"time": f"{time - timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"}


@pytest.mark.needs_loop
@pytest.mark.skipif(
    not os.access("/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device", os.W_OK),
    reason="mounts and slows a disk: needs root and cgroup v1 blkio",
)
def test_each_command_ends_as_the_page_says(disk, make_rig):
    """But for ``make bench`` (test_fresh.py); a single real run stands for repeated ones."""
    rig = make_rig(target=disk / "mnt")
    done = 0
    for block in re.split(r"^    \$ ", PAGE.read_text(), flags=re.M)[1:]:
        if "now carries 6 MiB/s" in PAGE.read_text().partition(block)[0]:
            subprocess.run([CAPPED, "cap", disk, "6"], check=True, timeout=600)
        command, *_ = block.splitlines()
        words = shlex.split(
            command.partition(" | ")[0].replace("/scratch", str(rig.target))
        )
        times = [
            int(word.partition("=")[2])
            for word in words
            if word.startswith("--repeat=")
        ]
        if words[0] == "sed":
            subprocess.run(words, cwd=disk, check=True, timeout=600)
        if words[0] != "iogauge":
            continue
        words = [word for word in words[1:] if not word.startswith("--repeat=")]
        status = int(re.findall(r"exit status (\d)", block)[0])
        for _ in range(3):
            run = rig.iogauge(*words, IOGAUGE_SITES=str(disk / "sites"))
            # A busy machine may miss the reference, which is no fault of the page.
            if run.rc == status or words[0] != "run":
                break
        found = said("".join(f"    {line}\n" for line in run.out.splitlines()))
        assert run.rc == status, f"{command}\n{run.out}"
        wanted = [line for line in said(block) if not line.startswith(("$", "("))]
        assert [line for line in wanted if line not in found] == [], (
            f"{command}\n{run.out}"
        )
        if times:
            repeat(rig, *times)
        done += 1
    assert done == 8


# --- CONTRIBUTING.md, followed in a copy of the project  ------------------------------------------


CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()

#: The tool that the page adds.
DD = "dd"


def code(heading):
    """Indented blocks of a section of the page, without their indentation."""
    (section,) = re.findall(
        rf"^## {heading}$(.*?)(?=^## |\Z)", CONTRIBUTING, re.MULTILINE | re.DOTALL
    )
    found = re.findall(r"(?:^ {8}.*\n(?:\n+(?= {8}))*)+", section, re.MULTILINE)
    return [textwrap.dedent(block) for block in found]


@pytest.fixture
def clone(tmp_path):
    """A copy of the project with the environment of this one."""
    copy = copied(tmp_path / "clone")
    (copy / ".venv").symlink_to(Path(sys.prefix))
    for git in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *git], cwd=copy, check=True)
    return copy


def put(file, before, text):
    """Insert a text before another one, which is there once."""
    old = file.read_text()
    assert old.count(before) == 1, f"{file}: {before!r}"
    file.write_text(old.replace(before, text + before))


def run(clone, *words):
    """Run a command of the page in the copy; its status is 0."""
    own = {
        n: v
        for n, v in os.environ.items()
        if not n.startswith(("IOGAUGE", "RFM", "PYTEST"))
    }
    own |= {"PATH": f"{Path(sys.executable).parent}:{own['PATH']}"}
    own |= {"PYTHONPATH": str(clone / "reframe" / "src")}
    done = completed(words, cwd=clone, env=own)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}{done.stderr}"


def finish(clone, *tests):
    """What the page asks for after each change: pages and format, lint, the form of the library, tests of the change."""
    run(clone, "ruff", "format", "--quiet", ".")
    run(clone, sys.executable, "ci/docs.py")
    run(clone, "ci/lint", "ruff", "format", "mypy", "layers")
    files = [f"tests/unit/{name}" for name in ("test_house.py", *tests)]
    run(clone, sys.executable, "-m", "pytest", "-n0", "-q", "-m", "not slow", *files)


def test_a_guard(clone):
    guard, line, test = code("Add a guard")
    guards = clone / "reframe" / "src" / "iogauge" / "guards"
    figures = guards / "figures.py"
    figures.write_text(f"{figures.read_text()}\n\n{guard}")
    put(guards / "catalogue.py", "    figures.ceiling,", textwrap.indent(line, "    "))
    tests = clone / "tests" / "unit" / "test_guards.py"
    tests.write_text(f"{tests.read_text()}\n\n{test}")
    judge = clone / "tests" / "unit" / "test_judge.py"
    assert "test_every_guard_that_applies_is_asked" in judge.read_text()
    finish(clone, "test_catalogue.py", "test_guards.py")
    assert "100 x the mean" in (clone / "docs" / "guards.md").read_text()


def test_a_scenario(clone, make_rig):
    script, *_ = code("Add a scenario")
    assert "`checks/fio_large_read.py`" in CONTRIBUTING
    (clone / "checks" / "fio_large_read.py").write_text(script)
    finish(clone)
    done = measured(clone, make_rig(cold=True), "fio_large_read.py")
    assert done == ("FioLargeRead", "UNREFERENCED")


def test_a_tool(clone, make_rig):
    parser, base = code("Add a tool")
    library = clone / "reframe" / "src" / "iogauge"
    assert '`DD: Final = "dd"`' in CONTRIBUTING
    put(library / "core" / "words.py", "\nPARTITION: Final", 'DD: Final = "dd"\n')
    put(library / "core" / "words.py", "FIO, FIO_METADATA,", "DD, ")
    (library / "tools" / "dd.py").write_text(parser)
    put(library / "tools" / "__init__.py", "- fio:", "- dd: command lines of dd\n")
    (library / "cases" / "dd.py").write_text(base)
    cases = library / "cases" / "__init__.py"
    put(cases, "- fio: ", "- dd: scenarios that run dd\n")
    put(
        cases,
        "from iogauge.cases.fio import",
        f"from iogauge.cases.{DD} import DdCheck\n",
    )
    (clone / "checks" / "dd_write.py").write_text(
        '"""dd: one writer."""\n\nimport reframe as rfm\n\nfrom iogauge.cases import DdCheck, words\n\n\n'
        '@rfm.simple_test\nclass DdWrite(DdCheck):\n    descr = "One writer"\n'
        '    valid_systems = [f"+{words.TARGET}"]\n    tags = {"quick"}\n'
    )
    finish(clone, "test_catalogue.py")
    done = measured(clone, make_rig(tools=("dd",), cold=True), "dd_write.py")
    assert done == ("DdWrite", "UNREFERENCED")


def measured(clone, rig, file):
    """Check and verdict of a run of a scenario of the copy."""
    (rig.base / "reframe").unlink()
    (rig.base / "reframe").symlink_to(clone / "reframe")
    words = ["reframe", "-c", str(clone / "checks" / file), "-r"]
    done = rig.finish(rig.start(words, PYTHONPATH=str(clone / "reframe" / "src")))
    assert done.records, done.out
    rig.assert_clean()
    assert done.record["verdict"] == "UNREFERENCED", done.record["reason"]
    return done.record["check"], done.record["verdict"]


# --- sixty mistakes: each is refused or noted  ----------------------------------------------------


REFERENCES = """$sources: {FioRandomRead: "data sheet"}
FioRandomRead:
  $index: [$partition, block]
  mine:target:
    4KiB: {read_iops: [20000, -0.1, null, ops/s]}
"""
_ENVIRONS = "environs: [tools]"
_BELOW = "environs: [tools]\n        "
_TOPOLOGY = "extras:\n          topology: {"

#: Old and new text of the settings, and what must be said.
SETTINGS = (
    ("        time_limit", "\ttime_limit", ("a tab stands here", "Use spaces")),
    (
        "scheduler: local",
        "scheduler local",
        (":11: this is not YAML", "Check the indentation"),
    ),
    (
        "  - name: mine",
        "    name: mine",
        ("systems: found {", "entries that begin with '- '"),
    ),
    ('["vm$', '["(', ("hostnames: found", "a regular expression: ")),
    (
        "max_jobs:",
        "max_job:",
        ("max_job: found an unknown key", "did you mean max_jobs?"),
    ),
    (
        "case_bytes:",
        "case_byte:",
        ("limits.case_byte: found", "did you mean case_bytes?"),
    ),
    (
        "environments:\n",
        "enviroments:\n",
        ("enviroments: found", "did you mean environments?"),
    ),
    (
        "time_limit: 30m",
        "time_limit: 30",
        ("time_limit: found 30", "such as 30m or 1h30m"),
    ),
    (
        "time_limit: 30m",
        "time_limit: half an hour",
        ("found 'half an hour'", "such as 30m"),
    ),
    (
        "time_limit: 30m",
        "time_limit: 1s",
        ("need more than time_limit 1 s", "Raise the partition's"),
    ),
    ("        time_limit: 30m\n", "", ("time_limit: found nothing", "such as 30m")),
    ("max_jobs: 1", "max_jobs: 4", ("max_jobs: found 4", "1: two cases at a time")),
    (
        "scheduler: local",
        "scheduler: slrum",
        ("scheduler 'slrum'", "did you mean slurm?"),
    ),
    (
        "scheduler: local",
        "scheduler: lsf",
        ("scheduler is lsf, and bsub is not on PATH", "correct scheduler"),
    ),
    (
        "launcher: mpirun",
        "launcher: ssh",
        ("launcher: found launcher 'ssh'", "mpirun, "),
    ),
    (
        "launcher: mpirun",
        "launcher: mpirn",
        ("launcher 'mpirn'", "did you mean mpirun?"),
    ),
    (_ENVIRONS, "environs: [tool]", ("environment 'tool'", "did you mean tools?")),
    (
        "path: /",
        "path: scratch/",
        ("target.path: 'scratch/", "must be an absolute path"),
    ),
    (
        "path: /",
        "path: /none/",
        ("target /none/", "No such file or directory", "correct target.path"),
    ),
    (
        "type: ",
        "type: xsf # ",
        ("G9 identity: ", "; demanded: ", " xsf", "correct target.path, target.type"),
    ),
    (
        'uuid: "',
        'uuid: "aa',
        (
            "G9 identity: ",
            " sees UUID ",
            "demanded: ",
            "write its UUID into target.uuid",
        ),
    ),
    (
        "node: {cores: ",
        "node: {cores: 9",
        ("node.cores is 9", "Write into the partition's extras: node: {cores: "),
    ),
    (
        "node: {cores: ",
        "node: {cores: 0, disks: ",
        ("node.cores: found 0", "greater than or equal to 1"),
    ),
    (
        "memory: ",
        "memory: 24, x: ",
        ("node.memory: 24 is not a size", "such as '4 GiB'"),
    ),
    ("MiB}\n", "Meg}\n", ("is not a size", "units: B, kB")),
    (
        "tasks_per_node: ",
        "tasks_per_node: two, x: ",
        ("tasks_per_node: found 'two'", "a valid integer"),
    ),
    (
        "nodes: 1,",
        "nodes: 2,",
        ("scale.nodes is 2, and the scheduler local", "name a scheduler"),
    ),
    (
        "case_bytes: ",
        "case_bytes: 1 MiB/s, x: ",
        ("case_bytes: '1 MiB/s' is not a size", "a number and a unit"),
    ),
    (
        "case_bytes: ",
        "fill: 0, case_bytes: ",
        ("limits.fill: found an unknown key", "the keys case_bytes"),
    ),
    (
        "phase_seconds: 2 s",
        "phase_seconds: 0 s",
        ("phase_seconds: found '0 s'", "greater than 0"),
    ),
    ("tier: quick", "tier: quik", ("limits.tier: found 'quik'", "did you mean quick?")),
    (
        "max_of_free: 10%",
        "max_of_free: 80",
        ("max_of_free: 80 is not a share", "between 0 % and 100 %"),
    ),
    (
        "extras:",
        _TOPOLOGY + "source: x, efficiency: {read: 80, write: 1}}",
        ("efficiency.read: 80 is not a share", "between 0 %"),
    ),
    (
        "extras:",
        _TOPOLOGY + "devices: {read: 1 GB/s}}",
        ("topology.source: this key is missing",),
    ),
    (
        "extras:",
        _TOPOLOGY + "source: x, devices: {read: 100 Gb}}",
        ("'100 Gb' is not a bandwidth", "'12.5 GB/s'"),
    ),
    ("features: [", "features: [foi, ", ("feature 'foi'", "did you mean fio?")),
    (
        "features: [",
        "features: [io500, ",
        ("features names io500", "leave the feature out"),
    ),
    (
        _ENVIRONS,
        _BELOW + "modules: [openmpi/9.9]",
        ("modules: found ['openmpi/9.9']", "modules_system, one of"),
    ),
    (
        _ENVIRONS,
        _BELOW + "access: [-A proj]",
        ("access: found ['-A proj']", "takes no options"),
    ),
    (
        "target_systems: [mine]",
        "target_systems: [mnie]",
        ("target_systems: found ['mnie']", "[mine]"),
    ),
    (
        "  - name: mine",
        "  - name: other",
        ("found systems: other", "named 'mine' as its folder"),
    ),
    (
        "expect:\n",
        "expect:\n            kernel: '1.0'\n",
        ("G25 settings: ", "demanded: ", "kernel 1.0"),
    ),
    (
        "expect:\n",
        "expect:\n            mount.option: a\n",
        ("expect.mount.option: found an unknown fact", "did you mean mount.options?"),
    ),
)

#: The same for the references.
OF_REFERENCES = (
    ("read_iops", "read_iop", (":5: ", "metric 'read_iop'", "did you mean read_iops?")),
    (
        "FioRandomRead:\n",
        "FioRandomReed:\n",
        ("FioRandomReed: found no check", "did you mean FioRandomRead?"),
    ),
    ("ops/s", "MB/s", ("read_iops (unit): found 'MB/s'", "'ops/s', the metric's unit")),
    (
        "-0.1, null",
        "-0.1 null",
        ("found [20000, '-0.1 null'", "[value, lower or null, upper or null, unit]"),
    ),
    ("-0.1", "-0,1", ("found [20000, 0, 1", "write decimals with a point: -0.1")),
    ("-0.1", "-10%", ("(lower bound): found '-10%'", "-0.1: 10 % less")),
    (
        "    4KiB: {",
        "    {",
        ("read_iops: found [20000", "level of $index: $partition, then block"),
    ),
    (
        "4KiB: {read_iops: [20000, -0.1, null, ops/s]}",
        "read_iops: [1, -0.1, null, ops/s]",
        (
            "read_iops: found [1",
            "level of $index: $partition, then block, then the metric",
        ),
    ),
    (
        "mine:target",
        "mine:tagret",
        ("partition 'mine:tagret'", "did you mean mine:target?"),
    ),
    ("20000", "20k", ("(value): found '20k'", "a finite number above 0")),
    ("4KiB", "4k", ("block '4k'", "did you mean 4KiB?")),
    ("$sources", "$source", ("$source: found this key", "$sources")),
)

#: Commands, and what they must say; each ends with status 2.
COMMANDS = (
    ("run --system=mine -t quik", ("-t quik selects no case", "did you mean quick?")),
    (
        "run --system=mine -n IorPosx",
        ("-n IorPosx selects no case", "did you mean IorPosix?"),
    ),
    ("run --system=mnie", ("no site 'mnie'", "did you mean mine?")),
    ("run --system=mine --mode=quik", ("no mode 'quik'", "did you mean quick?")),
    ("run --gat", ("--gat is no option", "did you mean --gate?")),
    ("status --system mien", ("no site 'mien'", "did you mean mine?")),
    ("history -n IorPosx", ("-n IorPosx fits no check", "did you mean IorPosix?")),
    ("explain G99", ("no word 'G99'", "Did you mean G9")),
    ("rnu", ("No such command 'rnu'", "did you mean run?")),
    ("alarm --send", ("has no session yet", "iogauge run makes one")),
    (
        "alarm --test",
        ("nobody would be told", "declare alarm in the site's settings.yaml"),
    ),
)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The settings that ``site new`` wrote, once written."""
    yield {}


@pytest.fixture
def site(make_rig, written):
    rig = make_rig()
    shutil.rmtree(rig.site)  # it claims this host
    folder = rig.sites / "mine"
    if not written:
        made = rig.iogauge("site", "new", "mine", "--target", str(rig.target))
        assert made.rc == 0, made.out
        text = (
            (folder / "settings.yaml").read_text().replace(str(rig.target), "/TARGET")
        )
        written["text"] = re.sub(r"(partitions:\n +- name: )\S+", r"\1target", text)
    folder.mkdir(exist_ok=True)
    return rig, folder, written["text"].replace("/TARGET", str(rig.target))


@pytest.mark.needs_ior
@pytest.mark.parametrize(("old", "new", "said"), [*SETTINGS, *OF_REFERENCES])
def test_a_mistake_in_a_file(site, old, new, said):
    rig, folder, settings = site
    texts = {"settings.yaml": settings, "references.yaml": REFERENCES}
    name = "references.yaml" if (old, new, said) in OF_REFERENCES else "settings.yaml"
    assert old in texts[name]
    texts[name] = texts[name].replace(old, new, 1)
    for file, text in texts.items():
        (folder / file).write_text(text)
    done = rig.iogauge("check", "mine", COLUMNS="900")
    assert all(part in done.out for part in said), done.out
    assert done.rc == 1 or "note" in done.out


@pytest.mark.needs_ior
@pytest.mark.parametrize(("words", "said"), COMMANDS)
def test_a_mistake_in_a_command(site, words, said):
    rig, folder, settings = site
    (folder / "settings.yaml").write_text(settings)
    done = rig.iogauge(*words.split(), COLUMNS="900")
    assert done.rc == 2 and all(part in done.out for part in said), done.out
