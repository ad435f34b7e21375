"""Where a run may write: what an administrator or an owner allowed, and no name leads anywhere else."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.rig import Rig, processes
from e2e.test_values import METADATA, RANDOM_READ
from iogauge.workspace import directory

ROOT_ONLY = pytest.mark.skipif(os.getuid() != 0, reason="gives directories to another user")


@pytest.fixture
def rig(make_rig: Callable[..., Rig]) -> Rig:
    return make_rig()


def flat(text: str) -> str:
    """Text without the line breaks that a terminal's width brings."""
    return " ".join(text.split())


def refused_everywhere(rig: Rig, why: str) -> None:
    """A run, a plan and the doctor refuse the target for the same reason, and nothing is written."""
    before = sorted(rig.target.resolve().iterdir())
    run = rig.run(*RANDOM_READ)
    run.never_passed("refused before a byte was written")
    assert run.record["verdict"] == "INVALID"
    assert why in run.record["reason"]
    plan = rig.iogauge("run", "--dry-run", *RANDOM_READ)
    assert plan.rc == 1 and why in flat(plan.out), plan.out
    assert sorted(rig.target.resolve().iterdir()) == before


@pytest.mark.needs_fio
@ROOT_ONLY
def test_somebody_elses_directory_until_it_is_allowed(rig):
    os.chown(rig.target, 12345, 12345)
    refused_everywhere(rig, "belongs to user 12345, not to root")
    asked = {"IOGAUGE_TARGET": str(rig.target), "RFM_CONFIG_PATH": str(rig.sites)}
    doctor = rig.iogauge("check", "--all", **asked)
    assert doctor.rc == 1 and f"iogauge site allow {rig.target}" in flat(doctor.out), doctor.out

    allow = rig.iogauge(
        "site", "allow", str(rig.target), "--user", "root", "--expires", "2999-12-31"
    )
    assert allow.rc == 0 and "user root" in allow.out and "2999-12-31" in allow.out, allow.out
    doctor = rig.iogauge("check", "--all", **asked)
    assert ".iogauge-allowed: user root" in flat(doctor.out), doctor.out
    plan = rig.iogauge("run", "--dry-run", *RANDOM_READ)
    assert plan.rc == 0 and " fit, allowed: " in flat(plan.out), plan.out
    run = rig.run(*RANDOM_READ)
    assert run.record["verdict"] == "UNREFERENCED", run.out
    assert [path.name for path in rig.target.iterdir()] == [".iogauge-allowed"]

    again = rig.iogauge("site", "allow", str(rig.target), "--user", "nobody")
    assert again.rc == 1 and "--replace" in flat(again.out), again.out
    slip = rig.iogauge("site", "allow", str(rig.target), "--group", "no-such-group", "--replace")
    assert slip.rc == 0 and "group no-such-group: not known on this host" in flat(slip.out), (
        slip.out
    )
    known = rig.iogauge("site", "allow", str(rig.target), "--user", "nobody", "--replace")
    assert known.rc == 0 and "not known" not in known.out, known.out
    plan = rig.iogauge("run", "--dry-run", *RANDOM_READ)
    assert plan.rc == 1 and "and not root" in flat(plan.out), plan.out


@pytest.mark.needs_fio
def test_a_path_through_a_link(rig):
    real = rig.base / "real"
    rig.target.rename(real)
    rig.target.symlink_to(real)
    refused_everywhere(rig, f"{rig.target} is a symbolic link")
    assert rig.iogauge("site", "allow", str(rig.target)).rc == 1
    assert list(real.iterdir()) == []


# --- the janitor ------------------------------------------------------------------------------------


def left(rig: Rig, name: str, **owner: str) -> Path:
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
    data = rig.settings()
    (partition,) = data["systems"][0]["partitions"]
    if where == "target":
        partition["extras"]["target"]["path"] = "/tmp/$(id)"
    elif where == "partition":
        partition["name"] = "../tools"
    else:
        partition["environs"] = ["../tools"]
        data["environments"][0]["name"] = "../tools"
    rig.write_settings(data)
    run = rig.run(*RANDOM_READ)
    assert run.rc != 0, run.out
    run.shows_no_pass()
    assert not list(rig.target.iterdir())


def test_a_name_of_a_record_that_leads_elsewhere_is_no_file(rig):
    name = "../../etc/passwd"
    for words in (["report", name], ["calibrate", "--system", name], ["history", "--system", name]):
        assert "root:" not in rig.iogauge(*words).out
    assert not [path for path in rig.home.rglob("*") if path.is_file() and "passwd" in path.name]


# --- a run that writes while names are swapped --------------------------------------------------------


@pytest.fixture
def precious(rig: Rig) -> Iterator[Path]:
    folder = rig.base / "precious"
    folder.mkdir()
    (folder / "data").write_text("precious")
    yield folder
    assert (folder / "data").read_text() == "precious"
    assert [path.name for path in folder.iterdir()] == ["data"]


@pytest.mark.needs_fio
def test_a_case_whose_directory_is_swapped_for_a_link_removes_only_its_own(rig, precious):
    """The tool itself puts a link in the place of the case's directory, just before the job ends."""
    rig.program(
        "fio",
        f'd=$(echo {rig.target}/iogauge/*/*/Fio*)\n"$real" "$@"; rc=$?\n'
        f'case "$*" in *filedelete*|*remove*) mv "$d" "$d.aside"; ln -s {precious} "$d" ;; esac\nexit $rc',
    )
    run = rig.run(*METADATA)
    assert not processes(str(rig.base))
    # The session removes its directory, with the link in it as a name.
    rig.assert_clean()
    assert run.records
