#!/usr/bin/env python3
"""Find what this machine already has, so that `spack install` builds the benchmarks only.

    ci/find_externals.py [-o FILE] [--print]

Writes environments/local/packages.yaml: the compiler, the autotools, the MPI and the libraries on this
machine as externals of Spack. What is not found is left to Spack to build, and said. An MPI comes from
PATH (`module load` it first); MPICC=/path/to/mpicc names another.

Nothing but Python 3.6 is needed. Exit status 1: no C, C++ and Fortran compiler of one version.
"""

import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "environments" / "local" / "packages.yaml"
MARK = "# Written by ci/find_externals.py; not kept in git. "

# Programs: Spack's name, the program, and what finds the version in what it says of itself.
PROGRAMS = (
    ("autoconf", "autoconf", r"\) (\d+[\d.]*)"),
    ("automake", "automake", r"\) (\d+[\d.]*)"),
    ("libtool", "libtoolize", r"\) (\d+[\d.]*)"),
    ("m4", "m4", r"\) (\d+[\d.]*)"),
    ("perl", "perl", r"\(v(\d+[\d.]*)\)"),
    ("gmake", "make", r"GNU Make (\d+[\d.]*)"),
    ("pkgconf", "pkgconf", r"^(\d+[\d.]*)"),
)

# Libraries: Spack's name, a header, pkg-config's name.
LIBRARIES = (
    ("zlib", "zlib.h", "zlib"),
    ("libaio", "libaio.h", None),
    ("libnl", "libnl3/netlink/netlink.h", "libnl-3.0"),
    ("libyaml", "yaml.h", "yaml-0.1"),
    ("readline", "readline/readline.h", "readline"),
    ("util-linux", "libmount/libmount.h", "mount"),
    ("parallel-netcdf", "pnetcdf.h", None),
)
# Debian splits this one: Lustre's configure ends without the second library, whose package is libnl-genl-3-dev.
WHOLE_WITH = {"libnl": "libnl-genl-3.so"}

# The component of Open MPI that a value of its variants brings: one of these. The last is read in its library.
PARTS = {
    "fabrics": {
        "ucx": ["pml:ucx"],
        "ofi": ["mtl:ofi", "btl:ofi"],
        "verbs": ["btl:openib"],
        "psm2": ["mtl:psm2"],
    },
    "schedulers": {
        "slurm": ["plm:slurm", "ras:slurm"],
        "tm": ["plm:tm", "ras:tm"],
        "lsf": ["plm:lsf", "ras:lsf"],
    },
    "lustre": {True: ["fs:lustre"]},
    "romio-filesystem": {"lustre": ["romio:lustre"]},
}

# What is provided by an external must not be built a second time under its general name.
VIRTUAL = {"zlib": "zlib-api", "pkgconf": "pkgconfig"}
# Spack may not build these: a second MPI beside the machine's is how a wrong one gets used.
VIRTUAL_MPI = "mpi"
MPIS = {"openmpi", "mpich", "mvapich"}


def say(*words):
    print("find_externals:", *words, file=sys.stderr)


def output(*command):
    """What a command prints, or an empty text where it cannot be run."""
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""


def version_in(text, regex=r"(\d+(?:\.\d+)+)"):
    found = re.search(regex, text, re.MULTILINE)
    return found.group(1).rstrip(".") if found else None


def packaged_version(path):
    """The version of the distribution's package that a file belongs to."""
    owner = output("dpkg-query", "-S", path).split(":")[0]
    text = output("dpkg-query", "-W", "-f", "${Version}", owner) if owner else ""
    text = text or output("rpm", "-qf", "--qf", "%{VERSION}", path)
    return version_in(re.sub(r"^\d+:", "", text), r"(\d+(?:\.\d+)*)")


class External:
    def __init__(self, name, version, prefix, extra=(), options=""):
        self.name, self.version, self.prefix = name, version, prefix
        self.options, self.extra = options, list(extra)

    def lines(self):
        yield f"  {self.name}:"
        yield "    buildable: false"
        # The double colon: a compiler that Spack finds does not take the place of this one.
        yield "    externals::" if self.name == "gcc" else "    externals:"
        yield f'      - spec: "{self.name}@{self.version}{self.options}"'
        yield f"        prefix: {self.prefix}"
        for line in self.extra:
            yield "        " + line


def prefix_of(program):
    return os.path.dirname(os.path.dirname(program))


