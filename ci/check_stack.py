#!/usr/bin/env python3
"""Whether an installed stack is what its environment promises; then write its fingerprint.

    ci/check_stack.py ENVIRONMENT
    ci/check_stack.py --before ENVIRONMENT      before anything is built: the externals of what was solved, else
                                                those that Spack's scopes name (needs spack on PATH)

Compares the programs of ENVIRONMENT's view with its lock file:

    externals   each prefix exists and holds what a build needs; compiler and MPI are of the declared version
    loader      every tool is installed and every library is found
    programs    what is measured with is what every site measures with; else each difference is named, and is no fault

Where one fails, a line for each fault, and what to do; exit status 1. Else stack.json and activate.sh are written
beside the view (ci/stack_facts.py). Nothing is run: the recipes check what they install, `spack test run` starts
tasks, and each case proves how many tasks it had.
"""

import argparse
import os
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import find_externals as found
import stack_facts as facts

# What must be below the prefix of a package.
NEEDED = {
    "lustre": ["include/lustre/lustreapi.h", "lib*/**/liblustreapi.so"],
    "zlib": ["include/zlib.h"],
    "libaio": ["include/libaio.h"],
}


Failed = facts.StackError


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
        if not any(Path(prefix).glob(pattern)):
            yield f"{told}: {prefix} has no {pattern}; the -dev or -devel package of {name} brings it"
    if is_mpi and prefix:
        spec = {"name": name, "version": version, "external": {"path": prefix}}
        mpicc = facts.mpi_bin("", spec) / "mpicc"
        is_name, is_version = found.mpi_in(found.library_version(mpicc))
        # HPC-X is an Open MPI of another number, and Spack has two names for MVAPICH.
        kin = {is_name, name} in ({"openmpi", "hpcx-mpi"}, {"mvapich", "mvapich-plus"})
        if not mpicc.exists():
            yield f"{told}: {prefix} has no bin/mpicc"
            return
        same = is_name == name and f"{is_version}.".startswith(f"{version}.")
        if is_name and not kin and not same:
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
    return f"externals: {count} are here"


def check_loader(environment):
    lock = facts.read_lock(environment)
    missing = facts.missing_of(environment, lock)
    if missing:
        raise Failed(
            f"{', '.join(missing)} is not installed; spack -e {environment} install"
        )
    for _, _, file in facts.files_of(environment, lock):
        _, text = found.run(["ldd", file])
        for library in re.findall(r"(?m)^\s*(\S+) => not found", text):
            raise Failed(
                f"{file} needs {library}, which the loader does not find;"
                " load the module of its MPI, or install again with the libraries that are here"
            )
    return "all libraries are found"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("environment", type=Path, metavar="ENVIRONMENT")
    parser.add_argument("--before", action="store_true", help="the externals alone")
    arguments = parser.parse_args()
    environment = arguments.environment
    try:
        print(f"check_stack: ok  {check_externals(environment, arguments.before)}")
        if arguments.before:
            return 0
        print(f"check_stack: ok  loader: {check_loader(environment)}")
        facts.compare(environment)
        written = facts.write_facts(environment)
    except facts.StackError as error:
        for line in str(error).splitlines():
            print(f"check_stack: !!  {line}", file=sys.stderr)
        return 1
    print(
        f"check_stack: stack {written['stack']}; its facts: {environment}/.spack-env/stack.json"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
