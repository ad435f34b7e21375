#!/usr/bin/env python3
"""What an installed stack is, told from its lock file, without Spack.

    ci/stack_facts.py ENVIRONMENT...            e.g. environments/local
    ci/stack_facts.py --compare ENVIRONMENT...  whether their lock files agree with what every site measures with
    ci/stack_facts.py --record ENVIRONMENT      a new version of the stack: write ci/stack.json

The first writes beside the environment's view (ENVIRONMENT/.spack-env/):

    stack.json     the fingerprint: versions, variants and DAG hashes of ior, fio, mpi, darshan, io500;
                   the lock file's sha256; `stack`, which is equal at two sites that measure with equal
                   programs, whatever MPI and compiler they have
    activate.sh    puts the programs and their MPI on PATH, and loads the modules of that MPI; starts no process. The
                   paths are absolute: run this again after moving the tree

Nothing but Python 3.6 is needed.
"""

import argparse
import hashlib
import json
import os
import shlex
import sys
from pathlib import Path

# Whose version, variants and recipe decide what is measured.
TOOLS = ("ior", "fio", "io500", "darshan-runtime", "darshan-util", "iogauge-stack")
# What the view has of each tool that is installed.
FILES = {
    "ior": ("bin/ior", "bin/mdtest"),
    "fio": ("bin/fio",),
    "io500": ("bin/io500",),
    "darshan-runtime": ("lib/libdarshan.so",),
    "darshan-util": ("bin/darshan-parser",),
}
# What every site measures with: version, recipe, variants and flags of each tool.
RECORD = Path(__file__).resolve().with_name("stack.json")
# What a site may switch on or off, under the names that the packages give it: told apart by the fingerprint, and no fault.
CHOICES = {"lustre", "hdf5", "ncmpi", "parallel-netcdf", "aio", "libaio", "io500"}
CHOICES |= {"darshan", "iperf3", "osu"}
# Where a site may differ without measuring something else.
SITE_VARIANTS = {"scheduler", "log_path", "build_system", "dev_path"}
VIEW = Path(".spack-env") / "view"


class StackError(Exception):
    """Says what is wrong with an environment, and what to do about it."""


def read_lock(environment):
    """The lock file of an environment, parsed; its bytes' sha256 under `sha256`."""
    path = Path(environment) / "spack.lock"
    if not path.exists():
        raise StackError(f"{path} is not there: spack -e {environment} install")
    try:
        data = path.read_bytes()
        lock = json.loads(data)
        lock["concrete_specs"], lock["roots"]
    except (ValueError, KeyError) as error:
        raise StackError(f"{path} is not a lock file of Spack: {error!r}") from None
    lock["sha256"] = hashlib.sha256(data).hexdigest()
    return lock


def reachable(lock):
    """The specs that run: the roots and what they depend on to link or to run, by name.

    What only builds (compilers, autotools) is left out, except where it is linked too.
    """
    specs, found = lock["concrete_specs"], {}
    pending = [root["hash"] for root in lock["roots"]]
    while pending:
        dag_hash = pending.pop()
        spec = specs[dag_hash]
        if found.get(spec["name"]) is spec:
            continue
        found[spec["name"]] = spec
        for dependency in spec.get("dependencies", []):
            if set(dependency["parameters"]["deptypes"]) & {"link", "run"}:
                pending.append(dependency["hash"])
    return found


def is_external(spec):
    return bool(spec.get("external"))


def version_of(spec):
    version = spec.get("version")
    return version if version is not None else (spec.get("versions") or ["?"])[0]


FLAGS = {"cflags", "cxxflags", "fflags", "cppflags", "ldflags", "ldlibs"}


def variants_of(spec):
    """The variants without the compiler flags and what a site may choose."""
    parameters = sorted(spec.get("parameters", {}).items())
    return {k: value for k, value in parameters if k not in FLAGS | SITE_VARIANTS}


