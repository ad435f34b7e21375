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
    MPI         what its tasks talk by, whether its MPI-IO knows Lustre, and which PMI Slurm offers it

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
import check_mpi
import find_externals as found
import stack_facts as facts
from check_mpi import Failed, Skipped

# What must be below the prefix of a package: patterns, | is or.
NEEDED = {
    "lustre": [
        "include/lustre/lustreapi.h",
        "lib*/liblustreapi.so|lib/*/liblustreapi.so",
    ],
    **{name: [f"include/{header}"] for name, header in found.LIBRARIES.items()},
}
# A container's root, and a machine with one core, need Open MPI's leave.
LEAVE = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


class Told(Exception):
    """Nothing is wrong, and somebody must know it."""


class Stack:
    """An environment with its lock file and its view."""

    def __init__(self, environment, launcher="", may_run=True):
        self.environment = Path(environment)
        self.lock = facts.read_lock(environment)
        self.specs = facts.reachable(self.lock)
        self.view = self.environment.resolve() / facts.VIEW
        self.mpi = facts.mpi_of(self.lock)
        if self.mpi is None:
            raise facts.StackError(
                f"{environment}/spack.lock has no MPI: it is none of these"
            )
        self.mpi_bin = facts.mpi_bin(environment, self.mpi)
        self.launcher_words = shlex.split(launcher)
        self.may_run = may_run

    def has(self, package, variant):
        return self.specs.get(package, {}).get("parameters", {}).get(variant) is True

    def launcher(self):
        if not self.may_run:
            raise Skipped("--no-run")
        beside = [str(self.mpi_bin / name) for name in ("mpirun", "mpiexec")]
        words = (
            self.launcher_words
            or [one for one in beside if os.access(one, os.X_OK)][:1]
        )
        if not words and not shutil.which("srun"):
            raise Failed(
                f"no mpirun in {self.mpi_bin} and no srun on PATH; name what starts jobs here: --launcher 'srun -n'"
            )
        return self.launcher_words or [*(words or ["srun"]), "-n"]

    def ior(self, *switches):
        """Let two tasks write and read with IOR: status, output, and what it reports."""
        command = [*self.launcher(), "2", self.view / "bin/ior"]
        command += shlex.split(
            "-a POSIX -F -w -r -t 64k -b 256k -o data -O summaryFormat=JSON"
        )
        environment = {**os.environ, **LEAVE, **dict.fromkeys(switches, "10")}
        with tempfile.TemporaryDirectory(prefix="iogauge-check-") as folder:
            report = Path(folder) / "ior.json"
            words = [*command, "-O", f"summaryFile={report}"]
            status, text = found.run(words, env=environment, cwd=folder)
            return status, text, report.read_text() if report.exists() else ""


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


def wrong_with(environment):
    """What a solve or a build would stumble over, and how many externals there are.

    Of what was solved, else of what the scopes name: Spack would search for minutes, and say only that nothing
    provides C. Of several externals of a package one suffices.
    """
    wrong, count, named = [], 0, {}
    if (environment / "spack.lock").exists():
        lock = facts.read_lock(environment)
        mpis = {facts.mpi_of(lock)["name"]}
        for spec in filter(facts.is_external, lock["concrete_specs"].values()):
            named.setdefault(spec["name"], []).append(
                (facts.version_of(spec), spec["external"])
            )
    else:
        packages, mpis = found.packages_of(environment)
        for name in {*found.PROGRAMS, *mpis, *NEEDED} & set(packages):
            for one in packages[name].get("externals") or ():
                version = found.version_in(one["spec"], r"^[\w-]+@=?([\w.-]+)")
                named.setdefault(name, []).append((version or "", one))
        if not mpis & set(named) and "require" not in packages.get("mpi", {}):
            wrong.append(
                "no MPI is named, and Spack would build one that knows neither fabric nor scheduler: load the module of the"
                f" MPI that jobs use, then run ci/find_externals.py {environment}"
            )
    for name, externals in sorted(named.items()):
        count += len(externals)
        each = [list(faults(name, *one, name in mpis)) for one in externals]
        wrong += [text for texts in each if all(each) for text in texts]
    return wrong, count


