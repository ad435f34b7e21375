#!/usr/bin/env python3
"""Whether an installed stack is what its environment promises; then write its fingerprint.

    ci/check_stack.py ENVIRONMENT [--launcher 'srun -n'] [--no-run]
    ci/check_stack.py --before ENVIRONMENT      of what was solved and not yet built: the externals alone;
                                                of what was not solved yet: its compilers

Compares the programs of ENVIRONMENT's view with its lock file:

    externals   each prefix exists and holds what a build needs; compiler and MPI are of the declared version
    MPI         the fabrics, schedulers and Lustre that the spec of an Open MPI names are in it; what its
                tasks talk by, whether its MPI-IO knows Lustre, and which PMI Slurm offers it
    ior         offers the back ends of its variants, is linked with the environment's MPI and Lustre
    run         two tasks under that MPI's launcher are one job of two; -v leaves valid JSON
    fio         offers the engines of its variants
    darshan     libdarshan.so has its MPI-IO module, and records the two tasks

One line a check; where one fails, a line for each fault, and what to do. If none does, stack.json and activate.sh
are written beside the view (ci/stack_facts.py). Exit status 1 when one failed. On a login node where
nothing may be started: --no-run, and once more in a job.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import check_externals
import check_mpi
import stack_facts as facts
from check_externals import Failed, Skipped, run

# What ior's usage calls the back end of a variant, and fio's list the engine.
APIS = {"aio": "AIO", "hdf5": "HDF5", "ncmpi": "NCMPI"}
ENGINES = {"libaio": "libaio", "io_uring": "io_uring", "http": "http"}


def libraries_of(path):
    """What the loader resolves for a program: name to path, or to None where it finds none."""
    _, text = run(["ldd", path])
    found = {}
    for line in text.splitlines():
        match = re.match(r"\s*(\S+) => (not found|\S+)", line)
        if match:
            name, target = match.groups()
            found[name] = None if target == "not found" else target
    return found


def is_below(path, prefix):
    path, prefix = os.path.realpath(path), os.path.realpath(prefix)
    if prefix == "/usr":  # /lib is a link to /usr/lib, or was once
        return path.startswith(("/usr/", "/lib")) and not path.startswith("/usr/local/")
    return path.startswith(prefix + os.sep)


class Stack:
    """An environment with its lock file and its view."""

    def __init__(self, environment, launcher=None, may_run=True):
        self.environment = Path(environment)
        self.lock = facts.read_lock(environment)
        self.specs = facts.reachable(self.lock)
        self.view = self.environment.resolve() / facts.VIEW
        self.mpi = facts.mpi_of(self.specs)
        self.launcher_words = shlex.split(launcher) if launcher else None
        self.may_run = may_run

    def has(self, package, variant=None):
        spec = self.specs.get(package)
        if spec is None or variant is None:
            return spec is not None
        return spec.get("parameters", {}).get(variant) is True

    def program(self, name):
        path = self.view / "bin" / name
        if not os.access(str(path), os.X_OK):
            raise Failed(f"{path} is not there; spack -e {self.environment} install")
        return path

    def prefix_of(self, spec):
        """Where a package is: an external's prefix, or the directory that the view links to."""
        if facts.is_external(spec):
            return facts.external_prefix(spec)
        for path in self.view.rglob("*"):
            if path.is_symlink() and spec["hash"] in os.readlink(str(path)):
                target = os.readlink(str(path))
                return re.match(rf"(.*?{spec['hash']})", target).group(1)
        return None

    def launcher(self):
        if not self.may_run:
            raise Skipped("--no-run")
        if self.launcher_words:
            return self.launcher_words
        directories = [self.view / "bin"]
        if facts.is_external(self.mpi):
            directories.insert(0, Path(facts.external_prefix(self.mpi)) / "bin")
        for directory in directories:
            for name in ("mpirun", "mpiexec"):
                if os.access(str(directory / name), os.X_OK):
                    return [str(directory / name), "-n"]
        if shutil.which("srun"):
            return ["srun", "-n"]
        raise Failed(
            f"no mpirun in {directories[0]} and no srun on PATH;"
            " name the one that starts jobs here: --launcher 'srun -n'"
        )

    def start(self, command, cwd, environment=None):
        """Start a command as two tasks."""
        leave = {
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        }
        return run([*self.launcher(), "2", *command], {**leave, **(environment or {})}, cwd)


