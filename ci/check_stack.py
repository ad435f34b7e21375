#!/usr/bin/env python3
"""Whether an installed stack is what its environment promises; then write its fingerprint.

    ci/check_stack.py ENVIRONMENT [--launcher 'srun -n'] [--no-run]
    ci/check_stack.py --before ENVIRONMENT      before anything is built: the externals of what was solved, else
                                                those that Spack's scopes name (needs spack on PATH)

Compares the programs of ENVIRONMENT's view with its lock file:

    externals   each prefix exists and holds what a build needs; compiler and MPI are of the declared version
    programs    what is measured with is what every site measures with; else each difference is named
    loader      every library is found; MPI and Lustre are the environment's
    run         two tasks under that MPI's launcher are one job of two

One line a check; where one fails, a line for each fault, and what to do. If none does, stack.json and activate.sh
are written beside the view (ci/stack_facts.py). Exit status 1 when one failed. On a login node where
nothing may be started: --no-run, and once more in a job. What the recipes check as they install is not repeated.
"""

import argparse
import os
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import find_externals as found
import stack_facts as facts

# What must be below the prefix of a package: patterns, | is or.
NEEDED = {
    "lustre": [
        "include/lustre/lustreapi.h",
        "lib*/liblustreapi.so|lib/*/liblustreapi.so",
    ],
    "zlib": ["include/zlib.h"],
    "libaio": ["include/libaio.h"],
}
# A container's root, and a machine with one core, need Open MPI's leave.
LEAVE = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


class Failed(Exception):
    """A check failed: says what is wrong, then what to do."""


class Skipped(Exception):
    """A check does not apply, or was not to be run."""


class Different(Exception):
    """Nothing is wrong, and somebody must know it."""


class Stack:
    """An environment with its lock file and its view."""

    def __init__(self, environment, launcher="", may_run=True):
        self.environment = environment
        self.lock = facts.read_lock(environment)
        self.specs = facts.reachable(self.lock)
        self.mpi = facts.mpi_of(self.lock)
        self.launcher_words = shlex.split(launcher)
        self.may_run = may_run

    def launcher(self):
        """What starts tasks of the MPI, up to their number."""
        if self.launcher_words:
            return self.launcher_words
        folder = facts.mpi_bin(self.environment, self.mpi)
        for name in ("mpirun", "mpiexec"):
            if os.access(str(folder / name), os.X_OK):
                return [str(folder / name), "-n"]
        if shutil.which("srun"):
            return ["srun", "-n"]
        raise Failed(
            f"no mpirun in {folder} and no srun on PATH; name what starts jobs here: --launcher 'srun -n'"
        )


def faults(name, version, external, is_mpi):
    """What a build with an external would stumble over, one sentence each."""
    told, prefix = f"{name}@{version}", external.get("path") or external.get("prefix")
    if prefix and not os.path.isdir(prefix):
        yield f"{told}: its prefix {prefix} does not exist"
        return
    compilers = (external.get("extra_attributes") or {}).get("compilers") or {}
    for language, path in sorted(compilers.items()):
        here = found.version_in(found.output(path, "-dumpfullversion"), r"^(\d+[\d.]*)")
        if not os.access(path, os.X_OK):
            yield f"{told}: its {language} compiler {path} does not exist"
        elif here and not f"{here}.".startswith(f"{version}."):
            yield f"{told}: its {language} compiler {path} is {here}"
    for pattern in NEEDED.get(name, ()) if prefix else ():
        if not any(Path(prefix).glob(one) for one in pattern.split("|")):
            yield f"{told}: {prefix} has no {pattern}; the -dev or -devel package of {name} brings it"
    if is_mpi and prefix:
        spec = {"name": name, "version": version, "external": {"path": prefix}}
        mpicc = facts.mpi_bin("", spec) / "mpicc"
        is_name, is_version = found.mpi_in(found.library_version(mpicc))
        # HPC-X is an Open MPI of another number, and Spack has two names for MVAPICH.
        kin = {is_name, name} in ({"openmpi", "hpcx-mpi"}, {"mvapich", "mvapich-plus"})
        if not mpicc.exists():
            yield f"{told}: {prefix} has no bin/mpicc"
        elif (
            is_name
            and not kin
            and (is_name != name or not f"{is_version}.".startswith(f"{version}."))
        ):
            yield f"{told}: the library of {mpicc} is {is_name} {is_version}, but {name} {version} is declared"


