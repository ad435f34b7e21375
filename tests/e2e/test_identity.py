"""What a target is: another file system in its place, what lies below its mount, what a site declares of it."""

import os
import shutil
import subprocess
import time
from contextlib import ExitStack

import pytest

from e2e.rig import GENEROUS, RANDOM_READ, mounted
from e2e.test_several_hosts import run_on
from iogauge.node.activity import usable_cores
from iogauge.node.view import look
from iogauge.workspace import permission
from support import hosts as support
from support.devices import run
from support.hosts import Hosts
from support.shell import completed

pytestmark = [pytest.mark.needs_fio, pytest.mark.slow]


class Disks:
    """Two ext4 file systems on one loop device, one of them mounted at ``point`` at a time."""

    def __init__(self, folder):
        self.folder, self.point = folder, folder / "point"
        # No other test takes this one while it is free.
        self.device = f"/dev/loop{1000 + os.getpid() % 1000}"
        for name in ("a", "b"):
            with mounted(self.point, "ext4", 256 << 20, folder / f"{name}.img"):
                (self.point / "bench").mkdir()

    @property
    def target(self):
        return self.point / "bench"

    @property
    def uuid(self):
        return look(str(self.point)).uuid

    def insert(self, name):
        """Put one of them under the device's name, mount it, and return its UUID."""
        self.remove()
        words = ["losetup", "--direct-io=on"]
        image = str(self.folder / f"{name}.img")
        # Hosts of other tests, made meanwhile, keep copies of the mount until they end.
        for _ in range(150):
            done = subprocess.run(
                [*words, self.device, image], check=False, capture_output=True
            )
            if done.returncode == 0:
                break
            time.sleep(0.2)
        if b"resource busy" in done.stderr:
            pytest.skip(f"{self.device} is held by the hosts of another test")
        done.check_returncode()
        completed(["mount", self.device, str(self.point)], check=True)
        return self.uuid

    def remove(self):
        while os.path.ismount(self.point):
            completed(["umount", str(self.point)], check=True)
        completed(["losetup", "-d", self.device])


@pytest.fixture
def disks(storage):
    folder = storage / "disks"
    folder.mkdir()
    try:
        made = Disks(folder)
        made.insert("a")
    except (OSError, subprocess.SubprocessError) as error:
        shutil.rmtree(folder)
        pytest.skip(f"no ext4 can be mounted here: {error}")
    yield made
    made.remove()
    shutil.rmtree(folder)


def refused_before_a_byte(run, target, *causes):
    run.never_passed("before a byte was written", *causes)
    assert run.record["verdict"] == "INVALID"
    assert not (target / "iogauge").exists()


def test_a_declared_uuid_is_demanded_before_a_byte(make_rig, disks):
    a = disks.insert("a")
    rig = make_rig(target=disks.target, declared={"uuid": a})
    assert rig.run(*RANDOM_READ).record["verdict"] == "UNREFERENCED"
    assert f"UUID {a} (target.uuid)" in rig.iogauge("check", "--all").out
    b = disks.insert("b")
    refused_before_a_byte(
        rig.run(*RANDOM_READ), disks.target, f"sees UUID {b}", f"with UUID {a}"
    )
    planned = rig.iogauge("run", "--dry-run", *RANDOM_READ)
    assert planned.rc == 1
    assert f"sees UUID {b}" in " ".join(planned.out.split())


def test_a_target_that_is_exchanged_in_the_last_phase_is_seen(make_rig, disks):
    """What is mounted over it has all its directories, so that no path misses anything."""
    a = disks.insert("a")
    rig = make_rig(target=disks.target, declared={"source": None})
    other = disks.folder / "other"
    exchange = f"cp -a {disks.point}/. {other} && mount --bind {other} {disks.point}"
    rig.damage("fio", "*randread.1.json", exchange)
    with mounted(other, "ext4", 256 << 20, disks.folder / "c.img"):
        run = rig.run(*RANDOM_READ)
        last = disks.uuid
        disks.remove()
    assert last != a
    run.never_passed(f"sees UUID {last}", "after the last phase", a)
    assert run.record["verdict"] == "INVALID"


@pytest.mark.needs_ior
def test_a_node_with_another_file_system_in_place_refuses_before_a_byte(
    make_rig, disks, storage
):
    reason = support.why_not()
    if reason is not None:
        pytest.skip(reason)
    a = disks.insert("a")
    other = disks.folder / "other"
    with ExitStack() as stack:
        stack.enter_context(mounted(other, "ext4", 64 << 20, disks.folder / "c.img"))
        cluster = stack.enter_context(Hosts(2, storage, disks.point, other))
        b = look(str(other)).uuid
        rig = make_rig(
            target=disks.target,
            tools=("ior", "mdtest"),
            declared={"source": None, "uuid": None},
        )
        rig.declare(scale={"nodes": 2, "tasks_per_node": 1}, hosts=cluster.names)
        healthy = run_on(cluster, rig, "-n", "^MdtestEasy")
        (record, *_) = healthy.records
        said = {
            f["guard"]: f["outcome"] for f in record["findings"] if f["metric"] is None
        }
        # The site declares neither source nor UUID.
        assert said["G9"] == "warn", healthy.out
        assert record["fingerprint"]["fs.uuid"] == a
        shutil.rmtree(rig.home / "history")
        words = ["mount", "--bind", str(other), str(disks.point)]
        assert cluster.run("n2", words).returncode == 0
        run = run_on(cluster, rig, "-n", "^MdtestEasy")
        run.never_passed(
            f"n2 sees UUID {b}", f"n1 sees UUID {a}", "before a byte was written"
        )
        assert run.record["verdict"] == "INVALID"
        assert cluster.run("n2", ["umount", str(disks.point)]).returncode == 0