def tools_of(lock):
    """What must be equal at two sites for their tools to be the same programs, by name."""
    specs = reachable(lock)
    tools = {}
    for name in [name for name in TOOLS if name in specs]:
        spec = specs[name]
        parameters = spec.get("parameters", {})
        tools[name] = {
            "version": version_of(spec),
            "namespace": spec.get("namespace"),
            "recipe": spec.get("package_hash"),
            "variants": variants_of(spec),
            "flags": {k: v for k, v in parameters.items() if k in FLAGS and v},
        }
    return tools


def flat(tool):
    """What tells a tool, as one level of names and printable values, without what a site may choose."""
    values = {**tool, **tool["variants"], **tool["flags"]}
    return {
        name: ",".join(value) if isinstance(value, list) else str(value)
        for name, value in values.items()
        if name not in CHOICES | {"variants", "flags"}
    }


def differs_from_record(lock):
    """Where the tools of a lock file differ from those of every site, one sentence each."""
    recorded = json.loads(RECORD.read_text())
    for name, tool in tools_of(lock).items():
        there, mine = flat(recorded[name]), flat(tool)
        for key in sorted(set(there) | set(mine)):
            if there.get(key) != mine.get(key):
                yield f"{name} {key}: {mine.get(key)} here, {there.get(key)} elsewhere"


def provider(lock, spec, virtual):
    """The spec that another one has in a lock file as its `mpi` or its `c`, or None."""
    for dependency in spec.get("dependencies", []):
        if virtual in dependency.get("parameters", {}).get("virtuals", []):
            return lock["concrete_specs"][dependency["hash"]]
    return None


def mpi_of(lock):
    """The MPI of a lock file, or None."""
    found = (provider(lock, spec, "mpi") for spec in reachable(lock).values())
    return next(filter(None, found), None)


def is_below(path, spec):
    """Whether a file is of a package: below the prefix of an external, or of an installation with this hash."""
    path, prefix = os.path.realpath(str(path)), (spec.get("external") or {}).get("path")
    if not prefix:
        return spec["hash"] in path
    if prefix == "/usr":  # /lib is a link to /usr/lib, or was once
        return path.startswith(("/usr/", "/lib")) and not path.startswith("/usr/local/")
    return path.startswith(os.path.realpath(prefix) + os.sep)


def files_of(environment, lock):
    """Where the files of each tool are: in the view, or at the prefix of an external."""
    for name, spec in reachable(lock).items():
        root = (spec.get("external") or {}).get("path") or Path(environment) / VIEW
        for file in FILES.get(name, ()):
            yield name, spec, Path(root) / file


def missing_of(environment, lock):
    """The tools of a lock file that the view lacks, or has from another installation."""
    missing = set()
    for name, spec, file in files_of(environment, lock):
        if not (file.exists() and is_below(file, spec)):
            missing.add(name)
    return sorted(missing)


