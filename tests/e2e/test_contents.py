"""What was written is there, and stays: the warm-up's check, and samples of the contents, on real file systems."""

import pytest

from e2e.rig import GENEROUS
from support.devices import run as system

pytestmark = [pytest.mark.needs_loop, pytest.mark.slow]

IOR = ("-n", "IorPosix%files=shared%order=sequential%cache=direct")
FIO = ("-n", "FioRandomRead%block=4KiB")
#: In the wrapper of a tool: the files of the case.
_FILES = (
    'shopt -s dotglob; for file in "$IOG_DIR"/*; do\n    size=$(stat -c %s "$file")\n'
)


@pytest.fixture
def rig(make_rig, devices):
    """Makes a rig on a file system of its own, with references that everything meets."""

    def make(kind, *tools, **fields):
        made = make_rig(
            target=devices.formatted(kind, mib=700) / "t",
            tools=tools or ("ior", "ior-mpiio"),
            **fields,
        )
        made.write_references(GENEROUS)
        return made

    return make


@pytest.mark.needs_ior
def test_zeros_between_write_and_read(rig):
    damaged = rig("ext4")
    damaged.program(
        "ior",
        f"case $rank$out in 0*read.1.json) {_FILES}"
        '    dd if=/dev/zero of="$file" bs=$size count=1 conv=notrunc,fsync status=none\ndone ;; esac\n'
        'exec "$real" "$@"',
    )
    run = damaged.run(*IOR)
    run.never_passed(
        "G8 contents: contents changed between write and read, repetition 1: data",
        "block is another",
    )
    assert run.record["verdict"] == "INVALID"


@pytest.mark.needs_ior
@pytest.mark.parametrize(
    "kind, damage",
    [
        ("ext4", 'truncate -s 0 "$file"; truncate -s "$size" "$file"'),
        pytest.param(
            "btrfs",
            'fallocate -p -o 65536 -l "$size" "$file"',
            marks=pytest.mark.nightly,
        ),
    ],
    ids=["sparse", "punched"],
)
def test_files_without_data(rig, kind, damage):
    damaged = rig(kind)
    damaged.damage("ior", "*write.1.json", f"{_FILES}    {damage}\ndone")
    run = damaged.run(*IOR)
    run.never_passed("G8 holes: .*hole")
    assert run.record["verdict"] == "INVALID"


@pytest.mark.needs_ior
def test_a_mount_that_compresses_is_declared_so_or_refused(rig):
    compressed = rig("btrfs", "ior", declared={"compresses": False})
    system("mount", "-o", "remount,compress=zstd", compressed.target.parent)
    compressed.run(*IOR).never_passed(
        "G18 data: data timestamp on .*, though the site declares target.compresses: false"
    )
    doctor = compressed.iogauge("check")
    assert "G18 data: data may be compressed" in " ".join(doctor.out.split()), (
        doctor.out
    )


@pytest.mark.needs_fio
def test_wrong_data_in_the_warm_up(rig):
    damaged = rig("ext4", "fio", tasks=1)
    damaged.damage(
        "fio",
        "fio-layout.0.json",
        f'{_FILES}    truncate -s 1M "$file"; truncate -s "$size" "$file"\ndone',
    )
    run = damaged.run(*FIO)
    run.never_passed(
        r"G8 verification: fio checked its data in the warm-up: randread: verify: .* at file .* offset [0-9]+"
    )
    assert run.record["verdict"] == "INVALID"
    damaged.assert_clean()
