from spack_repo.builtin.build_systems.bundle import BundlePackage

from spack.package import *


class IogaugeStack(BundlePackage):
    """The benchmarks that every site installs, in the versions that belong together.

    A version of the stack is a statement about all sites: two that install the same version and
    variants measure with the same programs. A change of a pin is a new version.
    """

    # 2026.2: IOR with upstream's corrections of MPI-IO's byte counts and of asynchronous I/O.
    version("2026.2")
    version("2026.1", deprecated=True)

    variant("lustre", default=False, description="Striping in IOR, and Darshan's Lustre module")
    variant("hdf5", default=False, description="HDF5 back end of IOR, and Darshan's module")
    variant("ncmpi", default=False, description="Parallel netCDF back end of IOR, and Darshan's")
    variant("aio", default=True, description="Linux's asynchronous I/O in IOR and fio")
    variant("io500", default=True, description="The IO500 benchmark")
    variant("darshan", default=True, description="Darshan: what a program reads and writes")

    # For a cause behind a slow file system: of builtin as they are.
    variant("iperf3", default=False, description="iperf3: the network between two nodes")
    variant("osu", default=False, description="OSU micro-benchmarks: MPI's latency and bandwidth")

    # Type run: the view of an environment holds what runs, and what that needs.
    depends_on("mpi", type="run")

    with when("@2026.1:2026.2"):
        depends_on("ior@4.0.0", type="run")
        depends_on("fio@3.42+io_uring~libnuma~http~gui~doc", type="run")
        depends_on("io500@sc25_v1", type="run", when="+io500")
        depends_on("darshan-runtime@3.5.0+mpi", type="run", when="+darshan")
        depends_on("darshan-util@3.5.0", type="run", when="+darshan")

    with when("@2026.2"):
        depends_on("iperf3@3.17.1", type="run", when="+iperf3")
        depends_on("osu-micro-benchmarks@7.5.2", type="run", when="+osu")

    for switch in ("lustre", "hdf5", "ncmpi", "aio"):
        depends_on(f"ior+{switch}", type="run", when=f"+{switch}")
        depends_on(f"ior~{switch}", type="run", when=f"~{switch}")
    depends_on("fio+libaio", type="run", when="+aio")
    depends_on("fio~libaio", type="run", when="~aio")
    with when("+darshan"):
        for ours, theirs in (("lustre",) * 2, ("hdf5",) * 2, ("ncmpi", "parallel-netcdf")):
            depends_on(f"darshan-runtime+{theirs}", type="run", when=f"+{ours}")
            depends_on(f"darshan-runtime~{theirs}", type="run", when=f"~{ours}")
    depends_on("lustre", type="run", when="+lustre")
