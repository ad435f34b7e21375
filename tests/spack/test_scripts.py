"""The scripts of ci/ that read lock files and programs, on environments made for the test. No Spack needed."""

import hashlib
import json
import os
import re
import shutil
import sys

import pytest

from iogauge.site import stack
from support.made_stack import check, lock_of
from support.project import ROOT
from support.shell import completed, script

pytestmark = pytest.mark.slow


def test_a_right_stack_passes_and_leaves_its_fingerprint(environment):
    folder = environment()
    status, text = check(folder)
    assert status == 0, text
    written = json.loads((folder / ".spack-env/stack.json").read_text())
    assert (
        written["lock_sha256"]
        == hashlib.sha256((folder / "spack.lock").read_bytes()).hexdigest()
    )
    assert set(written["packages"]) >= {"ior", "fio", "mpi", "darshan-runtime"}
    mpi = {"name": "openmpi", "version": "4.1.4", "external": True, "variants": {}}
    assert written["packages"]["mpi"] | mpi == written["packages"]["mpi"]


@pytest.mark.parametrize("half", ["absent", "of another installation"])
def test_a_half_installed_stack_has_no_fingerprint(environment, tmp_path, facts, half):
    """Neither before a tool is installed, nor while the view has an older one."""
    folder = environment()
    facts.write_facts(folder)
    fio = folder / ".spack-env/view/bin/fio"
    fio.unlink()
    if half == "of another installation":
        fio.symlink_to(script(tmp_path / "opt/fio-0123456789/bin/fio", "#!/bin/sh\n"))
    with pytest.raises(facts.StackError, match="fio missing"):
        facts.write_facts(folder)
    written = stack.read(folder / ".spack-env/stack.json")
    assert (written.fingerprint, written.versions["fio"]) == ("", "3.42")
    assert "fio" not in written.features and "ior" in written.features


@pytest.fixture
def before(check_stack, monkeypatch, capsys):
    """What `check_stack.py --before` says of what was solved, else of what Spack's scopes name."""

    def run(folder, **scopes):
        answer = scopes, {"openmpi", "mpich"}
        monkeypatch.setattr(check_stack.found, "packages_of", lambda _: answer)
        monkeypatch.setattr(sys, "argv", ["check_stack", "--before", str(folder)])
        status = check_stack.main()
        return status, "".join(capsys.readouterr())

    return run


def changed(folder, tool, **values):
    """A lock file whose tool is another, as a rule of a site's own scope makes it."""
    lock = json.loads((folder / "spack.lock").read_text())
    (made,) = [s for s in lock["concrete_specs"].values() if s["name"] == tool]
    made.update(values)
    (folder / "spack.lock").write_text(json.dumps(lock))


def test_wrong_externals_are_named_before_the_build(environment, tmp_path, before):
    folder = environment()
    assert before(folder)[0] == 0
    script(tmp_path / "gcc", "#!/bin/sh\necho 8.5.0\n")
    compilers = {"c": str(tmp_path / "gcc"), "cxx": str(tmp_path / "nowhere")}
    gcc = {"path": "/usr", "extra_attributes": {"compilers": compilers}}
    changed(folder, "gcc", external=gcc)
    (tmp_path / "openmpi/bin/mpicc").unlink()
    status, text = before(folder)
    assert status == 1
    assert f"gcc@12.2.0: its c compiler {tmp_path}/gcc is 8.5.0" in text
    assert f"its cxx compiler {tmp_path}/nowhere does not exist" in text
    assert f"openmpi@4.1.4: {tmp_path}/openmpi has no bin/mpicc" in text


@pytest.mark.parametrize(
    "told, found",
    [("Open MPI v5.0.3", "openmpi 5.0.3"), ("MPICH Version: 4.1.4", "mpich 4.1.4")],
)
def test_wrong_mpi_is_named_before_the_build(environment, before, told, found):
    status, text = before(environment(mpi_told=told))
    assert status == 1
    assert f"is {found}, but openmpi 4.1.4 is declared" in text


def test_a_lock_file_of_another_mpi_than_the_required_one_is_refused(
    environment, before
):
    folder = environment()
    assert before(folder, mpi={"require": "openmpi"})[0] == 0
    status, text = before(folder, mpi={"require": "mpich"})
    assert status == 1
    assert "has openmpi, and the settings require mpich" in text


def test_wrong_externals_are_named_before_the_solve(environment, tmp_path, before):
    """Spack would search for minutes, and say only that nothing provides C. One right external suffices."""
    environment()
    folder = tmp_path / "unsolved"
    folder.mkdir()
    (folder / "spack.yaml").write_text("spack: {}\n")
    script(tmp_path / "gcc", "#!/bin/sh\necho 8.5.0\n")
    gcc = {
        "spec": "gcc@12.2.0 languages:='c,c++'",
        "prefix": str(tmp_path),
        "extra_attributes": {"compilers": {"c": f"{tmp_path}/gcc"}},
    }
    stale = {"externals": [{"spec": "mpich@4.0", "prefix": "/nowhere"}]}
    here = {"spec": "openmpi@4.1", "prefix": f"{tmp_path}/openmpi"}
    status, text = before(folder, gcc={"externals": [gcc]}, mpich=stale)
    assert status == 1
    assert f"gcc@12.2.0: its c compiler {tmp_path}/gcc is 8.5.0" in text
    assert "mpich@4.0: its prefix /nowhere does not exist" in text
    mpis = {"mpich": stale, "openmpi": {"externals": [here]}}
    assert before(folder, **mpis)[0] == 0, "a stale one that is not used is no fault"
    assert before(folder, **mpis, mpi={"require": "mpich"})[0] == 1
    status, text = before(folder)
    assert status == 1 and "no MPI is named" in text
    # An environment may say that Spack builds it.
    assert before(folder, mpi={"require": "openmpi"})[0] == 0


