"""What users report in public: the figures of each report, in the form of our own recorded outputs.

A report is named by its place: ``hpc/ior#528`` is issue 528 of github.com/hpc/ior. It is right if the figure agrees with what the
report means, or if the refusal names what is wrong.
"""

import json
import re
from dataclasses import replace

import pytest

from iogauge.core.measurement import ToolOutputError
from iogauge.evidence import collect
from iogauge.node.kinds import kind_of
from iogauge.node.mounts import fsname_of, parse_mountinfo, upper_directory
from iogauge.tools.fio import fio_output as fio
from iogauge.tools.ior import ior_output as ior
from iogauge.tools.mdtest import parse as parse_mdtest
from iogauge_extras.darshan import log as darshan
from iogauge_extras.darshan.log_figures import of_log
from support import stage
from support.mdtest import ranks_of
from support.project import DATA


def sample(name):
    return (DATA / "samples" / name).read_text()


def refusal(parse, *given):
    """The words of a refusal, nothing if it is believed."""
    try:
        parse(*given)
    except ToolOutputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "figures, words",
    [
        ({"bwMiB": 0.0, "iops": 0.0}, "'bwMiB' is 0, expected a number above 0"),
        ({}, "does not give the"),
    ],
)
def test_seconds_since_the_epoch_are_no_duration(figures, words):
    """hpc/ior#528: 32 MiB by two tasks in 1751892628 s."""
    data = json.loads(sample("ior_wonly.json"))
    for entry in data["tests"][0]["Results"]:
        entry.update({"totalTime": 1751892628.3704, **figures})
    assert words in refusal(ior.parse_json, json.dumps(data))


# --- mdtest ---------------------------------------------------------------------------------------


def test_an_old_version_is_refused_by_its_own_word(tmp_path):
    """hpc/ior#183: its table can be read, but its figures are wrong; no file of the program tells the version."""
    table = sample("mdtest_base.stdout").replace("mdtest-4.0.0", "mdtest-3.2.0")
    plan = stage.plan()
    left = stage.build(tmp_path / "stage")
    old = replace(plan.repeat[0], parse=lambda _: parse_mdtest(table, ranks_of(table)))
    with pytest.raises(
        ToolOutputError, match=r"mdtest: version 3\.2\.0, and 4\.0\.0 or newer"
    ):
        collect.collect(left, replace(plan, repeat=[old, plan.repeat[1]]), 0)


# --- fio ------------------------------------------------------------------------------------------

EACH = ("io_bytes", "bw_bytes", "bw", "iops", "runtime", "total_ios", "N")
#: Reports, their version, what they say of their reads in the order above, and what a refusal says. Of #1575: all tasks over
#: the slowest one's time; fio's own mean over the time of each is 132163.
FIO = """
axboe/fio#672 3.7 627793988928 2630704652 2569047 41104846.023944 238641 9809301560 9809301560
axboe/fio#1627 3.28 3723602165760 12411965845 12121060 94695.784347 300001 28408830 28408830
axboe/fio#1575 3.32 402653184000 453555000 442924 110731.5 887769 98304000 98304000
axboe/fio#1383 3.29 1189014405120 19401710400 18946983 4736745.4 61284 290286720 290286720
axboe/fio#511 3.1 104857600 null 11155 2788.974834 9179 25600 null version 3.1, and 3.7 or newer
axboe/fio#378 3.37 1024 262144000 256000 250.0 4 1 1 'iops' times the mean I/O size
axboe/fio#233 3.37 577611776 985320448 962227 940.94 600286 564836 564836 the output is damaged
axboe/fio#1478 3.32 190013440 94958940 92733 23183.4 2001 46390 0 was told not to time
"""


@pytest.mark.parametrize("report", FIO.split("\n")[1:-1])
def test_fio(report):
    _, version, *figures = report.split(" ", 2 + len(EACH))
    words = figures.pop() if len(figures) > len(EACH) else ""
    told = dict(zip(EACH, map(json.loads, figures), strict=True))
    data = json.loads(sample("fio_randread.json"))
    data["fio version"] = f"fio-{version}"
    stats, samples = data["jobs"][0]["read"], told.pop("N")
    stats.update(told)
    for key in ("lat_ns", "clat_ns", "slat_ns"):
        stats[key]["N"] = samples
    said = refusal(fio.parse_json, json.dumps(data))
    assert words in said if words else said == "", said
    if not words:
        (read,) = fio.parse_json(json.dumps(data)).phases
        assert read.rates["bw"].value == pytest.approx(
            read.bytes_moved / read.seconds / 2**20, rel=1e-3
        )
        assert read.rates["iops"].value == pytest.approx(
            read.operations / read.seconds, rel=1e-3
        )


#: Recorded reports of each kind.
COUNTED = (
    "fio_file.json",
    "fio_randread.json",
    "fio_note.out",
    "fio_disturbed_342.json",
    "fio_one_server.json",
)


@pytest.mark.parametrize("name", COUNTED)
def test_a_count_of_every_kind_needs_its_samples(name):
    text = sample(name)
    assert refusal(fio.parse_json, text) == ""
    assert "but fio timed 1 of them" in refusal(
        fio.parse_json, re.sub(r'"N" : [1-9]\d*', '"N" : 1', text)
    )


