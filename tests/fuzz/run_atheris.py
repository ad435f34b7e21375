"""Look for input that a reader of outside data cannot stand, guided by coverage.

    python tests/fuzz/run_atheris.py READER SECONDS [FOLDER]

READER is a name of tests/support/fuzz.py, or a part of one. Needs atheris (pip install atheris), of which no
release has wheels for all Pythons that the tests run with. What is found goes to FOLDER (default: the
current directory) as crash-*, and belongs into FOUND of tests/unit/test_fuzz.py once it is understood.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

sys.path[:0] = [str(Path(__file__).parents[2] / part) for part in ("reframe/src", "tests")]
with atheris.instrument_imports(include=["iogauge"]):
    from support import fuzz


def main() -> None:
    """Feed one reader until the time is over, or a crash."""
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    chosen = [reader for reader in fuzz.READERS if sys.argv[1] in reader.name]
    if len(chosen) != 1:
        names = ", ".join(reader.name for reader in fuzz.READERS)
        sys.exit(f"{sys.argv[1]}: fits {len(chosen)} readers, expected one of {names}")
    (reader,) = chosen

    def one(data: bytes) -> None:
        # Half of the input is text as it is; the other half are damages of a recorded sample.
        given = atheris.FuzzedDataProvider(data)
        if given.ConsumeBool():
            fuzz.check(reader, given.ConsumeBytes(len(data)))
            return
        text = reader.samples[given.ConsumeIntInRange(0, len(reader.samples) - 1)]
        for _ in range(given.ConsumeIntInRange(1, 6)):
            text = fuzz.damage(
                text,
                given.ConsumeIntInRange(0, 9),
                given.ConsumeIntInRange(0, 2**20),
                given.ConsumeIntInRange(0, 2**16),
            )
        fuzz.check(reader, text)

    folder = Path(sys.argv[3] if len(sys.argv) == 4 else ".").resolve()
    words = [f"-max_total_time={sys.argv[2]}", "-timeout=20", "-rss_limit_mb=4096", "-max_len=4096"]
    atheris.Setup([sys.argv[0], *words, f"-artifact_prefix={folder}/"], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
