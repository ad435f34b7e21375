"""An agent of a job: a file that a stand-in made has data, the same whenever they are read, on some storage."""

import hashlib
import os
import runpy
from dataclasses import replace

import figures

from iogauge.core.paths import JOB_FILES
from iogauge.node import files, layers
from iogauge.node.kinds import Below
from iogauge.node.lustre import parameters as of_client

_held = files._held


def _read(path, offset):
    os.stat(path)
    text = f"{path} {offset}".encode()
    return memoryview(hashlib.shake_128(text).digest(files.BLOCK))


def _full(directory, names, end):
    return [replace(held, stored=held.size) for held in _held(directory, names, end)]


def _getxattr(path, name):
    figures.of_this_case()
    import attributes

    return bytes(attributes.getxattr(path, name))


def _servers(fsname):
    figures.of_this_case()
    import parameters

    of_client.TOPS = (parameters.sysfs(),)
    return _connected(fsname)


_connected = of_client.client_servers
os.getxattr, of_client.client_servers = _getxattr, _servers
files._read, files._held = _read, _full
files._kind = lambda path, offset: ""
# The target of a replay is a tmpfs, which stands for the file system that the site declares.
layers.resolve = lambda path, mount, root="/": Below()

runpy.run_path(str(JOB_FILES / "start.py"))
