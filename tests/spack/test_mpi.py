"""The MPI of an environment against what the site says of it: on small scripts that say what the real ones say."""

import os

import pytest
import yaml

from support import made_stack
from support.shell import script

NO_FABRIC = """\
[vm:1] select: initializing pml component ucx
[vm:1] select: init returned failure for component ucx
[vm:1] selected ob1 best priority 20
[vm:1] select: component ob1 selected
[vm:1] select: init of component openib returned failure
[vm:1] select: init of component tcp returned success
"""
#: What tasks print in `verbose` and the parts that ompi_info lists.
IOR = "cat <<'END' >&2\n{said}END\n"


def open_mpi(tmp_path, parts, romio=b""):
    """An ompi_info beside the environment's mpirun, and a ROMIO in its library folder."""
    folder = tmp_path / "openmpi/lib/openmpi"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mca_io_romio321.so").write_bytes(b"\x7fELF" + romio)
    lines = "".join(f"echo mca:{part}:version:mca:2.1.0\n" for part in parts)
    script(
        tmp_path / "openmpi/bin/ompi_info",
        f"#!/bin/sh\ncase $* in *--path*) echo path:pkglibdir:{folder} ;; *) :\n{lines};; esac\n",
    )
    return tmp_path / "openmpi"


@pytest.mark.parametrize(
    ("says", "found"),
    [
        ("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4", "openmpi@4.1.4"),
        ("MPICH Version:\\t4.0.2\\nMPICH Release date:", "mpich@4.0.2"),
        (
            "Intel(R) MPI Library 2021.18.1 for Linux* OS",
            "intel-oneapi-mpi@2021.18.1 +generic-names",
        ),
        (
            "MPI VERSION    : CRAY MPICH version 8.1.29.26 (ANL base 3.4a2)",
            "cray-mpich@8.1.29",
        ),
        ("MVAPICH2 Version      :\\t2.3.7\\nMVAPICH2 Release", "mvapich2@2.3.7"),
        ("MVAPICH Version       :\\t3.0\\nMVAPICH Release", "mvapich@3.0"),
    ],
)
def test_an_mpi_is_known_by_what_its_library_says(
    externals, tmp_path, monkeypatch, says, found
):
    made_stack.mpi(tmp_path / "mpi", says)
    monkeypatch.setenv("MPICC", f"{tmp_path}/mpi/bin/mpicc")
    monkeypatch.setenv("LOADEDMODULES", "gcc/12:an-mpi/1")
    name, external = externals.find_mpi()
    assert external == {
        "spec": found,
        "prefix": f"{tmp_path}/mpi",
        "modules": ["gcc/12", "an-mpi/1"],
    }
    assert name == found.partition("@")[0]


@pytest.mark.parametrize(
    "says", ["ParaStation MPI 5.4.10-1\\nMPICH Version: 3.3.2", "HPE MPT 2.25", ""]
)
def test_an_mpi_that_is_not_known_is_refused_with_the_text_to_write(
    externals, tmp_path, monkeypatch, says
):
    """As another MPI of the same ABI it would be built, and every record would name the wrong one."""
    made_stack.mpi(tmp_path / "mpi", says)
    monkeypatch.setenv("MPICC", f"{tmp_path}/mpi/bin/mpicc")
    monkeypatch.setenv("LOADEDMODULES", "theirs/1")
    with pytest.raises(externals.Unknown) as refused:
        externals.find_mpi()
    written = yaml.safe_load(str(refused.value).split("run this again:\n")[1])
    assert written["NAME"]["externals"][0] == {
        "spec": "NAME@VERSION",
        "prefix": f"{tmp_path}/mpi",
        "modules": ["theirs/1"],
    }


