"""The tools on PATH: versions, scripts, and libraries that are preloaded."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from iogauge.core import versions
from iogauge.evidence.fingerprint import series_subset
from iogauge.guards import origin
from iogauge.guards.finding import Outcome
from iogauge.node import between
from iogauge.site import programs
from support.shell import script


@pytest.mark.parametrize(
    "environ, facts",
    [
        ({}, {}),
        ({"LD_PRELOAD": ""}, {}),
        ({"LD_PRELOAD": "libeatmydata.so"}, {"preload.LD_PRELOAD": "libeatmydata.so"}),
        (
            {"LD_PRELOAD": "/a/b.so /c/d.so:/e/b.so", "LD_AUDIT": "/x/audit.so"},
            {"preload.LD_PRELOAD": "b.so:d.so", "preload.LD_AUDIT": "audit.so"},
        ),
    ],
)
def test_libraries_of_the_environment(tmp_path, environ, facts):
    assert between.preloaded(environ, tmp_path) == facts
    assert series_subset(facts) == facts


def test_the_environment_of_a_process_is_read():
    words = [sys.executable, "-c", "print(flush=True); input()"]
    own = os.environ | {"LD_AUDIT": "/no/such.so"}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        words, env=own, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
    ) as run:
        assert run.stdout and run.stdin
        run.stdout.readline()
        found = between.of_processes([run.pid, 2**22 + 1])
        run.stdin.close()
    assert found["preload.LD_AUDIT"] == "such.so"


REMARK, REFUSED = Outcome.WARN, Outcome.INVALID


@pytest.mark.parametrize(
    "library, outcome, in_gate",
    [
        ("libeatmydata.so", REFUSED, REFUSED),
        ("nosync.so", REFUSED, REFUSED),
        ("libfaketime.so.1", REFUSED, REFUSED),
        ("libfaketimeMT.so.1", REFUSED, REFUSED),
        ("fiu_posix_preload.so", REFUSED, REFUSED),
        ("libunifyfs_gotcha.so", REFUSED, REFUSED),
        ("libdarshan.so", Outcome.OK, Outcome.OK),
        ("libxalt_init.so", REMARK, REFUSED),
        ("libnosynchrony.so", REMARK, REFUSED),
    ],
)
def test_what_is_preloaded_by_name(library, outcome, in_gate):
    facts = {f"{between.PRELOAD}LD_PRELOAD": library}
    for nodes, loaded, source in (
        ({"n1": facts}, (), "LD_PRELOAD"),
        ({}, (facts,), "LD_PRELOAD of a task"),
    ):
        evidence = SimpleNamespace(nodes=nodes, loaded=loaded)
        for gate, expected in ((False, outcome), (True, in_gate)):
            finding = origin.environment(SimpleNamespace(evidence=evidence, gate=gate))
            if expected is Outcome.OK:
                assert finding is None
                continue
            assert finding.outcome is expected, finding
            assert f"{library} ({source})" in finding.saw


def test_a_tool_that_is_a_script(tmp_path):
    tool = tmp_path / "ior"
    environ = {"PATH": str(tmp_path)}
    assert between.script("ior", environ) == {}
    facts = []
    for text in ("#!/bin/sh -e\nexec a\n", "#!/bin/sh -e\nexec b\n"):
        script(tool, text)
        facts.append(str(between.script("ior", environ)["script.ior"]))
    assert facts[0].startswith("#!/bin/sh -e (")
    assert facts[0] != facts[1]
    tool.write_bytes(b"\x7fELF")
    assert between.script("ior", environ) == {}


@pytest.mark.parametrize(
    "tool, version, old",
    [
        ("ior", "3.3.0", True),
        ("mdtest", "3.4.0+dev", True),
        ("ior", "4.0.0", False),
        ("ior", "10.0.0", False),
        ("fio", "3.33", False),
        ("fio", "3.7", False),
        ("fio", "3.1", True),
        ("fio", "2.21", True),
    ],
)
def test_versions_that_will_not_do(tool, version, old):
    said = versions.too_old(tool, version)
    assert bool(said) is old
    oldest = versions.OLDEST.get(tool, "")
    assert not old or (
        version in said and f"{oldest} or newer" in said and "build-stack" in said
    )


def test_a_machine_with_an_old_tool_does_not_offer_it(tmp_path, monkeypatch):
    script(tmp_path / "ior", "#!/bin/sh\nexit 1\n\0" + "3.3.0\0")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = programs.machine()
    assert (found.features, found.programs["ior"].version) == ([], "3.3.0")
    assert "4.0.0 or newer is needed" in found.programs["ior"].problem
