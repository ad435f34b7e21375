#!/usr/bin/env python3
"""Whether an installed stack is what its environment promises; then write its fingerprint.

    ci/check_stack.py ENVIRONMENT [--launcher 'srun -n'] [--no-run]
    ci/check_stack.py --before ENVIRONMENT      what can be said before anything is built: of what was solved its
                                                externals, else those that Spack's scopes name (needs spack on PATH)

Compares the programs of ENVIRONMENT's view with its lock file:

    externals   each prefix exists and holds what a build needs; compiler and MPI are of the declared version
    MPI         the fabrics, schedulers and Lustre that the spec of an Open MPI names are in it; what its
                tasks talk by, whether its MPI-IO knows Lustre, and which PMI Slurm offers it
    programs    what is measured with is what every site measures with; else each difference is named
    loader      every library is found; MPI and Lustre are the environment's
    run         two tasks under that MPI's launcher are one job of two; -v leaves valid JSON

One line a check; where one fails, a line for each fault, and what to do. If none does, stack.json and activate.sh
are written beside the view (ci/stack_facts.py). Exit status 1 when one failed. On a login node where
nothing may be started: --no-run, and once more in a job. What the recipes check as they install is not repeated.
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


class Told(Exception):
    """Nothing is wrong, and somebody must know it."""


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
        mpi = facts.mpi_bin(self.mpi) if facts.is_external(self.mpi) else self.view / "bin"
        for path in (mpi / "mpirun", mpi / "mpiexec", self.view / "bin/mpirun"):
            if os.access(str(path), os.X_OK):
                return [str(path), "-n"]
        if shutil.which("srun"):
            return ["srun", "-n"]
        raise Failed(
            f"no mpirun in {mpi} and no srun on PATH; name what starts jobs here: --launcher 'srun -n'"
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
        remedy = f"find them anew (ci/find_externals.py {stack.environment}), or correct them: spack config blame packages"
        raise Failed("\n".join([*wrong, remedy]))
    return f"{len(used)} are here"


def check_programs(stack):
    """A rule of the site's own may change what is measured with: then it is another stack, and says so."""
    differs = facts.differs_from_record(stack.lock)
    if differs:
        told = "\n".join(
            [*differs, "a scope of this site asks for it: spack config blame packages"]
        )
        raise Told(
            f"not what every site measures with; results compare with this site's alone\n{told}"
        )
    return "as at every site"


def check_loader(stack):
    linked = []
    for name in ("ior", "mdtest", "fio", "../lib/libdarshan.so"):
        path = stack.view / "bin" / name
        if name.startswith("..") and not path.exists():
            continue
        libraries = libraries_of(path if name.startswith("..") else stack.program(name))
        lost = [library for library, target in libraries.items() if target is None]
        if lost:
            raise Failed(
                f"{name} needs {', '.join(lost)}, which the loader does not find;"
                " load the module of its MPI, or install again with the libraries that are here"
            )
        for package, regex in (
            (stack.mpi, r"libmpi(ch|_gnu\w*|_cray)?\.so"),
            (stack.specs.get("lustre"), r"liblustreapi"),
        ):
            prefix = package and stack.prefix_of(package)
            for library, target in libraries.items():
                if not prefix or not re.match(regex, library):
                    continue
                if not is_below(target, prefix):
                    raise Failed(
                        f"{name} is linked with {target}, but the environment's {package['name']}@{facts.version_of(package)}"
                        f" is at {prefix}; unset LD_LIBRARY_PATH, or install again after it has moved"
                    )
                linked.append(f"{library} => {target}")
    return ", ".join(dict.fromkeys(linked)) or "all libraries are found"


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


# What can be told before anything is built.
BEFORE = ("externals", "mpi", "programs")
CHECKS = (
    ("externals", externals),
    *(check for check in check_mpi.CHECKS if check[0] in BEFORE),
    ("programs", check_programs),
    ("loader", check_loader),
    ("run", check_run),
    *(check for check in check_mpi.CHECKS if check[0] not in BEFORE),
)

# Where one of these fails, the checks after it would say the same once more.
BASES = {"externals", "loader", "run"}


def say(state, name, text):
    for line in text.splitlines():
        print(f"check_stack: {state}  {name:16} {line}")


def before_the_solve(environment):
    wrong, count = check_externals.wrong_before_the_solve(environment)
    if wrong:
        say(
            "!!",
            "externals",
            "\n".join(
                [
                    *wrong,
                    "load the module that brings it, or correct it: spack config blame packages",
                ]
            ),
        )
        return 1
    say("ok", "externals", f"{count} as Spack's scopes name them")
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
        except Told as reason:
            state, text = "??", str(reason)
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
