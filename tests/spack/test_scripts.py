"""The scripts of ci/ that read lock files and programs, on environments made for the test. No Spack needed."""

import copy
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.made_stack import MPIRUN, check, lock_of, script

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


def test_a_right_stack_passes_and_leaves_its_fingerprint(environment):
    folder = environment()
    status, failed, text = check(folder)
    assert (status, failed) == (0, {}), text
    written = json.loads((folder / ".spack-env/stack.json").read_text())
    assert (
        written["lock_sha256"] == hashlib.sha256((folder / "spack.lock").read_bytes()).hexdigest()
    )
    assert set(written["packages"]) >= {"ior", "fio", "mpi", "darshan-runtime"}
    assert written["packages"]["mpi"] | {"hash": ""} == {
        "name": "openmpi",
        "version": "4.1.4",
        "hash": "",
        "external": True,
    }


def test_missing_prefix(environment, tmp_path):
    folder = environment()
    shutil.rmtree(tmp_path / "openmpi")
    status, failed, text = check(folder)
    assert status == 1
    assert set(failed) == {"externals"}, text
    assert f"openmpi@4.1.4: its prefix {tmp_path}/openmpi does not exist" in failed["externals"]
    assert "packages.yaml" in failed["externals"]
    assert not (folder / ".spack-env/stack.json").exists()


def before(folder, package, **external):
    """`check_stack.py --before` of what was solved and not built, with one external changed."""
    shutil.rmtree(folder / ".spack-env")
    lock = json.loads((folder / "spack.lock").read_text())
    (found,) = [s for s in lock["concrete_specs"].values() if s["name"] == package]
    found["external"].update(external)
    (folder / "spack.lock").write_text(json.dumps(lock))
    status, failed, text = check(folder, "--before")
    assert not (folder / ".spack-env").exists()
    return status, failed, text


def test_right_externals_are_told_before_the_build(environment):
    status, failed, text = before(environment(), "gcc")
    assert (status, failed) == (0, {}), text
    assert re.findall(r"^check_stack: ok  (\S+)", text, re.MULTILINE)[:2] == ["externals", "mpi"]


def test_wrong_compiler_is_named_before_the_build(environment, tmp_path):
    script(tmp_path / "gcc", "#!/bin/sh\necho 8.5.0\n")
    compilers = {"c": str(tmp_path / "gcc"), "cxx": str(tmp_path / "nowhere")}
    status, failed, _ = before(environment(), "gcc", extra_attributes={"compilers": compilers})
    assert status == 1
    assert f"gcc@12.2.0: its c compiler {tmp_path}/gcc is 8.5.0" in failed["externals"]
    assert f"its cxx compiler {tmp_path}/nowhere does not exist" in failed["externals"]


def test_wrong_externals_are_named_before_the_solve(environment, tmp_path):
    """Of an environment that was never solved, packages.yaml is all there is."""
    folder = environment()
    (folder / "spack.lock").unlink()
    script(tmp_path / "gcc", "#!/bin/sh\necho 8.5.0\n")
    text = f"""packages:
  gcc:
    externals::
      - spec: "gcc@12.2.0 languages='c,c++,fortran'"
        prefix: {tmp_path}
        extra_attributes:
          compilers:
            c: {tmp_path}/gcc
  openmpi:
    externals:
      - spec: openmpi@4.1.4
        prefix: PREFIX
"""
    (folder / "packages.yaml").write_text(text.replace("PREFIX", f"{tmp_path}/nowhere"))
    status, failed, _ = check(folder, "--before")
    assert status == 1
    assert f"gcc@12.2.0: its c compiler {tmp_path}/gcc is 8.5.0" in failed["externals"]
    assert f"openmpi@4.1.4: its prefix {tmp_path}/nowhere does not exist" in failed["externals"]
    assert len(failed["externals"].splitlines()) == 3, "a line for each fault, and what to do"
    script(tmp_path / "gcc", "#!/bin/sh\necho 12.2.0\n")
    (folder / "packages.yaml").write_text(text.replace("PREFIX", f"{tmp_path}/openmpi"))
    status, failed, text = check(folder, "--before")
    assert (status, failed) == (0, {}), text
    assert "2 as " in text
    (folder / "packages.yaml").unlink()
    status, failed, _ = check(folder, "--before")
    assert status == 1
    assert "ci/find_externals.py" in failed["externals"]


