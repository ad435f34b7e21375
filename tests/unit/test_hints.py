"""Hints in the words of each MPI."""

import pytest

from iogauge.tools import mpi
from iogauge_extras.suites.hints import MpiHints
from iogauge_extras.suites.hints import environment as of_hints

ALL = MpiHints(stripe_count=8, stripe_bytes=4 << 20, aggregators=6)


#: What a wish is in each dialect.
WISHES = {
    "cray": "MPICH_MPIIO_HINTS=*:striping_factor=8:striping_unit=4194304:cb_nodes=6:romio_cb_write=enable:romio_cb_read=enable",
    "romio": "OMPI_MCA_io=^ompio IOR_HINT__MPI__striping_factor=8 "
    "IOR_HINT__MPI__striping_unit=4194304 IOR_HINT__MPI__cb_nodes=6 "
    "IOR_HINT__MPI__cb_config_list=*:2 IOR_HINT__MPI__romio_cb_write=enable "
    "IOR_HINT__MPI__romio_cb_read=enable",
    "ompio4": "OMPI_MCA_io=ompio OMPI_MCA_fcoll=^individual OMPI_MCA_io_ompio_num_aggregators=6 "
    "IOR_HINT__MPI__stripe_width=8 IOR_HINT__MPI__stripe_size=4194304",
    "ompio5": "OMPI_MCA_io=ompio OMPI_MCA_fcoll=^individual OMPI_MCA_io_ompio_num_aggregators=6 "
    "IOR_HINT__MPI__striping_factor=8 IOR_HINT__MPI__striping_unit=4194304",
}


@pytest.mark.parametrize("dialect", WISHES)
def test_a_wish_in_every_dialect(dialect):
    environment = dict(word.split("=", 1) for word in WISHES[dialect].split())
    assert of_hints(dialect, ALL, nodes=4) == environment


@pytest.mark.parametrize(
    "text, dialect",
    [
        (
            "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/",
            "ompio4",
        ),
        ("mpirun (Open MPI) 5.0.11", "ompio5"),
        ("mpirun (Open MPI) 3.1.4", None),
        (
            "HYDRA build details:\n    Version:                                 4.1.2",
            "romio",
        ),
        ("MPI VERSION    : CRAY MPICH version 8.1.25.17 (ANL base 3.4a2)", "cray"),
        ("/opt/cray/pe/cray-mpich/8.1.25", "cray"),
        ("prterun (PRRTE) 3.0.6", None),
    ],
)
def test_the_dialect_of_an_mpi(text, dialect):
    assert mpi.dialect_of(text) == dialect
