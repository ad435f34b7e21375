"""In the agent of a job: a file that a stand-in made has data, the same whenever they are read."""

import hashlib
import os
from dataclasses import replace

from iogauge.node import contents

_held = contents._held


def _read(path: str, offset: int) -> tuple[memoryview, bool]:
    os.stat(path)
    text = f"{path} {offset}".encode()
    return memoryview(hashlib.shake_128(text).digest(contents.BLOCK)), True


def _full(directory: str, names: list[str], end: float) -> list[contents.Held]:
    return [replace(held, stored=held.size) for held in _held(directory, names, end)]


contents._read, contents._held = _read, _full
contents._kind = lambda path, offset: ""
