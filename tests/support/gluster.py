"""A volume of GlusterFS over hosts of this machine (tests/support/hosts.py): a brick on each, and mounted on each.

glusterd keeps its state below directories of the machine that have no option. Each host gets such directories of its own.
"""

import shutil
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

#: Name of the volume, and its type in mountinfo.
VOLUME = "scratch"
TYPE = "fuse.glusterfs"
_STATE = ("/var/lib/glusterd", "/var/log/glusterfs", "/run")


def why_not():
    """Why there can be no volume here; None where there can."""
    missing = [
        name
        for name in ("glusterd", "gluster", "glusterfs")
        if shutil.which(name) is None
    ]
    if missing:
        return f"not on PATH: {', '.join(missing)}"
    return None if Path("/dev/fuse").exists() else "no /dev/fuse"


def source(hosts):
    """What all hosts mount, as mountinfo has it."""
    return f"{hosts.address(hosts.names[0])}:/{VOLUME}"


@contextmanager
def volume(hosts, base, *kind):
    """Yield the point at which the hosts, and nobody else, have a volume mounted.

    ``kind`` are the words for its kind, such as ``replica 2``; without them each file lies on one brick.
    ``base`` is a new directory of storage for bricks, which all hosts see. What was started ends with the hosts at the latest.
    """
    point = base / "point"
    point.mkdir(parents=True)
    daemons = [_daemon(hosts, host, base / host) for host in hosts.names]
    try:
        first, *others = hosts.names
        for host in others:
            # A member invites the others; one that is no member yet cannot.
            _insist(
                hosts,
                first,
                "gluster",
                "--mode=script",
                "peer",
                "probe",
                hosts.address(host),
            )
        bricks = [
            f"{hosts.address(host)}:{base / host / 'brick'}" for host in hosts.names
        ]
        _insist(
            hosts,
            first,
            "gluster",
            "--mode=script",
            "volume",
            "create",
            VOLUME,
            *kind,
            *bricks,
            "force",
        )
        # Without it the client serves O_DIRECT from its memory.
        _insist(
            hosts,
            first,
            "gluster",
            "volume",
            "set",
            VOLUME,
            "performance.strict-o-direct",
            "on",
        )
        _insist(hosts, first, "gluster", "volume", "start", VOLUME)
        for host in hosts.names:
            _insist(hosts, host, "mount", "-t", "glusterfs", source(hosts), str(point))
        yield point
    finally:
        for host in hosts.names:
            hosts.run(host, ["umount", str(point)])
        hosts.run(
            hosts.names[0],
            ["gluster", "--mode=script", "volume", "stop", VOLUME, "force"],
        )
        for daemon in daemons:
            daemon.terminate()
            daemon.wait(600)
        shutil.rmtree(base)


def _daemon(hosts, host, base):
    """Start glusterd on a host, with a brick and directories of its own."""
    (base / "brick").mkdir(parents=True)
    for directory in _STATE:
        own = base / directory.replace("/", "-")
        own.mkdir()
        done = hosts.run(host, ["mount", "--bind", str(own), directory])
        assert done.returncode == 0, done.stderr
    return subprocess.Popen(
        hosts.command(host, ["glusterd", "--no-daemon"]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _insist(hosts, host, *words):
    """Run a command on a host until it succeeds: daemons take seconds to begin."""
    end = time.monotonic() + 600
    while (done := hosts.run(host, words)).returncode != 0:
        if time.monotonic() > end:
            raise OSError(f"{host}: {' '.join(words)}: {done.stdout}{done.stderr}")
        time.sleep(0.2)