def externals_in(lock):
    """The externals of what was solved: package, version, external."""
    for spec in lock["concrete_specs"].values():
        if facts.is_external(spec):
            yield spec["name"], facts.version_of(spec), spec["external"]


def named_externals(packages, mpis):
    """The externals that scopes name of what a solve may take: package, version, external."""
    required = packages.get("mpi", {}).get("require")
    if isinstance(required, str):
        mpis = mpis & {found.version_in(required, r"^([\w-]+)")}
    names = {*found.PROGRAMS, *mpis, *NEEDED}
    for name, external in found.externals_of(packages, *names):
        version = found.version_in(external["spec"], r"^[\w-]+@=?([\w.-]+)")
        yield name, version or "", external


def declared(environment, before):
    """What a solve or a build would take of this machine: the MPIs, and all externals.

    That is what was solved, else what the scopes name. Raises Failed if it is no MPI, or not the required one.
    """
    solved = (environment / "spack.lock").exists()
    packages, mpis = found.packages_of(environment) if before else ({}, set())
    required = packages.get("mpi", {}).get("require")
    if not solved:
        externals = list(named_externals(packages, mpis))
        if not required and not mpis & {name for name, _, _ in externals}:
            raise Failed(
                "no MPI is named, and Spack would build one that knows neither fabric nor scheduler: load the module of"
                " the MPI that jobs use, and name it under `packages:`"
            )
        return mpis, externals
    lock = facts.read_lock(environment)
    mpi = facts.mpi_of(lock)
    if mpi and required in mpis - {mpi["name"]}:
        raise Failed(
            f"{environment}/spack.lock has {mpi['name']}, and the settings require {required}; to solve anew:"
            f" spack -e {environment} concretize --force"
        )
    return {mpi["name"]} if mpi else set(), list(externals_in(lock))


def wrong_with(environment, before):
    """What a solve or a build would stumble over, and how many externals there are.

    Spack would search for minutes, and say only that nothing provides C. Of several externals of a package, and of
    several MPIs, one suffices.
    """
    mpis, externals = declared(environment, before)
    of_kind = {}
    for name, version, external in externals:
        kind = "mpi" if name in mpis else name
        wrong = list(faults(name, version, external, name in mpis))
        of_kind.setdefault(kind, []).append(wrong)
    wrong = []
    for kind in sorted(of_kind):
        if all(of_kind[kind]):
            wrong += [text for texts in of_kind[kind] for text in texts]
    return wrong, len(externals)


def check_externals(environment, before=False):
    wrong, count = wrong_with(environment, before)
    if wrong:
        anew = ""
        if found.FOUND in (environment / "spack.yaml").read_text():
            anew = f" find all anew (ci/find_externals.py {environment}),"
        remedy = f"load the module that brings it,{anew} or correct it: spack -e {environment} config blame packages"
        raise Failed("\n".join([*wrong, remedy]))
    return f"{count} are here"


def check_programs(stack):
    """A rule of the site's own may change what is measured with: then it is another stack, and says so."""
    differs = "\n".join(facts.differs_from_record(stack.lock))
    if differs:
        raise Different(
            f"not what every site measures with; results compare with this site's alone\n{differs}\n"
            "a scope of this site asks for it (spack config blame packages), or a recipe was changed"
        )
    return "as at every site"


