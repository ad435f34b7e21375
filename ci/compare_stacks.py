#!/usr/bin/env python3
"""Whether lock files agree on what is measured with, and where they differ.

    ci/compare_stacks.py LOCK-OR-ENVIRONMENT...     e.g. environments/local, or the files of ci/concretize

Version, recipe (with its patches), variants and compiler flags of ior, fio, io500, darshan and the stack
must be equal everywhere. A site chooses only whether the Lustre, HDF5 and parallel netCDF parts are in
(variants of iogauge-stack): such a difference is told, and is no failure. Compiler and MPI are a site's.

Nothing but Python 3.6 is needed. Exit status 1: they do not agree.
"""

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import stack_facts as facts

# What a site may switch, under the names that the packages give it.
CHOICES = {"lustre", "hdf5", "ncmpi", "parallel-netcdf"}


def name_of(path):
    path = Path(path)
    if path.name == "spack.lock":
        path = path.parent
    return path.name[: -len(".lock")] if path.suffix == ".lock" else path.name


def load(path):
    path = Path(path)
    if path.is_dir():
        return facts.read_lock(path)
    try:
        data = json.loads(path.read_text())
        data["concrete_specs"], data["roots"]
    except (OSError, ValueError, KeyError) as error:
        raise facts.StackError(f"{path} is not a lock file of Spack: {error}") from None
    return data


def flat(identity):
    """An identity as one level of names to printable values."""
    flat = {name: identity[name] for name in ("version", "namespace", "recipe")}
    for kind in ("variants", "flags"):
        for name, value in identity[kind].items():
            flat[name] = ",".join(value) if isinstance(value, list) else value
    return flat


def differences(stacks):
    """For each tool and property the values that are not equal everywhere: value to sites."""
    for tool in facts.TOOLS:
        owners = {site: flat(specs[tool]) for site, specs in stacks.items() if tool in specs}
        missing = sorted(set(stacks) - set(owners))
        if missing and owners:
            yield tool, "package", {"there": sorted(owners), "missing": missing}
        for key in sorted({key for values in owners.values() for key in values}):
            by_value = defaultdict(list)
            for site, values in sorted(owners.items()):
                by_value[str(values.get(key, "-"))].append(site)
            if len(by_value) > 1:
                yield tool, key, dict(by_value)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("locks", nargs="+", metavar="LOCK")
    stacks, status = {}, 0
    for path in parser.parse_args().locks:
        try:
            lock = load(path)
        except facts.StackError as error:
            print(f"compare_stacks: {error}", file=sys.stderr)
            return 2
        specs = facts.reachable(lock)
        stacks[name_of(path)] = {
            tool: facts.identity(specs[tool]) for tool in facts.TOOLS if tool in specs
        }
        mpi = facts.mpi_of(specs)
        arch = specs["ior"]["arch"] if "ior" in specs else {"platform_os": "?"}
        told = f"{mpi['name']}@{facts.version_of(mpi)}" if mpi else "no MPI"
        compiler = facts.compiler_of(lock, specs["ior"]) if "ior" in specs else None
        print(f"compare_stacks: {name_of(path):22} {arch['platform_os']:12} {compiler} {told}")

    for tool, key, by_value in differences(stacks):
        chosen = key in CHOICES
        status = status if chosen else 1
        print(f"compare_stacks: {'chosen' if chosen else 'DIFFERS'}: {tool} {key}")
        for value, sites in by_value.items():
            print(f"    {value}: {', '.join(sites)}")
    if status:
        print("compare_stacks: these stacks do not measure with the same programs", file=sys.stderr)
    else:
        print(f"compare_stacks: {len(stacks)} stacks agree on {', '.join(facts.TOOLS)}")
    return status


if __name__ == "__main__":
    sys.exit(main())
