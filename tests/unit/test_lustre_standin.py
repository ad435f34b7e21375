"""The stand-ins for lfs and lctl answer as the real programs did: else tests that use them prove nothing."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from support.lustre.recorded import Answer, answer, sessions

PROGRAMS = Path(__file__).parents[1] / "support" / "lustre"


class Place:
    """A directory that counts as a Lustre file system."""

    def __init__(self, top):
        self.mount, self.state = top / "lustre", top / "state"
        self.mount.mkdir()
        self.environment = {
            **os.environ,
            "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
            "LFS_STATE": str(self.state),
            "LFS_MOUNT": str(self.mount),
            "LCTL_USER": "0",
        }

    def run(self, command, **variables):
        done = subprocess.run(
            ["bash", "-c", command.replace("/mnt/lustre", str(self.mount))],
            cwd=self.mount,
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        out, err = (
            text.replace(str(self.mount), "/mnt/lustre")
            for text in (done.stdout, done.stderr)
        )
        return Answer(out, err, done.returncode)


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def words(text):
    """Text without what differs from one file system to the next; of a table only its form."""
    text = re.sub(r"0x[0-9a-f]+:0x[0-9a-f]+:0x0|0xN:0xN:0xN", "FID", text)
    text = re.sub(r"-ffff[0-9a-f]+|-CLIENT", "-CLIENT", text).replace(
        "MNT", "/mnt/lustre"
    )
    text = re.sub(r"(_time +)(?:\d{10}\.\d{9}|TIME) secs", r"\1TIME secs", text)
    if "Mounted on" in text:  # sizes differ, numbers stand right
        text = re.sub(r" +\d+", lambda found: f"{len(found[0])} digits", text)
        text = re.sub(r" +\d+%", "%", text)
    # Before what is wrong with its options, the real program explains them all.
    return re.sub(r"^Create a file with [\s\S]*", "", text)


def alike(ours, theirs):
    """The same words, and the same status; False: the stand-in says that it does not cover this."""
    if ours.status == 70:
        assert ours.stderr.startswith("stand-in: "), ours
        return False
    assert words(ours.stdout) == words(theirs.stdout)
    assert words(ours.stderr) == words(theirs.stderr)
    assert ours.status == theirs.status
    return True


def single(file, *programs):
    """Recorded commands of some programs, one at a time, that the library gives too: it makes no mistake in its options."""
    other = re.compile(
        r"[;&|]|lfs (getstripe|find|check|sest)|getdirstripe (?!-y)|-c (-2|abc|65536)|-i -5|512K|nodir|/none| plain$|jobid"
        r"|read_ahead|max_|_io |fast_read|checksum_type"
    )
    return [
        c
        for c in sessions(file)
        if any(p in c for p in programs) and not other.search(c)
    ]


STATES = {
    "": {},
    "OST 2 inactive": {"LFS_INACTIVE": "2"},
    "OST 1 degraded": {"LFS_DEGRADED": "1"},
    "OST 2 no_create": {"LFS_NO_CREATE": "2"},
    "OST 3 full": {"LFS_FULL": "3"},
    "not mounted": {"LFS_MOUNT": ""},
}


@pytest.mark.parametrize(
    ("file", "command"),
    [
        (file, command)
        for file in ("health.txt", "lctl.txt", "params.txt", "directories.txt")
        for command in single(
            file, "lfs df /mnt", "lfs df #", "lfs osts", "lctl", "pool_list", "-y dne"
        )
    ],
)
def test_a_state_is_told_alike(place, file, command):
    place.run("lfs mkdir -c 2 dne")
    checksums = "1" if " -n osc" in command else "0"
    place.run(f"lctl set_param osc.*.checksums={checksums}")
    run, _, state = re.sub(r"^\(.*?\) ", "", command).partition(" # ")
    variables = {
        "LFS_POOLS": "flash:0,1",
        "LCTL_USER": "1" if "bench" in command else "0",
    }
    if "stats" in command:
        variables["LFS_MOUNT"] = ""
    assert alike(place.run(run, **variables, **STATES[state]), answer(file, command))
