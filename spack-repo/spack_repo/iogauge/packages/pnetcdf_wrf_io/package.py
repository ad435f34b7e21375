import os

from spack_repo.builtin.build_systems.autotools import AutotoolsPackage

from spack.package import *


class PnetcdfWrfIo(AutotoolsPackage):
    """WRF-IO: writes and reads a file like the output of the weather model WRF, collectively.

    It comes with the sources of PnetCDF, which install the library alone. That library is linked
    statically: an older one, which a machine may have as an external, cannot read the header.
    """

    homepage = "https://parallel-netcdf.github.io"
    url = "https://parallel-netcdf.github.io/Release/pnetcdf-1.14.1.tar.gz"

    license("NetCDF")

    version("1.14.1", sha256="6f0f7221006c211fce9ddd2c008796b8c69dd717b2ad1be0b4027fc328fd3220")

    depends_on("c", type="build")
    depends_on("m4", type="build")
    depends_on("gmake", type="build")
    depends_on("mpi")

    def configure_args(self):
        off = ("shared", "cxx", "fortran")
        return [f"MPICC={self.spec['mpi'].mpicc}", *(f"--disable-{part}" for part in off)]

    def build(self, spec, prefix):
        make("-C", "src")
        make("-C", "benchmarks/WRF-IO", "wrf_io")

    def install(self, spec, prefix):
        header = prefix.share.join("wrf-io")
        mkdirp(prefix.bin, header)
        install("benchmarks/WRF-IO/wrf_io", prefix.bin)
        install("benchmarks/WRF-IO/wrf_header.txt", header)

    def test_write(self):
        """write one record of a small grid, and say how long it took"""
        env["OMPI_ALLOW_RUN_AS_ROOT"] = env["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
        path = join_path(os.getcwd(), "wrfout.nc")
        header = self.prefix.share.join("wrf-io/wrf_header.txt")
        wrf_io = Executable(self.prefix.bin.wrf_io)
        out = wrf_io("-y", "64", "-x", "64", "-i", header, "-w", path, output=str.split)
        assert os.path.getsize(path) > 1 << 20, out
