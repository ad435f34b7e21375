"""A bundle for a vendor: what is in it, what is not, and its commands, run by hand."""

import getpass
import hashlib
import io
import json
import os
import socket
import subprocess
import tarfile

import pytest

from iogauge_extras.page import bundle
from support import records

JOB = """#!/bin/bash
export OMPI_ALLOW_RUN_AS_ROOT=1
export IOG_DIR=/gone/iogauge/me/session/IorPosix
. '/some where/job.sh'
iog_prepare() {
    iog_phase facts-start iog_do facts "$IOG_DIR" facts-start
    iog_phase setstripe lfs setstripe -c 2 "$IOG_DIR"
}
iog_case() {
    [ "$IOG_REP" != 1 ] || iog_phase facts-before iog_do facts "$IOG_DIR" facts-before
    iog_reset
    iog_verify -G=1
    iog_phase write mpirun -np 2 sh '/some where/witness.sh' "$IOG_STAGE" "write.$IOG_REP" --sync "$IOG_DIR" ior -o "$IOG_DIR/data" -O "summaryFile=ior.$IOG_REP.json" "${IOG_VERIFY[@]}"
    iog_phase evict-read iog_do evict "$IOG_DIR" "evict-read.$IOG_REP"
    iog_phase read sh '/some where/witness.sh' "$IOG_STAGE" "read.$IOG_REP" fio read.fio
}
iog_open env PYTHONPATH=/some/src python -m iogauge.job.agent open case.json
iog_prepare
iog_repeat 0 1 iog_case
"""


def kept(state, record):
    """What ReFrame keeps of a case: its report, and a folder with the raw output."""
    place = state / "output" / "0"
    place.mkdir(parents=True)
    (place / "write.1.out").write_text("raw")
    (place / "rfm_job.sh").write_text(JOB)
    (place / "read.fio").write_text("[read]\n")
    (place / "data").write_bytes(b"\0\1")
    case = {
        "display_name": record.case,
        "partition": record.partition,
        "environ": record.environment,
        "stagedir": str(state / "gone"),
        "outputdir": str(place),
        "job_completion_time_unix": (place / "data").stat().st_mtime - 1,
    }
    (state / "reports").mkdir()
    report = state / "reports" / f"run-{record.session}.json"
    report.write_text(json.dumps({"runs": [{"testcases": [case]}]}))


def test_a_bundle_has_raw_outputs_commands_and_hashes_and_nothing_private(tmp_path):
    host, home = socket.gethostname(), os.path.expanduser("~")
    fingerprint = {"nodes": "oss-node[01-04]", "kernel": "6.1"}
    record = records.record("FAIL", fingerprint=fingerprint)
    kept(tmp_path, record)
    private = f"{host} {home}/x oss-node03 10.1.2.3 10.1.2.3 10.9.9.9 {host}er"
    (tmp_path / "output/0/write.1.out").write_text(private)
    files = bundle.contents(tmp_path, [record], f"<p>{host}</p>")
    (raw,) = (name for name in files if name.endswith("/write.1.out"))
    assert "/home/user/x" in files[raw] and files[raw].endswith(f"{host}er")
    assert files[raw].count("address1") == 2 and "address2" in files[raw]
    for text in ("10.1.2.3", home + "/", "oss-node03"):
        assert text not in "".join(files.values())
    assert (
        host not in files["page.html"] and getpass.getuser() not in files["page.html"]
    )
    with tarfile.open(fileobj=io.BytesIO(bundle.packed(files, "b"))) as tar:
        for member in tar.getmembers():
            data = tar.extractfile(member).read()
            name = member.name.removeprefix("b/")
            line = f"{hashlib.sha256(data).hexdigest()}  {name}\n"
            assert name == "SHA256SUMS" or line in files["SHA256SUMS"]
    assert bundle.packed(files, "b") == bundle.packed(files, "b")


@pytest.fixture
def unpacked(tmp_path):
    """A bundle of one case, unpacked; programs that note their words; a storage."""
    record = records.record("FAIL", nodes=1, tasks_per_node=2)
    kept(tmp_path, record)
    files = bundle.contents(tmp_path, [record], "")
    for name, text in files.items():
        (tmp_path / "b" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "b" / name).write_text(text)
    (tmp_path / "bin").mkdir()
    for name in ("ior", "fio", "lfs"):
        program = tmp_path / "bin" / name
        program.write_text(f'#!/bin/sh\necho "{name} $*" >>"{tmp_path}/words"\n')
        program.chmod(0o755)
    mpirun = tmp_path / "bin/mpirun"
    mpirun.write_text(f'#!/bin/sh\necho "$1 $2" >>"{tmp_path}/words"\nshift 2\n"$@"\n')
    mpirun.chmod(0o755)
    (tmp_path / "storage").mkdir()
    (tmp_path / "here").mkdir()
    return tmp_path


def by_hand(place, *words):
    """Run the commands; the page cache that they drop is not that of this machine, on which others rely."""
    private = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0"; exec "$@"']
    start = [*private, "/proc/sys/vm"] if os.getuid() == 0 else []
    return subprocess.run(
        [*start, "bash", place / "b/commands.sh", *words],
        cwd=place / "here",
        env={"PATH": f"{place / 'bin'}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_commands_run_by_hand_with_launcher_and_layout_and_leave_nothing(unpacked):
    done = by_hand(unpacked, unpacked / "storage", "1")
    assert (done.returncode, os.listdir(unpacked / "storage")) == (0, [])
    words = (unpacked / "words").read_text()
    directory = f"{unpacked}/storage/iogauge-bundle."
    assert words.startswith(f"lfs setstripe -c 2 {directory}")
    assert f"-np 2\nior -o {directory}" in words and "summaryFile=ior.1.json" in words
    assert words.count("fio read.fio") == 2 and "-G=1" not in words
    (results,) = (unpacked / "here").iterdir()
    assert (results / "read.fio").read_text() == "[read]\n"


@pytest.mark.parametrize(
    "words",
    [("", "1"), ("/", "1"), ("/nowhere", "1"), (".",), (".", "2"), (".", "1;id")],
)
def test_a_wrong_directory_or_case_is_refused_before_a_byte(unpacked, words):
    assert by_hand(unpacked, *words).returncode == 2
    assert not (unpacked / "words").exists()
    assert os.listdir(unpacked / "here") == []
