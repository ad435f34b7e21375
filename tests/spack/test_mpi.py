"""The MPI of an environment: what its library says of itself decides how it is written down."""

import pytest
import yaml

from support import made_stack


@pytest.mark.parametrize(
    "says, found",
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


def known(name, prefix):
    return {name: {"externals": [{"spec": f"{name}@1.0", "prefix": str(prefix)}]}}


@pytest.mark.parametrize(
    "scopes, loaded, written",
    [
        ({}, "mpich", {"mpi", "mpich"}),
        ("openmpi elsewhere", "mpich", {"mpi", "mpich"}),
        ("mpich here", "mpich", {"mpi"}),
        ("openmpi elsewhere", "", {"mpi"}),
        ({"mpi": {"require": "openmpi"}}, "mpich", set()),
    ],
)
def test_the_mpi_that_is_loaded_counts_also_where_a_scope_names_another(
    externals, tmp_path, monkeypatch, capsys, scopes, loaded, written
):
    monkeypatch.setenv("MPICC", f"{tmp_path}/mpi/bin/mpicc")
    if loaded:
        made_stack.mpi(tmp_path / "mpi", "MPICH Version: 4.0.2")
    if scopes == "openmpi elsewhere":
        scopes = known("openmpi", "/opt/elsewhere")
    elif scopes == "mpich here":
        scopes = known("mpich", tmp_path / "mpi")
    chosen = externals.choose_mpi(scopes, {"mpich", "openmpi"})
    assert chosen.keys() == written
    if "mpich" in written:
        assert chosen["mpi"] == {"buildable": False, "require": "mpich"}
    said = "not openmpi@1.0 at /opt/elsewhere" in capsys.readouterr().out
    assert said == ("openmpi" in scopes and bool(loaded))


def test_without_an_mpi_nothing_is_written(externals, tmp_path, monkeypatch):
    monkeypatch.setenv("MPICC", f"{tmp_path}/nowhere/mpicc")
    monkeypatch.setattr(externals, "packages_of", lambda _: ({}, {"mpich", "openmpi"}))
    (tmp_path / "spack.yaml").write_text(f"include: [{externals.FOUND}]\n")
    monkeypatch.setattr("sys.argv", ["find_externals", str(tmp_path)])
    assert "no mpicc on PATH" in externals.main()
    assert not (tmp_path / externals.FOUND).exists()


def test_an_environment_that_names_its_externals_is_left_alone(
    externals, tmp_path, monkeypatch
):
    (tmp_path / "spack.yaml").write_text("include: [../os/el9.yaml]\n")
    monkeypatch.setattr("sys.argv", ["find_externals", str(tmp_path)])
    assert "names its externals itself" in externals.main()
