"""Whether externals are on this machine, and are what a build needs. Read by ci/check_stack.py."""

import glob
import os
import re
import subprocess

import find_externals as found

TIMEOUT_S = 120


class Failed(Exception):
    """A check failed: says what is wrong, then what to do."""


class Skipped(Exception):
    """A check does not apply, or was not to be run."""


def run(command, environment=None, cwd=None):
    """Exit status and output (both streams) of a command."""
    try:
        done = subprocess.run(
            [str(word) for word in command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(environment or {})},
            cwd=cwd,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{command[0]} did not end within {TIMEOUT_S} s") from None
    except OSError as error:
        raise Failed(f"{command[0]}: {error.strerror}") from None
    return done.returncode, done.stdout.decode(errors="replace")


# What must be below the prefix of a package: patterns, | is or. Intel's wrappers are deeper.
NEEDED = {
    "lustre": ["include/lustre/lustreapi.h", "lib*/liblustreapi.so|lib/*/liblustreapi.so"],
    **{name: ["bin/mpicc"] for name in found.MPI_NAMES if name != "intel-oneapi-mpi"},
    **{name: [f"include/{header}"] for name, header in found.LIBRARIES.items()},
}
# The distributions' package of a header, for the remedy.
PACKAGES = {
    "libaio": "libaio-dev, libaio-devel",
    "zlib": "zlib1g-dev, zlib-devel",
    "lustre": "lustre-client, lustre-client-devel",
}


def wrong_of(spec):
    """What a build with an external of a lock file would stumble over, one sentence each."""
    prefix, name = spec["external"].get("path"), f"{spec['name']}@{spec['version']}"
    if prefix and not os.path.isdir(prefix):
        yield f"{name}: its prefix {prefix} does not exist"
        return
    compilers = (spec["external"].get("extra_attributes") or {}).get("compilers") or {}
    for language, path in sorted(compilers.items()):
        if not os.access(path, os.X_OK):
            yield f"{name}: its {language} compiler {path} does not exist"
            continue
        told = found.version_in(found.output(path, "-dumpfullversion"), r"^(\d+[\d.]*)")
        if told and not (told == spec["version"] or told.startswith(spec["version"] + ".")):
            yield f"{name}: its {language} compiler {path} is {told}"
    for pattern in NEEDED.get(spec["name"], ()) if prefix else ():
        if not any(glob.glob(os.path.join(prefix, one)) for one in pattern.split("|")):
            package = PACKAGES.get(spec["name"])
            remedy = f" (a package brings it: {package})" if package else ""
            yield f"{name}: {prefix} has no {pattern}{remedy}"


def wrong_before_the_solve(environment):
    """What a solve would search for in vain, by what the scopes of an environment name; and how many externals they name.

    Spack would search for minutes, and say only that nothing provides C. Of several externals of a package one suffices.
    """
    packages, wrong, count = found.packages_of(environment), [], 0
    for name in {*found.PROGRAMS, *found.MPI_NAMES, *NEEDED} & set(packages):
        faults = []
        for one in packages[name].get("externals") or ():
            version = re.match(r"[\w-]+@=?([\w.-]+)", one["spec"])
            external = {**one, "path": one.get("prefix")}
            made = {"name": name, "version": version[1] if version else "", "external": external}
            faults.append(list(wrong_of(made)))
        count += len(faults)
        if faults and all(faults):
            wrong += [text for texts in faults for text in texts]
    if not found.has_external(packages, *found.MPI_NAMES) and "require" not in packages.get(
        "mpi", {}
    ):
        wrong.append(
            "no MPI is named, and Spack would build one that knows neither fabric nor scheduler: load the module of the MPI"
            f" that jobs use, then run ci/find_externals.py {environment}"
        )
    return sorted(wrong), count
