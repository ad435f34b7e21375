"""Whether the MPI of an environment is what the site says, and what it can do: fabric, Lustre, Slurm. Read by ci/check_stack.py.

Only Open MPI lists its parts and tells which of them it uses. Of every MPI these can be asked: its version, what its
ROMIO was built with, and what Slurm offers to it.
"""

import glob
import os
import re
import shlex
import shutil
import tempfile

import find_externals as found
import stack_facts as facts
from check_externals import Failed, Skipped, run

# Devices of fabrics below /sys/class, and what Open MPI must then use: not TCP, for all its other parts.
DEVICES = ("infiniband", "cxi", "hfi1")
FAST = ("ucx", "ofi", "psm2", "openib", "usnic")
# What Open MPI speaks to Slurm with, and Slurm's names of the same.
PMI = {"ext3x": "pmix", "pmix3x": "pmix", "s2": "pmi2", "s1": "none"}


def version(stack):
    """The MPI that is declared is the one at its prefix."""
    mpi = stack.mpi
    if mpi is None:
        raise Failed("the lock file has no MPI; this is not an environment of this repository")
    if not facts.is_external(mpi):
        return f"{mpi['name']}@{facts.version_of(mpi)}, built by Spack"
    prefix, declared = facts.external_prefix(mpi), facts.version_of(mpi)
    mpicc = str(facts.mpi_bin(mpi) / "mpicc")
    told = found.library_version(mpicc)
    if not told:
        return f"{mpi['name']}@{declared} at {prefix}; its library cannot be asked"
    name = next((name for name, regex in found.MPIS if re.search(regex, told)), "")
    if not name:
        return f"{mpi['name']}@{declared} at {prefix} says: {told.strip()[:80]}"
    is_version = found.version_in(told, dict(found.MPIS)[name])
    # HPC-X is an Open MPI of another number, and Spack has two names for MVAPICH.
    kin = {name, mpi["name"]} in ({"openmpi", "hpcx-mpi"}, {"mvapich", "mvapich-plus"})
    if not kin and (name != mpi["name"] or not f"{is_version}.".startswith(f"{declared}.")):
        raise Failed(
            f"the library of {mpicc} is {name} {is_version}, but {mpi['name']} {declared} is declared;"
            " correct the external's spec or prefix, then install again"
        )
    return f"{mpi['name']}@{declared} at {prefix}"


def _parts(stack):
    """The components of an Open MPI."""
    prefix = stack.prefix_of(stack.mpi)
    return found.parts_of(prefix) if prefix and stack.mpi["name"] == "openmpi" else set()


def lustre(stack):
    """Whether MPI-IO knows Lustre: without it stripes that a hint asks for are not made."""
    if not stack.has("ior", "lustre"):
        raise Skipped("~lustre")
    prefix = stack.prefix_of(stack.mpi)
    if stack.mpi["name"] == "cray-mpich":
        return "Cray MPICH knows Lustre"
    knows = [name for name, part in (("OMPIO", "fs:lustre"),) if part in _parts(stack)]
    knows += ["ROMIO"] if prefix and found.romio_knows_lustre(prefix) else []
    if not knows:
        return (
            "neither OMPIO nor ROMIO of this MPI knows Lustre: hints set no stripes;"
            " lfs setstripe and the layouts of this suite do"
        )
    return " and ".join(knows)


def devices(root="/sys/class"):
    """The fabric's devices of this node: class and name."""
    return [
        f"{kind}/{os.path.basename(path)}"
        for kind in DEVICES
        for path in sorted(glob.glob(os.path.join(root, kind, "*")))
    ]


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
    verbose = {f"OMPI_MCA_{name}_base_verbose": "10" for name in ("pml", "mtl", "btl")}
    with tempfile.TemporaryDirectory(prefix="iogauge-check-") as directory:
        command = [stack.program("ior"), *shlex.split("-a POSIX -F -w -t 64k -b 64k -o data")]
        status, text = stack.start(command, directory, verbose)
    by = fabric_in(text)
    if status or not by:
        raise Skipped("the MPI does not tell it; the check of the run says whether tasks start")
    if here and not set(by) & set(FAST):
        raise Failed(
            f"two tasks talk by {', '.join(by)}, but this node has {', '.join(here)}:"
            " no task would use it; load an MPI with UCX or OFI, or correct its settings (OMPI_MCA_pml, OMPI_MCA_btl)"
        )
    return f"two tasks talk by {', '.join(by)}; " + (", ".join(here) or "no fabric on this node")


def slurm(stack):
    """What srun can start tasks of this MPI with."""
    if not stack.may_run:
        raise Skipped("--no-run")
    if shutil.which("srun") is None:
        raise Skipped("no srun on PATH")
    status, text = run(["srun", "--mpi=list"])
    if status:
        raise Skipped("no Slurm answers here")
    offered = set(re.findall(r"\b(pmix\w*|pmi2|none|cray_shasta)\b", text))
    if stack.mpi["name"] != "openmpi":
        return f"srun offers {', '.join(sorted(offered))}"
    speaks = {
        PMI[name[5:]] for name in _parts(stack) if name.startswith("pmix:") and name[5:] in PMI
    }
    if int(facts.version_of(stack.mpi).split(".")[0]) >= 5:
        speaks = {"pmix"}
    common = sorted(one for one in offered if one.split("_v")[0] in speaks)
    if common:
        return f"srun --mpi={common[0]}"
    told = f"srun offers {', '.join(sorted(offered))}, this Open MPI speaks {', '.join(sorted(speaks)) or 'none of them'}"
    if (stack.launcher_words or [""])[0] == "srun":
        raise Failed(f"{told}; start tasks with mpirun, or build the MPI with Slurm's PMI (+pmi)")
    return f"{told}: mpirun starts the tasks"


CHECKS = (
    ("mpi", version),
    ("MPI-IO, Lustre", lustre),
    ("MPI's fabric", fabric),
    ("Slurm's PMI", slurm),
)
