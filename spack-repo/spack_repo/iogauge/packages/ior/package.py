import glob
import json
import os

from spack_repo.builtin.packages.ior.package import Ior as BuiltinIor

from spack.package import *


class Ior(BuiltinIor):
    """IOR, mdtest and md-workbench: parallel benchmarks of file systems and their metadata.

    Why this overlay of builtin exists; it can go when builtin has the same:

    * 4.0.0 is preferred. builtin prefers 3.3.0, which has no JSON summary.
    * Corrections that upstream made after 4.0.0. JSON output is valid with -v too. A read of
      MPI-IO beyond the end of a file fails; 4.0.0 never asks MPI how much it has read, and
      reports the rate of what was asked for. Asynchronous requests no longer share one buffer,
      which wrote wrong data with more than one request in flight.
    * Every optional part has an explicit switch. configure would take GPFS, CUDA, GPUDirect and
      CHFS from the build host, and where it looks for CUDA in vain it leaves the relative run
      path ``check/lib64`` in each program.
    * ``+hdf5`` does not replace the compiler's flags: builtin's CFLAGS drop ``-O2``.
    * All three programs are tested after the installation (``spack test run ior``).
    """

    git = "https://github.com/hpc/ior.git"

    version(
        "4.0.0",
        sha256="cb17f6b0d17fb98dae28abaa116fd3adde411f52d45ff9efb125efc791b97463",
        preferred=True,
    )
    version("3.3.0", sha256="701f2167f81ef963e227d4c036c4a947a98b5642b7c14c87c8ae657849891528")

    with when("@4.0.0"):
        # MPI-IO: the bytes that MPI says it has moved.
        patch(
            "https://github.com/hpc/ior/commit/b98f10f79831cd073b63af4f10866c1c7f40c07c.patch?full_index=1",
            sha256="b9a25b0fd7d1937b09b38c5a2e069b7f159a94ca0c5e3a6b540504097e28d45f",
        )
        patch(
            "https://github.com/hpc/ior/commit/2181d2fddd05efd69a76069ae69fe515f65fa22a.patch?full_index=1",
            sha256="784323e759806e526c217f666b25ea17d8f348bdf1d61db23a10af2f61475d4e",
        )
        # JSON with -v: one array is closed twice.
        patch(
            "https://github.com/hpc/ior/commit/144c5ff49a05de4bfc4c990ca25b1f440e9b7c5e.patch?full_index=1",
            sha256="dedec91e727c7cacc9c0d6653086c96061b4497926b22cd1cefcf54feed51b95",
        )
        # AIO: a buffer for each request in flight.
        patch(
            "https://github.com/hpc/ior/commit/2e52fbea822a69a2aeb38f9e4295a135c9574801.patch?full_index=1",
            sha256="dab8a9aade44234339d2127c24dd66666f930c072a5bd85d05d887984e38c1de",
        )

    # src/config.h says what configure decided: the define of each variant.
    _defines = {
        "aio": "USE_AIO_AIORI",
        "hdf5": "USE_HDF5_AIORI",
        "lustre": "WITH_LUSTRE",
        "ncmpi": "USE_NCMPI_AIORI",
    }

    # Optional parts of IOR 4 without a variant here.
    _never = (
        "cephfs",
        "cuda",
        "daos",
        "gfarm",
        "gpfs",
        "gpuDirect",
        "hdfs",
        "ime",
        "pmdk",
        "rados",
        "S3-4c",
        "S3-libs3",
    )

    @when("@4.0.0")
    def patch(self):
        # CHFS has no switch: it is used wherever pkg-config finds it. Ask for what is nowhere.
        filter_file(
            r"PKG_CHECK_MODULES\(\[CHFS\], \[chfs\],",
            "PKG_CHECK_MODULES([CHFS], [chfs >= 999999],",
            "configure.ac",
        )

    def configure_args(self):
        if not self.spec.satisfies("@4:"):
            return super().configure_args()
        args = [f"CC={self.spec['mpi'].mpicc}", "--with-posix", "--with-mpiio", "--with-mmap"]
        args += [f"--without-{part}" for part in self._never]
        args += ["--disable-caps", "--disable-darshan"]
        for variant in self._defines:
            args += self.with_or_without(variant)
        return args

    @run_after("configure")
    def has_what_was_asked(self):
        """A switch that configure did not follow ends the build."""
        if not self.spec.satisfies("@4.0.0"):
            return
        with open(join_path("src", "config.h")) as file:
            defined = {line.split()[1] for line in file if line.startswith("#define ")}
        for variant, define in self._defines.items():
            if (define in defined) != self.spec.satisfies(f"+{variant}"):
                raise InstallError(f"configure's {define} is not what {variant} asks for")

    @run_after("install")
    def has_all_programs(self):
        programs = ["ior", "mdtest"]
        if self.spec.satisfies("@4:"):
            programs.append("md-workbench")
        for program in programs:
            if not os.access(self.prefix.bin.join(program), os.X_OK):
                raise InstallError(f"bin/{program} was not installed")

    def _run(self, program, *args, **options):
        """Run a program as two tasks of the MPI that it was linked with; return what it prints."""
        if not self.spec.satisfies("@4:"):
            raise SkipTest("versions before 4 have no JSON, and print bytes that are no text")
        if not os.path.exists(self.prefix.bin.join(program)):
            raise SkipTest(f"this version has no {program}")
        # A container's root, and a machine with one core, need Open MPI's leave.
        for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
            env[name] = "1"
        env["OMPI_MCA_rmaps_base_oversubscribe"] = "1"
        env["PRTE_MCA_rmaps_default_mapping_policy"] = ":oversubscribe"
        mpirun = self.spec["mpi"].prefix.bin.mpirun
        command = Executable(self.prefix.bin.join(program))
        if os.path.exists(mpirun):
            command, args = Executable(mpirun), ("-n", "2", command.path, *args)
        out = command(*args, output=str.split, error=str.split, **options)
        self._returncode = command.returncode
        return out

    def test_ior(self):
        """write, read and check a file, with a valid JSON summary in spite of -v"""
        path = join_path(os.getcwd(), "ior")
        summary = join_path(os.getcwd(), "ior.json")
        options = "-v -a POSIX -w -W -r -R -e -F -t 64k -b 1m".split()
        report = ("-O", f"summaryFile={summary}", "-O", "summaryFormat=JSON")
        self._run("ior", *options, "-o", path, *report)
        with open(summary) as file:
            results = json.load(file)["tests"][0]["Results"]
        assert {result["access"] for result in results} >= {"write", "read"}
        assert not glob.glob(f"{path}*" + "0000*"), "ior left its files"

    def test_ior_mpiio_end_of_file(self):
        """a read of MPI-IO beyond the end of a file fails, and has no rate"""
        path = join_path(os.getcwd(), "short")
        with open(path, "wb") as file:
            file.truncate(1 << 20)
        options = "-a MPIIO -r -k -E -b 4m -t 1m -O singleXferAttempt=1".split()
        self._run("ior", *options, "-o", path, fail_on_error=False)
        assert self._returncode, "a file of 1 MiB was read as 8 MiB"

    def test_ior_aio(self):
        """data that many requests in flight wrote is read back as it was meant"""
        if not self.spec.satisfies("+aio"):
            raise SkipTest("no asynchronous I/O")
        options = "-a AIO -w -W -r -R -F -b 4m -t 64k --aio.granularity=4 --aio.max-pending=16"
        out = self._run("ior", *options.split(), "-o", join_path(os.getcwd(), "aio"))
        assert "Incorrect data" not in out

    def test_ior_backends(self):
        """the back ends that the variants promise are on offer"""
        usage = self._run("ior", "--help", fail_on_error=False)  # it exits with 1
        for variant, api in (("aio", "AIO"), ("hdf5", "HDF5"), ("ncmpi", "NCMPI")):
            assert (f"{api}|" in usage or f"|{api}" in usage) == (f"+{variant}" in self.spec)
        assert ("lustre.stripecount" in usage) == ("+lustre" in self.spec)

    def test_mdtest(self):
        """create, stat, read and remove a few files"""
        directory = join_path(os.getcwd(), "mdtest")
        out = self._run("mdtest", "-n", "20", "-F", "-w", "3901", "-e", "3901", "-d", directory)
        for operation in ("File creation", "File stat", "File read", "File removal"):
            assert operation in out, f"mdtest prints no rate of {operation}"

    def test_md_workbench(self):
        """precreate, benchmark and clean up a few data sets"""
        directory = join_path(os.getcwd(), "md-workbench")
        out = self._run("md-workbench", "-P", "10", "-I", "10", "-D", "1", "-o", directory)
        for phase in ("precreate", "benchmark", "cleanup"):
            assert phase in out, f"md-workbench prints nothing of {phase}"
