"""This project's folders, and copies of it."""

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
DATA = TESTS / "data"
#: Recorded output of tools.
SAMPLES = DATA / "samples"


def copied(to, *left_out):
    """Copy the project's files, also those not yet added to git, but for some folders; returns the copy."""
    words = ["git", "ls-files", "-co", "--exclude-standard", "-z", "--", "."]
    words += [f":!{folder}" for folder in left_out]
    for name in subprocess.check_output(words, cwd=ROOT, text=True).split("\0"):
        if name and (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name, follow_symlinks=False)
    return to