def externals(stack):
    used = [spec for spec in stack.lock["concrete_specs"].values() if facts.is_external(spec)]
    wrong = [text for spec in used for text in check_externals.wrong_of(spec)]
    if wrong:
        remedy = f"correct packages.yaml of {stack.environment}, then install again"
        if stack.environment.name == "local":
            remedy = "run ci/find_externals.py, then install again"
        raise Failed("\n".join([*wrong, remedy]))
    notes = [text for spec in used for text in check_externals.notes_of(spec)]
    told = f"; of another version than declared: {', '.join(notes)}" if notes else ""
    return f"{len(used)} are here{told}"


def check_programs(stack):
    names = ["ior", "mdtest", "md-workbench", "fio"]
    if stack.has("io500"):
        names += ["io500", "io500-verify"]
    if stack.has("darshan-util"):
        names += ["darshan-parser"]
    for name in names:
        stack.program(name)
    return ", ".join(names)


def check_namespace(stack):
    """The recipes with this repository's corrections were used, not builtin's of the same name."""
    for name in ("ior", "fio", "darshan-runtime", "iogauge-stack"):
        if stack.has(name) and stack.specs[name]["namespace"] != "iogauge":
            raise Failed(
                f"{name} is {stack.specs[name]['namespace']}.{name}, without this repository's corrections;"
                " another scope puts its repository first: spack config blame repos"
            )
    return "recipes of this repository"


def check_loader(stack):
    for name in ("ior", "mdtest", "md-workbench", "fio"):
        lost = [
            library for library, path in libraries_of(stack.program(name)).items() if path is None
        ]
        if lost:
            raise Failed(
                f"{name} needs {', '.join(lost)}, which the loader does not find;"
                " load the module of its MPI, or install again with the libraries that are here"
            )
    return "all libraries are found"


def check_ior_mpi(stack):
    found = {
        name: path
        for name, path in libraries_of(stack.program("ior")).items()
        if re.match(r"libmpi(ch|_gnu\w*|_cray)?\.so", name)
    }
    if not found:
        return "ior is linked with its MPI statically"
    prefix = stack.prefix_of(stack.mpi)
    for name, path in found.items():
        if prefix and not is_below(path, prefix):
            raise Failed(
                f"ior is linked with {path}, but the environment's MPI"
                f" {stack.mpi['name']}@{facts.version_of(stack.mpi)} is at {prefix};"
                " unset LD_LIBRARY_PATH, or install again after the MPI has moved"
            )
        return f"{name} => {path}"


def usage_of_ior(stack):
    # It exits with 1. Not every MPI lets a program start without its launcher.
    _, text = run([stack.program("ior"), "--help"])
    if "API for I/O" not in text:
        _, text = stack.start([stack.program("ior"), "--help"], None)
    return text


def check_ior_backends(stack):
    text = usage_of_ior(stack)
    match = re.search(r"\[([A-Z0-9_|-]+)\]", text)
    if not match:
        raise Failed(f"ior --help names no back ends; it prints: {text.strip()[:200]}")
    offered = match.group(1).split("|")
    promised = {"POSIX", "MPIIO", "MMAP"}
    promised |= {api for variant, api in APIS.items() if stack.has("ior", variant)}
    for api in sorted({"POSIX", "MPIIO", "MMAP", *APIS.values()}):
        if (api in offered) != (api in promised):
            raise Failed(
                f"ior offers {'|'.join(offered)}, which {'lacks' if api in promised else 'should not have'}"
                f" {api}: not what its variants say; spack -e {stack.environment} install --overwrite ior"
            )
    return "|".join(offered)


