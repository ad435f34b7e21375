"""An environment of Spack whose programs are small scripts that say what the real ones say."""

import hashlib
import json
import sys

from support import compiler
from support.project import ROOT
from support.shell import completed, script

CHECK = ROOT / "ci/check_stack.py"

#: An MPI's library that says of itself what a real one says, and the compiler wrapper that links with it.
LIBRARY = """#include <string.h>
int MPI_Get_library_version(char *text, int *length) { strcpy(text, "%s"); *length = strlen(text); return 0; }
"""


def spec(name, version, needs=(), prefix=None, **parameters):
    made = {
        "name": name,
        "version": version,
        "namespace": "iogauge" if prefix is None else "builtin",
        "arch": {"platform": "linux", "platform_os": "debian12", "target": "x86_64_v3"},
        "parameters": {"build_system": "x", "cflags": [], **parameters},
        "package_hash": f"recipe-of-{name}",
        "hash": hashlib.sha1(f"{name}{version}".encode()).hexdigest()[:32],
        "dependencies": [
            {
                "hash": need["hash"],
                "parameters": {"deptypes": kinds.split(), "virtuals": virtuals},
            }
            for need, kinds, virtuals in needs
        ],
    }
    if prefix:
        made["external"] = {"path": str(prefix), "module": None}
    return made


def mpi(prefix, says):
    """An MPI at a prefix: its library and its mpicc. Skips the test where nothing can compile it."""
    compiler.demand()
    library = prefix / "lib/libmpi.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-shared", "-fPIC", "-xc", "-", "-o", str(library)]
    completed(command, input=LIBRARY % says, check=True)
    script(prefix / "bin/mpicc", f"#!/bin/sh\necho gcc -L{library.parent} -lmpi\n")


def lock_of(mpi_prefix, mpi_version="4.1.4", **ior):
    gcc = spec("gcc", "12.2.0", prefix="/usr")
    mpi = spec("openmpi", mpi_version, prefix=mpi_prefix)
    build = [(gcc, "build", ["c"]), (mpi, "build link", ["mpi"])]
    tools = [
        spec(
            "ior",
            "4.0.0",
            build,
            **{"lustre": False, "aio": False, "hdf5": False, **ior},
        ),
        spec("fio", "3.42", libaio=True, io_uring=True),
        spec("darshan-runtime", "3.5.0", build, mpi=True, lustre=False, hdf5=False),
        spec("darshan-util", "3.5.0"),
    ]
    stack = spec(
        "iogauge-stack", "2026.1", [(t, "run", []) for t in (*tools, mpi)], lustre=False
    )
    return {
        "spack": {"version": "1.2.0"},
        "roots": [{"hash": stack["hash"], "spec": "iogauge-stack"}],
        "concrete_specs": {s["hash"]: s for s in (gcc, mpi, *tools, stack)},
    }


def environment(tmp_path, mpi_told="Open MPI v4.1.4", **lock):
    prefix = tmp_path / "openmpi"
    mpi(prefix, mpi_told)
    folder = tmp_path / "environments/here"
    solved = lock_of(prefix, **lock)
    hashes = {made["name"]: made["hash"] for made in solved["concrete_specs"].values()}
    files = {
        "bin/ior": ("ior", "#!/bin/sh\n"),
        "bin/mdtest": ("ior", "#!/bin/sh\n"),
        "bin/fio": ("fio", "#!/bin/sh\n"),
        "bin/darshan-parser": ("darshan-util", "#!/bin/sh\n"),
        "lib/libdarshan.so": ("darshan-runtime", "\x7fELF MPI_File_open"),
    }
    for file, (package, text) in files.items():
        installed = script(tmp_path / f"opt/{package}-{hashes[package]}" / file, text)
        link = folder / ".spack-env/view" / file
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(installed)
    (folder / "spack.lock").write_text(json.dumps(solved))
    include = "../scope, {path: made-by-ci-find_externals.py}"
    (folder / "spack.yaml").write_text(f"spack: {{include: [{include}]}}\n")
    return folder


def check(folder, *arguments):
    """Exit status and output of ci/check_stack.py."""
    done = completed([sys.executable, CHECK, folder, *arguments])
    return done.returncode, done.stdout + done.stderr
