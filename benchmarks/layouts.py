"""Cost of reading the layouts of files: the parser, and with the stand-in a directory of files.

    python benchmarks/layouts.py [--files 1000]

The parser is timed on what tests/support/lustre/lov.py encodes. The stand-in looks into its own database, so
that its time is an upper bound of the suite's own part; what a client of Lustre adds is the system call.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "reframe" / "src")]

from iogauge.node import layouts  # noqa: E402
from support.lustre import attributes  # noqa: E402
from support.lustre import lov as encoder  # noqa: E402

PART = {"size": 1 << 20, "pool": "", "begin": 0, "end": None, "init": True}


def plain(stripes: int) -> bytes:
    part = {**PART, "count": stripes, "objects": list(range(stripes))}
    return encoder.encode({"composite": False, "parts": [part]})


def growing(components: int) -> bytes:
    parts = [
        {**PART, "count": 4, "objects": [0, 1, 2, 3], "begin": n << 24, "end": (n + 1) << 24}
        for n in range(components)
    ]
    return encoder.encode({"composite": True, "parts": parts})


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--files", type=int, default=1000, help="files in the directory")
    files = options.parse_args().files
    for name, data in (
        ("1 stripe", plain(1)),
        ("4 stripes", plain(4)),
        ("2000 stripes", plain(2000)),
        ("3 components of 4 stripes", growing(3)),
    ):
        times = []
        for _ in range(5):
            start = time.perf_counter()
            for _ in range(1000):
                layouts.parse_lov(data, "f")
            times.append(time.perf_counter() - start)
        print(f"parse {name} ({len(data)} bytes): {min(times) * 1e3:.1f} ms for 1,000 files")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "lustre"
        place.mkdir()
        os.environ |= {"LFS_STATE": f"{folder}/state", "LFS_MOUNT": str(place)}
        os.getxattr = attributes.getxattr  # type: ignore[assignment]
        for number in range(files):
            (place / f"f.{number:08d}").touch()
        for what in ("first", "again"):
            start = time.perf_counter()
            seen = layouts.look_at_lov(str(place), 1)
            taken = time.perf_counter() - start
            print(
                f"stand-in, {what}: {len(seen.files)} of {seen.total} files read in {taken:.2f} s"
            )


if __name__ == "__main__":
    main()