def test_wrong_externals_of_a_site_are_named_before_spack_comes(tmp_path):
    done = subprocess.run(
        [ROOT / "ci/build-stack", "kaust-shaheen2"],
        stdout=subprocess.PIPE,
        text=True,
        env={"PATH": os.environ["PATH"], "IOGAUGE_HOME": str(tmp_path / "home")},
    )
    assert done.returncode == 1
    assert "gcc@10.3.0: its prefix /opt/gcc/10.3.0 does not exist" in done.stdout
    assert not (tmp_path / "home").exists()


def test_mpi_without_its_compiler_is_named_before_the_build(environment, tmp_path):
    folder = environment()
    (tmp_path / "openmpi/bin/mpicc").unlink()
    status, failed, _ = before(folder, "openmpi")
    assert status == 1
    assert f"openmpi@4.1.4: {tmp_path}/openmpi has no bin/mpicc" in failed["externals"]


def test_wrong_mpi_is_named_before_the_build(environment):
    status, failed, _ = before(environment(mpi_told="5.0.3"), "openmpi")
    assert status == 1
    assert "openmpi 5.0.3, but packages.yaml declares 4.1.4" in failed["mpi"]


@pytest.mark.parametrize(
    ("declared", "missing"),
    [
        ({"fabrics": ["none"], "schedulers": ["none"], "lustre": False}, ""),
        ({"fabrics": ["ucx"], "schedulers": ["slurm"]}, ""),
        ({"fabrics": ["ucx", "ofi"]}, "fabrics=ofi (no mtl:ofi or btl:ofi)"),
        ({"schedulers": ["tm"]}, "schedulers=tm"),
        ({"lustre": True}, "lustre (no fs:lustre)"),
    ],
)
def test_parts_of_the_mpi_that_its_spec_names(environment, tmp_path, declared, missing):
    """What Open MPI lists decides; what the spec does not name is not demanded."""
    folder = environment()
    lines = [f"mca:{part}:version:mca:2.1.0" for part in ("pml:ucx", "plm:slurm", "fs:ufs")]
    said = "".join(f"echo {line}\n" for line in lines)
    script(tmp_path / "openmpi/bin/ompi_info", "#!/bin/sh\n" + said)
    lock = json.loads((folder / "spack.lock").read_text())
    (mpi,) = [s for s in lock["concrete_specs"].values() if s["name"] == "openmpi"]
    mpi["parameters"].update(declared)
    (folder / "spack.lock").write_text(json.dumps(lock))
    status, failed, text = check(folder, "--before")
    assert (status, bool(failed)) == ((1, True) if missing else (0, False)), text
    assert missing in failed.get("MPI's parts", "")
    assert missing or "plm:slurm, pml:ucx" in text


@pytest.mark.parametrize(
    ("made", "check_name", "words"),
    [
        ({"mpi_told": "5.0.3"}, "mpi", "openmpi 5.0.3, but packages.yaml declares 4.1.4"),
        ({"tasks": 1}, "run", "jobs of 1 task, not one of 2: it belongs to another MPI"),
        ({"aio": True}, "ior's back ends", "lacks AIO"),
        ({"apis": "HDF5|"}, "ior's back ends", "should not have HDF5"),
        ({"lustre": True}, "Lustre", "ior lacks --posix.lustre"),
        ({"engines": "io_uring"}, "fio's engines", "fio lacks libaio"),
        ({"mpiio": "no"}, "Darshan", "mpiio module is off"),
    ],
)
def test_what_is_wrong_is_named(environment, made, check_name, words):
    status, failed, text = check(environment(**made))
    assert status == 1, text
    assert words in failed.get(check_name, ""), text


def test_another_repositorys_recipe(environment):
    folder = environment()
    lock = json.loads((folder / "spack.lock").read_text())
    (ior,) = [s for s in lock["concrete_specs"].values() if s["name"] == "ior"]
    ior["namespace"] = "builtin"
    (folder / "spack.lock").write_text(json.dumps(lock))
    _, failed, _ = check(folder)
    assert "ior is builtin.ior" in failed["recipes"]


def test_nothing_installed(tmp_path):
    status, _, text = check(tmp_path)
    assert status == 1
    assert "spack -e" in text


def test_login_node_starts_nothing(environment, tmp_path):
    folder = environment(tasks=1)
    script(tmp_path / "openmpi/bin/mpirun", MPIRUN.format(version="4.1.4") + "touch started\n")
    status, failed, text = check(folder, "--no-run")
    assert (status, failed) == (0, {})
    assert text.count("not checked: --no-run") == 4


