"""The MPI of an environment against what the site says of it: on small scripts that say what the real ones say."""

import json
import os
import re

import pytest

from support.made_stack import check, script

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


def with_spec(folder, **parameters):
    lock = json.loads((folder / "spack.lock").read_text())
    (found,) = [s for s in lock["concrete_specs"].values() if s["name"] == "openmpi"]
    found["parameters"].update(parameters)
    (folder / "spack.lock").write_text(json.dumps(lock))
    return folder


def line(text, name):
    return re.search(rf"^check_stack: (..)  {name} +(.*)$", text, re.MULTILINE).groups()


def test_an_open_mpi_is_written_down_with_its_parts(externals, tmp_path):
    prefix = open_mpi(tmp_path, ["pml:ucx", "btl:openib", "ras:slurm"], b"ADIOI_LUSTRE_Open")
    told = externals.options_of_openmpi(str(prefix))
    assert told == " fabrics=ucx,verbs schedulers=slurm ~lustre romio-filesystem=lustre"
    assert externals.options_of_openmpi(str(tmp_path)) == ""


def test_an_open_mpi_that_spack_builds_has_its_parts_written_out(externals):
    plain = externals.text_of([externals.External("gcc", "12.2.0", "/usr")])
    assert 'require: "@4.1 fabrics=ucx +romio schedulers=none ~lustre' in plain
    found = [externals.External(name, "1", "/usr") for name in ("slurm", "lustre")]
    text = externals.text_of(found)
    assert "schedulers=slurm +pmi +legacylaunchers" in text
    assert "+lustre romio-filesystem=lustre" in text
    assert "require: openmpi" not in externals.text_of([externals.External("mpich", "4", "/usr")])


def test_romio_without_lustre_is_named_before_the_build(environment, tmp_path):
    folder = with_spec(environment(), **{"romio-filesystem": ["lustre", "ufs"]})
    open_mpi(tmp_path, ["pml:ob1"])
    status, failed, _ = check(folder, "--before")
    assert status == 1
    assert "romio-filesystem=lustre (no romio:lustre)" in failed["MPI's parts"]
    open_mpi(tmp_path, ["pml:ob1"], b"ADIOI_LUSTRE_WriteStrided")
    assert check(folder, "--before")[0] == 0


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
    with pytest.raises(Exception, match=r"talk by ob1, tcp, but this node has infiniband/mlx5_0"):
        check_mpi.fabric(stack, here)
    assert "no fabric on this node" in check_mpi.fabric(stack, [])
    ior.write_text(ior.read_text() + IOR.format(said="select: component ucx selected\n"))
    assert "infiniband/mlx5_0" in check_mpi.fabric(stack, here)


def test_a_launcher_without_the_mpis_pmi_is_wrong(
    environment, tmp_path, check_stack, check_mpi, monkeypatch
):
    folder = environment()
    open_mpi(tmp_path, ["pmix:ext3x", "pmix:s1"])
    monkeypatch.setenv("PATH", f"{tmp_path}/slurm:{os.environ['PATH']}")
    script(
        tmp_path / "slurm/srun", "#!/bin/sh\necho MPI plugin types are...\necho cray_shasta pmi2\n"
    )
    assert "mpirun starts the tasks" in check_mpi.slurm(check_stack.Stack(folder))
    with pytest.raises(
        Exception, match=r"srun offers cray_shasta, pmi2, this Open MPI speaks none, pmix;"
    ):
        check_mpi.slurm(check_stack.Stack(folder, "srun -n"))
    script(tmp_path / "slurm/srun", "#!/bin/sh\necho none pmix pmix_v4\n")
    assert check_mpi.slurm(check_stack.Stack(folder, "srun -n")) == "srun --mpi=none"


def test_a_missing_compiler_is_named_before_the_solve(environment, tmp_path):
    folder = environment()
    (folder / "spack.lock").unlink()
    script(tmp_path / "gcc", "#!/bin/sh\necho 12.2.0\n")
    packages = (
        f"packages:\n  gcc:\n    externals:\n    - spec: gcc@12.2.0\n      prefix: {tmp_path}\n"
        "      extra_attributes:\n        compilers:\n"
        f"          c: {tmp_path}/gcc\n          cxx: /nowhere/g++\n"
    )
    (folder / "packages.yaml").write_text(packages)
    status, failed, _ = check(folder, "--before")
    assert status == 1
    assert "its cxx compiler /nowhere/g++ does not exist" in failed["externals"]
    (folder / "packages.yaml").write_text(packages.replace("/nowhere/g++", f"{tmp_path}/gcc"))
    assert check(folder, "--before")[0] == 0
