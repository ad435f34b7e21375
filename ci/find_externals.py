#!/usr/bin/env python3
"""Find what this machine has, so that `spack install` builds the benchmarks only.

    ci/find_externals.py [ENVIRONMENT]          environments/local, unless told

Writes ENVIRONMENT/made-by-ci-find_externals.py/packages.yaml: the MPI, zlib and libaio, then compilers, autotools and a
Lustre client as `spack external find` sees them. The environment cannot be used before. Spack builds what is not
found, except for the MPI: load its module first, so that its mpicc comes first on PATH, or name it:
MPICC=/path/to/mpicc. The modules that are loaded become those of the MPI. Without an mpicc the MPI is the one that a
scope of Spack names (`spack config blame packages`), or the one that was found before.

A lock file that was made for other externals is removed, unless git has it. Needs spack on PATH (ci/install-spack).
Exit status 1: no MPI is known here; the message has the text to write.
"""

import argparse
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Spack's error for an environment that lacks this folder has no other text than its name.
FOUND = "made-by-ci-find_externals.py"

# Found by Spack itself, by their programs.
PROGRAMS = {"gcc", "autoconf", "automake", "libtool", "m4", "perl", "gmake", "pkgconf"}
PROGRAMS.add("lustre")

# Libraries: Spack's name, and a header: without it nothing can be built on them. Spack does not look for those.
LIBRARIES = {"zlib": "zlib.h", "libaio": "libaio.h"}

# What an MPI says of itself (MPI_Get_library_version): Spack's name of it, and where its version stands. The first counts:
# most are children of MPICH, and some say so too.
MPIS = (
    ("", r"ParaStation|HPE|HMPT|Fujitsu|Spectrum"),
    ("openmpi", r"Open MPI v(\d+[\d.]*)"),
    ("intel-oneapi-mpi", r"Intel\(R\) MPI Library (\d+[\d.]*)"),
    ("cray-mpich", r"CRAY MPICH version (\d+\.\d+\.\d+)"),
    ("mvapich2", r"MVAPICH2[- ]?\w* Version\s*:\s*(2[\d.]*)"),
    ("mvapich", r"MVAPICH Version\s*:\s*(\d+[\d.]*)"),
    ("mpich", r"MPICH Version:\s*(\d+[\d.]*)"),
)
ASK = """import ctypes, sys
text = ctypes.create_string_buffer(1 << 16)
ctypes.CDLL(sys.argv[1]).MPI_Get_library_version(text, ctypes.byref(ctypes.c_int()))
print(text.value.decode(errors="replace"))"""


class Unknown(Exception):
    """No MPI that can be written down; the message says what to do."""