def check_lustre(stack):
    options = "lustre.stripecount" in usage_of_ior(stack)
    if options != stack.has("ior", "lustre"):
        raise Failed(
            f"ior {'has' if options else 'lacks'} --posix.lustre.*, its variant says otherwise"
        )
    if not stack.has("ior", "lustre"):
        raise Skipped("~lustre")
    lustre = stack.specs["lustre"]
    prefix = stack.prefix_of(lustre)
    told = []
    library = stack.view / "lib" / "libdarshan.so"
    for path in (stack.program("ior"), library):
        target = libraries_of(path).get("liblustreapi.so.1") if path.exists() else None
        if target and prefix and not is_below(target, prefix):
            raise Failed(
                f"{path.name} is linked with {target}, but the environment's Lustre is at {prefix}"
            )
        if target:
            told.append(f"{path.name} => {target}")
    lfs = os.path.join(prefix or "", "bin", "lfs")
    if os.access(lfs, os.X_OK):
        match = re.search(r"lfs (\d+(?:\.\d+)*)", run([lfs, "--version"])[1])
        version = match.group(1) if match else "?"
        declared = facts.version_of(lustre)
        if not (version == declared or version.startswith(declared + ".")):
            raise Failed(
                f"{lfs} is {version}, but the environment names {declared}; correct packages.yaml"
            )
        told.append(f"lfs {version}")
    return "; ".join(told) or f"lustre@{facts.version_of(lustre)}"


def check_run(stack):
    with tempfile.TemporaryDirectory(prefix="iogauge-check-") as directory:
        options = shlex.split("-v -a POSIX -F -w -r -t 64k -b 256k -O summaryFormat=JSON")
        command = [stack.program("ior"), *options, "-O", "summaryFile=ior.json", "-o", "data"]
        status, text = stack.start(command, directory)
        if status:
            raise Failed(
                f"ior ended with {status} under {stack.launcher()[0]}: {text.strip()[-300:]}"
            )
        try:
            report = json.loads((Path(directory) / "ior.json").read_text())
            tasks = report["tests"][0]["Options"]["tasks"]
        except (OSError, ValueError, KeyError, IndexError) as error:
            raise Failed(
                f"ior -v leaves no valid JSON ({error!r}): it is not this repository's ior"
            ) from None
    if int(tasks) != 2:
        raise Failed(
            f"{stack.launcher()[0]} -n 2 starts jobs of {tasks} task, not one of 2: it belongs to another MPI"
            f" than ior, which is linked with {stack.mpi['name']}@{facts.version_of(stack.mpi)}"
        )
    return f"2 tasks under {stack.launcher()[0]}, valid JSON with -v"


def check_fio(stack):
    _, text = run([stack.program("fio"), "--enghelp"])
    offered = set(text.split())
    for variant, engine in ENGINES.items():
        if (engine in offered) != stack.has("fio", variant):
            raise Failed(
                f"fio {'offers' if engine in offered else 'lacks'} {engine}, its variant says otherwise;"
                f" spack -e {stack.environment} install --overwrite fio"
            )
    return (
        ", ".join(engine for engine in ENGINES.values() if engine in offered) or "the basic engines"
    )


def check_darshan(stack):
    if not stack.has("darshan-runtime"):
        raise Skipped("~darshan")
    config = stack.program("darshan-config")
    for module, variant in (("mpiio", "mpi"), ("lustre", "lustre"), ("hdf5", "hdf5")):
        is_on = "yes" in run([config, f"--{module}-mod"])[1]
        if is_on != stack.has("darshan-runtime", variant):
            raise Failed(
                f"Darshan's {module} module is {'on' if is_on else 'off'}, its variant {variant} says"
                f" otherwise; spack -e {stack.environment} install --overwrite darshan-runtime"
            )
    library = stack.view / "lib" / "libdarshan.so"
    if not library.exists():
        raise Failed(f"{library} is not there; spack -e {stack.environment} install")
    if b"MPI_File_open" not in library.read_bytes():
        raise Failed(
            f"{library} wraps no MPI_File_open: it was built without MPI and would log nothing"
        )
    return "MPI-IO module, MPI_File_open wrapped"