def find_compiler():
    """GCC with C, C++ and Fortran of one version; the newest on PATH."""
    candidates = []
    for directory in os.environ.get("PATH", "").split(os.pathsep):
        for path in glob.glob(os.path.join(directory, "gcc*")):
            suffix = os.path.basename(path)[len("gcc") :]
            trio = [os.path.join(directory, name + suffix) for name in ("gcc", "g++", "gfortran")]
            if re.match(r"^(-\d+)?$", suffix) and all(os.access(p, os.X_OK) for p in trio):
                versions = {
                    version_in(output(p, "-dumpfullversion"), r"^(\d+[\d.]*)") for p in trio
                }
                if len(versions) == 1 and None not in versions:
                    version = versions.pop()
                    order = [int(part) for part in version.split(".")]
                    # Of equals the shorter name: /usr/bin/gcc before /usr/bin/gcc-12.
                    candidates.append((order, -len(suffix), version, trio))
    if not candidates:
        return None
    _, _, version, (c, cxx, fortran) = max(candidates)
    extra = [
        "extra_attributes:",
        "  compilers:",
        f"    c: {c}",
        f"    cxx: {cxx}",
        f"    fortran: {fortran}",
    ]
    return External("gcc", version, prefix_of(c), extra, " languages='c,c++,fortran'")


def find_program(name, program, regex):
    path = shutil.which(program)
    version = path and version_in(output(path, "--version"), regex)
    return External(name, version, prefix_of(path)) if version else None


def find_library(name, header, module):
    for prefix in ("/usr", "/usr/local"):
        path = os.path.join(prefix, "include", header)
        second = [os.path.join(prefix, lib, WHOLE_WITH.get(name, "")) for lib in ("lib*", "lib/*")]
        if os.path.exists(path) and any(glob.glob(pattern) for pattern in second):
            version = module and version_in(output("pkg-config", "--modversion", module))
            version = version or packaged_version(path)
            return External(name, version, prefix) if version else None
    return None


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


def options_of_openmpi(prefix):
    """What an Open MPI has, in the words of Spack's variants: the self-check will ask for it."""
    parts = parts_of(prefix)
    words = []
    for variant, kinds in PARTS.items():
        has = [value for value, names in kinds.items() if parts & set(names)]
        if variant == "lustre":
            words.append("+lustre" if has else "~lustre")
        else:
            words.append(f"{variant}={','.join(has) or 'none'}")
    return " " + " ".join(words) if parts else ""


def find_mpi():
    """The MPI whose compiler comes first on PATH, or that MPICC names."""
    mpicc = shutil.which(os.environ.get("MPICC", "mpicc"))
    if not mpicc:
        return None
    prefix = prefix_of(mpicc)
    if os.path.basename(mpicc) != "mpicc":
        # Spack calls <prefix>/bin/mpicc, which may be of another MPI.
        say(f"{mpicc} is not called mpicc: not used; make it the first mpicc on PATH")
        return None

    def own(program, *arguments):
        path = os.path.join(prefix, "bin", program)
        return output(path, *arguments) if os.access(path, os.X_OK) else ""

    for name, text, regex in (
        ("openmpi", own("ompi_info", "--version"), r"Open MPI v(\d+[\d.]*)"),
        ("mvapich", own("mpiname", "-a"), r"MVAPICH2?\S* (\d+[\d.]*)"),
        ("mpich", own("mpichversion"), r"MPICH Version:\s*(\d+[\d.]*)"),
    ):
        version = version_in(text, regex)
        if version:
            options = options_of_openmpi(prefix) if name == "openmpi" else ""
            return External(name, version, prefix, options=options)
    say(f"{mpicc} is neither of Open MPI, MPICH nor MVAPICH: not used")
    return None


def find_hdf5(mpi):
    """HDF5 with this MPI; the distributions keep one for each MPI in a directory of its own."""
    if mpi is None:
        return None
    for prefix in [*sorted(glob.glob(f"/usr/lib/*/hdf5/{mpi.name}")), "/usr"]:
        settings = os.path.join(prefix, "include", "H5pubconf.h")
        try:
            text = Path(settings).read_text(errors="replace")
        except OSError:
            continue
        if not os.access(os.path.join(prefix, "bin", "h5dump"), os.X_OK):
            continue  # Darshan asks h5dump, in the same prefix, for the version
        if re.search(r"^#define H5_HAVE_PARALLEL 1", text, re.MULTILINE):
            version = version_in(text, r'H5_PACKAGE_VERSION "(\d+[\d.]*)"')
            if version:
                return External("hdf5", version, prefix, options="+mpi")
    return None