# --- what lies below the mount  -------------------------------------------------------------------


def bound(devices):
    """A directory of a file system, bound to another place."""
    storage = devices.formatted("ext4", mib=600)
    (storage / "below" / "site").mkdir(parents=True)
    point = devices.folder / "bound"
    point.mkdir()
    run("mount", "--bind", storage / "below" / "site", point)
    devices.leaving.callback(run, "umount", "--lazy", point)
    return point


def rig_on(make_rig, point, **limits):
    (point / permission.MARKER).touch()
    rig = make_rig(
        target=point, limits={"case_files": 10_000, "case_bytes": "64 MiB", **limits}
    )
    rig.write_references(GENEROUS)
    return rig


@pytest.mark.needs_loop
@pytest.mark.needs_root
def test_what_lies_below_is_storage(devices, make_rig):
    # The device is the test's own: what others move there is a fault of the suite.
    run = rig_on(make_rig, bound(devices), max_foreign="10 %").run(*RANDOM_READ)
    assert run.record["verdict"] == "PASS", run.record["reason"]


# --- what a site declares and expects  ------------------------------------------------------------
DIRECT = ("-n", r"IorPosix%files=per-process%order=sequential%cache=direct$")


# --- cores ----------------------------------------------------------------------------------------


@pytest.mark.needs_ior
@pytest.mark.needs_root
def test_cores_that_are_not_there(make_rig):
    """Open MPI aborts; the case and the doctor say what to write."""
    cores = usable_cores()
    rig = make_rig(tools=("ior",), tasks=cores + 1)
    rig.declare(node={"cores": 2 * cores})
    run = rig.run(*DIRECT)
    assert run.record["verdict"] == "ERROR", run.out
    assert "Correct node.cores of the partition" in run.record["reason"]
    rig.assert_clean()
    doctor = rig.iogauge("check", IOGAUGE_TARGET=str(rig.target))
    text = " ".join(doctor.out.split())
    assert f"G15 nodes: a node has {cores} physical core(s)" in text
    assert f"Write into the partition's extras: node: {{cores: {cores}" in text


# --- what ReFrame or a launcher would pass over ---------------------------------------------------

FIO_128 = ("-n", "^FioRandomRead%block=128KiB$")


@pytest.mark.needs_ior
@pytest.mark.needs_root
def test_a_prepare_command_that_fails_ends_the_job(make_rig):
    """The job of ReFrame would go on, and measure with other software than is declared."""
    rig = make_rig()
    with rig.configured() as (_, environment):
        environment["prepare_cmds"] = ["true", ". '/none/it is.sh'"]
    run = rig.run(*FIO_128)
    run.never_passed(
        "ERROR: .*the prepare command of tools failed: [.] '/none/it is[.]sh'"
    )
    with rig.configured() as (_, environment):
        environment["prepare_cmds"] = ["true", ". '/none/it is.sh' || true"]
    assert rig.run(*FIO_128).records[-1]["verdict"] == "UNREFERENCED"


@pytest.mark.needs_ior
@pytest.mark.needs_root
@pytest.mark.skipif(
    shutil.which("modulecmd") is None, reason="no Environment Modules on PATH"
)
def test_a_module_that_the_job_has_not_loaded(make_rig, tmp_path):
    """A node may lack what the node of ReFrame has: there the shell's function "module" loads nothing."""
    files = tmp_path / "modules"
    (files / "storage").mkdir(parents=True)
    (files / "storage" / "1.0").write_text("#%Module\nsetenv STORAGE 1\n")
    (files / "storage" / ".version").write_text('#%Module\nset ModulesVersion "1.0"\n')
    rig = make_rig()
    data = rig.settings()
    (system,) = data["systems"]
    system["modules_system"] = "envmod"
    found = f'module() {{ eval "$(modulecmd bash "$@")"; }}; export MODULEPATH={files}'
    data["environments"][0] |= {"modules": ["storage"]}
    system["partitions"][0]["prepare_cmds"] = [found]
    rig.write_settings(data)
    assert rig.run(*FIO_128, MODULEPATH=str(files)).record["verdict"] == "UNREFERENCED"
    system["partitions"][0]["prepare_cmds"] = ['module() { [ "$1" = load ]; }']
    rig.write_settings(data)
    run = rig.run(*FIO_128, MODULEPATH=str(files))
    run.shows_no_pass()
    assert "has not loaded the module storage" in run.records[-1]["reason"]
