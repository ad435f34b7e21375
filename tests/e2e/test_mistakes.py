"""Sixty mistakes of a newcomer: each is refused or noted, and what is said leads to the mend.

A row is an edit of the file that `iogauge site new` wrote, or of a reference file, or a command. Behind it stands what must be said:
the thing, the value that was found, what was expected, or what to do. A row counts if all of it is said, and nothing is green.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.rig import Rig

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.slow,
    pytest.mark.needs_fio,
    pytest.mark.needs_ior,
]

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
SETTINGS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("        time_limit", "\ttime_limit", ("a tab stands here", "Use spaces")),
    ("scheduler: local", "scheduler local", (":11: this is not YAML", "Check the indentation")),
    ("  - name: mine", "    name: mine", ("systems: found {", "entries that begin with '- '")),
    ('["vm$', '["(', ("hostnames: found", "a regular expression: ")),
    ("max_jobs:", "max_job:", ("max_job: found an unknown key", "did you mean max_jobs?")),
    ("case_bytes:", "case_byte:", ("limits.case_byte: found", "did you mean case_bytes?")),
    ("environments:\n", "enviroments:\n", ("enviroments: found", "did you mean environments?")),
    ("time_limit: 30m", "time_limit: 30", ("time_limit: found 30", "such as 30m or 1h30m")),
    ("time_limit: 30m", "time_limit: half an hour", ("found 'half an hour'", "such as 30m")),
    (
        "time_limit: 30m",
        "time_limit: 1s",
        ("need more than time_limit 1 s", "Raise the partition's"),
    ),
    ("        time_limit: 30m\n", "", ("time_limit: found nothing", "such as 30m")),
    ("max_jobs: 1", "max_jobs: 4", ("max_jobs: found 4", "1: two cases at a time")),
    ("scheduler: local", "scheduler: slrum", ("scheduler 'slrum'", "did you mean slurm?")),
    (
        "scheduler: local",
        "scheduler: lsf",
        ("scheduler is lsf, and bsub is not on PATH", "correct scheduler"),
    ),
    ("launcher: mpirun", "launcher: ssh", ("launcher: found launcher 'ssh'", "mpirun, ")),
    ("launcher: mpirun", "launcher: mpirn", ("launcher 'mpirn'", "did you mean mpirun?")),
    (_ENVIRONS, "environs: [tool]", ("environment 'tool'", "did you mean tools?")),
    ("path: /", "path: scratch/", ("target.path: 'scratch/", "must be an absolute path")),
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
        ("G9 identity: ", " sees UUID ", "demanded: ", "write its UUID into target.uuid"),
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
    ("memory: ", "memory: 24, x: ", ("node.memory: 24 is not a size", "such as '4 GiB'")),
    ("MiB}\n", "Meg}\n", ("is not a size", "units: B, kB")),
    (
        "tasks_per_node: ",
        "tasks_per_node: two, x: ",
        ("tasks_per_node: found 'two'", "a valid integer"),
    ),
    ("nodes: 1,", "nodes: 2,", ("scale.nodes is 2, and the scheduler local", "name a scheduler")),
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
    ("phase_seconds: 2 s", "phase_seconds: 0 s", ("phase_seconds: found '0 s'", "greater than 0")),
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
    ("extras:", _TOPOLOGY + "devices: {read: 1 GB/s}}", ("topology.source: this key is missing",)),
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
    (_ENVIRONS, _BELOW + "access: [-A proj]", ("access: found ['-A proj']", "takes no options")),
    (
        "target_systems: [mine]",
        "target_systems: [mnie]",
        ("target_systems: found ['mnie']", "[mine]"),
    ),
    ("  - name: mine", "  - name: other", ("found systems: other", "named 'mine' as its folder")),
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
OF_REFERENCES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
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
        ("read_iops: found [1", "level of $index: $partition, then block, then the metric"),
    ),
    ("mine:target", "mine:tagret", ("partition 'mine:tagret'", "did you mean mine:target?")),
    ("20000", "20k", ("(value): found '20k'", "a finite number above 0")),
    ("4KiB", "4k", ("block '4k'", "did you mean 4KiB?")),
    ("$sources", "$source", ("$source: found this key", "$sources")),
)

#: Commands, and what they must say; each ends with status 2.
COMMANDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("run --system=mine -t quik", ("-t quik selects no case", "did you mean quick?")),
    ("run --system=mine -n IorPosx", ("-n IorPosx selects no case", "did you mean IorPosix?")),
    ("run --system=mnie", ("no site 'mnie'", "did you mean mine?")),
    ("run --system=mine --mode=quik", ("no mode 'quik'", "did you mean quick?")),
    ("run --gat", ("--gat is no option", "did you mean --gate?")),
    ("status --system mien", ("no site 'mien'", "did you mean mine?")),
    ("history -n IorPosx", ("-n IorPosx fits no check", "did you mean IorPosix?")),
    ("explain G99", ("no word 'G99'", "Did you mean G9")),
    ("rnu", ("No such command 'rnu'", "did you mean run?")),
    ("alarm --send", ("has no session yet", "iogauge run makes one")),
    ("alarm --test", ("nobody would be told", "declare alarm in the site's settings.yaml")),
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The settings that ``site new`` wrote, once written."""
    yield {}


@pytest.fixture
def site(make_rig: Callable[..., Rig], written: dict[str, str]) -> tuple[Rig, Path, str]:
    rig = make_rig()
    shutil.rmtree(rig.site)  # it claims this host
    folder = rig.sites / "mine"
    if not written:
        made = rig.iogauge("site", "new", "mine", "--target", str(rig.target))
        assert made.rc == 0, made.out
        text = (folder / "settings.yaml").read_text().replace(str(rig.target), "/TARGET")
        written["text"] = re.sub(r"(partitions:\n +- name: )\S+", r"\1target", text)
    folder.mkdir(exist_ok=True)
    return rig, folder, written["text"].replace("/TARGET", str(rig.target))


@pytest.mark.parametrize(("old", "new", "said"), [*SETTINGS, *OF_REFERENCES])
def test_a_mistake_in_a_file(
    site: tuple[Rig, Path, str], old: str, new: str, said: tuple[str, ...]
) -> None:
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


@pytest.mark.parametrize(("words", "said"), COMMANDS)
def test_a_mistake_in_a_command(
    site: tuple[Rig, Path, str], words: str, said: tuple[str, ...]
) -> None:
    rig, folder, settings = site
    (folder / "settings.yaml").write_text(settings)
    done = rig.iogauge(*words.split(), COLUMNS="900")
    assert done.rc == 2 and all(part in done.out for part in said), done.out
