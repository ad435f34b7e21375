#!/usr/bin/env python3
"""Find what this machine has, so that `spack install` builds the benchmarks only.

    ci/find_externals.py [ENVIRONMENT]          environments/local, unless told

Writes ENVIRONMENT/found/packages.yaml: compilers, autotools and a Lustre client as `spack external find` sees them,
then the MPI and the libraries. Spack builds what is not found, except for the MPI: load its module first, so that its
mpicc comes first on PATH, or name it: MPICC=/path/to/mpicc. The modules that are loaded become those of the MPI. An
external that a scope of Spack names already (`spack config blame packages`) is left to that scope.

Needs spack on PATH (ci/install-spack). Exit status 1: no MPI is known here; the message has the text to write.
"""

import argparse
import glob
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# Found by Spack itself, by their programs.
PROGRAMS = ("gcc", "autoconf", "automake", "libtool", "m4", "perl", "gmake", "pkgconf", "lustre")

# Libraries: Spack's name, and a header. Without headers nothing can be built on them, and Spack does not look for those.
LIBRARIES = {
    "zlib": "zlib.h",
    "libaio": "libaio.h",
    "libnl": "libnl3/netlink/genl/genl.h",
    "libyaml": "yaml.h",
    "readline": "readline/readline.h",
    "util-linux": "libmount/libmount.h",
    "parallel-netcdf": "pnetcdf.h",
}

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


def output(*command):
    """What a command prints, or an empty text if it fails."""
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""


def version_in(text, regex):
    found = re.search(regex, text, re.MULTILINE)
    return found.group(1).rstrip(".") if found else None


def find_library(header):
    """Version and prefix of the distribution's package that a header belongs to, or None."""
    path = Path("/usr/include") / header
    if not path.exists():
        return None
    owner = output("dpkg-query", "-S", str(path)).split(":")[0]
    text = output("dpkg-query", "-W", "-f", "${Version}", owner) if owner else ""
    text = text or output("rpm", "-qf", "--qf", "%{VERSION}", str(path))
    version = version_in(re.sub(r"^\d+:", "", text), r"(\d+(?:\.\d+)*)")
    return version and {"spec": version, "prefix": "/usr"}


def romio_knows_lustre(prefix):
    """Whether the ROMIO of an MPI was built with Lustre: its functions have names."""
    told = output(os.path.join(prefix, "bin", "ompi_info"), "--parsable", "--path", "pkglibdir")
    components = re.findall(r"^path:pkglibdir:(.*)$", told, re.MULTILINE)
    patterns = [os.path.join(folder, "mca_io_romio*.so") for folder in components]
    patterns += [os.path.join(prefix, lib, "libmpi*.so") for lib in ("lib64", "lib", "lib/*")]
    return any(
        b"ADIOI_LUSTRE_" in Path(path).read_bytes()
        for pattern in patterns
        for path in glob.glob(pattern)
    )


def parts_of(prefix):
    """The components of an Open MPI, as framework:component."""
    text = output(os.path.join(prefix, "bin", "ompi_info"), "--parsable")
    parts = set(re.findall(r"^mca:(\w+:\w+):version", text, re.MULTILINE))
    return parts | {"romio:lustre"} if parts and romio_knows_lustre(prefix) else parts


def library_version(mpicc):
    """What the library that an mpicc links with says of itself; empty if it cannot be asked."""
    words = shlex.split(output(mpicc, "-show"))
    folders = [word[2:] for word in words if word.startswith("-L")]
    names = [word[2:] for word in words if re.match(r"-lmpi(ch)?(_gnu\w*|_cray)?$", word)]
    for path in [f"{folder}/lib{name}.so" for folder in folders for name in names]:
        if os.path.exists(path) and (text := output(sys.executable, "-c", ASK, path)):
            return text
    return ""


