"""What the clients of a job agree on: renames, appends, locks, names and listings between nodes."""

import reframe as rfm

from iogauge_extras.clients.semantics_check import SemanticsCheck


@rfm.simple_test
class Semantics(SemanticsCheck):
    """What one client does, the others see as POSIX and the file system promise."""

    descr = "What one client does, the others see"
    tags = {"daily", "weekly", "acceptance"}
