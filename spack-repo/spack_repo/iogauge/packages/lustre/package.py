import os
import re

from spack_repo.builtin.build_systems.autotools import AutotoolsPackage

from spack.package import *


class Lustre(AutotoolsPackage):
    """The user-land of the Lustre client: lfs, lctl, liblustreapi and its headers.

    Why this overlay of builtin exists; it can go when builtin has the same:

    * The client of a site is found (``spack external find lustre``) with a version that can be
      compared, and refused where the library or its headers are missing, as without them nothing
      can be built on it. builtin finds lfs only.
    * Where there is no client (a container, a login node), the user-land is built, so that
      ``ior +lustre`` compiles. There are no kernel modules in it: it mounts nothing.
    """

    homepage = "https://www.lustre.org"
    git = "https://github.com/lustre/lustre-release.git"

    license("GPL-2.0-only")

    # By commit, which is its own checksum.
    version("2.17.0", tag="v2_17_0", commit="4b0407a48e9e5b7f17877e8868080e9f40c238c6")
    version(
        "2.15.8",
        tag="v2_15_8",
        commit="ee228420b7fa12f183bceb9864ff083cb07e8964",
        preferred=True,  # the line with long-term support
    )
    # A site's client is an external of any version.

    depends_on("c", type="build")
    depends_on("autoconf", type="build")
    depends_on("automake", type="build")
    depends_on("libtool", type="build")
    depends_on("m4", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("libnl")
    depends_on("libyaml")
    depends_on("readline")
    depends_on("util-linux")
    depends_on("zlib-api")

    conflicts("platform=darwin", msg="Lustre is of Linux")

    executables = [r"^lfs$"]

    @classmethod
    def determine_version(cls, exe):
        # "lfs 2.15.8_dirty" and "lfs 2.14.0_ddn149" are 2.15.8 and 2.14.0 for who builds on it.
        output = Executable(exe)("--version", output=str, error=str)
        match = re.search(r"lfs (\d+(?:\.\d+)*)", output)
        return match.group(1) if match else None

    @classmethod
    def determine_variants(cls, exes, version_str):
        prefix = os.path.dirname(os.path.dirname(exes[0]))
        header = join_path(prefix, "include", "lustre", "lustreapi.h")
        library = cls._find_library(prefix) if os.path.exists(header) else []
        return "", {"liblustreapi": library[0] if library else ""}

    @classmethod
    def validate_detected_spec(cls, spec, extra_attributes):
        # builtin's own recipe looks too, for lfs alone; its finding is without the attribute.
        assert "liblustreapi" in extra_attributes, (
            "builtin's recipe looked for lfs alone; what this repository's recipe found counts"
        )
        assert extra_attributes["liblustreapi"], (
            "beside lfs are not both liblustreapi.so and include/lustre/lustreapi.h; "
            "the package lustre-client-devel brings them"
        )

    @classmethod
    def _find_library(cls, prefix):
        directories = [join_path(prefix, name) for name in ("lib64", "lib")]
        directories += [
            join_path(prefix, "lib", name)
            for name in ("x86_64-linux-gnu", "aarch64-linux-gnu", "powerpc64le-linux-gnu")
        ]
        return [
            join_path(directory, "liblustreapi.so")
            for directory in directories
            if os.path.exists(join_path(directory, "liblustreapi.so"))
        ]

    @property
    def libs(self):
        return LibraryList(self._find_library(self.prefix))

    def patch(self):
        # The tests of the kernel's interfaces demand its headers; without modules none is needed.
        if self.spec.satisfies("@:2.16"):
            filter_file(
                'AS_IF([test "x$enable_dist" = xno], [',
                'AS_IF([test "x$enable_modules" = xyes], [',
                "config/lustre-build.m4",
                string=True,
            )
        else:
            filter_file(
                ' -o "x$enable_modules" = xno -a "x$enable_dist" = xno',
                "",
                "config/lustre-core.m4",
                string=True,
            )

    def autoreconf(self, spec, prefix):
        Executable("sh")("./autogen.sh")

    def configure_args(self):
        off = ("modules", "server", "crypto", "tests", "manpages", "gss", "snmp", "doc", "selinux")
        headers = (join_path(self.stage.source_path, name) for name in ("lnet", "lustre"))
        return [
            *(f"--disable-{part}" for part in off),
            "--with-o2ib=no",
            "CPPFLAGS=" + " ".join(f"-I{header}/include/uapi" for header in headers),
        ]

    # What a client's user-land is, in the order in which it is built.
    _parts = ("libcfs/libcfs", "lnet/utils", "lustre/utils")

    def build(self, spec, prefix):
        # Upstream's -Werror meets warnings of newer compilers.
        flags = "CFLAGS=-g -O2 -fPIC"
        make("undef.h", flags)
        for part in self._parts:
            make("-C", part, flags)

    def install(self, spec, prefix):
        # Without DESTDIR it writes to /sbin, /etc and /usr/include, whatever the prefix.
        root = join_path(self.stage.path, "root")
        for part in self._parts:
            make("-C", part, "install", f"DESTDIR={root}")
        install_tree(join_path(root, prefix.lstrip("/")), prefix)
        for directory in ("sbin", join_path("usr", "sbin"), join_path("usr", "bin")):
            if os.path.isdir(join_path(root, directory)):
                install_tree(join_path(root, directory), prefix.sbin)
        mkdirp(prefix.include.lustre)
        install("lustre/include/lustre/*.h", prefix.include.lustre)
        for tree in ("lustre", "lnet"):
            install_tree(f"{tree}/include/uapi/linux", prefix.include.linux)

    @run_after("install")
    def has_its_library(self):
        for path in (self.prefix.bin.lfs, self.prefix.include.lustre.join("lustreapi.h")):
            if not os.path.exists(path):
                raise InstallError(f"{path} was not installed")
        if not self._find_library(self.prefix):
            raise InstallError(f"liblustreapi.so was not installed below {self.prefix}")

    def test_lfs(self):
        """lfs tells its version"""
        out = Executable(self.prefix.bin.lfs)("--version", output=str, error=str)
        assert f"lfs {self.spec.version}" in out