def test_intels_prefix_is_that_of_all_its_programs(
    externals, tmp_path, monkeypatch, facts
):
    made_stack.mpi(
        tmp_path / "oneapi/mpi/2021.13", "Intel(R) MPI Library 2021.13 for Linux* OS"
    )
    monkeypatch.setenv("MPICC", f"{tmp_path}/oneapi/mpi/2021.13/bin/mpicc")
    _, external = externals.find_mpi()
    assert external["prefix"] == f"{tmp_path}/oneapi"
    lock = made_stack.spec("intel-oneapi-mpi", "2021.13", prefix=external["prefix"])
    assert facts.mpi_bin(tmp_path, lock) == tmp_path / "oneapi/mpi/2021.13/bin"


@pytest.mark.parametrize(
    ("parts", "romio", "told"),
    [
        (["fs:lustre"], b"", "OMPIO"),
        (["fs:ufs"], b"ADIOI_LUSTRE_Open", "ROMIO"),
        (["fs:ufs"], b"", "neither OMPIO nor ROMIO of this MPI knows Lustre"),
    ],
)
def test_what_of_mpi_io_knows_lustre_is_said(
    environment, tmp_path, check_stack, check_mpi, parts, romio, told
):
    folder = environment(lustre=True)
    open_mpi(tmp_path, parts, romio)
    assert check_mpi.lustre(check_stack.Stack(folder)).startswith(told)


@pytest.mark.parametrize(
    ("said", "by"),
    [
        (NO_FABRIC, ["ob1", "tcp"]),
        ("[n1:7] select: component ucx selected\n", ["ucx"]),
        (
            "select: component cm selected\nmca:base:select:(mtl) Selected component [ofi]\n",
            ["cm", "ofi"],
        ),
        ("an MPI that says nothing\n", []),
    ],
)
def test_what_tasks_talk_by(check_mpi, said, by):
    assert check_mpi.fabric_in(said) == by


def test_tcp_beside_a_fabric_is_wrong(environment, tmp_path, check_stack, check_mpi):
    """Two tasks that a node's InfiniBand does not carry would measure another network."""
    folder = environment()
    open_mpi(tmp_path, ["pml:ob1"])
    ior = folder / ".spack-env/view/bin/ior"
    ior.write_text(ior.read_text() + IOR.format(said=NO_FABRIC))
    stack = check_stack.Stack(folder)
    (tmp_path / "class/infiniband/mlx5_0").mkdir(parents=True)
    here = check_mpi.devices(str(tmp_path / "class"))
    assert here == ["infiniband/mlx5_0"]
    with pytest.raises(
        Exception, match=r"talk by ob1, tcp, but this node has infiniband/mlx5_0"
    ):
        check_mpi.fabric(stack, here)
    assert "no fabric on this node" in check_mpi.fabric(stack, [])
    ior.write_text(
        ior.read_text() + IOR.format(said="select: component ucx selected\n")
    )
    assert "infiniband/mlx5_0" in check_mpi.fabric(stack, here)


def test_a_launcher_without_the_mpis_pmi_is_wrong(
    environment, tmp_path, check_stack, check_mpi, monkeypatch
):
    folder = environment()
    open_mpi(tmp_path, ["pmix:ext3x", "pmix:s1"])
    monkeypatch.setenv("PATH", f"{tmp_path}/slurm:{os.environ['PATH']}")
    script(
        tmp_path / "slurm/srun",
        "#!/bin/sh\necho MPI plugin types are...\necho cray_shasta pmi2\n",
    )
    assert "mpirun starts the tasks" in check_mpi.slurm(check_stack.Stack(folder))
    with pytest.raises(
        Exception,
        match=r"srun offers cray_shasta, pmi2, this Open MPI speaks none, pmix;",
    ):
        check_mpi.slurm(check_stack.Stack(folder, "srun -n"))
    script(tmp_path / "slurm/srun", "#!/bin/sh\necho none pmix pmix_v4\n")
    assert check_mpi.slurm(check_stack.Stack(folder, "srun -n")) == "srun --mpi=none"
