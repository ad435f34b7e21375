"""Whole cases on a mount that the agent takes for a client of Lustre: real tools, whose bytes are counted by target.

The mount is a directory behind a FUSE daemon (slowfs.c), which writes down what arrives. The stand-ins count it for the
targets of each file's layout, and answer as Lustre 2.17 answered an ordinary user, faults included. Devices stand in
/sys/fs/lustre of a mount namespace.
"""

import shutil
import tempfile
from pathlib import Path

import pytest

from e2e.rig import GENEROUS, ROOT
from support import hanging

STAND_INS = ROOT / "tests" / "support" / "lustre"
PER_PROCESS = r"IorPosix%files=per-process%order=sequential%cache={}$"

#: Where a kernel with Lustre would show four targets and two metadata targets.
NAMESPACE = """
mount -t tmpfs none /sys/fs
for index in 0 1 2 3; do
    osc=/sys/fs/lustre/osc/lustre-OST000$index-osc-ffff888129458800
    mkdir -p "$osc"
    echo 1 >"$osc/active"
done
for index in 0 1; do mkdir -p /sys/fs/lustre/mdc/lustre-MDT000$index-mdc-ffff888129458800; done
exec "$@"
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs_ior,
    pytest.mark.needs_fio,
    pytest.mark.needs_root,
]


@pytest.fixture
def client(make_rig, storage):
    """A rig on the mount, and what the stand-ins are told."""
    folder = Path(tempfile.mkdtemp(dir=storage))
    try:
        with hanging.mounted(folder, log=folder / "io") as mount:
            target = mount.point / "bench"
            target.mkdir(mode=0o1777)
            rig = make_rig(
                target=target,
                tools=("fio", "ior", "mdtest"),
                tasks=2,
                limits={"case_bytes": "128 MiB"},
                declared={"type": "lustre", "source": "10.0.2.15@tcp:/lustre"},
            )
            rig.write_references(GENEROUS)
            rig.inside = ("unshare", "--mount", "sh", "-euc", NAMESPACE, "sh")
            state = folder / "state"
            state.mkdir()
            yield (
                rig,
                {
                    "PATH": f"{STAND_INS}:{rig.environment()['PATH']}",
                    "LFS_STATE": str(state),
                    "LFS_MOUNT": str(mount.point),
                    "LFS_BELOW": str(folder / "back"),
                    "LFS_IO": str(folder / "io"),
                    "LFS_CLIENT": "1",
                    "LCTL_USER": "1",
                },
            )
    except hanging.Unavailable as error:
        pytest.skip(str(error))


def counting(rig, knobs, log):
    """A function that tells which programs of Lustre were started."""
    for name in ("lfs", "lctl"):
        rig.program(
            name, f'echo "{name}${{1:+ $1}}" >>{log}\nexec {STAND_INS}/{name} "$@"'
        )
    knobs["PATH"] = f"{rig.bin}:{knobs['PATH']}"
    return lambda: sorted(log.read_text().splitlines())


def test_a_plain_case_starts_eleven_programs_of_lustre(client, tmp_path):
    """Questions to the client and its servers, and the agent's looks before and after the write and the read."""
    rig, knobs = client
    asked = counting(rig, knobs, tmp_path / "asked")
    done = rig.run("-n", PER_PROCESS.format("direct"), "-S", "repetitions=1", **knobs)
    assert done.record["verdict"] == "PASS", done.record["reason"] + done.out
    places = ["lfs getdirstripe", "lfs getdirstripe", "lfs osts", "lfs quota"]
    assert asked() == [*["lctl"] * 4, *["lfs df"] * 3, *places]
    assert done.record["fingerprint"]["layout.directory"] == "on MDT 0"


def findings(done, guard):
    return [finding for finding in done.record["findings"] if finding["guard"] == guard]


def test_every_byte_is_witnessed(client):
    rig, knobs = client
    done = rig.run("-n", PER_PROCESS.format("buffered"), **knobs)
    assert done.record["verdict"] == "PASS", done.record["reason"] + done.out
    seen = [f["saw"] for f in findings(done, "G8") if "osc" in f["saw"]]
    assert seen, findings(done, "G8")
    assert not [f for f in findings(done, "G8") if f["outcome"] != "ok"]
    (load,) = (f for f in findings(done, "G19") if "others" in f["saw"])
    assert "(0%)" in load["saw"], load


def test_a_reader_between_eviction_and_read_is_found(client):
    """Its pages serve the tool, so that nothing travels while the tool reads."""
    rig, knobs = client
    mpirun = shutil.which("mpirun")
    rig.program(
        "mpirun",
        'case " $* " in *" -r "*) find "$LFS_MOUNT" -type f -size +1k -exec cat {} + >/dev/null ;; esac\n'
        f'exec {mpirun} "$@"',
    )
    done = rig.run("-n", PER_PROCESS.format("buffered"), **knobs)
    assert done.record["verdict"] == "INVALID", done.out
    assert "bytes were fetched from storage" in done.record["reason"], done.record[
        "reason"
    ]