def fingerprint_of(tools):
    text = json.dumps(tools, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def facts_of(environment):
    """What stack.json holds; without a fingerprint if a tool is missing."""
    lock = read_lock(environment)
    specs, tools = reachable(lock), tools_of(lock)
    if not tools.keys() & FILES.keys():
        raise StackError(
            f"{environment}/spack.lock has no benchmark: expected one of {', '.join(FILES)}"
        )
    named = {name: specs[name] for name in (*TOOLS, "lustre") if name in specs}
    compilers = [provider(lock, spec, "c") for spec in named.values()]
    compiler = next(filter(None, compilers), None)
    missing = missing_of(environment, lock)
    arch = next(iter(named.values()))["arch"]
    target = arch["target"]
    mpi = mpi_of(lock)
    if mpi:
        named["mpi"] = mpi
    return {
        "environment": Path(environment).resolve().name,
        "stack": "" if missing else fingerprint_of(tools),
        "missing": missing,
        "lock_sha256": lock["sha256"],
        "spack": lock.get("spack", {}).get("version"),
        "os": arch["platform_os"],
        "target": target if isinstance(target, str) else target["name"],
        "compiler": compiler and f"{compiler['name']}@{version_of(compiler)}",
        "packages": {name: package_of(spec) for name, spec in named.items()},
    }


def package_of(spec):
    """What stack.json says of a package. Of an external Spack only assumes the variants."""
    return {
        "name": spec["name"],
        "version": version_of(spec),
        "hash": spec["hash"],
        "external": is_external(spec),
        "variants": {} if is_external(spec) else variants_of(spec),
    }


def mpi_bin(environment, mpi):
    """The folder of an MPI's programs: the view's, or an external's; Intel's is deeper."""
    if not is_external(mpi):
        return Path(environment).resolve() / VIEW / "bin"
    prefix = Path(mpi["external"].get("path") or "/nowhere")
    deeper = sorted(prefix.glob(f"mpi/{version_of(mpi)}*/bin"))
    return deeper[0] if deeper else prefix / "bin"


def activate_text(environment):
    mpi = mpi_of(read_lock(environment))
    external = (mpi or {}).get("external") or {}
    lines = [
        "# shellcheck shell=sh",
        "# Written by ci/stack_facts.py. Sourced by a job; starts no process.",
    ]
    for module in external.get("module") or []:
        lines.append(f"module load {shlex.quote(module)} || return 1")
    front = [str(Path(environment).resolve() / VIEW / "bin")]
    if external.get("path", "/usr") not in ("/usr", "/"):
        front.append(str(mpi_bin(environment, mpi)))
    lines.append(f'export PATH={":".join(map(shlex.quote, front))}"${{PATH:+:$PATH}}"')
    return "\n".join(lines) + "\n"


def replace(path, text):
    """Write a file so that a reader sees the old or the new one, never half of it."""
    temporary = path.with_name(path.name + ".new")
    try:
        temporary.write_text(text)
        temporary.replace(path)
    except OSError as error:
        # An image, or another user's installation, has what was written when it was built.
        if not path.is_file() or path.read_text() != text:
            raise StackError(
                f"{path}: {error.strerror}: the facts of what is installed are not there, or others; "
                "write them as the owner of the folder: ci/stack_facts.py ENVIRONMENT"
            ) from error


def write_facts(environment):
    """Write stack.json and activate.sh beside the view; return the facts."""
    view = Path(environment) / VIEW
    if not (view / "bin").is_dir():
        raise StackError(
            f"{view} has no bin/: nothing is installed; spack -e {environment} install"
        )
    facts = facts_of(environment)
    text = json.dumps(facts, indent=2, sort_keys=True)
    replace(view.parent / "stack.json", text + "\n")
    replace(view.parent / "activate.sh", activate_text(environment))
    if facts["missing"]:
        raise StackError(
            f"{environment} is not installed as a whole, so it has no fingerprint: {', '.join(facts['missing'])} missing;"
            f" spack -e {environment} install"
        )
    return facts


def compare(environment):
    """Print how a lock file agrees with what every site measures with; 1 if it does not."""
    facts = facts_of(environment)
    differs = list(differs_from_record(read_lock(environment)))
    mpi = facts["packages"].get("mpi", {"name": "no MPI", "version": ""})
    state = "DIFFERS" if differs else "agrees"
    told = f"{mpi['name']}@{mpi['version']}, {facts['compiler']}, {facts['os']}"
    print(f"stack_facts: {facts['environment']:22} {state}  {told}")
    for text in differs:
        print(f"    {text}")
    if differs:
        print("    Either a scope of Spack asks for it (spack config blame packages),")
        print(
            "    or a recipe was changed. Results compare with those of this stack alone."
        )
    return int(bool(differs))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("environments", nargs="+", metavar="ENVIRONMENT")
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--record", action="store_true")
    arguments, status = parser.parse_args(), 0
    for environment in arguments.environments:
        try:
            if arguments.record:
                tools = tools_of(read_lock(environment))
                RECORD.write_text(json.dumps(tools, indent=1, sort_keys=True) + "\n")
            elif arguments.compare:
                status |= compare(environment)
            else:
                facts = write_facts(environment)
                print(f"stack_facts: {environment}: stack {facts['stack']}")
        except StackError as error:
            print(f"stack_facts: {error}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