def find_lustre():
    """The client with its library and headers: without them nothing can be built on it."""
    lfs = shutil.which("lfs")
    version = lfs and version_in(output(lfs, "--version"), r"lfs (\d+(?:\.\d+)*)")
    if not version:
        return None
    prefix = prefix_of(lfs)
    header = os.path.join(prefix, "include", "lustre", "lustreapi.h")
    library = [
        f
        for pattern in ("lib64", "lib", "lib/*")
        for f in glob.glob(f"{prefix}/{pattern}/liblustreapi.so")
    ]
    if not (os.path.exists(header) and library):
        say(
            f"{lfs} ({version}) comes without liblustreapi's headers: install lustre-client-devel for +lustre"
        )
        return None
    return External("lustre", version, prefix)


def find_slurm():
    """Slurm with the header that an MPI built here needs; asked only if there is no MPI."""
    srun = shutil.which("srun")
    version = srun and version_in(output(srun, "--version"), r"slurm\S* (\d+[\d.]*)")
    if not version or not os.path.exists(os.path.join(prefix_of(srun), "include/slurm/pmi2.h")):
        return None
    return External("slurm", version.replace(".", "-"), prefix_of(srun))


def built_openmpi(names):
    """The Open MPI that Spack builds if there is none: fabric, scheduler and file systems written out."""
    words = ["@4.1 fabrics=ucx +romio"]
    words.append(
        "schedulers=slurm +pmi +legacylaunchers" if "slurm" in names else "schedulers=none"
    )
    lustre = "lustre" in names
    words.append(
        "+lustre romio-filesystem=lustre,nfs,ufs" if lustre else "~lustre romio-filesystem=none"
    )
    return f'  mpi:\n    require: openmpi\n  openmpi:\n    require: "{" ".join(words)}"'


def find_all():
    compiler = find_compiler()
    mpi = find_mpi()
    found = [compiler, mpi or find_slurm()]
    found += [find_program(*program) for program in PROGRAMS]
    found += [find_library(*library) for library in LIBRARIES]
    found += [find_hdf5(mpi), find_lustre()]
    return [external for external in found if external]


def text_of(externals):
    names = [external.name for external in externals]
    lines = [MARK + "Run it again when the machine changes.", "packages:"]
    for external in externals:
        lines += external.lines()
    lines += [f"  {VIRTUAL[name]}:\n    buildable: false" for name in names if name in VIRTUAL]
    if set(names) & MPIS:
        mpi = next(name for name in names if name in MPIS)
        lines.append(f"  {VIRTUAL_MPI}:\n    buildable: false\n    require: {mpi}")
    else:
        lines.append(built_openmpi(names))
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, default=TARGET, help="default: %(default)s")
    parser.add_argument("--print", action="store_true", help="print it, write nothing")
    arguments = parser.parse_args()

    externals = find_all()
    names = [external.name for external in externals]
    for external in externals:
        say(f"{external.name:16} {external.version:10} {external.prefix}")
    wanted = ["gcc", *(p[0] for p in PROGRAMS), "zlib", "libaio"]
    missing = [name for name in wanted if name not in names]
    if not set(names) & MPIS:
        missing.append("Open MPI over UCX" + (" and Slurm" if "slurm" in names else ""))
    if missing:
        say("not here, so Spack builds it:", ", ".join(name for name in missing if name != "gcc"))
    if "gcc" not in names:
        say(
            "no gcc, g++ and gfortran of one version on PATH; install them"
            " (apt install gcc g++ gfortran; dnf install gcc gcc-c++ gcc-gfortran)"
        )
        return 1

    if arguments.print:
        print(text_of(externals), end="")
        return 0
    path = arguments.output
    if path.exists() and not path.read_text().startswith(MARK):
        say(f"{path} was written by hand and is left alone; move it away and try again")
        return 1
    text = text_of(externals)
    lock = path.with_name("spack.lock")
    if lock.exists() and (not path.exists() or path.read_text() != text):
        lock.unlink()
        say(
            f"removed {lock}: it was made for other externals; the next `spack install` makes it anew"
        )
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(text)
    temporary.replace(path)
    say("wrote", path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
