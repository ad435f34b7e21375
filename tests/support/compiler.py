"""Whether a C compiler can compile here: gcc without the C library's headers cannot."""

import functools
import shutil

import pytest

from support.shell import completed


@functools.cache
def lacks():
    """What is missing to compile a program; empty if nothing is."""
    if shutil.which("gcc") is None:
        return "not on PATH: gcc"
    program = "#include <stdio.h>\nint main(void) { return 0; }\n"
    words = ["gcc", "-xc", "-", "-o", "/dev/null"]
    done = completed(words, input=program)
    if done.returncode != 0:
        return "gcc cannot compile here: libc6-dev is missing"
    return ""


def demand():
    """Skip the test where nothing can be compiled."""
    if lacks():
        pytest.skip(lacks())