def test_what_a_sites_rule_changed_is_named(
    environment, facts, check_stack, tmp_path, monkeypatch
):
    """Another recipe, version, variant or flag: the programs are not those of every site. Lustre is a site's choice."""
    folder = environment()
    monkeypatch.setattr(facts, "RECORD", tmp_path / "stack.json")
    facts.RECORD.write_text(json.dumps(facts.tools_of(facts.read_lock(folder))))

    def differs():
        return list(facts.differs_from_record(facts.read_lock(folder)))

    assert differs() == []
    changed(
        folder,
        "ior",
        parameters={"lustre": True, "aio": False, "hdf5": False, "cflags": []},
    )
    assert differs() == []
    changed(folder, "ior", namespace="builtin")
    changed(
        folder,
        "fio",
        version="3.37",
        parameters={"libaio": False, "io_uring": True, "cflags": ["-O0"]},
    )
    assert differs() == [
        "ior namespace: builtin here, iogauge elsewhere",
        "fio cflags: -O0 here, None elsewhere",
        "fio version: 3.37 here, 3.42 elsewhere",
    ]


def test_fingerprint_follows_the_programs_and_not_the_site(facts):
    def stack(change=None, **arguments):
        lock = lock_of("/opt/mpi", **arguments)
        for made in lock["concrete_specs"].values():
            if change and made["name"] == change[0]:
                made.update(change[1])
        return facts.fingerprint_of(facts.tools_of(lock))

    same = stack()
    assert re.fullmatch("[0-9a-f]{12}", same)
    assert stack(mpi_version="5.0.3") == same
    assert stack(("gcc", {"version": "13.3.0"})) == same
    assert stack(aio=True) != same
    assert stack(("fio", {"version": "3.41"})) != same
    assert stack(("ior", {"package_hash": "an edit of the recipe"})) != same
    assert stack(("ior", {"parameters": {"cflags": ["-O0"], "lustre": False}})) != same


TOOLS = [
    "bash",
    "sh",
    "sed",
    "sort",
    "head",
    "tail",
    "grep",
    "git",
    "tar",
    "patch",
    "make",
    "dirname",
    "readlink",
    "cat",
    "mkdir",
    "rm",
    "mv",
    "env",
]


@pytest.fixture
def bare(tmp_path):
    """A PATH with the tools that ci/install-spack calls, and what a test adds."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for tool in TOOLS:
        if found := shutil.which(tool):
            (directory / tool).symlink_to(found)
    (directory / "python3").symlink_to(sys.executable)

    def run(*programs, **variables):
        for program in programs:
            script(directory / program, "#!/bin/sh\necho 12.2.0\n")
        return completed(
            ["bash", ROOT / "ci/install-spack"],
            env={
                "PATH": str(directory),
                "HOME": str(tmp_path),
                "IOGAUGE_HOME": str(tmp_path / "home"),
                **{name: str(value) for name, value in variables.items()},
            },
        )

    return directory, run


needs_patch = pytest.mark.skipif(
    shutil.which("patch") is None, reason="not on PATH: patch"
)


def test_install_without_a_compiler(bare):
    done = bare[1]()
    assert done.returncode == 1
    assert "no gcc on PATH" in done.stderr
    assert "apt install gcc" in done.stderr


@needs_patch
def test_install_without_a_network(bare, tmp_path):
    """Not reached is said, with what to do; what git said is part of it, and nothing half stays."""
    done = bare[1]("gcc", IOGAUGE_SPACK_GIT=f"file://{tmp_path}/nowhere.git")
    assert done.returncode == 1
    assert f"not reached: file://{tmp_path}/nowhere.git (fatal:" in done.stderr
    assert "ci/airgap pack" in done.stderr
    assert not list((tmp_path / "home").glob("spack*"))


def test_a_path_is_also_that_of_the_repository_that_gitlab_runs(tmp_path):
    """Its jobs stand in iogauge/, and its input names environments/mine."""
    folder = tmp_path / "environments/mine"
    folder.mkdir(parents=True)
    (folder / "spack.yaml").touch()
    command = [ROOT / "ci/environment", "environments/mine"]
    given = {"PATH": os.environ["PATH"], "CI_PROJECT_DIR": str(tmp_path)}
    assert completed(command, cwd=ROOT, env=given).stdout == f"{folder}\n"
    del given["CI_PROJECT_DIR"]
    assert completed(command, cwd=ROOT, env=given).returncode == 2


@pytest.mark.parametrize("committed", [False, True])
def test_a_lock_file_for_other_externals_goes_unless_git_has_it(
    externals, tmp_path, monkeypatch, committed
):
    (tmp_path / "spack.yaml").write_text(f"include: [{externals.FOUND}]\n")
    lock = tmp_path / "spack.lock"
    lock.write_text("{}")
    if committed:
        for words in (["init", "-q"], ["add", "-f", "spack.lock"]):
            completed(["git", "-C", tmp_path, *words], check=True)
    monkeypatch.setattr(externals, "find", lambda _: "packages: {}\n")
    monkeypatch.setattr(sys, "argv", ["find_externals", str(tmp_path)])
    assert externals.main() == 0
    assert lock.exists() == committed
