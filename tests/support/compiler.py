"""Whether a C compiler can compile here: gcc without the C library's headers cannot."""

import functools
import shutil
import subprocess

import pytest


@functools.cache
def lacks() -> str:
    """What is missing to compile a program; empty if nothing is."""
    if shutil.which("gcc") is None:
        return "not on PATH: gcc"
    program = "#include <stdio.h>\nint main(void) { return 0; }\n"
    words = ["gcc", "-xc", "-", "-o", "/dev/null"]
    done = subprocess.run(words, input=program, text=True, capture_output=True)
    if done.returncode != 0:
        return "gcc cannot compile here: libc6-dev is missing"
    return ""


def demand() -> None:
    """Skip the test where nothing can be compiled."""
    if lacks():
        pytest.skip(lacks())
