"""An agent of a job, to which layouts of files and the client's parameters come from the stand-in.

No local file system has the former, and no kernel without Lustre the latter. The stand-in answers in the
binary form of Lustre's header (lov.py beside it), and with files.
"""

import os
import runpy

import attributes
import parameters

from iogauge.core.paths import JOB_FILES

os.getxattr = attributes.getxattr
if os.environ.get("LFS_STATE"):
    from iogauge.node.lustre import parameters as of_client

    of_client.TOPS = (parameters.sysfs(),)

if os.environ.get("LFS_CLIENT"):
    # The directory at LFS_MOUNT, whatever the kernel calls it, is a client of Lustre, with the number of a real one.
    from dataclasses import replace

    from iogauge.node import mounts

    _parse = mounts.parse_mountinfo
    mounts.parse_mountinfo = lambda text: [
        replace(
            mount, type="lustre", source="10.0.2.15@tcp:/lustre", device="2200:574172"
        )
        if mount.point == os.environ["LFS_MOUNT"]
        else mount
        for mount in _parse(text)
    ]

runpy.run_path(str(JOB_FILES / "start.py"))