def test_an_installation_that_cannot_be_written_is_checked_too(environment, facts):
    """In an image, or as another user than the owner: the facts that are there count, if they are right."""
    folder = environment()
    read_only = ["unshare", "-rm", "sh", "-c"]
    read_only += ['mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"', folder]
    if subprocess.run([*read_only, "true"], capture_output=True).returncode:
        pytest.skip("no read-only mount can be made here")

    def checked():
        command = [*read_only, sys.executable, ROOT / "ci/check_stack.py", folder]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    status, _, said = checked()
    assert status == 1
    assert f"check_stack: {folder}/.spack-env/stack.json: Read-only file system" in said
    written = facts.write_facts(folder)
    status, said, _ = checked()
    assert status == 0
    assert f"check_stack: stack {written['stack']}; its facts: {folder}" in said
    file = folder / ".spack-env/stack.json"
    file.write_text(file.read_text().replace(written["stack"], "0" * 12))
    assert checked()[0] == 1


def test_activate_costs_a_job_nothing(environment, facts):
    """The goal is 50 ms; a shell that sources it is measured against one that does not."""
    folder = environment()
    facts.write_facts(folder)
    activate = folder / ".spack-env/activate.sh"

    def seconds(command, runs=20):
        started = time.perf_counter()
        for _ in range(runs):
            subprocess.run(["bash", "-c", command], check=True)
        return (time.perf_counter() - started) / runs

    assert seconds(f". '{activate}'") - seconds(":") < 0.05
    done = subprocess.run(
        ["bash", "-euc", f". '{activate}'; command -v ior; env"],
        env={"PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert done.stdout.startswith(str(folder / ".spack-env/view/bin/ior"))
    values = dict(line.split("=", 1) for line in done.stdout.splitlines()[1:] if "=" in line)
    told = json.loads(Path(values["IOGAUGE_STACK_JSON"]).read_text())
    assert values["IOGAUGE_STACK_FINGERPRINT"] == told["stack"]
    assert values["IOGAUGE_STACK_HASH_IOR"] == told["packages"]["ior"]["hash"]


MODULES = """
proc module-whatis {text} {}
proc conflict {name} {}
proc module {word name} { puts "load $name" }
proc prepend-path {name path} { set ::env($name) "$path:$::env($name)" }
proc setenv {name value} { set ::env($name) $value }
"""


def test_the_module_file_says_what_activate_says(environment, facts, tmp_path):
    """The module file is Tcl: run by it, with the five words of Lmod and Environment Modules that it uses."""
    if not shutil.which("tclsh"):
        pytest.skip("no tclsh")
    folder = environment()
    lock = json.loads((folder / "spack.lock").read_text())
    (mpi,) = [s for s in lock["concrete_specs"].values() if s["name"] == "openmpi"]
    mpi["external"]["module"] = ["mpi/openmpi"]
    (folder / "spack.lock").write_text(json.dumps(lock))
    facts.write_facts(folder)
    module = folder / ".spack-env/modules/iogauge-stack/2026.1"
    program = (
        MODULES + f"source {module}\nforeach name [array names env] {{ puts $name=$env($name) }}\n"
    )
    (tmp_path / "run.tcl").write_text(program)
    tcl = subprocess.run(
        ["tclsh", tmp_path / "run.tcl"], capture_output=True, text=True, check=True
    )
    assert module.read_text().startswith("#%Module1.0\n")
    assert tcl.stdout.splitlines()[0] == "load mpi/openmpi"
    loads = f"module() {{ :; }}; . {folder}/.spack-env/activate.sh; env"
    shell = subprocess.run(["bash", "-euc", loads], capture_output=True, text=True, check=True)

    def told(text):
        pairs = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        return {k: v for k, v in pairs.items() if k == "PATH" or k.startswith("IOGAUGE_ST")}

    assert told(tcl.stdout) == told(shell.stdout)


def test_fingerprint_follows_the_programs_and_not_the_site(facts, tmp_path):
    def stack(change=None, **arguments):
        lock = lock_of("/opt/mpi", **arguments)
        for made in lock["concrete_specs"].values():
            if change and made["name"] == change[0]:
                made.update(change[1])
        (tmp_path / "spack.lock").write_text(json.dumps(lock))
        return facts.facts_of(tmp_path)["stack"]

    same = stack()
    assert re.fullmatch("[0-9a-f]{12}", same)
    assert stack(mpi_version="5.0.3") == same
    assert stack(("gcc", {"version": "13.3.0"})) == same
    assert stack(aio=True) != same
    assert stack(("fio", {"version": "3.41"})) != same
    assert stack(("ior", {"package_hash": "an edit of the recipe"})) != same
    assert stack(("ior", {"parameters": {"cflags": ["-O0"], "lustre": False}})) != same


def test_stacks_that_differ_are_told_apart(compare, tmp_path, capsys, monkeypatch):
    def write(name, edit=lambda lock: None, **arguments):
        lock = copy.deepcopy(lock_of("/opt/mpi", **arguments))
        edit(lock)
        path = tmp_path / f"{name}.lock"
        path.write_text(json.dumps(lock))
        return str(path)

    def run(*paths):
        monkeypatch.setattr(sys, "argv", ["compare_stacks", *paths])
        return compare.main(), capsys.readouterr().out

    def older(lock):
        for made in lock["concrete_specs"].values():
            if made["name"] == "fio":
                made["version"] = "3.37"

    here, lustre = write("here"), write("there", lustre=True)
    status, text = run(here, lustre)
    assert status == 0
    assert "chosen: ior lustre" in text
    assert "True: there" in text
    status, text = run(here, lustre, write("old", older))
    assert status == 1
    assert "DIFFERS: fio version" in text
    assert "3.37: old" in text
    assert "3.42: here, there" in text


def test_externals_of_this_machine(externals, tmp_path):
    if not shutil.which("gfortran"):
        pytest.skip("no gfortran")
    path = tmp_path / "packages.yaml"
    command = [sys.executable, ROOT / "ci/find_externals.py", "-o", path]
    (tmp_path / "spack.lock").write_text("of other externals")
    first = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    assert first.returncode == 0, first.stderr
    assert not (tmp_path / "spack.lock").exists()
    (tmp_path / "spack.lock").write_text("of these")
    text = path.read_text()
    subprocess.run(command, stderr=subprocess.DEVNULL, check=True)
    assert path.read_text() == text
    assert (tmp_path / "spack.lock").exists(), "nothing has changed"
    gcc = subprocess.run(
        ["gcc", "-dumpfullversion"], stdout=subprocess.PIPE, text=True
    ).stdout.strip()
    assert f"gcc@{gcc} languages='c,c++,fortran'" in text


def test_externals_by_hand_are_left_alone(tmp_path):
    if not shutil.which("gfortran"):
        pytest.skip("no gfortran")
    path = tmp_path / "packages.yaml"
    path.write_text("packages: {}\n")
    done = subprocess.run(
        [sys.executable, ROOT / "ci/find_externals.py", "-o", path],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 1
    assert "written by hand" in done.stderr
    assert path.read_text() == "packages: {}\n"


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
        return subprocess.run(
            ["bash", ROOT / "ci/install-spack"],
            env={
                "PATH": str(directory),
                "HOME": str(tmp_path),
                "IOGAUGE_HOME": str(tmp_path / "home"),
                **{name: str(value) for name, value in variables.items()},
            },
            capture_output=True,
            text=True,
            timeout=60,
        )

    return directory, run


COMPILERS = ("gcc", "g++", "gfortran")


def test_install_without_a_compiler(bare):
    done = bare[1]()
    assert done.returncode == 1
    assert "no gcc on PATH" in done.stderr
    assert "apt install gcc" in done.stderr


def test_install_with_an_old_spack(bare):
    directory, run = bare
    script(directory / "spack", "#!/bin/sh\necho 0.23.1\n")
    done = run(*COMPILERS)
    assert done.returncode == 1
    assert "is 0.23.1; these environments need Spack 1.1 or newer" in done.stderr
    assert "--own" in done.stderr


def test_install_without_a_network(bare, tmp_path):
    """Not reached is said, with what to do; what git said is part of it, and nothing half stays."""
    done = bare[1](*COMPILERS, IOGAUGE_SPACK_GIT=f"file://{tmp_path}/nowhere.git")
    assert done.returncode == 1
    assert f"not reached: file://{tmp_path}/nowhere.git (fatal:" in done.stderr
    assert "ci/airgap pack" in done.stderr
    assert not list((tmp_path / "home").glob("spack*"))


def test_carried_file_refuses_what_it_must(tmp_path):
    done = subprocess.run(
        [ROOT / "ci/airgap", "install"], stderr=subprocess.PIPE, text=True, env=os.environ
    )
    assert done.returncode == 1
    assert "no tree that ci/airgap packed" in done.stderr
    done = subprocess.run([ROOT / "ci/airgap", "pack"], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert "usage:" in done.stderr


@pytest.fixture
def cache(tmp_path):
    """ci/binary-cache in a small project with one environment; its answers, and the project."""
    root = tmp_path / "project"
    for folder in ("ci", "environments/local", "environments/common", "spack-repo"):
        (root / folder).mkdir(parents=True)
    for name in ("binary-cache", "environment"):
        shutil.copy(ROOT / "ci" / name, root / "ci")
    (root / "environments/local/spack.yaml").write_text("spack: {}\n")
    (root / "spack-repo/package.py").write_text("version\n")
    release = tmp_path / "os-release"
    release.write_text('ID="almalinux"\nVERSION_ID="8.10"\n')

    def run(*words, cwd=None):
        return subprocess.run(
            [root / "ci/binary-cache", *words],
            cwd=cwd,
            env={"PATH": os.environ["PATH"], "HOME": str(root), "IOGAUGE_OS_RELEASE": str(release)},
            capture_output=True,
            text=True,
        )

    return root, run


def test_a_cache_is_named_by_what_was_built(cache):
    """Recipes and settings make another name; what Spack and find_externals write makes none."""
    root, run = cache
    name = run("name").stdout.strip()
    assert re.fullmatch(r"local-almalinux8-\w+-[0-9a-f]{12}", name)
    (root / "environments/local/packages.yaml").write_text("packages: {}\n")
    (root / "environments/local/spack.lock").write_text("{}")
    (root / "environments/local/found").mkdir()
    (root / "environments/local/found/packages.yaml").write_text("packages: {}\n")
    (root / "spack-repo/.ruff_cache").mkdir()
    (root / "spack-repo/.ruff_cache/CACHEDIR.TAG").write_text("of the lint\n")
    assert run("name").stdout.strip() == name
    (root / "spack-repo/package.py").write_text("another version\n")
    assert run("name").stdout.strip() != name


def test_a_cache_knows_a_sites_own_repository_wherever_it_is_cloned(cache, tmp_path):
    root, run = cache
    (root / "environments/mysite").mkdir()
    (root / "environments/mysite/spack.yaml").write_text("spack: {specs: []}\n")
    names = set()
    for clone, text in (("one", "spack: {}\n"), ("other", "spack: {}\n"), ("third", "spack:\n")):
        folder = tmp_path / clone / "environments/mysite"
        folder.mkdir(parents=True)
        (folder / "spack.yaml").write_text(text)
        names.add(run("name", folder).stdout.strip())
        # As the caller names it, also if this project has a folder of that name.
        named = run("name", "environments/mysite", cwd=tmp_path / clone).stdout.strip()
        assert named in names
    assert len(names) == 2, names
    assert all(re.fullmatch(r"mysite-almalinux8-\w+-[0-9a-f]{12}", name) for name in names)


def test_what_a_cache_does_not_hold_is_told_by_its_own_status(cache, tmp_path):
    root, run = cache
    done = run("install", tmp_path / "cache", "local")
    assert done.returncode == 3
    name = run("name").stdout.strip()
    assert f"does not hold {name}" in done.stderr
    assert not (root / "environments/local/spack.lock").exists()


def test_damaged_file_is_not_unpacked(tmp_path):
    """The head that ci/airgap writes, on a body that is not the one that was packed."""
    text = (ROOT / "ci/airgap").read_text()
    head = text.split("<<'HEAD'\n")[1].split("HEAD\n")[0]
    lines = head.count("\n") + 1
    file = tmp_path / "carried.sh"
    file.write_text(
        head.replace("LINES", str(lines)).replace("SUM", hashlib.sha256(b"body").hexdigest())
        + "bod"
    )
    done = subprocess.run(["sh", file, tmp_path / "there"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "damaged on its way" in done.stderr
    assert not (tmp_path / "there").exists()
    whole = file.read_text() + "y"
    file.write_text(whole)
    done = subprocess.run(["sh", file, tmp_path / "there"], capture_output=True, text=True)
    assert "damaged" not in done.stderr
    assert (tmp_path / "there").exists()
