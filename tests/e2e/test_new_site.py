"""A newcomer's ways for real: ``iogauge site new``, docs/first-hour.md, CONTRIBUTING.md to the letter, mistakes."""

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
from support.mistakes import FILES, REFERENCES, mistakes
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
        completed([*pip, *words, str(clone / "reframe")], check=True)
        shutil.rmtree(clone)
        completed(
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
        completed([*pip, *install, str(wheel)], check=True)
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
    assert "iogauge check mine" in said
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
    completed([CAPPED, "up", place, "1G", "10"], check=True)
    (place / "sites").mkdir()
    yield place
    completed([CAPPED, "down", place], check=True)


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
            completed([CAPPED, "cap", disk, "6"], check=True)
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
            completed(words, cwd=disk, check=True)
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
    assert done == 7


# --- CONTRIBUTING.md, followed in a copy of the project  ------------------------------------------


CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()


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
        completed(["git", *git], cwd=copy, check=True)
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


# --- mistakes: each is refused or noted  ----------------------------------------------------------


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
@pytest.mark.parametrize("row", mistakes("host", "cases"), ids="|".join)
def test_a_mistake_in_a_file(site, row):
    kind, old, new, *said = row
    rig, folder, settings = site
    texts = {"settings.yaml": settings, "references.yaml": REFERENCES}
    assert old in texts[FILES[kind]]
    texts[FILES[kind]] = texts[FILES[kind]].replace(old, new, 1)
    for name, text in texts.items():
        (folder / name).write_text(text)
    done = rig.iogauge("check", "mine", COLUMNS="900")
    assert [words for words in said if words not in done.out] == [], done.out
    assert done.rc == 1 or "note" in done.out


@pytest.mark.needs_ior
@pytest.mark.parametrize("row", mistakes("command"), ids="|".join)
def test_a_mistake_in_a_command(site, row):
    _, command, _, *said = row
    rig, folder, settings = site
    (folder / "settings.yaml").write_text(settings)
    words = shlex.split(command)
    variables = {"COLUMNS": "900"}
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        variables[name] = value
    done = rig.iogauge(*words, **variables)
    assert [words for words in said if words not in done.out] == [], done.out
    assert done.rc != 0