def check_darshan_run(stack):
    if not stack.has("darshan-runtime"):
        raise Skipped("~darshan")
    library = stack.view / "lib" / "libdarshan.so"
    with tempfile.TemporaryDirectory(prefix="iogauge-check-") as directory:
        log = Path(directory) / "ior.darshan"
        ior = [
            stack.program("ior"),
            *shlex.split("-a MPIIO -w -t 64k -b 256k -o"),
            f"{directory}/data",
        ]
        # For the tasks only: the launcher itself is not to be recorded.
        preload = ["env", f"LD_PRELOAD={library}", f"DARSHAN_LOGFILE={log}"]
        status, text = stack.start([*preload, *ior], directory)
        if status or not log.exists():
            raise Failed(
                f"two tasks of ior under libdarshan.so leave no log: {text.strip()[-300:]}"
            )
        if not stack.has("darshan-util"):
            return f"a log of {log.stat().st_size} bytes"
        _, text = run([stack.program("darshan-parser"), log])
        tasks = re.search(r"^# nprocs: (\d+)", text, re.MULTILINE)
        if not tasks or tasks.group(1) != "2" or "MPIIO_INDEP_WRITES" not in text:
            raise Failed(f"Darshan's log does not tell of 2 tasks and their MPI-IO: {text[:300]}")
        return "a log of 2 tasks with their MPI-IO"


# What can be told before anything is built.
BEFORE = ("externals", "mpi", "MPI's parts")
CHECKS = (
    ("externals", externals),
    *(check for check in check_mpi.CHECKS if check[0] in BEFORE),
    ("recipes", check_namespace),
    ("programs", check_programs),
    ("loader", check_loader),
    ("ior's MPI", check_ior_mpi),
    ("ior's back ends", check_ior_backends),
    ("Lustre", check_lustre),
    ("fio's engines", check_fio),
    ("Darshan", check_darshan),
    ("run", check_run),
    *(check for check in check_mpi.CHECKS if check[0] not in BEFORE),
    ("Darshan's log", check_darshan_run),
)

# Where one of these fails, the checks after it would say the same once more.
BASES = {"externals", "programs", "run"}


def say(state, name, text):
    for line in text.splitlines():
        print(f"check_stack: {state}  {name:16} {line}")


def before_the_solve(environment):
    """What packages.yaml declares: Spack would search for minutes, and say only that nothing provides C."""
    path = Path(os.environ.get("IOGAUGE_SPACK_PACKAGES") or environment / "packages.yaml")
    if not path.exists():
        say("!!", "externals", f"{path} does not exist; run ci/find_externals.py -o {path}")
        return 1
    declared = check_externals.declared_in(path.read_text())
    wrong = [one for spec in declared for one in check_externals.wrong_of(spec)]
    if wrong:
        remedy = f"load the module that brings it, or correct {path}"
        say("!!", "externals", "\n".join([*wrong, remedy]))
        return 1
    if declared:
        say("ok", "externals", f"{len(declared)} as {path} declares them")
    else:
        say("--", "externals", f"not checked: {path} declares none")
    return 0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("environment", type=Path, metavar="ENVIRONMENT")
    parser.add_argument("--launcher", help="words before the number of tasks, e.g. 'srun -n'")
    parser.add_argument("--no-run", action="store_true", help="start nothing in parallel")
    parser.add_argument("--before", action="store_true", help="the externals alone; write nothing")
    arguments = parser.parse_args()

    if arguments.before and not (arguments.environment / "spack.lock").exists():
        return before_the_solve(arguments.environment)
    try:
        stack = Stack(arguments.environment, arguments.launcher, not arguments.no_run)
    except facts.StackError as error:
        print(f"check_stack: {error}", file=sys.stderr)
        return 1
    failed = []
    for name, check in CHECKS:
        if arguments.before and name not in BEFORE:
            continue
        try:
            if BASES & set(failed):
                raise Skipped("what it needs failed")
            state, text = "ok", check(stack)
        except Skipped as reason:
            state, text = "--", f"not checked: {reason}"
        except Failed as reason:
            state, text = "!!", str(reason)
            failed.append(name)
        say(state, name, text)
    if failed:
        print(f"check_stack: {len(failed)} failed: {', '.join(failed)}", file=sys.stderr)
        return 1
    if arguments.before:
        return 0
    try:
        written = facts.write_facts(arguments.environment)
    except facts.StackError as error:
        print(f"check_stack: {error}", file=sys.stderr)
        return 1
    print(
        f"check_stack: stack {written['stack']}; its facts: {arguments.environment}/.spack-env/stack.json"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
