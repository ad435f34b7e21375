"""The image's entrance, on an installed stack that is made for the test; no container is needed for it."""

import os
import re
import shutil

import pytest

from support import compiler
from support.project import ROOT
from support.shell import completed, script


@pytest.fixture
def image(tmp_path):
    """The tree of an image: its entrance, and a stack whose ior is a real program of libmpi.so.40."""
    compiler.demand()
    view = tmp_path / "image/environments/local/.spack-env/view/bin"
    view.mkdir(parents=True)
    (tmp_path / "image/containers").mkdir()
    shutil.copy(ROOT / "containers/enter.sh", tmp_path / "image/containers")
    (view.parents[1] / "activate.sh").write_text(f'export PATH="{view}:$PATH"\n')
    (tmp_path / "ior.c").write_text(
        'int MPI_Init(void); int puts(const char *);\nint main(void) { puts("ran"); return MPI_Init(); }\n'
    )
    (tmp_path / "mpi.c").write_text("int MPI_Init(void) { return 0; }\n")
    for prefix, number in (("usr", 40), ("host", 40), ("other", 12)):
        library = tmp_path / prefix / f"lib/libmpi.so.{number}"
        library.parent.mkdir(parents=True)
        options = ["-shared", "-fPIC", f"-Wl,-soname,libmpi.so.{number}"]
        completed(["gcc", *options, "-o", library, tmp_path / "mpi.c"], check=True)
    of_image = tmp_path / "usr/lib/libmpi.so.40"
    options = ["-Wl,--enable-new-dtags", f"-Wl,-rpath,{of_image.parent}"]
    completed(
        ["gcc", "-o", view / "ior", tmp_path / "ior.c", of_image, *options], check=True
    )
    script(tmp_path / "host/bin/mpirun", "#!/bin/sh\n")

    def enter(*words, **variables):
        return completed(
            [tmp_path / "image/containers/enter.sh", *words],
            env={
                "PATH": os.environ["PATH"],
                **{k: str(v) for k, v in variables.items()},
            },
        )

    return enter


def test_the_stack_runs_with_the_images_mpi(image):
    done = image("ior")
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr


def test_the_hosts_mpi_takes_its_place(image, tmp_path):
    done = image(
        "sh",
        "-c",
        "ior && command -v mpirun && ldd $(command -v ior)",
        IOGAUGE_HOST_MPI=tmp_path / "host",
    )
    assert done.returncode == 0, done.stderr
    assert f"{tmp_path}/host/bin/mpirun" in done.stdout
    assert f"libmpi.so.40 => {tmp_path}/host/lib/libmpi.so.40" in done.stdout


@pytest.mark.parametrize("host", ["other", "nowhere"])
def test_an_mpi_that_would_not_be_used_is_refused(image, tmp_path, host):
    done = image("ior", IOGAUGE_HOST_MPI=tmp_path / host)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"not with the host's MPI at {tmp_path}/{host}" in done.stderr
    assert f"--bind HOST_DIR:{tmp_path}/{host}" in done.stderr


def test_a_container_of_roots_runs_open_mpi(image):
    done = image(
        "sh", "-c", "echo $OMPI_ALLOW_RUN_AS_ROOT$OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"
    )
    assert done.stdout == ("11\n" if os.getuid() == 0 else "\n")


def test_both_images_are_built_alike():
    """In two stages: what builds is not in the image."""
    for name in ("Dockerfile", "stack.def"):
        first, second = re.split(
            r"\n(?=FROM \${BASE}\n|Bootstrap: docker\nFrom: ubuntu:24.04\nStage: run)",
            (ROOT / "containers" / name).read_text(),
        )
        assert "ubuntu:24.04" in first
        assert "/opt/iogauge/containers/install.sh\n" in first
        assert "/opt/stack" in second
        assert "/opt/iogauge/containers/install.sh --run\n" in second
        assert "/opt/iogauge/containers/enter.sh" in second
