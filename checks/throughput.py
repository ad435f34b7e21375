"""Throughput of a whole file system: a burst, a steady stream, and the matrix of order, cache and
size.

A provider runs these three scenarios every day; docs/scenarios.md names the document. The variant
``published`` has the form of the document (``-S variant=published``).
"""

import reframe as rfm
from reframe.core.builtins import parameter, run_after

from iogauge.cases import IorCheck, vocabulary


@rfm.simple_test
class Burst(IorCheck):
    descr = "Random 32 MiB transfers in a file for each task, through the page cache"
    tags = {"ior", "weekly", "acceptance"}
    random = True
    transfer = 32 << 20
    variants = ("sound", "published")
    published = (
        "-z -w -r -i 2 -m -d 1 -e -F -o {file} -t {transfer} -b {block} "
        "-O summaryFormat=JSON -O summaryFile={summary}"
    )
    published_cyclic = True
    flaw = (
        "readers are not shifted (-C), so that each reads what it wrote: only valid where a node's data is "
        "at least twice its memory"
    )


@rfm.simple_test
class Steady(IorCheck):
    descr = "A long sequential write with O_DIRECT in segments of one transfer"
    valid_systems = [f"+{vocabulary.TARGET} +{vocabulary.O_DIRECT}"]
    tags = {"ior", "acceptance"}
    o_direct = True
    reads = False
    segmented = True
    transfer = 4 << 20
    #: A run takes minutes: its start, before the steady state, is a small part of it.
    warm_up_part = 16
    variants = ("sound", "published")
    published = (
        "--posix.odirect -g -v -w -i 3 -D 0 -k -F -o {file} -t {transfer} -b {block} -s {segments} "
        "-O summaryFormat=JSON -O summaryFile={summary}"
    )
    published_cyclic = True
    flaw = "-v with summaryFormat=JSON makes IOR 4.0.0 write JSON that nothing can read; -k keeps all files"


#: Order of offsets, cache, transfer size.
_PATTERNS = {
    "random-buffered-4k": (True, False, 4096),
    "random-buffered-4m": (True, False, 4 << 20),
    "sequential-buffered-4m": (False, False, 4 << 20),
    "random-direct-4m": (True, True, 4 << 20),
    "random-direct-4k": (True, True, 4096),
    "sequential-direct-4m": (False, True, 4 << 20),
}


@rfm.simple_test
class AccessMatrix(IorCheck):
    descr = "A file for each task: order, cache and transfer size"
    tags = {"ior", "weekly", "acceptance"}
    variants = ("sound", "published")
    published_cyclic = True
    flaw = (
        "readers are not shifted (-C); printed with quotes that IOR does not understand "
        '(-b=\\"128m\\"), left out here, as is that it writes no summary file'
    )

    pattern = parameter(list(_PATTERNS), loggable=True)

    @run_after("init")
    def choose(self):
        self.random, self.o_direct, self.transfer = _PATTERNS[self.pattern]
        # The document gives small transfers 128 MiB for a task and large ones 4 GiB.
        self.share = 32 if self.transfer == 4096 else 1
        if self.o_direct:
            self.valid_systems = [f"+{vocabulary.TARGET} +{vocabulary.O_DIRECT}"]
        words = ["-b={block} -F=1 -e=1 -d=5 -m=1"]
        if self.random:
            words.append("-z=1")
        words.append("-i=3 -t={transfer}")
        if self.o_direct:
            words.append("--posix.odirect=1")
        words.append("-o {file} -O summaryFormat=JSON -O summaryFile={summary}")
        self.published = " ".join(words)
