"""What a site declares of its nodes and expects of its storage, against the real ones."""

from __future__ import annotations

import os
import re
import shutil
from typing import Any

import pytest

from e2e.rig import Rig, Run
from iogauge.node.host import usable_cores

pytestmark = [pytest.mark.needs_ior, pytest.mark.skipif(os.getuid() != 0, reason="needs root")]

#: Readers of the published form read what they wrote: only the size of the data speaks for them.
BURST = ("-n", "^Burst$", "-S", "variant=published")
OF_BURST = """\
$sources: {Burst: made up by a test}
Burst:
  $index: [$partition, variant]
  rig:default:
    published: {write_bw: [1, -0.4, null, MiB/s], read_bw: [1, -0.4, null, MiB/s]}
"""
DIRECT = ("-n", r"IorPosix%files=per-process%order=sequential%cache=direct$")


def declares(rig: Rig, **parts: dict[str, Any]) -> None:
    """Change a rig's declarations: keys of its partition's extras."""
    data = rig.settings()
    extras = data["systems"][0]["partitions"][0]["extras"]
    for name, values in parts.items():
        extras[name] = extras.get(name, {}) | values
    rig.write_settings(data)


def findings(run: Run, guard: str) -> list[dict[str, Any]]:
    """The only record's findings of a guard."""
    return [finding for finding in run.record["findings"] if finding["guard"] == guard]


# --- memory ---------------------------------------------------------------------------------------


@pytest.mark.needs_loop
def test_memory_that_is_declared_too_small_proves_nothing(make_rig, devices):
    """Two tasks write and read 128 MiB through a page cache of gigabytes, declared as 12 MiB."""
    rig = make_rig(tools=("ior",), target=devices.formatted("ext4") / "own")
    declares(rig, node={"memory": "12 MiB"})
    rig.write_references(OF_BURST)
    run = rig.run(*BURST)
    run.never_passed(
        r"G1 client cache: .* against M = \d+ GiB, as a node says \(node.memory: 12 MiB\)"
    )
    (node,) = [found for found in findings(run, "G15") if "node.memory" in found["demands"]]
    assert node["outcome"] == "warn" and "node.memory is 12 MiB" in node["saw"]
    assert "node: {memory: " in node["remedy"]


# --- cores ----------------------------------------------------------------------------------------


def test_cores_that_are_not_there_are_refused_before_the_launch(make_rig):
    """Open MPI would abort; the case and the doctor say what to write."""
    cores = usable_cores()
    rig = make_rig(tools=("ior",), tasks=cores + 1)
    declares(rig, node={"cores": 2 * cores})
    saw = f"{cores + 1} task(s) on {cores} physical core(s), node.cores is {2 * cores}"
    run = rig.run(*DIRECT)
    assert run.record["verdict"] == "INVALID", run.out
    assert f"refused before a byte was written: G15 cores: {saw}" in run.record["reason"]
    assert f"node: {{cores: {cores}}}" in run.record["reason"]
    rig.assert_clean()
    doctor = rig.iogauge("check", IOGAUGE_TARGET=str(rig.target))
    text = " ".join(doctor.out.split())
    assert doctor.rc == 1, doctor.out
    assert re.search(rf"to do \d site rig, partition default: G15 cores: {re.escape(saw)}", text)
    assert f"-> Write into the partition's extras: node: {{cores: {cores}}}" in text


# --- references -----------------------------------------------------------------------------------


def test_a_setting_that_the_site_demands_is_asked_for_before_anything_is_written(make_rig):
    rig = make_rig(tools=("ior",), tasks=1)

    def expecting(**expect: object) -> Run:
        data = rig.settings()
        (partition,) = data["systems"][0]["partitions"]
        partition["extras"]["expect"] = {key.replace("__", "."): v for key, v in expect.items()}
        rig.write_settings(data)
        return rig.run(*DIRECT, "-S", "repetitions=1")

    kernel = os.uname().release
    assert expecting(kernel=kernel, cpu__cores=">= 1").record["metrics"]
    run = expecting(kernel=kernel, cpu__cores=">= 4096", mount__options="flock")
    run.never_passed(
        r"INVALID: refused before a byte was written: G25 settings: .*cpu\.cores is \d+",
        r"mount -o remount,flock",
    )
    assert run.record["metrics"] == []
    assert "kernel is" not in run.record["reason"]
    run = expecting(lustre__servers=8)
    (told,) = [f for f in run.record["findings"] if f["guard"] == "G25"]
    assert told["outcome"] == "warn" and "did not tell lustre.servers" in told["saw"]


# --- what ReFrame or a launcher would pass over ---------------------------------------------------

FIO = ("-n", "^FioRandomRead%block=128KiB$")


def test_a_prepare_command_that_fails_ends_the_job(make_rig):
    """The job of ReFrame would go on, and measure with other software than is declared."""
    rig = make_rig()
    data = rig.settings()
    data["environments"][0]["prepare_cmds"] = ["true", ". '/none/it is.sh'"]
    rig.write_settings(data)
    run = rig.run(*FIO)
    run.never_passed("ERROR: .*the prepare command of tools failed: [.] '/none/it is[.]sh'")
    data["environments"][0]["prepare_cmds"] = ["true", ". '/none/it is.sh' || true"]
    rig.write_settings(data)
    assert rig.run(*FIO).records[-1]["verdict"] == "UNREFERENCED"


@pytest.mark.skipif(shutil.which("modulecmd") is None, reason="no Environment Modules on PATH")
def test_a_module_that_the_job_has_not_loaded(make_rig, tmp_path):
    """A node may lack what the node of ReFrame has: there the shell's function "module" loads nothing."""
    files = tmp_path / "modules"
    (files / "storage").mkdir(parents=True)
    (files / "storage" / "1.0").write_text("#%Module\nsetenv STORAGE 1\n")
    (files / "storage" / ".version").write_text('#%Module\nset ModulesVersion "1.0"\n')
    rig = make_rig()
    data = rig.settings()
    (system,) = data["systems"]
    system["modules_system"] = "envmod"
    found = f'module() {{ eval "$(modulecmd bash "$@")"; }}; export MODULEPATH={files}'
    data["environments"][0] |= {"modules": ["storage"]}
    system["partitions"][0]["prepare_cmds"] = [found]
    rig.write_settings(data)
    assert rig.run(*FIO, MODULEPATH=str(files)).record["verdict"] == "UNREFERENCED"
    system["partitions"][0]["prepare_cmds"] = ['module() { [ "$1" = load ]; }']
    rig.write_settings(data)
    run = rig.run(*FIO, MODULEPATH=str(files))
    run.shows_no_pass()
    assert "has not loaded the module storage" in run.records[-1]["reason"]