def find_mpi():
    """Name and external of the MPI whose compiler comes first on PATH, or that MPICC names; raises Unknown."""
    # HPE's modules put no mpicc on PATH, and say where the MPI is.
    cray = os.environ.get("CRAY_MPICH_DIR", "")
    mpicc = shutil.which(os.environ.get("MPICC") or (cray and f"{cray}/bin/mpicc") or "mpicc")
    if not mpicc:
        raise Unknown(
            "no mpicc on PATH: load the module of the MPI that jobs use, or install it (apt install libopenmpi-dev, dnf"
            " install openmpi-devel), then try again. environments/generic builds an MPI of its own instead"
        )
    prefix = os.path.dirname(os.path.dirname(mpicc))
    modules = [name for name in os.environ.get("LOADEDMODULES", "").split(":") if name]
    text = library_version(mpicc)
    name = next((name for name, regex in MPIS if re.search(regex, text)), "")
    if not name or os.path.basename(mpicc) != "mpicc":
        example = {
            "spec": "NAME@VERSION",
            "prefix": prefix,
            **({"modules": modules} if modules else {}),
        }
        raise Unknown(
            f"{mpicc} is of an MPI that this command does not know; it says of itself: {text.strip()[:120]!r}.\n"
            "Write it under `packages:` of the environment's spack.yaml, by its name in Spack (mpich for a relative of"
            " MPICH, mpt for HPE MPI), then run this again:\n"
            f"    mpi: {{buildable: false, require: NAME}}\n    NAME: {{buildable: false, externals: [{json.dumps(example)}]}}"
        )
    version = version_in(text, dict(MPIS)[name])
    options = ""
    if name == "intel-oneapi-mpi":
        # Spack's prefix is the one of all Intel's programs, and the wrappers of gcc have the general names.
        prefix, options = re.sub(r"/mpi/[^/]+$", "", prefix), " +generic-names"
    external = {"spec": f"{name}@{version}{options}", "prefix": prefix}
    return name, {**external, **({"modules": modules} if modules and prefix != "/usr" else {})}


def spack(environment, *words):
    if not shutil.which("spack"):
        raise SystemExit("no spack on PATH: ci/install-spack brings it, then: . .iogauge/spack.sh")
    command = ["spack", "-e", str(environment), *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed; see above")
    return done.stdout


def packages_of(environment):
    """The packages that all scopes of an environment name, as Spack merges them."""
    code = "import json, spack.config; print(json.dumps(spack.config.get('packages')))"
    return json.loads(spack(environment, "python", "-c", code))


def has_external(packages, *names):
    return any(packages.get(name, {}).get("externals") for name in names)


def find(environment):
    """Write what is here into the environment's found/, and return what was written; raises Unknown."""
    folder = environment / "found"
    shutil.rmtree(folder, ignore_errors=True)
    known = packages_of(environment)
    names = [name for name in PROGRAMS if not has_external(known, name)]
    if names:
        spack(environment, "external", "find", "--not-buildable", *names)
    found = {}
    for name, header in LIBRARIES.items():
        if not has_external(known, name) and (library := find_library(header)):
            found[name] = {**library, "spec": f"{name}@{library['spec']}"}
    own = {name: {"buildable": False, "externals": [one]} for name, one in found.items()}
    if "zlib" in found:
        own["zlib-api"] = {"buildable": False}
    if not has_external(known, *MPI_NAMES) and known.get("mpi", {}).get("require") != "openmpi":
        name, external = find_mpi()
        own[name] = {"buildable": False, "externals": [external]}
        own["mpi"] = {"buildable": False, "require": name}
    folder.mkdir(exist_ok=True)
    file = folder / "packages.yaml"
    text = file.read_text() if file.exists() else "packages:\n"
    text += "".join(f"  {name}: {json.dumps(one)}\n" for name, one in own.items())  # JSON is YAML
    file.write_text(text)
    return text


MPI_NAMES = (
    "openmpi",
    "mpich",
    "mvapich",
    "mvapich2",
    "mvapich-plus",
    "cray-mpich",
    "hpcx-mpi",
    "intel-oneapi-mpi",
    "mpt",
)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("environment", type=Path, nargs="?", default=ROOT / "environments/local")
    environment = parser.parse_args().environment
    file, lock = environment / "found/packages.yaml", environment / "spack.lock"
    before = file.read_text() if file.exists() else ""
    try:
        text = find(environment)
    except Unknown as error:
        print(f"find_externals: {error}", file=sys.stderr)
        return 1
    for line in re.findall(r"spec\"?: \"?([^\"\n]*)", text):
        print("find_externals:", line)
    if lock.exists() and sorted(text.splitlines()) != sorted(before.splitlines()):
        lock.unlink()
        print(f"find_externals: removed {lock}: it was made for other externals")
    print(f"find_externals: wrote {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