def check_loader(stack):
    linked, owners = {}, []
    if stack.mpi:
        owners.append((r"libmpi(ch|_gnu\w*|_cray)?\.so", stack.mpi))
    if "lustre" in stack.specs:
        owners.append((r"liblustreapi", stack.specs["lustre"]))
    missing = facts.missing_of(stack.environment, stack.lock)
    if missing:
        raise Failed(
            f"{', '.join(missing)} is not installed; spack -e {stack.environment} install"
        )
    for _, _, file in facts.files_of(stack.environment, stack.lock):
        _, text = found.run(["ldd", file])
        for library, target in re.findall(r"(?m)^\s*(\S+) => (not found|\S+)", text):
            if target == "not found":
                raise Failed(
                    f"{file} needs {library}, which the loader does not find;"
                    " load the module of its MPI, or install again with the libraries that are here"
                )
            for regex, spec in owners:
                if not re.match(regex, library):
                    continue
                if not facts.is_below(target, spec):
                    where = (spec.get("external") or {}).get("path") or spec["hash"]
                    raise Failed(
                        f"{file} is linked with {target}, but the environment's {spec['name']}@{facts.version_of(spec)}"
                        f" is at {where}; unset LD_LIBRARY_PATH, or install again after it has moved"
                    )
                linked[f"{library} => {target}"] = None
    return ", ".join(linked) or "all libraries are found"


def check_run(stack):
    """Two tasks write and read with IOR, which reports how many they were."""
    if not stack.may_run:
        raise Skipped("--no-run")
    if "ior" not in stack.specs:
        raise Skipped("no ior")
    launcher = stack.launcher()
    command = [*launcher, "2", stack.environment.resolve() / facts.VIEW / "bin/ior"]
    command += shlex.split("-a POSIX -F -w -r -t 64k -b 256k -o data")
    with tempfile.TemporaryDirectory(prefix="iogauge-check-") as folder:
        report = Path(folder) / "ior.json"
        command += ["-O", "summaryFormat=JSON", "-O", f"summaryFile={report}"]
        status, text = found.run(command, env={**os.environ, **LEAVE}, cwd=folder)
        if status:
            raise Failed(
                f"ior ended with {status} under {launcher[0]}: {text.strip()[-300:]}"
            )
        tasks = found.version_in(report.read_text(), r'"tasks": *(\d+)')
    mpi = f"{stack.mpi['name']}@{facts.version_of(stack.mpi)}"
    if tasks != "2":
        raise Failed(
            f"{launcher[0]} -n 2 starts jobs of {tasks} task, not one of 2: it belongs to another MPI"
            f" than ior, which is linked with {mpi}"
        )
    return f"2 tasks under {launcher[0]}, of {mpi}"


CHECKS = (
    ("externals", lambda stack: check_externals(stack.environment)),
    ("programs", check_programs),
    ("loader", check_loader),
    ("run", check_run),
)
# Where one of these fails, the checks after it would say the same once more.
BASES = {"externals", "loader"}


def ask(checks, subject):
    """Ask each check of a subject and print what it says; return the names of those that failed."""
    failed = []
    for name, check in checks:
        try:
            if BASES & set(failed):
                raise Skipped("what it needs failed")
            state, text = "ok", check(subject)
        except Skipped as reason:
            state, text = "--", f"not checked: {reason}"
        except Different as reason:
            state, text = "??", str(reason)
        except Failed as reason:
            state, text = "!!", str(reason)
            failed.append(name)
        for line in text.splitlines():
            print(f"check_stack: {state}  {name:16} {line}")
    return failed


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("environment", type=Path, metavar="ENVIRONMENT")
    parser.add_argument(
        "--launcher", default="", help="what stands before the number of tasks"
    )
    parser.add_argument(
        "--no-run", action="store_true", help="start nothing in parallel"
    )
    parser.add_argument(
        "--before", action="store_true", help="the externals alone; write nothing"
    )
    arguments = parser.parse_args()
    try:
        if arguments.before:
            checks = [("externals", lambda folder: check_externals(folder, True))]
            return len(ask(checks, arguments.environment))
        stack = Stack(arguments.environment, arguments.launcher, not arguments.no_run)
        failed = ask(CHECKS, stack)
        if failed:
            print(
                f"check_stack: {len(failed)} failed: {', '.join(failed)}",
                file=sys.stderr,
            )
            return 1
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
