"""Whether the externals of a lock file are on this machine. Read by ci/check_stack.py.

What a build would stumble over is wrong: a prefix, program or header that is not there, a compiler of another
version. A build tool of another version is only told: the stack is as good, and its hashes say what was declared.
"""

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


# What must be below the prefix of a package: patterns, | is or.
NEEDED = {
    "openmpi": ["bin/mpicc"],
    "mpich": ["bin/mpicc"],
    "mvapich": ["bin/mpicc"],
    "cray-mpich": ["bin/mpicc"],
    "lustre": [
        "bin/lfs",
        "include/lustre/lustreapi.h",
        "lib*/liblustreapi.so|lib/*/liblustreapi.so",
    ],
    "hdf5": ["bin/h5dump"],
    **{name: [f"include/{header}"] for name, header, _ in found.LIBRARIES},
}
# The distributions' package of a header, for the remedy.
PACKAGES = {
    "libaio": "libaio-dev, libaio-devel",
    "zlib": "zlib1g-dev, zlib-devel",
    "lustre": "lustre-client, lustre-client-devel",
}
TELLS = {name: (program, regex) for name, program, regex in found.PROGRAMS}


def _name(spec):
    return f"{spec['name']}@{spec['version']}"


def _differs(told, declared):
    return not (told == declared or told.startswith(declared + "."))


def _compiler(spec):
    """What is wrong with a compiler, one sentence each."""
    compilers = (spec["external"].get("extra_attributes") or {}).get("compilers") or {}
    for language, path in sorted(compilers.items()):
        if not os.access(path, os.X_OK):
            yield f"{_name(spec)}: its {language} compiler {path} does not exist"
            continue
        told = found.version_in(found.output(path, "-dumpfullversion"), r"^(\d+[\d.]*)")
        if told and _differs(told, spec["version"]):
            yield f"{_name(spec)}: its {language} compiler {path} is {told}"


def wrong_of(spec):
    """What a build with an external would stumble over, one sentence each."""
    prefix = spec["external"].get("path")
    if prefix and not os.path.isdir(prefix):
        yield f"{_name(spec)}: its prefix {prefix} does not exist"
        return
    yield from _compiler(spec)
    for pattern in NEEDED.get(spec["name"], ()) if prefix else ():
        if not any(glob.glob(os.path.join(prefix, one)) for one in pattern.split("|")):
            package = PACKAGES.get(spec["name"])
            remedy = f" (a package brings it: {package})" if package else ""
            yield f"{_name(spec)}: {prefix} has no {pattern}{remedy}"
    if prefix and spec["name"] in TELLS:
        program = os.path.join(prefix, "bin", TELLS[spec["name"]][0])
        if not os.access(program, os.X_OK):
            yield f"{_name(spec)}: {program} does not exist"


def notes_of(spec):
    """What an external is not as declared, if that matters to no build."""
    if spec["name"] in TELLS and spec["external"].get("path"):
        program, regex = TELLS[spec["name"]]
        path = os.path.join(spec["external"]["path"], "bin", program)
        told = found.version_in(found.output(path, "--version"), regex)
        if told and _differs(told, spec["version"]):
            yield f"{_name(spec)} is {told}"


def declared_in(text):
    """The externals that a packages.yaml declares, as a lock file would hold them.

    Read by lines: nothing but Python is needed here, and every site's file has one key a line.
    """
    specs = []
    for line in text.splitlines():
        if told := re.match(r"\s+- spec: [\"']?([\w-]+)@([\w.-]+)", line):
            specs.append({"name": told[1], "version": told[2], "external": {}})
        elif specs and (told := re.match(r"\s+prefix: (/\S+)\s*$", line)):
            specs[-1]["external"]["path"] = told[1]
        elif specs and (told := re.match(r"\s+(c|cxx|fortran): (/\S+)\s*$", line)):
            attributes = specs[-1]["external"].setdefault("extra_attributes", {"compilers": {}})
            attributes["compilers"][told[1]] = told[2]
    return specs