def run(command, **options):
    """Exit status and output (both streams) of a command; 127 with the reason if it did not start, or did not end."""
    try:
        done = subprocess.run(
            [str(word) for word in command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            timeout=120,
            **options,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, str(error)
    return done.returncode, done.stdout.decode(errors="replace")


def output(*command):
    """What a command prints, or an empty text if it fails."""
    status, text = run(command)
    return "" if status else text


def version_in(text, regex):
    found = re.search(regex, text, re.MULTILINE)
    return found.group(1).rstrip(".") if found else None


def find_library(header):
    """Version and prefix of the distribution's package that a header belongs to, or None."""
    path = Path("/usr/include") / header
    if not path.exists():
        return None
    owner = output("dpkg-query", "-S", path).split(":")[0]
    text = output("dpkg-query", "-W", "-f", "${Version}", owner) if owner else ""
    text = text or output("rpm", "-qf", "--qf", "%{VERSION}", path)
    return version_in(re.sub(r"^\d+:", "", text), r"(\d+(?:\.\d+)*)")


def library_version(mpicc):
    """What the library that an mpicc links with says of itself; empty if it cannot be asked."""
    words = shlex.split(output(mpicc, "-show"))
    folders = [word[2:] for word in words if word.startswith("-L")]
    libraries = [w[2:] for w in words if re.match(r"-lmpi(ch)?(_gnu\w*|_cray)?$", w)]
    for folder, library in itertools.product(folders, libraries):
        path = f"{folder}/lib{library}.so"
        text = output(sys.executable, "-c", ASK, path) if os.path.exists(path) else ""
        if text:
            return text
    return ""


def mpi_in(text):
    """Spack's name and the version of the MPI whose library says this of itself; two empty texts if it is not known."""
    for name, regex in MPIS:
        if re.search(regex, text):
            return (name, version_in(text, regex)) if name else ("", "")
    return "", ""


def first_mpicc():
    """The compiler of the MPI that MPICC names, or that comes first on PATH; None without one."""
    # HPE's modules put no mpicc on PATH, and say where the MPI is.
    cray = os.environ.get("CRAY_MPICH_DIR", "")
    named = os.environ.get("MPICC") or (cray and f"{cray}/bin/mpicc")
    return shutil.which(named or "mpicc")


def find_mpi():
    """Name and external of that MPI; raises Unknown."""
    mpicc = first_mpicc()
    if not mpicc:
        raise Unknown(
            "no mpicc on PATH: load the module of the MPI that jobs use, or install it (apt install libopenmpi-dev, dnf"
            " install openmpi-devel), then try again. environments/generic builds an MPI of its own instead"
        )
    prefix, text = os.path.dirname(os.path.dirname(mpicc)), library_version(mpicc)
    modules = [name for name in os.environ.get("LOADEDMODULES", "").split(":") if name]
    modules = {"modules": modules} if modules and prefix != "/usr" else {}
    name, version = mpi_in(text)
    if not name or os.path.basename(mpicc) != "mpicc":
        example = json.dumps({"spec": "NAME@VERSION", "prefix": prefix, **modules})
        raise Unknown(
            f"{mpicc} is of an MPI that this command does not know; it says of itself: {text.strip()[:120]!r}.\n"
            "Write it under `packages:` of the environment's spack.yaml, by its name in Spack (mpich for a relative of"
            " MPICH, mpt for HPE MPI), then run this again:\n"
            f"    mpi: {{buildable: false, require: NAME}}\n    NAME: {{buildable: false, externals: [{example}]}}"
        )
    options = ""
    if name == "intel-oneapi-mpi":
        # Spack's prefix is the one of all Intel's programs, and the wrappers of gcc have the general names.
        prefix, options = re.sub(r"/mpi/[^/]+$", "", prefix), " +generic-names"
    return name, {"spec": f"{name}@{version}{options}", "prefix": prefix, **modules}


def spack(environment, *words):
    if not shutil.which("spack"):
        raise SystemExit(
            "no spack on PATH: ci/install-spack brings it, then: . .iogauge/spack.sh"
        )
    command = ["spack", "-e", str(environment), *words]
    done = subprocess.run(command, stdout=subprocess.PIPE)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed; see above")
    return done.stdout


def packages_of(environment):
    """The packages that all scopes of an environment name, as Spack merges them; and the names of all MPIs."""
    code = (
        "import json, spack.config as c, spack.repo as r; "
        "print(json.dumps([c.get('packages'), [s.name for s in r.PATH.providers_for('mpi')]]))"
    )
    packages, mpis = json.loads(spack(environment, "python", "-c", code).decode())
    return packages, set(mpis)


def externals_of(packages, *names):
    """The externals that scopes name for some packages, each with its package's name."""
    return [
        (name, external)
        for name in sorted(names)
        for external in packages.get(name, {}).get("externals") or ()
    ]


def choose_mpi(known, mpis):
    """What is to be written of the MPI, where scopes know some; raises Unknown."""
    if known.get("mpi", {}).get("require"):
        return {}  # the environment says which, and whether Spack builds it
    named = externals_of(known, *mpis)
    if named and not first_mpicc():
        return {"mpi": {"buildable": False}}
    name, external = find_mpi()
    chosen = {"mpi": {"buildable": False, "require": name}}
    if external["prefix"] in [other.get("prefix") for of, other in named if of == name]:
        return chosen
    chosen[name] = {"buildable": False, "externals": [external]}
    for _, other in named:
        print(
            f"find_externals: {external['spec']} at {external['prefix']} comes first on PATH and is used,"
            f" not {other['spec']} at {other.get('prefix')}, which a scope of Spack names"
        )
    return chosen


def find(environment):
    """Write what is here beside the environment, and return what was written; raises Unknown."""
    file = environment / FOUND / "packages.yaml"
    known, mpis = packages_of(environment)
    # The MPI comes first: whatever ends this command, no other one is built.
    own = choose_mpi(known, mpis)
    for name, header in LIBRARIES.items():
        version = None if externals_of(known, name) else find_library(header)
        if version:
            external = {"spec": f"{name}@{version}", "prefix": "/usr"}
            own[name] = {"buildable": False, "externals": [external]}
    if "zlib" in own:
        own["zlib-api"] = {"buildable": False}
    lines = ["packages:"]
    for name, entry in own.items():
        lines.append(f"  {name}:")
        for key, value in entry.items():
            lines.append(f"    {key}: {json.dumps(value)}")  # JSON is YAML
    file.write_text("\n".join(lines) + "\n")
    names = sorted(name for name in PROGRAMS if not externals_of(known, name))
    spack(environment, "external", "find", "--not-buildable", *names)
    return file.read_text()


def in_git(path):
    words = ["git", "-C", path.parent, "ls-files", "--error-unmatch", path.name]
    return run(words)[0] == 0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("environment", nargs="?", default=ROOT / "environments/local")
    environment = Path(parser.parse_args().environment)
    if FOUND not in (environment / "spack.yaml").read_text():
        return f"find_externals: {environment}/spack.yaml names its externals itself: correct them there"
    folder, lock = environment / FOUND, environment / "spack.lock"
    file = folder / "packages.yaml"
    before = file.read_text() if file.exists() else ""
    if before and not first_mpicc():
        print(f"find_externals: no mpicc on PATH: {file} stays as it is")
        return 0
    shutil.rmtree(str(folder), ignore_errors=True)
    folder.mkdir()
    try:
        text = find(environment)
    except BaseException as error:
        shutil.rmtree(str(folder))
        if not isinstance(error, Unknown):
            raise
        return f"find_externals: {error}"
    for line in re.findall(r'spec"?: "?([^\s",}]+)', text):
        print("find_externals:", line)
    if lock.exists() and text != before and not in_git(lock):
        lock.unlink()
        print(f"find_externals: removed {lock}: it was made for other externals")
    print(f"find_externals: wrote {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
