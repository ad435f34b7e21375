"""What the MPI of an environment can do: its fabric, Lustre, Slurm. Read by ci/check_stack.py.

Only Open MPI lists its parts and tells which of them it uses. Of every MPI these can be asked: what its ROMIO was
built with, and what Slurm offers to it.
"""

import glob
import os
import re
import shutil
from pathlib import Path

import find_externals as found
import stack_facts as facts

# Devices of fabrics below /sys/class, and what Open MPI must then use: not TCP, for all its other parts.
DEVICES = ("infiniband", "cxi", "hfi1")
FAST = ("ucx", "ofi", "psm2", "openib", "usnic")
# What Open MPI speaks to Slurm with, and Slurm's names of the same.
PMI = {"ext3x": "pmix", "pmix3x": "pmix", "s2": "pmi2", "s1": "none"}


class Failed(Exception):
    """A check failed: says what is wrong, then what to do."""


class Skipped(Exception):
    """A check does not apply, or was not to be run."""


def _ompi_info(stack, regex, *options):
    """What an Open MPI tells of itself; nothing if it is another MPI."""
    told = found.output(stack.mpi_bin / "ompi_info", "--parsable", *options)
    return re.findall(regex, told, re.MULTILINE)


def lustre(stack):
    """Whether MPI-IO knows Lustre: without it stripes that a hint asks for are not made."""
    if not stack.has("ior", "lustre"):
        raise Skipped("~lustre")
    if stack.mpi["name"] == "cray-mpich":
        return "Cray MPICH knows Lustre"
    # ROMIO's functions have names.
    folders = _ompi_info(stack, r"^path:pkglibdir:(.*)$", "--path", "pkglibdir")
    patterns = [f"{folder}/mca_io_romio*.so" for folder in folders]
    patterns += [
        f"{stack.mpi_bin.parent}/{lib}/libmpi*.so" for lib in ("lib64", "lib", "lib/*")
    ]
    libraries = [Path(path) for pattern in patterns for path in glob.glob(pattern)]
    knows = ["OMPIO"] if _ompi_info(stack, r"^mca:fs:lustre:version") else []
    knows += (
        ["ROMIO"]
        if any(b"ADIOI_LUSTRE_" in one.read_bytes() for one in libraries)
        else []
    )
    return " and ".join(knows) or (
        "neither OMPIO nor ROMIO of this MPI knows Lustre: hints set no stripes;"
        " lfs setstripe and the layouts of this suite do"
    )


def devices(root="/sys/class"):
    """The fabric's devices of this node: class and name."""
    paths = [path for kind in DEVICES for path in sorted(glob.glob(f"{root}/{kind}/*"))]
    return [os.path.relpath(path, root) for path in paths]


def fabric_in(text):
    """What Open MPI says, with its verbose settings on, that two tasks talk by."""
    layer = r"select: component (\w+) selected|Selected component \[(\w+)\]"
    names = [name for pair in re.findall(layer, text) for name in pair if name]
    if "ob1" in names:
        names += re.findall(r"init of component (\w+) returned success", text)
    return list(dict.fromkeys(names))


def fabric(stack, here=None):
    """What two tasks talk by; where the node has a fabric, not by TCP."""
    here = devices() if here is None else here
    if stack.mpi["name"] != "openmpi":
        raise Skipped(f"{stack.mpi['name']} does not tell what it talks by")
    status, text, _ = stack.ior(
        *(f"OMPI_MCA_{one}_base_verbose" for one in ("pml", "mtl", "btl"))
    )
    by = fabric_in(text)
    if status or not by:
        raise Skipped(
            "the MPI does not tell it; the check of the run says whether tasks start"
        )
    if here and not set(by) & set(FAST):
        raise Failed(
            f"two tasks talk by {', '.join(by)}, but this node has {', '.join(here)}:"
            " no task would use it; load an MPI with UCX or OFI, or correct its settings (OMPI_MCA_pml, OMPI_MCA_btl)"
        )
    return f"two tasks talk by {', '.join(by)}; " + (
        ", ".join(here) or "no fabric on this node"
    )


def slurm(stack):
    """What srun can start tasks of this MPI with."""
    if not stack.may_run:
        raise Skipped("--no-run")
    if shutil.which("srun") is None:
        raise Skipped("no srun on PATH")
    told = found.output("srun", "--mpi=list")
    offered = set(re.findall(r"\b(pmix\w*|pmi2|none|cray_shasta)\b", told))
    if not offered:
        raise Skipped("no Slurm answers here")
    if stack.mpi["name"] != "openmpi":
        return f"srun offers {', '.join(sorted(offered))}"
    speaks = {
        PMI[one] for one in _ompi_info(stack, r"^mca:pmix:(\w+):version") if one in PMI
    }
    if int(facts.version_of(stack.mpi).split(".")[0]) >= 5:
        speaks = {"pmix"}
    common = sorted(one for one in offered if one.split("_v")[0] in speaks)
    if common:
        return f"srun --mpi={common[0]}"
    told = f"srun offers {', '.join(sorted(offered))}, this Open MPI speaks {', '.join(sorted(speaks)) or 'none of them'}"
    if stack.launcher_words[:1] == ["srun"]:
        raise Failed(
            f"{told}; start tasks with mpirun, or build the MPI with Slurm's PMI (+pmi)"
        )
    return f"{told}: mpirun starts the tasks"
