"""The stand-ins for lfs and lctl answer as the real programs did: else tests that use them prove nothing."""

import os
import re

import pytest

from support.lustre.recorded import Answer, answer
from support.project import TESTS
from support.shell import completed

PROGRAMS = TESTS / "support" / "lustre"


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
        done = completed(
            ["bash", "-c", command.replace("/mnt/lustre", str(self.mount))],
            cwd=self.mount,
            env={**self.environment, **variables},
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
    text = re.sub(r"0x[0-9a-f]+:0x[0-9a-f]+:0x0", "FID", text)
    text = re.sub(r"-ffff[0-9a-f]+|-CLIENT", "-CLIENT", text)
    if "Mounted on" in text:  # sizes differ, numbers stand right
        text = re.sub(r" +\d+", lambda found: f"{len(found[0])} digits", text)
        text = re.sub(r" +\d+%", "%", text)
    return text


#: What tests set, and the recorded command that tells of it.
STATES = [
    ("health.txt", "lfs df /mnt/lustre", {}),
    ("health.txt", "lfs osts /mnt/lustre", {}),
    ("health.txt", "lfs df /tmp", {}),
    ("health.txt", "lfs df # OST 2 inactive", {"LFS_INACTIVE": "2"}),
    ("health.txt", "lfs osts # OST 2 inactive", {"LFS_INACTIVE": "2"}),
    ("health.txt", "lfs df # OST 3 full", {"LFS_FULL": "3"}),
    ("health.txt", "lfs df /mnt/lustre # OST 2 no_create", {"LFS_NO_CREATE": "2"}),
    ("health.txt", "lfs df # not mounted", {"LFS_MOUNT": ""}),
    ("health.txt", "lfs df /mnt/lustre # not mounted", {"LFS_MOUNT": ""}),
    ("health.txt", "lfs osts # not mounted", {"LFS_MOUNT": ""}),
    ("lctl.txt", "(user bench) lctl set_param osc.*.checksums=0", {"LCTL_USER": "1"}),
    ("lctl.txt", "lctl set_param osc.*.checksums=0", {}),
    ("lctl.txt", "lctl get_param osc.*.checksums", {}),
    ("directories.txt", "lfs getdirstripe -y d4", {}),
]


@pytest.mark.parametrize("file, command, state", STATES)
def test_a_state_is_told_alike(place, file, command, state):
    place.run("mkdir d4; lctl set_param osc.*.checksums=0")
    run = re.sub(r"^\(.*?\) ", "", command).partition(" # ")[0]
    ours, theirs = place.run(run, **state), answer(file, command)
    assert words(ours.stdout) == words(theirs.stdout)
    assert words(ours.stderr) == words(theirs.stderr)
    assert ours.status == theirs.status