def check_externals(environment):
    wrong, count = wrong_with(environment)
    if wrong:
        remedy = f"load the module that brings it, find all anew (ci/find_externals.py {environment}), or correct it: spack config blame packages"
        raise Failed("\n".join([*wrong, remedy]))
    return f"{count} are here"


def check_programs(stack):
    """A rule of the site's own may change what is measured with: then it is another stack, and says so."""
    differs = "\n".join(facts.differs_from_record(stack.lock))
    if differs:
        raise Told(
            f"not what every site measures with; results compare with this site's alone\n{differs}\n"
            "a scope of this site asks for it (spack config blame packages), or a recipe was changed"
        )
    return "as at every site"


def is_below(path, spec):
    """Whether a library is of a package: below the prefix of an external, or of an installation with this hash."""
    path, prefix = os.path.realpath(path), (spec.get("external") or {}).get("path")
    if not prefix:
        return spec["hash"] in path
    if prefix == "/usr":  # /lib is a link to /usr/lib, or was once
        return path.startswith(("/usr/", "/lib")) and not path.startswith("/usr/local/")
    return path.startswith(os.path.realpath(prefix) + os.sep)


def check_loader(stack):
    linked, owners = {}, [(r"libmpi(ch|_gnu\w*|_cray)?\.so", stack.mpi)]
    if "lustre" in stack.specs:
        owners.append((r"liblustreapi", stack.specs["lustre"]))
    for name in ("bin/ior", "bin/mdtest", "bin/fio", "lib/libdarshan.so"):
        if not (stack.view / name).exists() and name.startswith("bin/"):
            raise Failed(
                f"{stack.view}/{name} is not there; spack -e {stack.environment} install"
            )
        _, text = found.run(["ldd", stack.view / name])
        for library, target in re.findall(
            r"^\s*(\S+) => (not found|\S+)", text, re.MULTILINE
        ):
            if target == "not found":
                raise Failed(
                    f"{name} needs {library}, which the loader does not find;"
                    " load the module of its MPI, or install again with the libraries that are here"
                )
            for spec in [spec for regex, spec in owners if re.match(regex, library)]:
                if not is_below(target, spec):
                    where = (spec.get("external") or {}).get("path") or spec["hash"]
                    raise Failed(
                        f"{name} is linked with {target}, but the environment's {spec['name']}@{facts.version_of(spec)}"
                        f" is at {where}; unset LD_LIBRARY_PATH, or install again after it has moved"
                    )
                linked[f"{library} => {target}"] = None
    return ", ".join(linked) or "all libraries are found"


def check_run(stack):
    launcher = stack.launcher()[0]
    status, text, report = stack.ior()
    if status:
        raise Failed(f"ior ended with {status} under {launcher}: {text.strip()[-300:]}")
    tasks = found.version_in(report, r'"tasks": *(\d+)')
    if tasks != "2":
        raise Failed(
            f"{launcher} -n 2 starts jobs of {tasks} task, not one of 2: it belongs to another MPI"
            f" than ior, which is linked with {stack.mpi['name']}@{facts.version_of(stack.mpi)}"
        )
    return f"2 tasks under {launcher}, of {stack.mpi['name']}@{facts.version_of(stack.mpi)}"


CHECKS = (
    ("externals", lambda stack: check_externals(stack.environment)),
    ("programs", check_programs),
    ("loader", check_loader),
    ("run", check_run),
    ("MPI-IO, Lustre", check_mpi.lustre),
    ("MPI's fabric", check_mpi.fabric),
    ("Slurm's PMI", check_mpi.slurm),
)
# Where one of these fails, the checks after it would say the same once more.
BASES = {"externals", "loader", "run"}


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
        except Told as reason:
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
            return int(
                bool(ask([("externals", check_externals)], arguments.environment))
            )
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
