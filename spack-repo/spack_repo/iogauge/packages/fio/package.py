import json
import os
import re

from spack_repo.builtin.packages.fio.package import Fio as BuiltinFio

from spack.package import *


class Fio(BuiltinFio):
    """fio, the flexible I/O tester.

    Why this overlay of builtin exists; it can go when builtin has the same:

    * A current version; builtin ends at 3.37 (2024).
    * The engines are what the variants say. builtin passes no switch at all: with ``~libaio`` fio
      takes libaio from the system if it is there, and so it does with RDMA, Ceph, Gluster,
      curl, DAOS, NFS, pmem and others.
    * A stand-alone test (``spack test run fio``).
    """

    git = "https://github.com/axboe/fio.git"

    # By commit, which is its own checksum.
    version("3.42", tag="fio-3.42", commit="ab77643023f5d7e3c1b71a7576a564f368bf577a")
    version("3.41", tag="fio-3.41", commit="ed675d3477a70a42d2e757b713f6c7125a27cdca")

    variant("io_uring", default=True, description="Enable the io_uring engine")
    variant("libnuma", default=False, description="Enable binding to NUMA nodes")
    variant("http", default=False, description="Enable the http engine (S3, WebDAV, Swift)")

    depends_on("numactl", when="+libnuma")
    depends_on("curl", when="+http")
    depends_on("openssl", when="+http")

    conflicts("+io_uring", when="platform=darwin", msg="io_uring is of Linux")

    # Parts of fio with a switch but without a variant here.
    _never = (
        "dfs",
        "gfapi",
        "isal",
        "libblkio",
        "libnfs",
        "libzbc",
        "pmem",
        "rados",
        "rbd",
        "rdma",
        "tcmalloc",
        "xnvme",
    )

    # The engines that a variant decides about.
    _engines = ("libaio", "io_uring", "http")

    @when("@3.37:")
    def patch(self):
        # libaio has no switch; configure tries to link with it.
        if self.spec.satisfies("~libaio"):
            filter_file(
                'if compile_prog "" "-laio" "libaio" ; then',
                "if false ; then",
                "configure",
                string=True,
            )
        # Nor has io_uring: every Linux gets it, by this line.
        if self.spec.satisfies("~io_uring"):
            filter_file(r"^#define ARCH_HAVE_IOURING$", "", "arch/arch.h")

    def configure_args(self):
        if not self.spec.satisfies("@3.37:"):
            return super().configure_args()
        with open("configure") as file:
            known = file.read()
        args = super().configure_args()
        args += [f"--disable-{part}" for part in self._never if f"--disable-{part})" in known]
        for variant, switch in (("libnuma", "numa"), ("http", "http")):
            if not self.spec.satisfies(f"+{variant}"):
                args.append(f"--disable-{switch}")
        return args

    @run_after("install")
    def has_its_engines(self):
        """An engine too many or too few ends the installation."""
        if not self.spec.satisfies("@3.37:"):
            return
        offered = self._offered()
        for engine in self._engines:
            if (engine in offered) != self.spec.satisfies(f"+{engine}"):
                raise InstallError(f"fio --enghelp does not agree with the variant {engine}")

    def _offered(self):
        """The names of the engines that the installed fio offers."""
        text = Executable(self.prefix.bin.fio)("--enghelp", output=str)
        return set(re.findall(r"^\s+([\w-]+)\s*$", text, re.MULTILINE))

    def test_engines(self):
        """the engines of the variants are on offer, and psync writes and reads"""
        offered = self._offered()
        for engine in self._engines:
            assert (engine in offered) == (f"+{engine}" in self.spec), engine

    def test_psync(self):
        """write and read 1 MiB; the JSON report counts every byte"""
        fio = Executable(self.prefix.bin.fio)
        job = ("--name=test", "--ioengine=psync", "--bs=64k", "--size=1m", "--unlink=1")
        report = join_path(os.getcwd(), "fio.json")
        for mode in ("write", "read"):
            fio(*job, f"--rw={mode}", "--output-format=json", f"--output={report}")
            with open(report) as file:
                text = file.read()
            assert json.loads(text)["jobs"][0][mode]["io_bytes"] == 1 << 20
