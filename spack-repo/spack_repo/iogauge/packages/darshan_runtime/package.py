from spack_repo.builtin.packages.darshan_runtime.package import (
    DarshanRuntime as BuiltinDarshanRuntime,
)

from spack.package import *


class DarshanRuntime(BuiltinDarshanRuntime):
    """Darshan (runtime): records what a program reads and writes, and how.

    Why this overlay of builtin exists; it can go when builtin has the same:

    * ``+mpi`` is a build with MPI. builtin leaves CC to the compiler; where the MPI is an
      external whose mpi.h is not in <prefix>/include (every distribution's), configure says
      "checking for mpi.h... no", goes on, and builds a library that writes no log at all for an
      MPI program. Here the MPI's own compiler is used, and the installation is checked.
    * Every module with a variant is switched on or off explicitly, and HDF5 and parallel netCDF
      are those of the spec, not the first whose tools are on PATH.
    """

    # The module in darshan-config's output, the variant that asks for it, and configure's switch.
    _modules = (
        ("mpiio", "mpi", None),
        ("lustre", "lustre", "lustre-mod"),
        ("hdf5", "hdf5", "hdf5-mod"),
        ("pnetcdf", "parallel-netcdf", "pnetcdf-mod"),
    )

    def configure_args(self):
        args = super().configure_args()
        if self.spec.satisfies("+mpi"):
            args += ["--with-mpi", f"CC={self.spec['mpi'].mpicc}"]
        for variant, package, option in (
            ("hdf5", "hdf5", "hdf5"),
            ("parallel-netcdf", "parallel-netcdf", "pnetcdf"),
        ):
            if self.spec.satisfies(f"@3.4: +{variant}"):
                args.append(f"--with-{option}={self.spec[package].prefix}")
        given = " ".join(args)
        for _, variant, switch in self._modules:
            if switch and switch not in given and not self.spec.satisfies(f"+{variant}"):
                args.append(f"--disable-{switch}")
        return args

    @run_after("install")
    def has_its_modules(self):
        """A build without what was asked for fails here, and not in silence in a job."""
        if not self.spec.satisfies("@3.4:"):
            return
        config = Executable(self.prefix.bin.join("darshan-config"))
        for module, variant, _ in self._modules:
            is_on = "yes" in config(f"--{module}-mod", output=str)
            if is_on != self.spec.satisfies(f"+{variant}"):
                raise InstallError(
                    f"darshan-runtime: the {module} module is {'on' if is_on else 'off'}, "
                    f"which is not what {self.spec.format('{variants}')} asks for"
                )