@pytest.mark.parametrize("error", [5, 0])
def test_what_fio_says_before_its_json_is_kept(error):
    """axboe/fio#1685: a disk that does not read. With continue_on_error the job itself has no error."""
    said = "fio: io_u error on file /dev/sdb: Input/output error: read offset=184912257024, buflen=4096"
    data = json.loads(sample("fio_randread.json"))
    data["jobs"][0]["error"] = error
    text = f"{said}\n{json.dumps(data)}"
    if error:
        assert (
            f"failed with errno 5; its rates mean nothing; fio said: {said}"
            in refusal(fio.parse_json, text)
        )
    else:
        assert fio.parse_json(text).warnings == (said,)


# --- Darshan --------------------------------------------------------------------------------------

OMPIO = (DATA / "darshan" / "ompio-2-aggregators.txt").read_text()
IMPOSSIBLE = "counts or times what cannot be"


@pytest.mark.parametrize(
    "report, changes, note",
    [
        # Calls of stdio are among the sequential ones, and not among all.
        (
            "darshan-hpc/darshan#241",
            {"POSIX_WRITES": "1"},
            f"module POSIX {IMPOSSIBLE}",
        ),
        (
            "darshan-hpc/darshan#229",
            {"STDIO_F_WRITE_TIME": "-12.5"},
            f"module STDIO {IMPOSSIBLE}",
        ),
        ("darshan-hpc/darshan#800", {"POSIX_READS": "27", "POSIX_BYTES_READ": "0"}, ""),
        (
            "darshan-hpc/darshan#579",
            {"POSIX_MMAPS": "-1", "POSIX_RENAME_SOURCES": "-1"},
            "",
        ),
    ],
)
def test_counters_of_old_logs(report, changes, note):
    text = OMPIO
    for counter, value in changes.items():
        text = re.sub(rf"(?m)^(\S+\t\S+\t\S+\t{counter}\t)\S+", rf"\g<1>{value}", text)
    figures = of_log(report, darshan.parse(text))
    assert (note in " ".join(figures.notes)) if note else figures.notes == ()
    assert all(q.value <= 100 for q in figures.values.values() if q.unit == "%"), report
    assert ("sequential accesses" in figures.values) == ("#241" not in report)


@pytest.mark.parametrize(
    "report, pattern, instead, words",
    [
        (
            "darshan-hpc/darshan#4",
            "# nprocs: 4",
            "# nprocs: 0",
            "expected one task or more",
        ),
        (
            "darshan-hpc/darshan#995",
            r"(?s)^.*$",
            "Error: poorly formatted mount table in darshan log file.\n",
            "poorly formatted mount table",
        ),
    ],
)
def test_damaged_logs(report, pattern, instead, words):
    assert words in refusal(darshan.parse, re.sub(pattern, instead, OMPIO, count=1)), (
        report
    )


# --- mounts ---------------------------------------------------------------------------------------

#: Report, what the cache is, whether O_DIRECT is known to pass it by, and the line of mountinfo from its root on.
MOUNTS = """
apptainer/singularity#5235 page-cache passes / / rw,nodev unbindable - overlay overlay ro,lowerdir=/a:/b
apptainer/singularity#4876 page-cache passes / / rw shared:1 - overlay overlay rw,lowerdir=/tmp/os,upperdir=/tmp/w/o,workdir=/tmp/w/w
apptainer/singularity#4876 memory unknown / /tmp rw,relatime shared:7 - tmpfs /dev/sda4 rw
docs.weka.io/fs/mounting-filesystems opaque unknown / /mnt/weka rw shared:5 - wekafs demo rw,writecache,readahead_kb=32768
vastnfs.vastdata.com/docs/4.0/usage page-cache passes / /mnt rw - nfs 172.25.1.1:/ rw,vers=3,remoteports=172.25.1.1-172.25.1.32,addr=172.25.1.1
docs.ceph.com/mount.ceph page-cache passes / /mnt/c rw - ceph name@07fe3187-00d9-42a3-814b-72a4d5e7d5be.fs_name=/ rw,mon_addr=1.2.3.4
ceph/ceph-csi#3309 page-cache passes / /mnt rw - ceph 192.168.21.11,192.168.21.12,192.168.21.13:/ rw,mds_namespace=cephfs
saltstack/salt#39269 opaque unknown / /storage rw - fuse mfs#mfsmaster:9421 rw,allow_other,default_permissions
daos-stack/daos#7074 opaque unknown / /tmp/dfuse rw,nosuid,nodev - fuse.daos dfuse rw,user_id=0,group_id=0
ThinkParQ/beegfs#115 page-cache unknown / /mnt/b rw - beegfs beegfs_nodev rw,cfgFile=/etc/beegfs/beegfs-client.conf
"""


@pytest.mark.parametrize("told", MOUNTS.split("\n")[1:-1])
def test_what_a_mount_promises(told):
    report, cache, direct, line = told.split(" ", 3)
    (mount,) = parse_mountinfo(f"876 663 0:157 {line}\n")
    known = kind_of(mount.type)
    assert (known.cache, known.honours_o_direct) == (cache, direct == "passes"), report
    assert fsname_of(mount.source) == "*"
    assert upper_directory(mount) == ("/tmp/w/o" if "upperdir" in line else "")
